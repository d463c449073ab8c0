"""That tests run side by side as they are meant to: ``make test-light test-rest``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.sides import Sides, side


class Worker:
    """What a process was told to run; it ends each test as soon as it has it."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.shutting_down = False
        self.ran: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.ran += indices

    def shutdown(self) -> None:
        self.shutting_down = True


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ("tests/mesh/test_link.py::test_a", "tests/mesh/test_link.py::test_b[x::y]", True),
        ("tests/mesh/test_link.py::test_a", "tests/mesh/test_mesh.py::test_a", False),
        ("tests/sim/test_seeds.py::test_a[0]", "tests/sim/test_seeds.py::test_a[10]", False),
        ("tests/sim/test_sim.py::test_a", "tests/sim/test_sim.py::test_b", True),
    ],
)
def test_what_one_process_runs(one: str, other: str, together: bool) -> None:
    """A file's fixtures are made once."""
    assert (side(one) == side(other)) is together


def test_each_test_is_run_once_and_files_stay_together(pytestconfig: pytest.Config) -> None:
    files = ["tests/shard/test_a.py", "tests/shard/test_b.py", "tests/sim/test_seeds.py"]
    tests = [f"{file}::test_{number}" for file in files for number in range(4)]
    option = SimpleNamespace(**{**vars(pytestconfig.option), "tx": ["popen"] * 2, "loadscopereorder": True})
    config = cast(pytest.Config, SimpleNamespace(option=option, getvalue=lambda name: getattr(option, name)))
    sides = Sides(config, None)
    workers: list[Any] = [Worker("gw0"), Worker("gw1")]
    for worker in workers:
        sides.add_node(worker)
    for worker in workers:
        sides.add_node_collection(worker, tests)
    sides.schedule()
    assert {tests[i].partition("::")[0] for i in workers[0].ran} == set(files[:1])
    assert {tests[i].partition("::")[0] for i in workers[1].ran} == set(files[1:2])
    for index in range(4):  # the first ends its file, and gets the seeds one by one
        sides.mark_test_complete(workers[0], index)
    for index in range(8, len(tests)):
        assert index in workers[0].ran
        sides.mark_test_complete(workers[0], index)
    assert sorted(workers[0].ran + workers[1].ran) == list(range(len(tests)))
