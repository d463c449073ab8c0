"""Where the tensors of a GGUF file lie, by the names that transformers has for them."""

from __future__ import annotations

import os
from pathlib import Path

from pooled_nb.errors import ModelNotFound
from pooled_nb.shard.gguf.kinds import Form, word_of
from pooled_nb.shard.gguf.names import ROPE_TABLE, arch_of, form_of_tensor, transformers_name
from pooled_nb.shard.gguf.reader import Header, damaged, read_header, unsupported
from pooled_nb.shard.layout import Layout, Tensor

SUFFIX = ".gguf"
FIRST = 1 << 20
"""Bytes read at first; three times as many are added as long as they are too few."""


def layout_of(header: Header, size: int, name: str) -> Layout:
    """Name a file's tensors as transformers does.

    Raises
    ------
    ModelNotFound, ModelNotSupported
        The architecture is not read, or has no place for a tensor.
    """
    arch = arch_of(header.facts, name)
    tensors = []
    for raw in header.tensors:
        own = transformers_name(arch, raw.name)
        if own is not None:
            word = word_of(form_of_tensor(arch, header.facts, raw, name))
        elif raw.name == ROPE_TABLE and arch.rotary:
            own, word = ROPE_TABLE, word_of(Form(raw.type))
        else:
            raise unsupported(
                name,
                f"holds {raw.name}, for which {header.facts['general.architecture']} models have no place",
                "Use the model as it is published in safetensors.",
            )
        tensors.append(Tensor(own, word, raw.shape, raw.lo, raw.hi))
    return Layout(size, header.end, tuple(tensors))


def gguf_layout(head: bytes, size: int, name: str) -> Layout:
    """Read a file's header; as `headers.safetensors_layout`.

    Raises
    ------
    ModelNotFound
        It is cut short, is no header, or contradicts itself.
    ModelNotSupported
        It is one that is not read.
    """
    header = read_header(head, size, name)
    if header is None:
        raise damaged(name, "it ends before its header does")
    return layout_of(header, size, name)


def header_of(file: Path) -> tuple[Header, int]:
    """Read the first part of a file on this device; and say how large the file is.

    Raises
    ------
    ModelNotFound, ModelNotSupported
        It cannot be read, or `read_header` refuses it.
    """
    try:
        with file.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            head, more = b"", stream.read(FIRST)
            while more or not head:
                head += more
                if (header := read_header(head, size, file.name)) is not None:
                    return header, size
                more = stream.read(3 * len(head))
            raise damaged(file.name, "it became shorter while it was read")
    except OSError as error:
        raise ModelNotFound(
            f"{file.name} cannot be read: {error.strerror or error}.", "Check the folder."
        ) from error
