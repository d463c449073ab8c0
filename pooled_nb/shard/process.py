"""A shard in a process of its own: torch computes there, while cells run here (DESIGN section 3).

The child is started, never forked, and not by multiprocessing: a user's script needs no main guard. It has
a session of its own, so that the kernel's interrupt does not reach it, and it ends when its pipe closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from pooled_nb.errors import PooledError, ShardDied, ShardError
from pooled_nb.shard import protocol
from pooled_nb.shard.caller import Caller
from pooled_nb.shard.door import Progress
from pooled_nb.shard.threads import limit_environment

_GRACE_S = 3.0
"""Seconds a child has to end by itself, and again after it was told to."""
_FORGET_S = 1.0
"""Seconds a child that ends has to remove the disk copies of its room's checkpoints."""
_TAIL = 4096
"""Bytes of the child's standard error that are kept for the sentence about its end."""
_BUFFER = 4 << 20

T = TypeVar("T")


class _Waiting(msgspec.Struct):
    """A call that has no answer yet."""

    job: protocol.AnyJob
    future: asyncio.Future[Any]
    progress: Progress | None


class ProcessShard(Caller):
    """A shard in a spawned child; it starts with the first call. Once it died, open another.

    Belongs to the loop of its first call.
    """

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._env = dict(env or {})
        self._process: asyncio.subprocess.Process | None = None
        self._starting: asyncio.Task[None] | None = None
        self._life: asyncio.Task[None] | None = None
        self._unsent: list[bytes] = []
        self._waiting: dict[int, _Waiting] = {}
        self._number = 0
        self._tail = bytearray()
        self._ended: str | None = None
        self._closing = False
        self._keeps = False
        """Checkpoints of a room are kept on disk: who closes a shard does not come back for them."""

    @property
    def pid(self) -> int | None:
        """The child's process id; None before it started."""
        return self._process.pid if self._process else None

    async def _run(self, job: protocol.AnyJob, result: type[T], progress: Progress | None = None) -> T:
        if self._closing:
            raise ShardError("The shard is closed.", "Open another one.")
        if self._ended is not None:
            raise self._died()
        if isinstance(job, protocol.Load):
            self._keeps = bool(job.spec.room)
        loop = asyncio.get_running_loop()
        self._number += 1
        number = self._number
        packed = protocol.pack(protocol.Call(number, job))
        waiting = _Waiting(job, loop.create_future(), progress)
        self._waiting[number] = waiting
        # Handed over before anything is awaited: calls run in the order they were made, and one whose
        # caller goes away still has its place, so that the pipe and the caches stay in step.
        self._send(packed)
        try:
            if self._process is not None and self._process.stdin is not None:
                with contextlib.suppress(ConnectionError):
                    await self._process.stdin.drain()
            return cast(T, await waiting.future)
        except asyncio.CancelledError:
            self._stop(number, job)
            raise
        finally:
            waiting.future.cancel()

    def _stop(self, number: int, job: protocol.AnyJob) -> None:
        """Let a job end that nobody waits for any more."""
        if isinstance(job, protocol.STOPPABLE) and number in self._waiting:
            self._send(protocol.pack(protocol.Cancel(number)))

    def _send(self, packed: bytes) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(packed)
            return
        self._unsent.append(packed)
        if self._starting is None:
            self._starting = asyncio.create_task(self._start(), name="pooled-shard-start")

    async def _start(self) -> None:
        try:
            process = await asyncio.create_subprocess_exec(
                *_command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                limit=_BUFFER,
                env=_environment(self._env),
                **_own_session(),
            )
        except (OSError, ValueError, NotImplementedError) as error:
            self._end(f"The shard's process cannot be started: {error}.")
            return
        self._process = process
        self._life = asyncio.create_task(self._live(process), name="pooled-shard")
        if process.stdin is not None:
            process.stdin.writelines(self._unsent)
        self._unsent.clear()

    async def _live(self, process: asyncio.subprocess.Process) -> None:
        """Read what the child says until it ends; then tell everybody."""
        assert process.stdout is not None
        assert process.stderr is not None
        errors = asyncio.create_task(self._keep_tail(process.stderr), name="pooled-shard-stderr")
        broken = ""
        try:
            while True:
                length = protocol.body_length(await process.stdout.readexactly(protocol.HEAD))
                self._answer(protocol.unpack_reply(await process.stdout.readexactly(length)))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except (ValueError, msgspec.MsgspecError) as error:
            broken = f"The shard's process wrote what is no answer: {error}."
            _kill(process)
        code = await process.wait()
        with contextlib.suppress(asyncio.TimeoutError):
            # What it started may still hold the standard error open.
            await asyncio.wait_for(asyncio.shield(errors), 1.0)
        errors.cancel()
        await asyncio.gather(errors, return_exceptions=True)
        _close_pipes(process)
        self._end(broken or _epitaph(code, bytes(self._tail)))

    async def _keep_tail(self, stream: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            while some := await stream.read(_TAIL):
                self._tail += some
                del self._tail[:-_TAIL]

    def _answer(self, reply: protocol.Reply) -> None:
        waiting = self._waiting.get(reply.id)
        if waiting is None:
            return
        if isinstance(reply, protocol.Progressed):
            if waiting.progress is not None and not waiting.future.done():
                # Not called from here: an error in it is the caller's, and must not end the reading.
                asyncio.get_running_loop().call_soon(waiting.progress, reply.pct, reply.words)
            return
        # Read before it is off the list: an answer of another type ends the child, and this call with it.
        answer = protocol.result_of(waiting.job, reply) if isinstance(reply, protocol.Done) else None
        del self._waiting[reply.id]
        if waiting.future.done():
            return
        if isinstance(reply, protocol.Failed):
            waiting.future.set_exception(protocol.error_of(reply))
        else:
            waiting.future.set_result(answer)

    def _died(self) -> ShardDied:
        if self._closing:
            return ShardDied("The shard was closed.", "Open another one.")
        step = "Lend less memory, close other programs, or choose a smaller model, then start again."
        return ShardDied(self._ended or "The shard's process ended.", step)

    def _end(self, why: str) -> None:
        """Fail all that waits, once; tell the owner unless it asked for the end."""
        if self._ended is not None:
            return
        self._ended = why
        self._unsent.clear()
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            if not one.future.done():
                one.future.set_exception(self._died())
        if self.on_died is not None and not self._closing:
            # Not called from here: an error in it is the owner's.
            asyncio.get_running_loop().call_soon(self.on_died, why)

    async def close(self) -> None:
        """See `Shard.close`: asks by closing the pipe, after 3 s tells it to end, after 3 more kills it."""
        for number, waiting in self._waiting.items():
            self._stop(number, waiting.job)
        if self._keeps:
            with contextlib.suppress(PooledError, asyncio.TimeoutError):
                await asyncio.wait_for(self.unload(), _FORGET_S)
        self._closing = True
        if self._starting is not None:
            await asyncio.gather(self._starting, return_exceptions=True)
        process, life = self._process, self._life
        if process is None or life is None:
            self._end("The shard was closed.")
            return
        if process.stdin is not None:
            process.stdin.close()
        for end in (None, _terminate, _kill):
            if end is not None:
                end(process)
            done, _ = await asyncio.wait([life], timeout=_GRACE_S)
            if done:
                break


def _command() -> list[str]:
    if not sys.executable:
        raise ValueError("this program has no Python of its own (sys.executable is empty)")
    # -P: a file in the user's folder, say torch.py, must not stand in for a library.
    return [sys.executable, "-P", "-X", "faulthandler", "-m", "pooled_nb.shard.child", str(os.getpid())]


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    env = {**os.environ, **extra}
    # The mesh's, and none of a shard's business.
    for secret in ("POOLED_LINK", "POOLED_TURN", "POOLED_TURN_SECRET"):
        env.pop(secret, None)
    limit_environment(env)
    # glibc raises its own threshold as tensors are freed, and then keeps their pages: measured, a child
    # peaked at 1.35 of its own layers instead of 1.0. Other systems ignore it.
    env.setdefault("MALLOC_MMAP_THRESHOLD_", "262144")
    env["PYTHONIOENCODING"] = "utf-8:replace"
    home = str(Path(__file__).resolve().parents[2])
    installed = {
        str(Path(p).resolve()) for p in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    }
    if home not in installed:
        # Imported from a checkout: the child must find the same one.
        env["PYTHONPATH"] = os.pathsep.join([home, *filter(None, [env.get("PYTHONPATH")])])
    return env


def _own_session() -> dict[str, Any]:
    """Keep the interrupt of a kernel or a terminal away from the child."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW}
    return {"start_new_session": True}


def _terminate(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()


def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()


def _close_pipes(process: asyncio.subprocess.Process) -> None:
    """Close our ends at once: asyncio waits until nothing that the child started holds the other ends."""
    transport = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()


def _epitaph(code: int, tail: bytes) -> str:
    """Say what is known about how it ended."""
    if code in (-9, 137):
        return "The shard's process was killed, most likely because memory ran out."
    lines = [line.strip() for line in tail.decode("utf-8", "replace").splitlines() if line.strip()]
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        last = next((line for line in lines if "Fatal" in line or "Error" in line), "")
        return f"The shard's process crashed ({name})" + (f": {last[:200].rstrip('.')}." if last else ".")
    last = lines[-1][:200].rstrip(".") if lines else ""
    return f"The shard's process ended by itself (code {code})" + (f": {last}." if last else ".")
