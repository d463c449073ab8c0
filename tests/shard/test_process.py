"""The shard in a child process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pooled_nb.errors import BadQuestion, FrameRefused, ModelNotFound, PooledError, ShardDied, ShardError
from pooled_nb.shard import Columns, Control, LoadSpec, ModelFacts, Sampling, Turn, open_shard
from pooled_nb.shard import process as process_module
from pooled_nb.shard.process import ProcessShard
from tests.shard.tinychat import write_model
from tests.shard.waiting import gone, until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and /proc")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("models") / "tiny")


def spec_of(facts: ModelFacts, **changes: object) -> LoadSpec:
    given: dict[str, object] = {
        "repo": facts.repo, "revision": facts.revision, "folder": facts.folder, "files": facts.files,
        "config_sha256": facts.config_sha256, "lo": 0, "hi": facts.layers, "ends": True, "ctx": 512,
        "dtype": "float32", "device": "cpu",
    }  # fmt: skip
    return LoadSpec(**(given | changes))  # type: ignore[arg-type]


async def answer(shard, facts: ModelFacts, sampling: Sampling) -> tuple[list[int], str]:
    """Load everything, ask one question, take 8 tokens: enough to pass every kind of job."""
    heard: list[tuple[int, str]] = []
    loaded = await shard.load(spec_of(facts), lambda pct, words: heard.append((pct, words)))
    assert loaded.weights > 0
    assert heard[-1][0] == 100
    assert [pct for pct, _ in heard] == sorted(pct for pct, _ in heard)
    prompt = await shard.render([Turn(role="user", text="hello")])
    n = len(prompt.ids)
    frame = None
    for at in range(0, n, 32):
        part = prompt.ids[at : at + 32]
        frame = await shard.forward(
            Columns(pos=at, n=len(part), wide=True), Control(reset=at == 0), tokens=part, last=True
        )
    tokens, text = [], ""
    for step in range(8):
        drawn = await shard.sample(frame.data, pos=frame.pos, n=1, sampling=sampling, first=step == 0)
        tokens += drawn.tokens
        text += drawn.text
        if drawn.end:
            break
        frame = await shard.forward(Columns(pos=n + step, n=1, wide=False), Control(), tokens=drawn.tokens)
    return tokens, text + await shard.flush()


@contextlib.contextmanager
def command(monkeypatch, code: str):
    """Start something else in the child's place."""
    with monkeypatch.context() as patch:
        patch.setattr(process_module, "_command", lambda: [sys.executable, "-c", code])
        yield


async def test_every_job_goes_through_the_child_and_gives_what_a_thread_gives(model):
    """DESIGN section 2: the same room runs over a child process or in process; errors keep their class."""
    child, thread = open_shard(), open_shard(process=False)
    try:
        device = await child.device()
        assert device.total_gb >= device.free_gb > 0
        facts = await child.inspect(str(model))
        assert facts == await thread.inspect(str(model))
        sampling = Sampling(temperature=0.9, top_k=20, seed=7)
        assert await answer(child, facts, sampling) == await answer(thread, facts, sampling)

        with pytest.raises(ModelNotFound, match="no folder") as missing:
            await child.inspect("/no/such/model")
        assert missing.value.next_step
        with pytest.raises(FrameRefused):
            await child.forward(Columns(pos=400, n=1, wide=False), Control(), tokens=[1])

        # A caller that goes away leaves its job in the order, and the pipe in step (DESIGN section 3).
        first = await child.forward(Columns(pos=0, n=2, wide=True), Control(reset=True), tokens=[1, 2])
        going = asyncio.create_task(child.forward(Columns(pos=2, n=1, wide=False), Control(), tokens=[3]))
        waiting = asyncio.create_task(child.forward(Columns(pos=3, n=1, wide=False), Control(), tokens=[4]))
        await asyncio.sleep(0)
        going.cancel()
        assert (await waiting).pos == 3
        again = await child.forward(Columns(pos=0, n=2, wide=True), Control(reset=True), tokens=[1, 2])
        assert again.data == first.data

        await child.unload()
        with pytest.raises(PooledError):
            await child.forward(Columns(pos=0, n=1, wide=False), Control(reset=True), tokens=[1])
        with pytest.raises(ShardError, match="no tokenizer"):
            await child.render([Turn(role="user", text="x")])

        # The kernel's interrupt never reaches it: another session, and SIGINT is ignored.
        assert os.getsid(child.pid) != os.getsid(0)
        os.kill(child.pid, signal.SIGINT)
        assert (await child.inspect(str(model))).layers == facts.layers
    finally:
        await child.close()
        await thread.close()


