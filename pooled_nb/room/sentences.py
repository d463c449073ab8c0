"""The state of a room in words: what is so, then what to do next. Layers count from 1 here."""

from __future__ import annotations

import re
from collections.abc import Sequence

EXACT_ROOM = "This room is exact, and stays so. A fast one is opened with %pooled host --fast."
"""To who wishes for speed where the promise of equal tokens holds already."""
HOST_CHOOSES = (
    "The answer is as exact as the host opened the room. A fast one is opened with %pooled host --fast."
)
"""To a guest who wishes for speed."""
DRAFTS = {"model": "drafts by a small model", "layers": "drafts by the model's own layers"}
"""What guesses tokens ahead, besides text that stands there already: the words for `Status.drafts`."""


THROWN_OUT = "Ask its host before you join again."
"""What a device hears that is thrown out, after the words that it was."""
HOST_STARTS = "The room has not started, and here only its host starts it. Ask the host, then ask again."
"""To a guest whose question starts nothing."""
CLOSING = "Closing once the running answer has ended. %pooled close does it at once."
"""A host that leaves politely, to its own person."""
DEALS_AGAIN = "The room deals again; the answer goes on over the devices that are here."
"""What an answer waits for while layers are loaded."""


QUANT = {"int8-row": "int8 weights", "int4-g128": "int4 weights"}
"""How linear weights are kept: the words for `Status.quant`, by the class that the wire names."""


def not_started(*, again: bool) -> str:
    """What comes before the reason of a start that did not work."""
    return "The new deal did not work:" if again else "The room did not start:"


def layer_range(lo: int, hi: int) -> str:
    """``[lo, hi)`` as people read it: ``1–10``, or ``7`` for one layer."""
    return f"{lo + 1}–{hi}" if hi - lo > 1 else f"{lo + 1}"


def layers_of(lo: int, hi: int) -> str:
    """``layers 1–10``, or ``layer 7``."""
    return f"layer{'s' if hi - lo > 1 else ''} {layer_range(lo, hi)}"


