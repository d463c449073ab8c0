"""What a device asks before it downloads much, and what may be said to it. Pure."""

from __future__ import annotations

from pooled_nb.room.core import Status
from pooled_nb.room.weights.ask import DownloadAsk

ANSWERS = {"allow": True, "refuse": False}
"""As it is typed."""
SAID = {True: "It downloads.", False: "Nothing is downloaded."}
NOTHING = "This device asks for no download now."
NOBODY = (
    "Nobody can answer here: set POOLED_MAX_DOWNLOAD to the GB that a room may make this device download, or "
    "fetch the model ahead with pooled-nb models pull."
)


HOW = "%pooled download allow, or %pooled download refuse."


def asks(ask: DownloadAsk) -> str:
    """The question, and how it is answered."""
    return f"{ask.text} {HOW}"


def here(status: Status) -> list[str]:
    """What this device fetches, gave, and cannot vouch for: a sentence each."""
    if status.state == "closed":
        return []
    does = f"This device: {status.loading}." if status.loading and status.asks is None else ""
    return [text for text in (HOW if status.asks else "", does, status.unverified, status.given) if text]