async def test_killed_by_the_system(model):
    """DESIGN section 3: out of memory ends the child, not the kernel; all that waits hears of it, once."""
    shard = ProcessShard()
    heard: list[str] = []
    shard.on_died = heard.append
    jobs = [asyncio.create_task(shard.device()), asyncio.create_task(shard.inspect(str(model)))]
    await until(lambda: shard.pid is not None)
    os.kill(shard.pid, signal.SIGKILL)
    for result in await asyncio.gather(*jobs, return_exceptions=True):
        assert isinstance(result, ShardDied)
        assert "memory ran out" in result.what
        assert result.next_step
    assert len(heard) == 1
    assert gone(shard.pid)
    with pytest.raises(ShardDied):
        await shard.flush()
    await shard.close()
    assert len(heard) == 1


async def test_nothing_is_left_behind_after_close(model):
    """CASES, Devices: descriptors, tasks, threads and processes at their baseline."""
    await asyncio.create_subprocess_exec(sys.executable, "-c", "")  # what asyncio itself keeps
    await asyncio.sleep(0.3)
    fds, tasks, threads = len(os.listdir("/proc/self/fd")), asyncio.all_tasks(), threading.active_count()
    pids = []
    for ask in (True, True, False):
        shard = ProcessShard()
        job = asyncio.create_task(shard.device())
        await until(lambda shard=shard: shard.pid is not None)
        pids.append(shard.pid)
        if not ask:
            os.kill(shard.pid, signal.SIGKILL)
        await shard.close()
        await shard.close()
        with pytest.raises(ShardDied):
            await job
        with pytest.raises(ShardError):
            await shard.device()
    await until(lambda: all(map(gone, pids)))
    await until(lambda: threading.active_count() <= threads)
    await until(lambda: len(os.listdir("/proc/self/fd")) <= fds)
    assert asyncio.all_tasks() == tasks


async def test_close_before_anything_and_in_the_very_moment_of_the_start():
    """DESIGN section 3: close never raises, and leaves no process."""
    unused = ProcessShard()
    await unused.close()
    assert unused.pid is None
    shard = ProcessShard()
    job = asyncio.create_task(shard.flush())
    await asyncio.sleep(0)
    await shard.close()
    with pytest.raises(ShardDied):
        await job
    assert shard.pid is None or gone(shard.pid)


async def test_a_child_that_will_not_end_is_told_then_killed(monkeypatch):
    """DESIGN section 3: asked by the pipe, then told, then killed."""
    monkeypatch.setattr(process_module, "_GRACE_S", 0.2)
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    with command(monkeypatch, stubborn):
        shard = ProcessShard()
        heard: list[str] = []
        shard.on_died = heard.append
        job = asyncio.create_task(shard.flush())
        await until(lambda: shard.pid is not None)
        await asyncio.sleep(0.3)
        await shard.close()
    assert gone(shard.pid)
    assert heard == []
    with pytest.raises(ShardDied):
        await job


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import sys; sys.stderr.write('x' * 99999 + '\\nno disk.\\n'); sys.exit(3)", "code 3.*no disk"),
        ("import sys; sys.stdin.read(9); sys.stdout.write('Hello, you\\n'); sys.stdin.read()", "no answer"),
        (
            "import sys; from pooled_nb.shard import protocol as p; sys.stdin.buffer.read(5)\n"
            "sys.stdout.buffer.write(p.pack(p.done(1, 5))); sys.stdout.flush(); sys.stdin.read()",
            "no answer",
        ),
        ("import os; os.abort()", r"crashed \(SIGABRT\)"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "memory ran out"),
    ],
)  # fmt: skip
async def test_how_it_ended_is_said(monkeypatch, code, words):
    """DESIGN section 3: a crash is told in a sentence, with the last thing known about why."""
    with command(monkeypatch, code):
        shard = ProcessShard()
        heard: list[str] = []
        shard.on_died = heard.append
        with pytest.raises(ShardDied, match=words):
            await shard.flush()
        await until(lambda: len(heard) == 1)
        await shard.close()


