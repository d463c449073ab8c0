"""What a model is: everything the room must know to deal it, from its small files."""

from __future__ import annotations

from pooled_nb.shard.arch import read_config
from pooled_nb.shard.chat import Chat
from pooled_nb.shard.door import ModelFacts
from pooled_nb.shard.draft_weights import draft_facts
from pooled_nb.shard.found import Found
from pooled_nb.shard.prints import file_sha256
from pooled_nb.shard.sizes import facts
from pooled_nb.shard.sources.needs import layer_sizes
from pooled_nb.shard.tensormap import folder_index, tensor_map
from pooled_nb.shard.trial import try_model


def model_facts(found: Found) -> ModelFacts:
    """Read a found model's config and tokenizer.

    Raises
    ------
    ModelNotFound
        Its files contradict each other.
    ModelNotSupported
        The architecture or the tokenizer cannot be run: said before any weights are fetched.
    """
    layouts = found.layouts
    # Of all files at once: a device of a few layers reads the headers of a few.
    folder_index(found.folder)
    held = tensor_map({name: (layout, _nowhere) for name, layout in layouts.items()})
    arch = facts(found.folder, layouts.values())
    try_model(read_config(found.folder), arch.glued)
    chat = Chat.load(found.folder)
    draft_layers, draft_bytes = draft_facts(found.folder, arch.dtype, held.absent)
    file_bytes, ends_file_bytes = layer_sizes(layouts.values(), arch.layers) if layouts else ([], 0)
    return ModelFacts(
        repo=found.repo,
        revision=found.revision,
        folder=str(found.home or found.folder) if found.local else None,
        label=found.label,
        arch=arch.arch,
        layers=arch.layers,
        dim=arch.dim,
        vocab=arch.vocab,
        dtype=arch.dtype,
        max_ctx=arch.max_ctx,
        layer_bytes=arch.layer_bytes,
        ends_bytes=arch.ends_bytes,
        kv_bytes=arch.kv_bytes,
        kv_rows=arch.kv_rows,
        state_bytes=arch.state_bytes,
        glued=arch.glued,
        linears=arch.linears,
        draft_layers=draft_layers,
        draft_bytes=draft_bytes,
        file_bytes=file_bytes,
        ends_file_bytes=ends_file_bytes,
        config_sha256=file_sha256(found.folder / "config.json"),
        files=found.files,
        eos=sorted(chat.eos),
        note=found.note,
    )


def _nowhere(lo: int, hi: int) -> None:
    """No byte of a weight is asked for here."""
