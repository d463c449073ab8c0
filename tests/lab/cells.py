"""What the tests type into cells."""

from __future__ import annotations

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
LOAD = "%load_ext pooled_nb"


def toy(end_after: int = 60, delay: float = 0.02) -> str:
    """Load the magics, with a toy in place of the model: a real room over real links, its numbers aside.

    Parameters
    ----------
    end_after
        Tokens (letters, with the toy) after which it ends its answer.
    delay
        Seconds that a device computes for one lap.
    """
    return (
        "from tests.room.toy import ToyShard\n"
        "from pooled_nb.room import opening\n"
        f"opening.open_shard = lambda **_: ToyShard(end_after={end_after}, delay={delay})\n"
        f"{LOAD}"
    )
