"""Data channels at speed: aiortc's connections, tuned where that is known to work (DESIGN section 4).

The door. What stands behind it is loaded only where the verdict says so, and touches no connection but
those made here: who else uses aiortc in this process has it as it comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from aiortc import RTCPeerConnection

from pooled_nb.mesh.network import ConnectionStats
from pooled_nb.mesh.sctp.judge import Judge, Verdict
from pooled_nb.mesh.sctp.pin import SHOWN

if TYPE_CHECKING:
    from aiortc import RTCConfiguration

    from pooled_nb.mesh.sctp.window import Window

__all__ = ["SHOWN", "Verdict", "Windows", "peer_connection", "settle", "stats", "verdict"]


def _trial() -> str:
    from pooled_nb.mesh.sctp.trial import run

    return run()


_judge = Judge(_trial)


async def settle() -> Verdict:
    """Find the verdict, once in a process; awaited before the first connection is made. Never raises."""
    return await _judge.settle()


def verdict() -> Verdict:
    """What `settle` found; not tuned before that."""
    return _judge.verdict


def peer_connection(configuration: RTCConfiguration, window: Window | None = None) -> RTCPeerConnection:
    """Make a connection, tuned or stock as the verdict says.

    Parameters
    ----------
    window
        What it shares with the other connections to the same device (`Windows.of`).
    """
    if not verdict().tuned:
        return RTCPeerConnection(configuration)
    from pooled_nb.mesh.sctp.peer import Peer

    return Peer(configuration, window)


def stats(pc: RTCPeerConnection) -> ConnectionStats | None:
    """What its association counts; None where it is stock."""
    if not verdict().tuned:
        return None
    from pooled_nb.mesh.sctp.peer import Peer

    return pc.stats() if isinstance(pc, Peer) else None


class Windows:
    """The congestion windows of an endpoint's links: one for all connections to a device.

    Forgotten with the last connection that holds it.
    """

    def __init__(self) -> None:
        self._windows: WeakValueDictionary[str, Window] = WeakValueDictionary()

    def of(self, remote: str) -> Window | None:
        """The window of the link to a device; None where connections are stock, which share none."""
        if not verdict().tuned:
            return None
        from pooled_nb.mesh.sctp.window import Window

        found = self._windows.get(remote)
        if found is None:
            found = self._windows[remote] = Window()
        return found
