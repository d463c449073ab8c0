"""Which accelerator is computed on: decisions over a stand-in for torch's drivers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from torch.nn import functional

from pooled_nb.errors import BadOption
from pooled_nb.shard import accelerators


class Machine:
    """What torch says of a machine: accelerators by kind, and whether their trial is right."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **works: bool) -> None:
        self.works = works
        self.asked: list[tuple[str, str]] = []
        self.broken: set[str] = set()
        monkeypatch.delenv("POOLED_DEVICE", raising=False)
        monkeypatch.setattr(accelerators, "_tried", {})
        monkeypatch.setattr(accelerators, "is_here", lambda kind: kind in self.works)
        monkeypatch.setattr(accelerators, "places", lambda kind: [kind])
        monkeypatch.setattr(accelerators, "trial", self.trial)

    def trial(self, place: str, dtype: str) -> None:
        self.asked.append((place, dtype))
        if not self.works[place] or dtype in self.broken:
            raise RuntimeError("no kernel image\nis available for execution on the device")


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_trial_is_right_on_a_cpu(dtype: str) -> None:
    """DESIGN section 5: what the trial expects is what a device that works computes."""
    accelerators.trial("cpu", dtype)


@pytest.mark.parametrize("what", ["matmul", "scaled_dot_product_attention", "index_copy_"])
def test_a_device_that_computes_wrong_numbers_fails_it(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """DESIGN section 5: a kind of device is tried before it is used."""

    def wrong(*args: Any, **kwargs: Any) -> torch.Tensor:
        given: torch.Tensor = args[0]
        return given * float("nan") if what != "index_copy_" else given

    name = "__matmul__" if what == "matmul" else what
    monkeypatch.setattr(functional if what.startswith("scaled") else torch.Tensor, name, wrong)
    with pytest.raises(ArithmeticError):
        accelerators.trial("cpu", "float32")


def test_the_first_that_works_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 5: MPS and XPU run by the plain path; what fails its trial is said in one sentence."""
    for works, kind in (({}, "cpu"), ({"mps": True}, "mps"), ({"xpu": True, "cuda": True}, "cuda")):
        Machine(monkeypatch, **works)
        assert accelerators.chosen() == (kind, "")
    machine = Machine(monkeypatch, cuda=False, xpu=True)
    kind, note = accelerators.chosen()
    assert kind == "xpu"
    assert note == (
        "cuda is not used, since a small trial on it failed "
        "(RuntimeError: no kernel image is available for execution on the device)."
    )
    machine.works["cuda"] = True
    assert accelerators.chosen() == (kind, note), "what the room was told stays"
    assert machine.asked.count(("cuda", "float32")) == 1


@pytest.mark.parametrize(
    ("wanted", "works", "kind"),
    [
        ("cpu", {"cuda": True}, "cpu"),
        (" MPS ", {"mps": True}, "mps"),
        ("xpu", {"cuda": True, "xpu": True}, "xpu"),
        ("auto", {"cuda": True}, "cuda"),
        ("", {"cuda": True}, "cuda"),
        ("cuda", {"cuda": False, "xpu": True}, "cpu"),
    ],
)
def test_a_person_may_choose(
    monkeypatch: pytest.MonkeyPatch, wanted: str, works: dict[str, bool], kind: str
) -> None:
    """``POOLED_DEVICE`` names the kind; one that does not work is the CPU, and never another accelerator."""
    machine = Machine(monkeypatch, **works)
    monkeypatch.setenv("POOLED_DEVICE", wanted)
    assert accelerators.chosen()[0] == kind
    if wanted == "cpu":
        assert machine.asked == []


@pytest.mark.parametrize("wanted", ["tpu", "cuda:1", "mps"])
def test_a_choice_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch, wanted: str) -> None:
    """An error says what happened and what to do next."""
    Machine(monkeypatch, cuda=True)
    monkeypatch.setenv("POOLED_DEVICE", wanted)
    with pytest.raises(BadOption, match=f"POOLED_DEVICE is '{wanted}'") as caught:
        accelerators.chosen()
    assert "cpu" in caught.value.next_step


def test_halves_are_tried_where_nothing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 3: ``dtypes`` are those that a device computes natively."""
    machine = Machine(monkeypatch, mps=True)
    assert accelerators.native("mps") == ["float32", "float16", "bfloat16"]
    machine.broken = {"bfloat16"}
    assert accelerators.native("mps") == ["float32", "float16"]


def test_memory_of_a_mac_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 3: what a device may lend is what nothing else uses."""
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 12_000)
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: 2_000)
    for available, free in ((7_000, 7_000), (15_000, 10_000)):
        monkeypatch.setattr(psutil, "virtual_memory", lambda a=available: SimpleNamespace(available=a))
        assert accelerators.memory("mps") == (12_000, free)


def test_memory_of_intel_gpus_where_the_driver_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 3: of several devices the memory adds up."""

    def says(i: int) -> tuple[int, int]:
        if i:
            raise RuntimeError("The device doesn't support querying the available free memory")
        return 900, 1_000

    monkeypatch.setattr(torch.xpu, "device_count", lambda: 2)
    monkeypatch.setattr(torch.xpu, "mem_get_info", says)
    monkeypatch.setattr(torch.xpu, "get_device_properties", lambda i: SimpleNamespace(total_memory=500))
    monkeypatch.setattr(torch.xpu, "memory_reserved", lambda i: 100)
    assert accelerators.memory("xpu") == (1_500, 1_300)


def test_names_and_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 5, rule 5: devices of one model are as one; another model is another sig."""
    names = ["B580", "A770", "B580"]
    monkeypatch.setattr(torch.xpu, "device_count", lambda: 3)
    monkeypatch.setattr(torch.xpu, "get_device_name", lambda i: names[i])
    assert accelerators.places("xpu") == ["xpu:0", "xpu:1", "xpu:2"]
    assert accelerators.name("xpu") == "B580 ×2, A770"
    assert accelerators.unlike("xpu") == ["xpu:0", "xpu:1"]
    monkeypatch.setattr(torch.backends.mps, "get_name", lambda: "Apple M2", raising=False)
    assert (accelerators.name("mps"), accelerators.unlike("mps")) == ("Apple M2", ["mps"])


def test_caches_of_what_is_there_are_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a room gave back is free for other programs."""
    emptied: list[str] = []
    Machine(monkeypatch, mps=True, xpu=True)
    for kind in accelerators.KINDS:
        monkeypatch.setattr(getattr(torch, kind), "empty_cache", lambda kind=kind: emptied.append(kind))
    accelerators.empty_caches()
    assert emptied == ["mps", "xpu"]
