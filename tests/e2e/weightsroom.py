"""Rooms of devices that are as on machines of their own: each has its own cache, no folder and no hub."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from pooled_nb.shard.headers import read_layout
from pooled_nb.shard.layout import Layout
from pooled_nb.shard.ranges.segments import PARTS, Segment, read_name
from pooled_nb.shard.sources.needs import wanted
from pooled_nb.shard.tensors import in_range
from tests.e2e.chaos import LIMIT_S, Device
from tests.e2e.chaosroom import Question, Signaling, Stage

LAYERS = 12
FILE = "model.safetensors"
QUESTION = Question("Why is the sky blue?", tokens=24)
Ranges = list[tuple[int, int]]


def wide(folder: Path) -> tuple[Path, list[int]]:
    """Write a model of 12 layers of 2 MB, each a block of its one file; and what would end its answers."""
    from tests.shard.tinychat import SPECIAL, tokenizer, write_model

    write_model(folder, layers=LAYERS, hidden_size=192, intermediate_size=672)
    return folder, [int(token) for token in tokenizer().convert_tokens_to_ids(SPECIAL)]


class Apart(Stage):
    """A host that alone has the model, and devices that have nothing.

    Parameters
    ----------
    more
        Variables of some device's environment, by its name.
    """

    def __init__(
        self,
        folder: Path,
        model: str | Path,
        never: Sequence[int],
        *,
        signaling: Signaling,
        more: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        env = {"HF_HUB_OFFLINE": "1", "POOLED_MODELS": "", "POOLED_MAX_DOWNLOAD": "8"}
        super().__init__(
            folder, Path(model), never, env=env, servers=[signaling.url], split="memory", draft="off"
        )
        self._more = more or {}
        self.alone = ""
        """What the host alone answered."""
        self.slow = folder / "slow"
        """While it is there, disks are slow."""

    def process(self, name: str) -> Device:
        """See `Stage.process`."""
        place = self.folder / name
        names = ("RUNTIME_DIR", "DATA_DIR", "CONFIG_DIR")
        own = {f"POOLED_{what}": str(place / what) for what in names}
        env = {
            **self._env,
            **own,
            "POOLED_CACHE": str(self.cache(name)),
            "HF_HOME": str(place / "hf"),
            "HF_HUB_CACHE": str(place / "hf" / "hub"),
            "POOLED_TEST_SLOW": str(self.slow),
            **self._more.get(name, {}),
        }
        return Device(place, env=env, program="tests.e2e.weightsdevice")

    def cache(self, name: str) -> Path:
        """Of a device."""
        return self.folder / name / "cache"

    def begin(self, *workers: str) -> Apart:
        """The host answers alone; meanwhile the processes of workers start, which are in no room yet."""
        self.devices.update({name: self.process(name) for name in workers})
        self.open()
        self.host.call("start")
        self.alone = self.answer()
        return self

    def join_all(self, *workers: str) -> None:
        """All of these are in, whether they were or not."""
        here = [name for name, _, gone in self.host.now["devices"] if not gone]
        joins = {name: self.join(name, wait=False) for name in workers if name not in here}
        for name, number in joins.items():
            self[name].answer(number)

    def answer(self) -> str:
        """What it answers to the question in a new chat."""
        self.host.call("reset")
        asked = self.ask(QUESTION)
        assert asked.done()["stats"]["tokens"] == QUESTION.tokens
        return asked.text

    def lend(self, name: str, gb: float) -> None:
        """A device lends so much from now on; the next deal counts with it."""
        self[name].call("lend", gb=gb)

        def known() -> bool:
            lines = self.host.call("status")["status"]["devices"]
            return [line["lends_gb"] for line in lines if line["name"] == name] == [gb]

        end = time.monotonic() + LIMIT_S
        while not known():
            assert time.monotonic() < end, f"{name} lends no {gb} GB"
            time.sleep(0.02)

    def dealt(self) -> dict[str, list[int]]:
        """The layers ``[lo, hi)`` of each device that holds some."""
        return {name: held for name, held in self.layers().items() if held}

    # -- what is on disk ---------------------------------------------------------------------------

    def segments(self, name: str) -> dict[Segment, Path]:
        """What a device keeps of the weights file."""
        return segments_of(self.cache(name))

    def held(self, name: str) -> Ranges:
        """The same, in order; each is what its hash says, of the model's file."""
        for segment, path in self.segments(name).items():
            assert hashlib.sha256(path.read_bytes()).hexdigest() == segment.sha256
        return sorted((segment.lo, segment.hi) for segment in self.segments(name))

    def parts(self, name: str) -> dict[tuple[int, int], int]:
        """Bytes that are here of each block that is on its way."""
        found = {}
        for path in (self.cache(name) / "ranges").glob(f"models/*/files/*/{PARTS}/*.part"):
            lo, hi = path.name.split(".")[0].split("-")
            found[int(lo, 16), int(hi, 16)] = path.stat().st_size
        return found

    def forget(self, name: str) -> None:
        """A device's person deletes what it keeps."""
        shutil.rmtree(self.cache(name) / "ranges" / "models")

    # -- who was asked -----------------------------------------------------------------------------

    def asked(self, giver: str, by: str, since: int = 0) -> Ranges:
        """Ranges of the weights file that one device asked another for."""
        return [
            (said["lo"], said["hi"])
            for said in self[giver].said[since:]
            if said.get("heard") == "asked" and said["by"] == by and said["file"] == FILE
        ]

    def marks(self) -> Counter[str]:
        """How much each has said by now."""
        return Counter({name: len(device.said) for name, device in self.devices.items()})


def needs(layout: Layout, held: Sequence[int]) -> Ranges:
    """The blocks that a worker with these layers needs, and no others; the header first."""
    lo, hi = held
    blocks = wanted(layout, lambda name: in_range(name, lo, hi, False))
    return sorted({(0, layout.header), *((block.lo, block.hi) for block in blocks)})


def segments_of(cache: Path) -> dict[Segment, Path]:
    """What a cache keeps of weights files."""
    paths = (cache / "ranges").glob("models/*/files/*/*")
    return {segment: path for path in paths if (segment := read_name(path.name))}


def layout_of(folder: Path) -> Layout:
    """Of the model's file."""
    return read_layout(folder / FILE)