async def test_no_python_to_start(monkeypatch):
    """DESIGN section 1: every wait ends in an answer or in words."""
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    shard = ProcessShard()
    with pytest.raises(ShardDied, match="cannot be started"):
        await shard.device()
    await shard.close()


async def test_an_error_in_a_progress_callback_is_the_callers_own(monkeypatch):
    """DESIGN section 2: the door's answers come whatever a caller does with the progress."""
    code = (
        "import sys; from pooled_nb.shard import protocol as p\n"
        "o = sys.stdout.buffer; sys.stdin.buffer.read(5)\n"
        "o.write(p.pack(p.Progressed(1, 5, 'a')) + p.pack(p.done(1, 'text'))); o.flush()\n"
        "sys.stdin.buffer.read()"
    )
    caught: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, context: caught.append(context["exception"])
    )
    from pooled_nb.shard import protocol

    def broken(pct: int, words: str) -> None:
        raise ValueError(words)

    with command(monkeypatch, code):
        shard = ProcessShard()
        assert await shard._run(protocol.Flush(), str, broken) == "text"
        await shard.close()
    assert [type(error) for error in caught] == [ValueError]


SCRIPT = """
import asyncio, os, sys
from pooled_nb.shard import open_shard

print("once", flush=True)
async def main():
    shard = open_shard()
    job = asyncio.create_task(shard.device())
    while shard.pid is None:
        await asyncio.sleep(0.01)
    print(shard.pid, flush=True)
    {then}
asyncio.run(main())
"""


