import pytest

from pooled_nb.room.core import Stats
from pooled_nb.room.ending import Limits, describe, refusal, words


@pytest.mark.parametrize(
    ("generated", "end", "stopped", "reason"),
    [
        (1, False, False, None),
        (1, True, False, "stop"),
        (1, False, True, "abort"),
        (33, False, False, None),
        (34, False, False, "ctx"),
        (34, True, False, "stop"),
    ],
)
def test_an_answer_ends_at_the_context(generated: int, end: bool, stopped: bool, reason: str | None) -> None:
    """PROTOCOL section 7: an answer ends at ``ctx``, and says so. CASES: 64, prompt 30, asked 400."""
    assert Limits(30, 64, 400).after(generated, end=end, stopped=stopped) == reason


def test_an_answer_ends_at_its_length() -> None:
    """PROTOCOL section 7: ``capped``."""
    assert Limits(10, 4096, 5).after(5, end=False, stopped=False) == "max"


def test_the_words_of_an_end() -> None:
    """CASES: it says "context full (64 tokens)"."""
    assert words("ctx", 64, 34) == "context full (64 tokens)"
    assert words("stop", 64, 34) == ""


def test_a_prompt_that_leaves_under_32_is_refused() -> None:
    """PROTOCOL section 7: a prompt over ``ctx − 32`` tokens is refused, never trimmed."""
    assert refusal(32, 64) is None
    why = refusal(33, 64)
    assert why is not None
    assert "33 tokens" in why


def test_tokens_per_second_leave_the_first_aside() -> None:
    """mock/README: tokens per second after the first."""
    assert Stats(tokens=11, ms=1_500, first_ms=500).tps == 10
    assert Stats(tokens=1, ms=1_500, first_ms=1_500).tps == 0


def test_what_an_answer_waited_is_said_apart() -> None:
    """PROTOCOL section 8: waiting for a device makes no room look slow."""
    stats = Stats(tokens=11, ms=1_500, first_ms=500)
    assert (
        describe(stats, "", 11, waited=61.7) == "11 tokens · 10.0 tokens/s · first after 0.5 s · waited 62 s"
    )
    assert (
        describe(stats, "stopped", 11, waited=0.4)
        == "11 tokens · 10.0 tokens/s · first after 0.5 s · stopped"
    )
