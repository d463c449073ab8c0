"""One device of a room under chaos: a process of its own, told what to do by lines of JSON on its input.

``python -m tests.e2e.chaosdevice``; only `tests.e2e.chaos` runs it. Each line that it hears has a number
``n`` and what to ``do``; each line that it says has the time ``at`` (the monotonic clock, which all processes
of a machine share) and either the number that it answers, ``re``, or what happened, ``heard``. It is a room's
core as a kernel runs it, with its shard in a child, so that what is frozen or killed is what would be.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import threading
import time
import traceback
from typing import Any, cast

import msgspec

from pooled_nb.errors import PooledError
from pooled_nb.mesh.loop import new_loop
from pooled_nb.room import opening, resuming
from pooled_nb.room.core import AskOptions, RoomCore
from pooled_nb.room.deviceroom import DeviceRoom
from pooled_nb.room.doorfacts import NetworkChoice
from pooled_nb.room.hostroom import HostRoom
from pooled_nb.shard import Shard
from pooled_nb.shard.door import Loaded, LoadSpec, Progress, Sampled
from pooled_nb.shard.pieces import Missing
from pooled_nb.shard.process import ProcessShard

PACE_S = float(os.environ.get("POOLED_CHAOS_PACE", "0"))
"""Seconds that each sampled token takes longer, so that a fault falls where it is meant to."""
TOY = os.environ.get("POOLED_CHAOS_TOY", "")
"""Compute with the toy instead of torch, which takes seconds to start: the tokens of its answers."""


def say(**what: Any) -> None:
    """One line for whoever started this process."""
    print(json.dumps({"at": time.monotonic(), **what}), flush=True)


class Paced(ProcessShard):
    """A shard that takes its time over each token, and is the real one in all else.

    It tells when it is asked what it lacks of its layers, ``looks``, and when it is to read them, ``reads``.
    """

    async def sample(self, *args: Any, **options: Any) -> Sampled:
        await asyncio.sleep(PACE_S)
        return await super().sample(*args, **options)

    async def load(self, spec: LoadSpec, progress: Progress | None = None) -> Loaded:
        say(heard="reads", lo=spec.lo, hi=spec.hi)
        return await super().load(spec, progress)

    async def missing(self, spec: LoadSpec, progress: Progress | None = None) -> Missing:
        say(heard="looks", lo=spec.lo, hi=spec.hi)
        return await super().missing(spec, progress)


def open_shard(process: bool = True) -> Shard:
    """What a device of these tests computes with."""
    if TOY:
        from tests.room.toy import ToyShard

        return cast(Shard, ToyShard(end_after=int(TOY), delay=PACE_S))
    return Paced()


class Program:
    """The room that this process is in, and what it is told to do with it."""

    def __init__(self) -> None:
        self.room: RoomCore | None = None
        self.seen: dict[int, str] = {}
        """By ``mid``: the most that this screen has shown of an answer."""
        self.told = ""
        self.tasks: set[asyncio.Task[None]] = set()

    async def main(self) -> None:
        """Do what is said, each in a task of its own, until the input ends."""
        loop = asyncio.get_running_loop()
        lines: asyncio.Queue[str] = asyncio.Queue()

        def read() -> None:
            for line in sys.stdin:
                loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, "")

        threading.Thread(target=read, name="orders", daemon=True).start()
        self.say(heard="up")
        while line := await lines.get():
            task = asyncio.create_task(self.obey(json.loads(line)))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    def say(self, **what: Any) -> None:
        """See `say`."""
        say(**what)

    async def obey(self, order: dict[str, Any]) -> None:
        """Do one thing, and answer."""
        number, what = order.pop("n"), order.pop("do")
        try:
            answer = await getattr(self, f"do_{what}")(number, **order)
        except Exception as error:
            if not isinstance(error, PooledError):
                traceback.print_exc()
            self.say(re=number, error=type(error).__name__, why=str(error))
        else:
            self.say(re=number, **(answer or {}))

    def enter(self, room: RoomCore) -> dict[str, Any]:
        """Listen to a room that was opened."""
        self.room = room
        room.on_notice = lambda text: self.say(heard="notice", text=text)
        room.on_change = self.changed
        self.changed()
        return {"code": room.code}

    def changed(self) -> None:
        """Say what the room shows now, where it is new; and look whether a screen took something back."""
        room = self.room
        assert room is not None
        status = room.status()
        now = {
            "state": status.state,
            "sentence": status.sentence,
            "devices": [[d.name, d.layers and list(d.layers), d.gone] for d in status.devices],
            "waits": status.waits_for,
        }
        if (told := json.dumps([now["state"], now["devices"], now["waits"]])) != self.told:
            self.told = told
            self.say(heard="status", **now)
        if isinstance(room, DeviceRoom):
            self.look(room)

    def look(self, room: DeviceRoom) -> None:
        """PROTOCOL section 8: nothing shown changes; less may be there while it is told again."""
        shown = {item.mid: item.reply for item in room.transcript.items if item.mid}
        if room.transcript.newest and room.transcript.text:
            shown[room.transcript.newest] = room.transcript.text
        for mid, text in shown.items():
            before = self.seen.get(mid, "")
            if not text.startswith(before) and not before.startswith(text):
                self.say(heard="changed", before=before, text=text)
            self.seen[mid] = max(before, text, key=len)

    # -- what it is told ---------------------------------------------------------------------------

    async def do_host(self, _: int, *, model: str, **options: Any) -> dict[str, Any]:
        """Open a room."""
        if "network" in options:
            options["network"] = NetworkChoice(**options["network"])
        room = await opening.host(model, **options)
        return self.enter(room) | {"link": room.invite().link}

    async def do_resume(self, _: int, **options: Any) -> dict[str, Any]:
        """Take back the room of a process that was killed; its person's questions without an answer."""
        room = await resuming.resume(**options)
        assert isinstance(room, HostRoom)
        asked = [question.text for question in room.asked]
        return self.enter(room) | {"link": room.invite().link, "asked": asked}

    async def do_join(self, _: int, *, code: str, **options: Any) -> dict[str, Any]:
        """Join a room."""
        return self.enter(await opening.join(code, **options))

    async def do_start(self, _: int) -> None:
        """Deal and load; again, where the room is online."""
        assert self.room is not None
        await self.room.start()

    async def do_ask(self, number: int, *, text: str, options: dict[str, Any]) -> None:
        """Ask; each event is said with this order's number as ``ask``."""
        assert self.room is not None
        asked = msgspec.convert(options, AskOptions, strict=False)
        async for event in self.room.ask(text, asked):
            self.say(heard="event", ask=number, event=msgspec.to_builtins(event))

    async def do_set(self, _: int, **changes: Any) -> None:
        """Change how the room answers."""
        assert self.room is not None
        settings = self.room.status().settings
        await self.room.configure(msgspec.structs.replace(settings, **changes))

    async def do_reset(self, _: int) -> None:
        """New chat."""
        assert self.room is not None
        self.seen.clear()
        await self.room.reset()

    async def do_stop(self, _: int) -> None:
        """Stop the answer."""
        assert self.room is not None
        await self.room.stop()

    async def do_leave(self, _: int) -> None:
        """Leave the room, or close it."""
        assert self.room is not None
        await self.room.leave()

    async def do_status(self, _: int) -> dict[str, Any]:
        """The whole status."""
        assert self.room is not None
        return {"status": msgspec.to_builtins(self.room.status())}

    async def do_shown(self, _: int) -> dict[str, Any]:
        """What stands on this device's screen: question and answer, oldest first."""
        assert isinstance(self.room, DeviceRoom)
        return {"shown": [[item.text, item.reply] for item in self.room.transcript.items]}

    async def do_gauge(self, _: int) -> dict[str, Any]:
        """What this process holds; its own call aside."""
        gc.collect()
        tasks = [task for task in asyncio.all_tasks() if task not in self.tasks]
        return {
            "tasks": len(tasks),
            "names": sorted(task.get_name() for task in tasks),
        }


def main() -> None:
    """See the module."""
    opening.open_shard = open_shard
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(Program().main())
    os._exit(0)  # nothing is left to say, and a thread may still read


if __name__ == "__main__":
    main()
