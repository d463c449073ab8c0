"""What a device says that is asked for pieces of the room's model (PROTOCOL sections 2 and 6).

Model weights never cross a relayed link: a relay is somebody's, and carries gigabytes for nobody. This
version serves none over a direct link either, so that every question is answered with a miss and the other
device loads from the network; `may_serve` is the rule that holds once it does.
"""

from __future__ import annotations

import logging

from pooled_nb.mesh.listener import LinkFacts
from pooled_nb.mesh.messages.weights import Wget, Wpart
from pooled_nb.mesh.network import Path

log = logging.getLogger(__name__)


def may_serve(path: Path, *, relay_configured: bool) -> bool:
    """Whether weights may cross a link at all.

    Parameters
    ----------
    path
        What is known of the link's nominated pair.
    relay_configured
        Whether this device has a relay that its links may run over: then what is not known to be direct
        counts as relayed.
    """
    return path == "direct" or (path == "unknown" and not relay_configured)


def answer(asked: Wget, link: LinkFacts | None, *, relay: bool) -> Wpart:
    """What to say to who asked, over this link; ``relay``: as ``relay_configured`` of `may_serve`."""
    path: Path = link.path if link else "unknown"
    if not may_serve(path, relay_configured=relay):
        log.debug("weights were asked for over a link that is %s: a relay carries none", path)
    return Wpart(id=asked.id, miss=True)
