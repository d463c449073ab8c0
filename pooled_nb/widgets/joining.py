"""The line that lets another device join, as a room's panel shows it. Pure."""

from __future__ import annotations

import ipaddress

from pooled_nb.errors import SignalingDown
from pooled_nb.mesh import specs
from pooled_nb.mesh.codes import shown
from pooled_nb.room.core import Status
from pooled_nb.widgets.formats import line


def code(status: Status) -> str:
    """``4TK-G9P``."""
    return shown(line(status.code, 20))


def join(status: Status) -> str:
    """The line to type elsewhere, never with a key; none where nobody can join any more."""
    if status.state == "closed" or not status.code:
        return ""
    server = line(status.signaling, 200)
    rest = f" --signal {server}" if server and not _on_this_machine(server) else ""
    return f"%pooled join {code(status)}{rest}"


def _on_this_machine(server: str) -> bool:
    """Whether that signaling server is found here without being named."""
    try:
        found = specs.parse(server)
    except SignalingDown:
        return True
    if found.kind == "local" or found.host == "localhost" or found.host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(found.host).is_loopback
    except ValueError:
        return False
