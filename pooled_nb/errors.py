"""The one tree of errors.

Every error says in one sentence what happened, and in a second what to do next::

    PooledError
    ├── RoomError                 something about a room
    │   ├── BadCode               the text is not a room code or link
    │   ├── RoomNotFound          nobody answers under this code
    │   ├── RoomRefused           the room said no (version, thrown out, full)
    │   ├── RoomClosed            the room is over, or this device left it
    │   ├── AlreadyInRoom         this kernel already hosts or has joined
    │   ├── BadOption             an option of a room (memory to lend, …) makes no sense
    │   └── NotReady              the room cannot answer now (not started, loading, degraded)
    ├── AskError                  something about one question
    │   ├── BadQuestion           empty, too long, or a bad option
    │   ├── QueueFull             too many questions wait
    │   └── AnswerFailed          the answer began and could not be finished
    ├── NetworkError              something between devices
    │   ├── SignalingDown         no signaling server answers
    │   └── LinkFailed            no path to a device, or it broke
    ├── ModelError                something about a model
    │   ├── ModelNotFound         no source has these files
    │   ├── ModelNotSupported     files are there, but this build cannot run them
    │   ├── ModelTooBig           the memory lent does not hold it
    │   │   └── OutOfMemory       memory ran out while it loaded or computed
    │   └── WrongNumbers          NaN or infinity, named where it arose
    │       └── WrongArrived      another device sent them
    └── ShardError                the process that computes failed
        ├── ShardDied             it ended (out of memory is the usual cause)
        └── FrameRefused          a frame it may not run (position, slot, width)
"""

from __future__ import annotations


class PooledError(Exception):
    """Base of every error of this package.

    Parameters
    ----------
    what
        One sentence: what happened.
    next_step
        One sentence: what the person can do now. May be empty only where nothing can be done.
    """

    def __init__(self, what: str, next_step: str = "") -> None:
        super().__init__(what, next_step)
        self.what = what
        self.next_step = next_step

    def __str__(self) -> str:
        return f"{self.what} {self.next_step}".strip()


class RoomError(PooledError):
    """Something about a room."""


class BadCode(RoomError):
    """The text is not a room code or link."""


class RoomNotFound(RoomError):
    """Nobody answers under this code."""


class RoomRefused(RoomError):
    """The room said no: another protocol version, thrown out, or full."""


class RoomClosed(RoomError):
    """The room is over, or this device left it."""


class AlreadyInRoom(RoomError):
    """This kernel already hosts a room or has joined one."""


class BadOption(RoomError):
    """An option of a room makes no sense: the memory to lend, a name."""


class NotReady(RoomError):
    """The room cannot answer now: not started, loading, or degraded."""


class AskError(PooledError):
    """Something about one question."""


class BadQuestion(AskError):
    """The question is empty, too long, or asks with a bad option."""


class QueueFull(AskError):
    """Too many questions wait."""


class AnswerFailed(AskError):
    """The answer began and could not be finished."""


class NetworkError(PooledError):
    """Something between devices."""


class SignalingDown(NetworkError):
    """No signaling server answers."""


class LinkFailed(NetworkError):
    """There is no path to a device, or the one there was broke."""


class ModelError(PooledError):
    """Something about a model."""


class ModelNotFound(ModelError):
    """No source has these files."""


class ModelNotSupported(ModelError):
    """The files are there, but this build cannot run them."""


class ModelTooBig(ModelError):
    """The memory lent does not hold the model."""


class OutOfMemory(ModelTooBig):
    """Memory ran out while a device loaded or computed; its process lives, and less of the model may work."""


class WrongNumbers(ModelError):
    """NaN or infinity, named where it arose."""


class WrongArrived(WrongNumbers):
    """NaN or infinity arrived from the device before this one in the chain."""


class ShardError(PooledError):
    """The process that computes failed."""


class ShardDied(ShardError):
    """The process that computes ended; out of memory is the usual cause."""


class FrameRefused(ShardError):
    """A frame the shard may not run: wrong position, unknown slot, too wide."""
