"""What an attacked model is tried with: the three jobs that read its files, and a watch over torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from pooled_nb.errors import PooledError
from pooled_nb.shard import LoadSpec, ModelFacts, protocol
from pooled_nb.shard.desk import Desk
from pooled_nb.shard.door import Progress
from pooled_nb.shard.found import folder_files, folder_revision
from pooled_nb.shard.headers import SINGLE

NAME = SINGLE
LAYERS = 2


def _quiet(pct: int, words: str) -> None:
    pass


@dataclass
class Rig:
    """A model's folder, a desk, and how often a model was built for weights."""

    folder: Path
    built: list[str]
    desk: Desk = field(default_factory=Desk)

    def read(self, name: str = NAME) -> bytes:
        return (self.folder / name).read_bytes()

    def write(self, data: bytes, name: str = NAME) -> None:
        (self.folder / name).write_bytes(data)

    def inspect(self) -> ModelFacts:
        facts = self.desk.run(protocol.Inspect(model=str(self.folder)), _quiet)
        assert isinstance(facts, ModelFacts)
        return facts

    def load(self, progress: Progress = _quiet, **changes: Any) -> None:
        self.desk.run(protocol.Load(spec=self.spec(**changes)), progress)

    def spec(self, **changes: Any) -> LoadSpec:
        """What a host would say that saw nothing wrong."""
        files = folder_files(self.folder)
        sha256 = files["config.json"].sha256 or "" if "config.json" in files else ""
        whole = LoadSpec(
            repo=f"local/{self.folder.name}", revision=folder_revision(files, sha256),
            folder=str(self.folder), config_sha256=sha256, lo=0, hi=LAYERS, ends=True, ctx=256,
            dtype="float32", files=files, device="cpu",
        )  # fmt: skip
        return structs.replace(whole, **changes)

    def refused(self, words: str, **changes: Any) -> None:
        """Inspect and load refuse it in these words, before a model is built, and the desk goes on."""
        jobs: list[protocol.AnyJob] = [
            protocol.Inspect(model=str(self.folder)),
            protocol.Load(spec=self.spec(**changes)),
        ]
        for job in jobs:
            with pytest.raises(PooledError, match=words) as caught:
                self.desk.run(job, _quiet)
            assert caught.value.next_step
            assert len(str(caught.value)) < 1000
        assert self.built == []