def run_script(folder: Path, then: str) -> list[str]:
    script = folder / "user_script.py"
    script.write_text(SCRIPT.format(then=then))
    (folder / "torch.py").write_text("raise SystemExit('the wrong torch')")
    done = subprocess.run(
        [sys.executable, "-P", str(script)],
        cwd=folder, capture_output=True, text=True, timeout=60, check=False,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done.stdout.split()


def test_a_script_without_a_main_guard(tmp_path):
    """DESIGN section 3: the child is started, not forked, and never runs the user's script again."""
    said = run_script(tmp_path, "facts = await job; print(facts.kind); await shard.close()")
    assert said[0] == "once"
    assert len(said) == 3
    assert said[2] in ("cpu", "cuda", "mps", "xpu")
    assert gone(int(said[1]))


async def test_the_child_ends_with_its_kernel(tmp_path):
    """DESIGN section 3: it ends when its pipe closes, in the middle of whatever it does."""
    said = await asyncio.to_thread(run_script, tmp_path, "os._exit(0)")
    await until(lambda: gone(int(said[1])), 10)


async def test_the_child_ends_with_its_kernel_though_a_fork_lives_on(tmp_path):
    """DESIGN section 3: a process that a cell forked holds the pipe open; the child ends all the same."""
    then = (
        "await asyncio.sleep(0.5)\n    sys.stdout.flush(); fork = os.fork()\n"
        "    if not fork:\n        os.close(1); os.close(2); import time; time.sleep(60); os._exit(0)\n"
        "    print(fork, flush=True); os._exit(0)"
    )
    said = await asyncio.to_thread(run_script, tmp_path, then)
    child, fork = int(said[1]), int(said[2])
    try:
        assert not gone(fork)
        await until(lambda: gone(child), 15)
        assert not gone(fork)
    finally:
        os.kill(fork, signal.SIGKILL)


HALF = "half an emoji: \ud83d"


@pytest.mark.parametrize("process", [True, False])
async def test_whatever_is_asked_only_our_errors_come_back(model, process):
    """DESIGN section 1: every error is one of ours, with its next step, whatever a caller hands in."""
    shard = open_shard(process)
    many = 1 << 80
    try:
        facts = await shard.inspect(str(model))
        await shard.load(spec_of(facts))
        one = Columns(pos=0, n=1, wide=True)
        reset = Control(reset=True)
        frame = await shard.forward(one, reset, tokens=[1])
        asked = [
            (BadQuestion, lambda: shard.render([Turn(role="user", text=HALF)])),
            (BadQuestion, lambda: shard.render([Turn(role="assistant", text=HALF)])),
            (PooledError, lambda: shard.inspect(HALF)),
            (PooledError, lambda: shard.inspect(str(model), folder=HALF)),
            (PooledError, lambda: shard.inspect("a/b", revision=HALF)),
            (FrameRefused, lambda: shard.forward(Columns(pos=0, n=0, wide=True), reset, tokens=[])),
            (FrameRefused, lambda: shard.forward(Columns(pos=0, n=-1, wide=True), reset, tokens=[1])),
            (PooledError, lambda: shard.forward(one, reset, tokens=[many])),
            (PooledError, lambda: shard.forward(Columns(pos=many, n=1, wide=True), reset, tokens=[1])),
            (FrameRefused, lambda: shard.sample(b"", pos=0, n=0, sampling=Sampling())),
            (FrameRefused, lambda: shard.sample(b"", pos=0, n=-3, sampling=Sampling())),
            (PooledError, lambda: shard.sample(b"", pos=many, n=1, sampling=Sampling())),
            (PooledError, lambda: shard.load(spec_of(facts, ctx=many))),
            (PooledError, lambda: shard.load(spec_of(facts, repo=HALF, folder=None))),
        ]
        for kind, ask in asked:
            with pytest.raises(kind) as caught:
                await ask()
            assert caught.value.next_step
        await shard.load(spec_of(facts))
        # It lives, and the pipe is in step.
        assert (await shard.forward(one, reset, tokens=[1])).data == frame.data
    finally:
        await shard.close()


async def test_one_that_dies_leaves_disk_copies_and_one_that_is_closed_does_not(model, tmp_path):
    """PROTOCOL section 7: checkpoints on disk are for a device that comes back, not for one that leaves."""
    cache = tmp_path / "cache"
    slots, rows, facts = [], [], None
    for dies in (True, False):
        shard = ProcessShard({"POOLED_CACHE": str(cache)})
        facts = facts or await shard.inspect(str(model))
        states = bytes(3 * facts.dim * 4)
        loaded = await shard.load(spec_of(facts, lo=0, hi=1, ends=False, room="one"))
        slots.append(loaded.slots)
        if dies:
            await shard.forward(Columns(pos=0, n=3, wide=False), Control(), data=states)
        control = Control(sv=5) if dies else Control(ld=5)
        done = await shard.forward(Columns(pos=3, n=3, wide=False), control, data=states)
        rows.append(done.data)
        await until(lambda: copies(cache) == ["5"])
        if dies:
            os.kill(shard.pid, signal.SIGKILL)
            await until(lambda shard=shard: gone(shard.pid))
        await shard.close()
    assert slots == [[], [5]]
    assert rows[0] == rows[1]
    assert copies(cache) == []


def copies(cache: Path) -> list[str]:
    return [
        path.name for path in cache.rglob("*") if path.is_file() and path.name not in ("lock", "hashes.json")
    ]
