"""Why a lap brought nothing: something was wrong, or it was only lost (PROTOCOL sections 5 and 8)."""

from __future__ import annotations

from pooled_nb.errors import PooledError

AGAIN = "Ask again."
LINK, FRAME = "link", "frame"
LOST = {
    LINK: "the link to the next device is gone",
    FRAME: "a frame before this one was lost on the way",
}
"""``lost`` of an ``ai-error`` (section 6): nothing is wrong with the frame, and it is computed again. How a
worker says it in words."""


class LapFailed(PooledError):
    """A lap brought nothing. The caches of the chain no longer count; the next frame resets them.

    Plain, it costs the answer: what came back was wrong, or a device refused what it was sent.

    Attributes
    ----------
    why
        What happened, as part of a sentence.
    """

    def __init__(self, why: str, then: str = AGAIN) -> None:
        self.why = why.rstrip(".")
        super().__init__(f"The answer stopped: {self.why}.", then)


class LapLost(LapFailed):
    """A lap did not come back, and nothing was wrong with it: the answer waits, and goes on."""
