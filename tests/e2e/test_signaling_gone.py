"""A running room whose signaling server is killed: a real process, real links (PROTOCOL section 2, CASES)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from pooled_nb.errors import SignalingDown
from pooled_nb.mesh.messages import chat
from tests.e2e.kernel import kernel
from tests.e2e.needs import bound
from tests.mesh.recorder import CODE
from tests.mesh.rtctools import FastClock, until

SPEED = 8
"""Of the clock that signaling sees: it is gone for 32 s of it, which are 4 s here."""


@contextlib.asynccontextmanager
async def server(port: int = 0) -> AsyncIterator[int]:
    """``pooled-nb signal`` on this port, or on a free one; killed at the end of the block, as by a crash."""
    program = await asyncio.create_subprocess_exec(
        *bound(sys.executable, "-m", "pooled_nb.cli", "signal", "--port", str(port)),
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    try:
        assert program.stdout is not None
        while b"Ctrl-C" not in (line := await asyncio.wait_for(program.stdout.readline(), 30)):
            assert line, "it ended"
            if found := re.search(rb"runs at ws://127\.0\.0\.1:(\d+)/", line):
                port = int(found[1])
        yield port
    finally:
        with contextlib.suppress(ProcessLookupError):
            program.kill()
        await program.communicate()


async def test_a_room_outlives_its_signaling_server() -> None:
    """PROTOCOL section 2: "the room goes on when it is down (reconnect after 2, 4, 8, 16, 30, 30 … s; the
    same notice to the user at most once in 30 s)". Gone for 32 s: links live, messages pass, nobody new gets
    in, and hears why; as soon as it is back, a new device joins.
    """
    fast = FastClock(SPEED)
    host, worker = (kernel(name, ask=False, signaling=SPEED) for name in ("host", "worker"))
    async with server() as port:
        url = f"ws://127.0.0.1:{port}/"
        await host.mesh.create(CODE, [url])
        await worker.mesh.join(CODE, [url])
    await until(lambda: not host.mesh.signaling_up and not worker.mesh.signaling_up)
    gone = fast.now()
    said = 0
    while fast.now() < gone + 32:
        said += 1
        assert host.mesh.send(worker.mesh.id, chat.Token(text=f"{said}"))
        await until(lambda: len(worker.messages) == said)  # noqa: B023  # the same round
        await asyncio.sleep(0.1)
    with pytest.raises(SignalingDown, match="connection refused"):
        await kernel("early").mesh.join(CODE, [url])
    assert host.gone == worker.gone == []
    assert sum("signaling" in notice.lower() for notice in host.notices) == 1
    async with server(port):
        await until(lambda: host.mesh.signaling_up)
        late = kernel("late")
        await late.mesh.join(CODE, [url])
        await until(lambda: host.names == worker.names == late.names == ["host", "worker", "late"])
        await until(lambda: worker.mesh.signaling_up)
        await asyncio.gather(worker.mesh.connect(late.mesh.id), late.mesh.connect(worker.mesh.id))
        for one in (late, worker, host):
            await one.mesh.leave()
