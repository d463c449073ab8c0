"""The same lies in the range cache: as they came from a hub, or from a device of the room."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from pooled_nb.errors import ModelNotFound, PooledError
from pooled_nb.shard import Columns, Control, Forwarded, LoadSpec, Missing, open_shard, protocol
from pooled_nb.shard.door import FileFact
from pooled_nb.shard.headers import PREFIX, SINGLE, header_end, safetensors_layout
from pooled_nb.shard.layout import blocks
from pooled_nb.shard.prints import file_sha256
from pooled_nb.shard.ranges import RangeFile, Ranges
from tests.shard.attack.headers import LIES
from tests.shard.attack.rig import Rig

REPO, REVISION = "acme/model", "ab" * 20
FRAME = protocol.Forward(
    columns=Columns(pos=0, n=3, wide=True), control=Control(reset=True), tokens=[5, 6, 7]
)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test's own."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("POOLED_CACHE", str(folder))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return folder


def keep(file: RangeFile, data: bytes, lo: int, hi: int) -> None:
    incoming = file.begin(lo, hi)
    assert incoming is not None
    incoming.write(data[lo:hi])
    incoming.finish()


def cached(rig: Rig, data: bytes, *, whole: bool = False) -> LoadSpec:
    """Put a model into the range cache whose weights file is this; as much of it as its header allows."""
    model = Ranges().model(REPO, REVISION)
    files: dict[str, Any] = {SINGLE: FileFact(size=len(data))}
    for path in rig.folder.iterdir():
        if path.suffix in (".json", ".jinja"):
            model.put_small(path.name, path.read_bytes())
            files[path.name] = FileFact(size=path.stat().st_size, sha256=file_sha256(path))
    file = model.file(SINGLE, len(data))
    try:
        end = header_end(data, len(data), SINGLE)
    except ModelNotFound:
        end = min(PREFIX, len(data))
    parts = (
        [(block.lo, block.hi) for block in blocks(safetensors_layout(data, len(data), SINGLE))]
        if whole
        else []
    )
    for lo, hi in parts or [(0, end)]:
        keep(file, data, lo, hi)
    spec = rig.spec(repo=REPO, revision=REVISION, folder=None)
    return structs.replace(spec, files=files, config_sha256=files["config.json"].sha256)


def test_an_honest_model_is_loaded_from_its_segments(rig: Rig, cache: Path) -> None:
    """DESIGN section 6: bit for bit what its folder gives, and nothing is missing."""
    rig.load()
    wanted = rig.desk.run(FRAME, lambda *_: None)
    spec = cached(rig, rig.read(), whole=True)
    assert rig.desk.run(protocol.Lacks(spec=spec), lambda *_: None) == Missing()
    rig.desk.run(protocol.Load(spec=spec), lambda *_: None)
    found = rig.desk.run(FRAME, lambda *_: None)
    assert isinstance(wanted, Forwarded)
    assert isinstance(found, Forwarded)
    assert found.data == wanted.data


@pytest.mark.parametrize("lie", [lie for lie in LIES if not lie.startswith(("empty", "cut"))])
def test_a_header_that_lies(lie: str, rig: Rig, cache: Path) -> None:
    """DESIGN section 6: by missing and by load, in the model's name for the file."""
    spec = cached(rig, LIES[lie].tell(rig.read()))
    for job in (protocol.Lacks(spec=spec), protocol.Load(spec=spec)):
        with pytest.raises(PooledError, match=rf"^{SINGLE} is not a whole .*({LIES[lie].words})"):
            rig.desk.run(job, lambda *_: None)
    assert rig.built == []


@pytest.mark.parametrize("change", ["cut", "other", "gone"])
def test_a_segment_that_changes_while_it_is_read(change: str, rig: Rig, cache: Path) -> None:
    """DESIGN section 6: refused by the model's name for the file, not by the segment's."""
    spec = cached(rig, rig.read(), whole=True)
    done: list[Path] = []

    def progress(pct: int, words: str) -> None:
        if words.startswith("reading") and not done:
            done.extend(path for path in cache.rglob("*") if path.is_file() and path.stat().st_size > 4000)
            for path in done:
                data = path.read_bytes()
                path.unlink()
                if change != "gone":
                    path.write_bytes(data[:2000] if change == "cut" else data[::-1])

    with pytest.raises(ModelNotFound, match=rf"^{SINGLE} (changed while it was read|cannot be read)"):
        rig.desk.run(protocol.Load(spec=spec), progress)


async def test_the_child_refuses_them_too(rig: Rig, cache: Path) -> None:
    """DESIGN section 3: through inspect, missing and load of the real child, which lives on."""
    child = open_shard()
    try:
        good = await child.inspect(str(rig.folder))
        plain = rig.spec(files=good.files)
        spec = cached(rig, LIES["an overlap"].tell(rig.read()))
        rig.write(LIES["an overlap"].tell(rig.read()))
        for ask in (
            child.inspect(str(rig.folder)),
            child.missing(spec),
            child.load(spec),
            child.load(rig.spec()),
        ):
            with pytest.raises(ModelNotFound, match=rf"^{SINGLE} is not a whole .*overlaps"):
                await ask
        with pytest.raises(ModelNotFound, match="not the room's model"):
            await child.missing(plain)
        assert await child.flush() == ""
    finally:
        await child.close()