def listed(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    names = list(names)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""


def opened(others: int, *, is_host: bool) -> str:
    """Nothing is loaded yet."""
    if not is_host:
        return "In the room; nothing is loaded yet. Ask, and the room starts."
    if others == 0:
        return "Only you are here. Others join with the code; or ask, and this device answers alone."
    devices = "1 other device is" if others == 1 else f"{others} other devices are"
    return f"Ready to start: {devices} here. Ask, or start the room."


def _class(quant: str) -> str:
    return f" Answers are exact among devices of this class ({quant}), and differ from 16-bit ones."


def online(names: Sequence[str], *, one_sig: bool, exact: bool, kv: str = "f16", quant: str = "") -> str:
    """The model is loaded; which promise about bits holds (DESIGN section 5, rule 5), and in which class.

    Parameters
    ----------
    kv
        How caches are kept, as in ``ai-load``.
    quant
        The class of its weights, as in ``ai-load``; empty: they are as they are.
    """
    forms = [QUANT[quant]] if quant in QUANT else []
    forms += ["caches in int8"] if kv == "q8" else []
    small = f" with {listed(forms)}" if forms else ""
    other = _class(quant) if quant in QUANT and exact else ""
    where = (
        f"Online on {names[0]}, which holds every layer"
        if len(names) == 1
        else f"Online over {listed(names)}"
    )
    if len(names) > 1 and exact and one_sig:
        return f"{where}. The text is the same as one device alone would give{small}.{other}"
    where = f"{where}{small and f',{small}'}."
    if len(names) == 1:
        return f"{where}{other}"
    if not exact:
        return f"{where} Fast mode: the text may differ from another split's."
    return f"{where} The devices compute different bits: text is the same for this split, not another."


def gone(name: str, layers: tuple[int, int], *, left: bool, kicked: bool = False) -> str:
    """A chain device is gone."""
    what = "was taken out" if kicked else "left" if left else "dropped"
    return f"{name} {what}; {_missing([layers])}."


def several_gone(names: Sequence[str], layers: Sequence[tuple[int, int]]) -> str:
    """Several chain devices are gone."""
    return f"{listed(names)} are gone; {_missing(layers)}."


def _missing(layers: Sequence[tuple[int, int]]) -> str:
    ranges = listed([layer_range(*r) for r in layers])
    one = sum(hi - lo for lo, hi in layers) == 1
    return f"layer {ranges} is missing" if one else f"layers {ranges} are missing"


def away(names: Sequence[str]) -> str:
    """Links to chain devices broke; they may come back."""
    links = "The link" if len(names) == 1 else "The links"
    return f"{links} to {listed(names)} broke; the room waits for {'it' if len(names) == 1 else 'them'}."


def returning(names: Sequence[str]) -> str:
    """Chain devices came back, and are not ready yet."""
    one = len(names) == 1
    return f"{listed(names)} {'is' if one else 'are'} back; the room waits until {_it(one)} its layers again."


def _it(one: bool) -> str:
    return "it holds" if one else "each holds"


def relinking(names: Sequence[str]) -> str:
    """A link between workers is gone, and is made again."""
    return f"The link between {listed(names)} is gone; they make a new one."


def unlinked(before: str, after: str) -> str:
    """A link between workers did not come to be again."""
    return f"The link between {before} and {after} is gone."


def stalled(name: str, seconds: float) -> str:
    """A device that came back loads, and nothing moves."""
    return f"{name} came back, and has loaded nothing for {seconds:.0f} s."


def stopped_responding(name: str, silent_s: int, patience_s: int) -> str:
    """A device of the chain says nothing while an answer runs (PROTOCOL section 8)."""
    return f"{name} stopped responding; waiting for it, {silent_s} of {patience_s} s (Stop gives up)."


def degraded_here(why: str, *, auto: bool, heals: bool, trouble: str) -> str:
    """A room that lost something of its deal, to its host's person.

    ``auto``: it deals again by itself; ``heals``: who was missing is back, and the room waits only for its
    layers or links; ``trouble``: why the newest attempt to deal without did not work.
    """
    if heals:
        return why
    if trouble:
        return trouble
    if auto:
        return f"{why} The room deals again by itself over the devices here, or now: %pooled redeal."
    return f"{why} Start the room again to deal over the devices here: %pooled redeal."


def degraded_there(why: str, *, auto: bool, heals: bool = False) -> str:
    """The same to everybody else: only the host can start a room."""
    if heals:
        return why
    return f"{why} {'The room deals again by itself.' if auto else 'The host can start the room again.'}"


GOING_ON = "Going on:"
"""How a host that was restarted begins to say whom it waits for."""
CANNOT_GO_ON = "The room cannot go on yet:"
"""What comes before the reason where those who are back cannot hold the model."""
DEALS = "The room deals again over the devices here."
"""When it does so by itself."""
WHOLE = "The room is whole again."
"""After a sentence that it was not."""


def going_on(back: int, of: int, seconds: float) -> str:
    """A host that was restarted waits for those who held layers."""
    held = "device that held layers is" if of == 1 else "devices that held layers are"
    return f"{GOING_ON} {back} of {of} {held} back, waiting up to {seconds:.0f} s."


def going_on_for(name: str, seconds: float) -> str:
    """It waits for who was being answered."""
    return f"{GOING_ON} waiting up to {seconds:.0f} s for {name}, whose answer was under way."


def not_without(names: Sequence[str], why: str) -> str:
    """Devices want memory back that the room cannot do without."""
    return f"{listed(names)} cannot be let go: {why}"


def first(text: str) -> str:
    """The first sentence of an error, without its full stop: what happened, without the next step."""
    return _sentences(text)[0].rstrip(".")


def rest(text: str) -> str:
    """What follows the first sentence of an error: what to do next, in its device's words."""
    return "".join(_sentences(text)[1:])[:300]


def _sentences(text: str) -> list[str]:
    """The first sentence, and what follows it."""
    return re.split(r"(?<=[.!?]) ", " ".join(text.split()), maxsplit=1)


def size(n: float) -> str:
    """So many bytes for people: ``1.84 TB``, ``12.3 GB``, ``45 MB``."""
    if n >= 999.5e9:
        return f"{n / 1e12:.3g} TB" if n < 999.5e12 else f"{n / 1e12:,.0f} TB"
    if n >= 0.1e9:
        return f"{n / 1e9:.3g} GB"
    return f"{n / 1e6:.3g} MB" if n >= 0.1e6 or n <= 0 else "less than 0.1 MB"
