from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedModel

from pooled_nb.shard.lazy import LazyTensor
from tests.shard.attack.rig import LAYERS, Rig
from tests.shard.tinychat import write_model


@pytest.fixture(scope="session")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that says the truth."""
    return write_model(tmp_path_factory.mktemp("honest") / "model", layers=LAYERS)


@pytest.fixture
def rig(honest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """A copy of it to spoil; where torch is given any of its weights, it is noted."""
    built: list[str] = []
    plain = PreTrainedModel.from_pretrained.__func__  # type: ignore[attr-defined]  # a class method

    def watched(cls: type[Any], *args: Any, **kwargs: Any) -> Any:
        weights = kwargs.get("state_dict") or {}
        if any(isinstance(tensor, LazyTensor) for tensor in weights.values()):
            built.append(cls.__name__)
        return plain(cls, *args, **kwargs)

    monkeypatch.setattr(PreTrainedModel, "from_pretrained", classmethod(watched))
    return Rig(Path(shutil.copytree(honest, tmp_path / "spoilt")), built)
