"""One device of a `tests.e2e.weightsroom`: a `chaosdevice` that tells who asks it for weights.

``python -m tests.e2e.weightsdevice``. Each range that it is asked for is said as ``heard: asked``: by whom,
of which file, and its bytes ``[lo, hi)``. As long as the file exists that ``POOLED_TEST_SLOW`` names, each
read of what it gives takes longer.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from msgspec import structs

from pooled_nb.mesh.loop import new_loop
from pooled_nb.mesh.messages.weights import Wget
from pooled_nb.room.deviceroom import DeviceRoom
from pooled_nb.room.weights.giving import Giving
from pooled_nb.room.weights.runner import in_thread
from tests.e2e.chaosdevice import Program

T = TypeVar("T")

READ_S = 0.1
"""That a read takes longer."""
SLOW = Path(os.environ.get("POOLED_TEST_SLOW", os.devnull))


class Lender(Program):
    """A device whose person may lend less."""

    async def do_lend(self, _: int, *, gb: float) -> None:
        """Lend so much from now on (PROTOCOL section 3, ``pledge``)."""
        assert isinstance(self.room, DeviceRoom)
        mesh = self.room.mesh
        [mine] = [member.meta for member in mesh.roster if member.id == mesh.id]
        mesh.set_meta(structs.replace(mine, contrib_gb=gb))


PROGRAM = Lender()


class Watched(Giving):
    """Gives as it should, and tells of it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "runner": slowed})

    def asked(self, sender: str, message: Wget) -> None:
        """Tell, and give."""
        room = PROGRAM.room
        names = {device.id: device.name for device in room.status().devices} if room else {}
        file = message.url.rpartition("/")[2]
        PROGRAM.say(heard="asked", by=names.get(sender, ""), file=file, lo=message.lo, hi=message.hi + 1)
        super().asked(sender, message)


async def slowed(job: Callable[[], T], /) -> T:
    """As a slow disk would."""
    if await in_thread(SLOW.is_file):
        await asyncio.sleep(READ_S)
    return await in_thread(job)


def main() -> None:
    """See the module."""
    from pooled_nb.room.weights import deviceside, hostside

    deviceside.Giving = hostside.Giving = Watched
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(PROGRAM.main())
    os._exit(0)  # nothing is left to say, and a thread may still read


if __name__ == "__main__":
    main()
