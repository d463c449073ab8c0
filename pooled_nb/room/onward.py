"""A frame on a worker: what it asks of the shard, and what goes on from there (PROTOCOL section 5)."""

from __future__ import annotations

from pooled_nb.mesh.frame import Frame, Kind
from pooled_nb.room import paces
from pooled_nb.shard import Columns, Control, Forwarded


def columns_of(frame: Frame) -> Columns:
    """Which columns it carries, in which class of frames."""
    wide = frame.kind is Kind.HIDDEN_B and not frame.spec
    return Columns(pos=frame.pos, n=frame.n, wide=wide)


def kind_of(frame: Frame) -> paces.FrameKind:
    """Of which kind it is, for who measures."""
    return paces.kind_of(batch=frame.kind is Kind.HIDDEN_B, spec=frame.spec)


def control_of(frame: Frame) -> Control:
    """What rides on it."""
    return Control(reset=frame.reset, spec=frame.spec, rb=frame.rb, sv=frame.sv, ld=frame.ld, dp=frame.dp)


def missed(frame: Frame, before: Frame | None) -> bool:
    """Whether a frame between these two was lost on the way, with a link that broke under it.

    A prompt's frames fly together, so that those after it may come: a gap is no fault of theirs. Each begins
    where the one before ended, or earlier, and a new epoch begins with ``reset``.
    """
    if before is None or frame.reset:
        return False
    return frame.epoch != before.epoch or (not frame.ld and frame.pos > before.pos + before.n)


def onward(frame: Frame, ran: Forwarded) -> Frame:
    """The frame for the next device: all that it carried, with the states as they are after these layers."""
    return Frame(
        frame.kind,
        frame.pos,
        frame.n,
        ran.data,
        frame.enc,
        spec=frame.spec,
        reset=frame.reset,
        rb=frame.rb,
        sv=frame.sv,
        ld=frame.ld,
        dp=frame.dp,
        epoch=frame.epoch,
        last=frame.last,
        probe=frame.probe,
    )


def back(frame: Frame, ran: Forwarded) -> Frame:
    """The return for the host: states alone, and the epoch that says which lap they answer."""
    kind = Kind.RET_B if frame.kind is Kind.HIDDEN_B else Kind.RET
    return Frame(kind, ran.pos, ran.n, ran.data, frame.enc, epoch=frame.epoch)
