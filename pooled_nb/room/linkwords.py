"""One link in words, and which of a room's links makes it slow. Pure.

Only what says something is said: no loss of nothing, no queue of nothing, no bad moments that were none.
"""

from __future__ import annotations

from collections.abc import Iterable

from pooled_nb.room.core import DeviceLine

SPREAD, SPREAD_MS = 1.5, 20.0
"""A 95th percentile so many times the median, and so many ms above it, is worth a word."""
LOST = 0.005
"""Less than that is no news: a radio sends as much again by itself."""
WAITING = 256 * 1024
"""Bytes that wait on this device, below which they are the frame that is just going out."""
LOSS = 0.05
"""Of so many packets lost a room feels it: every other frame of a prompt waits for one that is sent again."""
FAR_MS = 250.0
"""A round trip from which on the network, not the model, sets the pace of most rooms."""
RESTLESS = 3.0
"""With a 95th percentile above `FAR_MS` and so many times the median, answers come in jerks."""
_PATHS = {"direct": "direct", "relayed": "relayed"}
_NEARER = {
    "relayed": "A relay that is nearer helps, or a network in which devices meet directly.",
    "": "A cable or a nearer access point helps.",
}


def parts(d: DeviceLine) -> list[str]:
    """``18 ms (at times 41)``, ``direct``, ``1.2 % lost``, ``4 connections``: what says something of it."""
    words = [trips(d), _PATHS.get(d.path, "")]
    if d.loss is not None and d.loss >= LOST:
        words.append(f"{percent(d.loss)} lost")
    if d.queued_bytes >= WAITING:
        words.append(f"{d.queued_bytes / 1e6:.1f} MB waiting")
    if d.wanted > d.stripes:
        words.append(f"{d.stripes + 1} of {d.wanted + 1} connections")
    elif d.stripes:
        words.append(f"{d.stripes + 1} connections")
    return [word for word in words if word]


def trips(d: DeviceLine) -> str:
    """``18 ms``, ``18 ms (at times 41)``; empty until one was measured."""
    if d.rtt_ms is None:
        return ""
    unsteady = d.rtt_p95_ms is not None and d.rtt_p95_ms >= max(SPREAD * d.rtt_ms, d.rtt_ms + SPREAD_MS)
    return f"{ms(d.rtt_ms)} ms (at times {ms(d.rtt_p95_ms)})" if unsteady else f"{ms(d.rtt_ms)} ms"


def slowest(devices: Iterable[DeviceLine]) -> DeviceLine | None:
    """The one device whose link makes answers slower; None: no link does, or not by much.

    Of those that hold layers, seen from one that holds some: only their links carry every token.
    """
    devices = list(devices)
    if not any(d.me and d.layers is not None for d in devices):
        return None
    chain = [d for d in devices if not (d.me or d.gone or d.silent_s) and d.layers is not None]
    weak = [d for d in chain if short(d)]
    return max(weak, key=lambda d: (_loses(d), d.loss or 0.0, d.rtt_p95_ms or d.rtt_ms or 0.0), default=None)


def short(d: DeviceLine) -> str:
    """What is wrong with its link, in a word or two; empty: nothing."""
    if _loses(d):
        return f"{percent(d.loss or 0.0)} lost"
    if _restless(d):
        return "restless link"
    return "slow link" if (d.rtt_ms or 0.0) >= FAR_MS else ""


def why_slow(d: DeviceLine, name: str) -> str:
    """The same in sentences, with what helps. ``name``: as it may be shown."""
    nearer = _NEARER.get(d.path, _NEARER[""])
    if _loses(d):
        return f"{percent(d.loss or 0.0)} of the packets to {name} are lost, so answers are slower. {nearer}"
    if _restless(d):
        times = f"{ms(d.rtt_ms or 0.0)} ms, and at times {ms(d.rtt_p95_ms or 0.0)} ms"
        return f"A round trip to {name} takes {times}, so answers come in jerks. {nearer}"
    helps = _NEARER["relayed"] if d.path == "relayed" else "Devices that are nearer are faster."
    return f"A round trip to {name} takes {ms(d.rtt_ms or 0.0)} ms, and every token waits for it. {helps}"


def ms(milliseconds: float | None) -> str:
    """Its digits: ``6.2``, ``24``."""
    milliseconds = milliseconds or 0.0
    return f"{milliseconds:.1f}" if milliseconds < 10 else f"{milliseconds:,.0f}"


def percent(share: float) -> str:
    """``1.2 %``, ``8 %``."""
    return f"{100 * share:.3g} %"


def _loses(d: DeviceLine) -> bool:
    return d.loss is not None and d.loss >= LOSS


def _restless(d: DeviceLine) -> bool:
    return (
        d.rtt_ms is not None and d.rtt_p95_ms is not None and d.rtt_p95_ms >= max(FAR_MS, RESTLESS * d.rtt_ms)
    )
