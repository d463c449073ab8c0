from pooled_nb.mesh.frame import Encoding, Frame, Kind
from pooled_nb.room.laps import Laps, Verdict


def frame(kind: Kind, pos: int, n: int = 1, *, epoch: int = 0, last: bool = False) -> Frame:
    return Frame(kind, pos, n, b"", Encoding.F32, epoch=epoch, last=last)


def test_returns_answer_the_oldest_lap() -> None:
    """PROTOCOL section 5: frames come back in order; the return has the kind that answers what came."""
    laps = Laps()
    a = laps.sent(frame(Kind.HIDDEN_B, 0, 32, last=True), prefill=True, now=0)
    b = laps.sent(frame(Kind.HIDDEN_B, 32, 4, last=True), prefill=True, now=0)
    assert laps.returned(frame(Kind.RET_B, 31), 1) == (Verdict.ANSWER, a)
    assert laps.returned(frame(Kind.RET_B, 35), 1) == (Verdict.ANSWER, b)
    assert len(laps) == 0


def test_a_return_of_another_epoch_is_dropped() -> None:
    """PROTOCOL section 5: the host raises the epoch at every reset and failure; others are dropped."""
    laps = Laps()
    laps.sent(frame(Kind.HIDDEN, 5), prefill=False, now=0)
    laps.raise_epoch()
    assert len(laps) == 0
    laps.sent(frame(Kind.HIDDEN, 0, epoch=1), prefill=False, now=0)
    assert laps.returned(frame(Kind.RET, 5, epoch=0), 1)[0] is Verdict.STALE
    assert laps.returned(frame(Kind.RET, 0, epoch=1), 1)[0] is Verdict.ANSWER
    for _ in range(255):
        laps.raise_epoch()
    assert laps.epoch == 0, "one byte: it wraps"
    laps = Laps(256 + 7)
    laps.raise_epoch()
    assert laps.epoch == 8, "they go on from those of the chain before"


def test_a_wrong_return_is_named() -> None:
    """PROTOCOL section 5: a return that answers nothing fails the laps."""
    laps = Laps()
    laps.sent(frame(Kind.HIDDEN, 5), prefill=False, now=0)
    for wrong in (frame(Kind.RET, 6), frame(Kind.RET_B, 5), frame(Kind.RET, 5, 2)):
        assert laps.returned(wrong, 1)[0] is Verdict.WRONG
    assert laps.returned(frame(Kind.RET, 5), 1)[0] is Verdict.ANSWER
    assert laps.returned(frame(Kind.RET, 5), 1)[0] is Verdict.STALE, "nothing is under way"


def test_a_return_of_a_later_lap_says_that_one_was_lost() -> None:
    """PROTOCOL section 5: frames come in order, so nothing is wrong with it: the laps are lost."""
    laps = Laps()
    laps.sent(frame(Kind.HIDDEN_B, 0, 32, last=True), prefill=True, now=0)
    laps.sent(frame(Kind.HIDDEN_B, 32, 4, last=True), prefill=True, now=0)
    assert laps.returned(frame(Kind.RET_B, 35), 1)[0] is Verdict.MISSED
    assert laps.returned(frame(Kind.RET_B, 34), 1)[0] is Verdict.WRONG
    assert laps.returned(frame(Kind.RET_B, 35, epoch=9), 1)[0] is Verdict.STALE


def test_limits_follow_what_was_measured() -> None:
    """PROTOCOL section 8: 30 s a token until four laps were measured; prefill keeps 90 s."""
    laps = Laps()
    one = laps.sent(frame(Kind.HIDDEN, 0), prefill=False, now=0)
    assert laps.limit(one, 0.0) == 30
    assert laps.returned(frame(Kind.RET, 0), 0.2)[0] is Verdict.ANSWER
    for pos in range(1, 5):
        laps.sent(frame(Kind.HIDDEN, pos), prefill=False, now=0)
        laps.returned(frame(Kind.RET, pos), 0.2)
    one = laps.sent(frame(Kind.HIDDEN, 5), prefill=False, now=0)
    assert laps.limit(one, 0.0) == 25
    pre = laps.sent(frame(Kind.HIDDEN_B, 6, 16, last=True), prefill=True, now=0)
    assert laps.limit(pre, 9.0) == 90


def test_a_verify_frame_returns_every_column() -> None:
    """PROTOCOL sections 5 and 8: all columns come back, and 90 s are its limit until laps were measured."""
    laps = Laps()
    verify = laps.sent(frame(Kind.HIDDEN_B, 40, 6), prefill=False, now=0)
    assert laps.limit(verify, 0.0) == 90
    for wrong in (frame(Kind.RET_B, 45), frame(Kind.RET_B, 40, 5), frame(Kind.RET, 40, 6)):
        assert laps.returned(wrong, 1)[0] is Verdict.WRONG
    assert laps.returned(frame(Kind.RET_B, 40, 6), 5.0)[0] is Verdict.ANSWER
    for pos in range(41, 45):
        laps.sent(frame(Kind.HIDDEN, pos), prefill=False, now=0)
        laps.returned(frame(Kind.RET, pos), 0.1)
    verify = laps.sent(frame(Kind.HIDDEN_B, 46, 16), prefill=False, now=0)
    assert 29 < laps.limit(verify, 0.5) < 33, "6 times the slowest, which was the verify lap, and the rest"
