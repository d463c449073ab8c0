"""Names of a model's files among devices (PROTOCOL section 6)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pooled_nb.room.weights.urls import ModelFile, is_weights, split, url_of

names = st.text(st.characters(exclude_characters="/\\:"), min_size=1, max_size=30)


@given(names, names, st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,40}", fullmatch=True), names)
def test_what_is_said_is_what_is_meant(owner: str, model: str, revision: str, name: str) -> None:
    """PROTOCOL section 6, ``ai-wget``: "``url`` is ``repo@revision/name``", whatever signs a name has."""
    try:
        url = url_of(f"{owner}/{model}", revision, name)
    except ValueError:
        assert any(part in (".", "..") or not part.isprintable() for part in (owner, model, name))
        return
    assert split(url) == ModelFile(f"{owner}/{model}", revision, name)


@given(st.text(max_size=60))
def test_any_text_is_read(text: str) -> None:
    """PROTOCOL section 6: a ``url`` is any text that a device likes; what it says never leads away."""
    found = split(text)
    if found is not None:
        assert url_of(*found) == text
        assert "/" not in found.name
        assert not {"", ".", ".."} & {*found.repo.split("/"), found.name}


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/",
        "@/",
        "toy/model/model.safetensors",
        "toy/model@1",
        "toy/model@1/",
        "toy/model@/x.safetensors",
        "@1/x.safetensors",
        "../model@1/x.safetensors",
        "toy/..@1/x.safetensors",
        "toy/model@../x.safetensors",
        "toy/model@1/..",
        "toy/model@1/../../etc/passwd",
        "toy/model@1/a\\b",
        "toy/model@1/c:d",
        "toy/model@1/a\0b",
        "toy/model@1/a\nb",
        "toy/model@1 /x",
        "/etc@1/passwd",
        "a/b/c@1/x.safetensors",
        "https://hub/toy/model@1/x.safetensors",
        f"{'a' * 201}@1/x.safetensors",
        f"toy/model@1/{'x' * 201}",
    ],
)
def test_no_path_and_no_address(url: str) -> None:
    """PROTOCOL section 6: "a ``repo`` never becomes a path, an origin or code"."""
    assert split(url) is None
    assert not is_weights(url)


def test_models_that_there_are() -> None:
    """PROTOCOL section 6: of the hub with and without an owner, and of the host's own folder."""
    for repo, revision in (
        ("gpt2", "f" * 40),
        ("Qwen/Qwen3-0.6B", "e" * 40),
        ("local/my model@home", "0" * 64),
    ):
        assert split(url_of(repo, revision, "model-00001-of-00002.safetensors")) is not None
    with pytest.raises(ValueError, match="no file"):
        url_of("a/b", "main", "../x")
    assert [is_weights(n) for n in ("a.safetensors", "b.gguf", "config.json", "x.bin")] == [1, 1, 0, 0]
