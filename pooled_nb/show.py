"""How a room and an answer look in text, Markdown and HTML. Layers are shown from 1, both ends included.

What a model or another device wrote is text, never markup nor a terminal's command: HTML is escaped,
control characters are dropped, and an answer's Markdown is shown without raw HTML and without images,
which would fetch something when looked at.
"""

from __future__ import annotations

import ipaddress
from html import escape
from typing import TYPE_CHECKING

from pooled_nb import door_text, download_text, plain
from pooled_nb.errors import SignalingDown
from pooled_nb.mesh import specs
from pooled_nb.mesh.codes import shown
from pooled_nb.room import linkwords
from pooled_nb.room.sentences import DRAFTS, QUANT, layer_range, listed
from pooled_nb.settings_text import WHO

if TYPE_CHECKING:
    from pooled_nb.room.core import DeviceLine, Reason, Stats, Status

_ENDED: dict[str, str] = {
    "stop": "",
    "max": "stopped at its length",
    "ctx": "context full",
    "abort": "stopped",
    "error": "",
}
"""Of an answer that failed, a sentence tells why, and that once."""
_OUT: dict[str, str] = {
    "unneeded": "not needed",
    "small": "lends too little for a layer",
    "late": "joined after the start",
}
"""Why a device holds no layers: the words of PROTOCOL section 6, and as people read it."""


def answer_line(reason: Reason | None, stats: Stats, *, hidden: bool = False) -> str:
    """One line under an answer: ``57 tokens · 18.2 tokens/s``, and why it ended where that is not plain.

    Of a ``hidden`` one the room tells this device no word (PROTOCOL section 7, `ai-visibility`).
    """
    parts = [f"{stats.tokens} token{'s' if stats.tokens != 1 else ''}"] if stats.tokens else []
    if stats.tps:
        parts.append(f"{stats.tps:.1f} tokens/s")
    if stats.drafted:
        parts.append(f"{stats.accepted} of {stats.drafted} drafts right")
    if reason and _ENDED[reason]:
        parts.append(_ENDED[reason])
    if hidden:
        parts.append("shown on the host's screen only")
    return " · ".join(parts)


def answer_markdown(text: str, line: str, why: str = "") -> str:
    """The answer's Markdown, harmless wherever it is rendered; below it why it is not whole, and its line."""
    foot = [f"*{plain.literal(why)}*"] if why else []
    foot += [f"*{line}*"] if line else []
    return "\n\n".join(part for part in (plain.markdown(text), *foot) if part)


def answer_bundle(text: str, line: str, why: str = "") -> dict[str, str]:
    """An answer for a notebook: what is saved reads well without a kernel."""
    from markdown_it import MarkdownIt  # 20 ms, and only where something is shown

    text, why = plain.visible(text), plain.visible(why)
    body = MarkdownIt("commonmark", {"html": False}).disable("image").render(text)
    body += f"<p><em>{escape(why)}</em></p>" if why else ""
    body += f"<small>{escape(line)}</small>" if line else ""
    return {
        "text/plain": "\n\n".join(part for part in (text, why, line) if part),
        "text/markdown": answer_markdown(text, line, why),
        "text/html": body,
    }


def _name(device: DeviceLine) -> tuple[str, str]:
    """Its name, which others chose, and what we say of it."""
    return plain.visible(device.name), " (this device)" if device.me else ""


def _cells(device: DeviceLine) -> list[str]:
    name, note = _name(device)
    if device.asks and not device.gone:
        what = (
            f"layers {layer_range(*device.layers)}, asks its person" if device.layers else "asks its person"
        )
    elif device.layers is not None:
        loads = device.progress is not None and device.progress < 100 and not device.gone
        what = f"layers {layer_range(*device.layers)}{f', loading {device.progress} %' if loads else ''}"
    elif device.progress is not None:
        what = f"loading {device.progress} %"
    else:
        what = f"none: {_OUT[device.out]}" if device.out in _OUT else "none"
    lends = "" if device.gone else f"{device.lends_gb:.1f} GB" if device.lends_gb else "nothing"
    return [plain.isolated(name) + note, device.role, what, lends, _link(device)]


def _link(device: DeviceLine) -> str:
    """How it is reached; of one that is waited for, since when it is silent (PROTOCOL section 8)."""
    if device.me:
        return ""
    if device.gone:
        return "gone, its layers are missing" if device.layers is not None else "gone"
    if device.silent_s:
        limit = f" of {device.patience_s}" if device.patience_s else ""
        return f"stopped responding, {device.silent_s}{limit} s"
    return " · ".join(linkwords.parts(device))


_HEAD = ["device", "role", "holds", "lends", "link"]


def _title(status: Status) -> str:
    return f"Room {shown(status.code)}" if status.code else "Room"


def _facts(status: Status) -> str:
    parts = []
    if status.model:
        parts.append(status.label or status.model)
    if status.layers:
        parts.append(f"{status.layers} layers")
    if status.ctx and status.state != "closed":
        parts.append(f"{status.used:,} of {status.ctx:,} tokens used")
    if status.model and not status.exact:
        parts.append("fast mode, not exact")
    if status.model and status.kv == "q8":
        parts.append("caches in int8")
    if status.model and status.quant in QUANT:
        parts.append(f"{QUANT[status.quant]} ({status.quant}), other text than with 16-bit ones")
    if guesses := DRAFTS.get(status.drafts):
        parts.append(guesses)
    if status.waiting:
        parts.append(f"{status.waiting} waiting")
    return " · ".join(parts)


