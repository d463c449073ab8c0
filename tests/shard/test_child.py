"""The child's side of the pipe."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb import errors
from pooled_nb.shard import Columns, Control, Forwarded, Sampling, Turn, protocol

ROOT = Path(__file__).parents[2]
NOISY = """
import sys, types, os, subprocess
desk = types.ModuleType("pooled_nb.shard.desk")
class Desk:
    def run(self, job, progress, stop):
        print("a library says hello")
        os.write(1, b"and so does its C part")
        subprocess.run([sys.executable, "-c", "print('and a child of its own', input())"], check=False)
        sys.stdout.flush()
        progress(5, "half")
        if type(job).__name__ == "Unload":
            raise KeyError("odd")
        if type(job).__name__ == "Device":
            raise MemoryError()
        return "text"
desk.Desk = Desk
sys.modules["pooled_nb.shard.desk"] = desk
from pooled_nb.shard.child import main
main()
"""


def talk(
    *jobs: protocol.AnyJob, code: str = NOISY, raw: bytes = b""
) -> tuple[list[protocol.Reply], int, str]:
    """Send calls and close the pipe after the last answer; what came back."""
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT), "POOLED_THREADS": "1"},
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    try:
        for number, job in enumerate(jobs, 1):
            child.stdin.write(protocol.pack(protocol.Call(number, job)))
        child.stdin.write(raw)
        child.stdin.flush()
        replies: list[protocol.Reply] = []
        while len([r for r in replies if not isinstance(r, protocol.Progressed)]) < len(jobs):
            length = protocol.body_length(child.stdout.read(protocol.HEAD))
            replies.append(protocol.unpack_reply(child.stdout.read(length)))
        if not raw:
            child.stdin.close()
        return replies, child.wait(20), child.stderr.read().decode()
    finally:
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout, child.stderr):
            pipe.close()


def test_what_prints_goes_to_the_standard_error_and_the_pipe_stays_clean():
    """DESIGN section 3: frames go over the pipe, and nothing else does."""
    replies, code, stderr = talk(protocol.Flush())
    assert code == 0
    assert isinstance(replies[0], protocol.Progressed)
    assert (replies[0].pct, replies[0].words) == (5, "half")
    assert isinstance(replies[1], protocol.Done)
    assert protocol.result_of(protocol.Flush(), replies[1]) == "text"
    for words in ("a library says hello", "and so does its C part"):
        assert words in stderr


def test_errors_that_are_none_of_ours_get_words():
    """DESIGN section 1: every error says what happened and the next step."""
    replies, _, stderr = talk(protocol.Unload(), protocol.Device(), protocol.Flush())
    odd, memory, after = (r for r in replies if not isinstance(r, protocol.Progressed))
    assert isinstance(odd, protocol.Failed)
    assert isinstance(memory, protocol.Failed)
    assert (odd.cls, memory.cls) == ("ShardError", "OutOfMemory")
    assert "KeyError" in odd.what
    assert "ran out of memory" in memory.what
    assert isinstance(protocol.error_of(memory), errors.OutOfMemory), (
        "less of the model may work (PROTOCOL section 6)"
    )
    assert "Traceback" in stderr
    assert isinstance(after, protocol.Done)


ODD = """
import sys, types
desk = types.ModuleType("pooled_nb.shard.desk")
from pooled_nb.errors import ModelNotFound
from pooled_nb.shard import protocol
protocol.MAX_MESSAGE = 100_000
class Desk:
    def run(self, job, progress, stop):
        progress(5, "reading /tmp/\\udcff")
        match type(job).__name__:
            case "Unload":
                raise ModelNotFound("no /tmp/\\udcff", "Look at \\udcff.")
            case "Device":
                return "x" * 200_000
            case "Render":
                return 1 << 70
            case "Inspect":
                return object()
        return "text"
