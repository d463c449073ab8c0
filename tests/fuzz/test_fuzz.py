"""10,000 runs of the fuzzers; ``make fuzz N=1000000`` for more (CONTRIBUTING).

PROTOCOL sections 2, 3 and 4: nothing that comes from the network raises, gets in without a proof or a
person, or makes this device keep more than is stated.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from pooled_nb.mesh import proofs
from pooled_nb.mesh.gatejoiner import JoinerGate
from pooled_nb.mesh.linkactions import Deliver
from pooled_nb.mesh.linkstate import LinkState
from tests.fuzz import runs

BASE = 1
EACH = 10_000 // len(runs.FUZZERS)


@pytest.mark.parametrize("fuzzer", runs.FUZZERS)
def test_nothing_is_found(fuzzer: str) -> None:
    assert runs.part(fuzzer, BASE, 0, EACH) == EACH


@pytest.mark.parametrize("fuzzer", runs.FUZZERS)
def test_memory_stays_flat(fuzzer: str) -> None:
    """What a run leaves behind is nothing: twice as many weigh no more."""
    runs.part(fuzzer, 2, 0, 100)  # caches of types fill once
    gc.collect()
    tracemalloc.start()
    try:
        runs.part(fuzzer, 2, 100, 100)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        runs.part(fuzzer, 2, 200, 200)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 64_000
    finally:
        tracemalloc.stop()


DRAWS = """
import random, sys
from tests.fuzz import runs

for fuzzer in runs.FUZZERS:
    made = []
    class Random(random.Random):
        def __init__(self, *seed):
            super().__init__(*seed)
            made.append(self)
    sys.modules[f"tests.fuzz.{fuzzer}"].Random = Random
    for number in range(int(sys.argv[1]), 8):
        runs.one(f"{fuzzer}:1:{number}")
    print(fuzzer, made[-1].random())
"""


def test_one_name_is_one_run() -> None:
    """What a run draws is in its name alone: not in the runs before it, nor in how this process hashes."""
    said = [
        subprocess.run(
            [sys.executable, "-c", DRAWS, first],
            cwd=Path(__file__).resolve().parents[2],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for first, seed in (("0", "1"), ("7", "2"))
    ]
    assert said[0] == said[1]
    assert said[0].count("\n") == len(runs.FUZZERS)


def weakened(what: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Break one rule of section 4; gives the fuzzer that must notice."""
    match what:
        case "any proof is good":
            monkeypatch.setattr(proofs, "same", lambda a, b: a is not None and b is not None)
        case "the role is not in the proof":
            real = proofs.gate_transcript
            monkeypatch.setattr(
                proofs, "gate_transcript", lambda role, cred, **more: real("join", cred, **more)
            )
        case "a mesh proof said back is good":
            mesh = proofs.mesh_proof
            monkeypatch.setattr(proofs, "mesh_proof", lambda mk, role, **more: mesh(mk, "dial", **more))
        case "an admit is believed":
            monkeypatch.setattr(JoinerGate, "_believe", lambda self, admit: self._enter(admit, "first"))
        case "a roster of anybody counts":
            monkeypatch.setattr(LinkState, "_deliver", lambda self, message: [Deliver(message)])
            return "control"
    return "gates"


@pytest.mark.parametrize(
    "what",
    [
        "any proof is good",
        "the role is not in the proof",
        "a mesh proof said back is good",
        "an admit is believed",
        "a roster of anybody counts",
    ],
)
def test_a_rule_that_is_broken_is_found(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """These fuzzers can fail: each of these mistakes is found, and its run is named."""
    fuzzer = weakened(what, monkeypatch)
    with pytest.raises(runs.Found, match=rf"^run {fuzzer}:1:\d+: AssertionError"):
        runs.part(fuzzer, BASE, 0, EACH)