def _runs(status: Status) -> str:
    """What this device's own layers run on, and how."""
    over = status.state in ("loading", "closed")
    return f"Computes here: {status.runs}" if status.runs and not over else ""


def _chat(status: Status) -> str:
    """What is common, and who sees it."""
    return WHO.get(status.settings.visibility, "") if status.model and status.state != "closed" else ""


def how_to_join(status: Status) -> str:
    """The exact lines to type elsewhere."""
    code, server = shown(status.code), status.signaling
    here = not server or _on_this_machine(server)
    rest = code if here else f"{code} --signal {server}"
    where = "On this machine" if here else "Elsewhere"
    return f"{where}: %pooled join {rest} in a notebook, pooled-nb join {rest} in a terminal."


def _on_this_machine(server: str) -> bool:
    """Whether only this machine reaches that signaling server."""
    try:
        host = specs.parse(server).host
    except SignalingDown:
        return False
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _invites(status: Status) -> str:
    hosts = any(device.me and device.role == "host" for device in status.devices)
    return how_to_join(status) if hosts and status.state == "open" else ""


def _recovers(status: Status) -> str:
    """Whom it waits for, and when it deals again by itself, where the room's sentence does not say so."""
    parts = []
    names = [plain.isolated(plain.visible(name)) for name in status.waits_for]
    if names and not all(name in status.sentence for name in status.waits_for):
        parts.append(f"Waits for {listed(names)}.")
    if status.redeal_in is not None and f"in {status.redeal_in} s" not in status.sentence:
        parts.append(f"Deals again by itself in {status.redeal_in} s.")
    return " ".join(parts)


def _slow(status: Status) -> str:
    """Which link makes answers slower, and what helps; of a room in which they come."""
    weak = linkwords.slowest(status.devices) if status.state in ("online", "answering") else None
    return linkwords.why_slow(weak, plain.isolated(plain.visible(weak.name))) if weak is not None else ""


def _more(status: Status) -> list[str]:
    open_ = status.state != "closed"
    # Of one that waits the sentence says enough, mostly.
    told = [line for line in status.lobby if len(status.lobby) > 1 or line.note]
    asking = [door_text.asks(line) for line in told] if open_ else []
    known = door_text.trust(status.trust, status.digits) if open_ else ""
    waits = _recovers(status) if open_ else ""
    own = download_text.here(status)
    facts = (_facts(status), _runs(status), _slow(status))
    parts = (*own, waits, _invites(status), *asking, known, *facts, _chat(status))
    return [text for text in parts if text]


def entered(status: Status) -> str:
    """What is so right after a room was opened or joined, and how far its host is known."""
    return " ".join(part for part in (status.sentence, door_text.trust(status.trust, status.digits)) if part)


def status_text(status: Status) -> str:
    """The room for a terminal."""
    from rich.cells import cell_len  # as wide as a terminal draws it

    rows = [_HEAD, *map(_cells, status.devices)] if status.devices else []
    widths = [max(cell_len(row[i]) for row in rows) for i in range(len(_HEAD))] if rows else []
    table = [
        "  ".join(
            cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
    lines = [f"{_title(status)}: {status.sentence}", *_more(status), *table]
    return plain.visible("\n".join(line for line in lines if line))


def status_markdown(status: Status) -> str:
    """The room as a Markdown table."""
    lines = [f"**{_title(status)}** · {plain.literal(status.sentence)}"]
    lines += [line for text in _more(status) for line in ("", plain.literal(text))]
    if status.devices:
        lines += ["", "| " + " | ".join(_HEAD) + " |", "|" + " --- |" * len(_HEAD)]
        lines += ["| " + " | ".join(map(plain.literal, _cells(device))) + " |" for device in status.devices]
    return "\n".join(lines)


def status_html(status: Status) -> str:
    """The room as an HTML table; colours and fonts are the page's own."""

    def row(tag: str, cells: list[str]) -> str:
        inside = "".join(
            f"<{tag} style='text-align:left;white-space:nowrap'>{cell}</{tag}>" for cell in cells
        )
        return f"<tr>{inside}</tr>"

    def cells(device: DeviceLine) -> list[str]:
        name, note = _name(device)
        return [f"<bdi>{_text(name)}</bdi>{note}", *map(_text, _cells(device)[1:])]

    rows = "".join(row("td", cells(device)) for device in status.devices)
    head = row("th", _HEAD)
    table = f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>" if status.devices else ""
    more = "".join(f"<br>{_text(text)}" for text in _more(status))
    return f"<div><strong>{_text(_title(status))}</strong> · {_text(status.sentence)}{more}{table}</div>"


def status_bundle(status: Status) -> dict[str, str]:
    """The room for a notebook."""
    return {
        "text/plain": status_text(status),
        "text/markdown": status_markdown(status),
        "text/html": status_html(status),
    }


def line_bundle(text: str) -> dict[str, str]:
    """One line, as it stands."""
    text = plain.visible(text)
    return {"text/plain": text, "text/html": f"<div style='white-space:pre-wrap'>{escape(text)}</div>"}


def _text(text: str) -> str:
    return escape(plain.visible(text))
