"""Where a prompt's system turn ends: its state is kept for the chats that come (PROTOCOL section 7)."""

from __future__ import annotations

import logging

from pooled_nb.errors import PooledError
from pooled_nb.shard import Prompt, Shard, Turn

log = logging.getLogger(__name__)


async def system_end(shard: Shard, turns: list[Turn], prompt: Prompt) -> int:
    """How many of the prompt's tokens come before its first question, whatever that is.

    Two questions after one system turn begin with the same tokens: those are it, however the template writes
    it and wherever the tokenizer draws the line. It is only where a frame is cut: what a checkpoint really is
    good for is decided by its own tokens.

    Returns
    -------
    int
        0 where there is no system turn, or nothing in common.
    """
    if len(turns) < 2 or turns[0].role != "system":
        return 0
    other = "-" if turns[1].text[:1] != "-" else "="
    try:
        probe = await shard.render([turns[0], Turn(role="user", text=other)])
    except Exception as error:  # it only saves time later: no answer fails for it
        if not isinstance(error, PooledError):
            log.exception("a system prompt could not be rendered alone")
        return 0
    pairs = zip(prompt.ids, probe.ids, prompt.generated, probe.generated, strict=False)
    same = enumerate(a == b and not (c or d) for a, b, c, d in pairs)
    return next((i for i, alike in same if not alike), 0)