desk.Desk = Desk
sys.modules["pooled_nb.shard.desk"] = desk
from pooled_nb.shard.child import main
main()
"""


def test_an_answer_that_cannot_cross_is_an_error_of_that_call_alone():
    """DESIGN section 3: one answer that is too large, or no text, does not end the child."""
    asked = [
        protocol.Unload(), protocol.Device(), protocol.Render(turns=[]), protocol.Inspect(model="x"),
        protocol.Flush(),
    ]  # fmt: skip
    replies, code, _ = talk(*asked, code=ODD)
    assert code == 0
    *failed, last = (r for r in replies if not isinstance(r, protocol.Progressed))
    assert [type(r) for r in failed] == [protocol.Failed] * 4
    assert [r.cls for r in failed] == ["ModelNotFound", *["ShardError"] * 3]
    assert "no /tmp/?" in failed[0].what
    assert all(r.next_step for r in failed)
    assert isinstance(last, protocol.Done)


@pytest.mark.parametrize(
    "job",
    [
        protocol.Inspect(model="\ud800"),
        protocol.Forward(columns=Columns(pos=1 << 70, n=1, wide=False), control=Control()),
        protocol.Forward(columns=Columns(pos=0, n=1, wide=False), control=Control(), tokens=[-(1 << 70)]),
        protocol.Render(turns=[Turn(role="user", text="\udfff")]),
    ],
)
def test_a_call_that_cannot_cross_is_refused_in_words(job):
    """DESIGN section 1: errors say what happened and the next step."""
    with pytest.raises(errors.ShardError, match="cannot be sent") as caught:
        protocol.pack(protocol.Call(1, job))
    assert caught.value.next_step


@pytest.mark.parametrize(
    "odd",
    [
        {"temperature": float("nan")}, {"temperature": float("inf")}, {"temperature": -0.1},
        {"temperature": float("-inf")}, {"top_p": float("nan")}, {"top_p": -0.01}, {"top_p": 1.01},
        {"top_p": float("inf")}, {"top_k": -1}, {"top_k": 1 << 64}, {"seed": 1 << 64}, {"seed": -(1 << 64)},
    ],
)  # fmt: skip
def test_a_sampler_that_draws_nothing_is_refused(odd):
    """DESIGN section 5: a token is drawn from finite numbers; what is none is refused where it is written."""
    with pytest.raises(errors.BadQuestion) as caught:
        Sampling(**odd)
    assert next(iter(odd)) in caught.value.what
    assert caught.value.next_step
    for good in ({"top_p": 0.0}, {"top_p": 1.0}, {"seed": (1 << 64) - 1}, {"seed": -(1 << 63)}):
        job = protocol.Sample(data=b"", pos=0, n=1, sampling=Sampling(**good))
        assert protocol.unpack_asked(protocol.pack(protocol.Call(1, job))[protocol.HEAD :]).job == job


def test_a_kernel_that_says_nonsense_is_none_of_ours():
    """DESIGN section 8: typed, bounded messages: the child ends rather than guess."""
    for raw in (
        b"\xff\xff\xff\xff",
        b"\0\0\0\0",
        protocol.pack(protocol.Call(1, protocol.Flush()))[:-1] + b"\xc1",
    ):
        _, code, stderr = talk(raw=raw)
        assert code == 1
        assert "pipe broke" in stderr


def test_the_threads_are_set_before_torch_loads():
    """DESIGN section 5: torch's threads are set to the cores a device may use."""
    code = (
        "import pooled_nb.shard.child, sys; assert not {'torch', 'numpy'} & set(sys.modules)\n"
        "import os; from pooled_nb.shard.threads import limit_environment; limit_environment(os.environ)\n"
        "import torch; print(torch.get_num_threads())"
    )
    env = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True,
        env=env | {"PYTHONPATH": str(ROOT), "POOLED_THREADS": "1"},
    )  # fmt: skip
    assert done.stdout.strip() == "1"


def test_the_door_is_light():
    """DESIGN section 2: a shard's door imports no torch, no transformers, no numpy."""
    code = (
        "import sys, pooled_nb.shard as s; s.open_shard(); s.plan_speed; s.lend_gb\n"
        "print({'torch', 'transformers', 'numpy', 'huggingface_hub', 'aiortc'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "set()"


def test_every_error_crosses_as_itself():
    """DESIGN section 1: errors in one tree, each with its next step, on both sides of the pipe."""
    classes = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.PooledError)]
    assert len(classes) > 20
    for cls in classes:
        body = protocol.pack(protocol.failed(3, cls("What.", "Next.")))[protocol.HEAD :]
        reply = protocol.unpack_reply(body)
        assert isinstance(reply, protocol.Failed)
        again = protocol.error_of(reply)
        assert type(again) is cls
        assert (again.what, again.next_step) == ("What.", "Next.")
    for name in ("SystemExit", "annotations", "Nonsense", "__builtins__"):
        assert type(protocol.error_of(protocol.Failed(1, name, "a", "b"))) is errors.ShardError


jobs = st.one_of(
    st.builds(protocol.Device),
    st.builds(protocol.Inspect, model=st.text(max_size=9), revision=st.none() | st.text(max_size=9)),
    st.builds(
        protocol.Forward,
        columns=st.builds(
            Columns, pos=st.integers(0, 2**31), n=st.integers(1, 256), wide=st.booleans(), lane=st.just(0)
        ),
        control=st.builds(
            Control,
            reset=st.booleans(),
            rb=st.none() | st.integers(0, 62),
            dp=st.tuples(st.integers(0, 65535)),
        ),
        tokens=st.none() | st.lists(st.integers(0, 2**20), max_size=9),
        data=st.none() | st.binary(max_size=50),
    ),
    st.builds(
        protocol.Sample,
        data=st.binary(max_size=9),
        pos=st.integers(0, 9),
        n=st.just(1),
        sampling=st.builds(Sampling),
    ),
    st.builds(
        protocol.Render, turns=st.lists(st.builds(Turn, role=st.just("user"), text=st.text(max_size=9)))
    ),
)


@given(number=st.integers(0, 2**40), job=jobs)
@settings(deadline=None, max_examples=100)
def test_calls_cross_whole(number, job):
    """DESIGN section 3: typed messages on the pipe, never a pickle."""
    packed = protocol.pack(protocol.Call(number, job))
    assert protocol.body_length(packed[: protocol.HEAD]) == len(packed) - protocol.HEAD
    assert protocol.unpack_asked(packed[protocol.HEAD :]) == protocol.Call(number, job)


def test_an_answer_of_another_type_is_refused():
    """DESIGN section 8: typed, bounded messages."""
    reply = protocol.done(1, Forwarded(data=b"ab", pos=1, n=1, ms=0.5))
    job = protocol.Forward(columns=Columns(pos=1, n=1, wide=False), control=Control())
    assert protocol.result_of(job, reply).data == b"ab"
    with pytest.raises(msgspec.ValidationError):
        protocol.result_of(protocol.Flush(), reply)
