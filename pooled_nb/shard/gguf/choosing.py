"""Which GGUF file a person's words mean, among those of a repository. Decides only."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pooled_nb.errors import ModelNotFound, ModelNotSupported
from pooled_nb.shard.gguf.layout import SUFFIX

_TAG = re.compile(r"(?:^|[-._])((?:UD-)?(?:I?Q\d\w*|TQ\d\w*|BF16|F16|F32))(?:[-.]|$)", re.IGNORECASE)
"""In a file's name, what its numbers are: ``Q4_K_M``."""


def is_gguf(name: str) -> bool:
    """Whether it is the name of a GGUF file."""
    return name.endswith(SUFFIX)


def choose(names: Iterable[str], wanted: str, repo: str) -> str:
    """Which GGUF file of a repository is meant.

    Parameters
    ----------
    wanted
        A file's name, or the tag in it (``Q4_K_M``); empty: the only one.

    Raises
    ------
    ModelNotFound
        There is no such file.
    ModelNotSupported
        There are several.
    """
    files = sorted(name for name in names if is_gguf(name))
    plain = [name for name in files if "/" not in name]
    if wanted in plain:
        return wanted
    tag = wanted.upper()
    found = [name for name in plain if not tag or tag in (tag_of(name), tag_of(name).removeprefix("UD-"))]
    if len(found) > 1 and tag:
        found = [name for name in found if tag_of(name) == tag] or found
    if len(found) == 1:
        return found[0]
    if not found:
        what = f"no GGUF file {wanted}" if wanted else "no GGUF file in its first folder"
        have = f", only {listed(plain)}" if plain else ""
        raise ModelNotFound(f"{repo} has {what}{have}.", "Choose one of its files, or another model.")
    tags = [tag_of(name) or name for name in found]
    some = tags[0] if len(set(tags)) == len(tags) else ""
    raise ModelNotSupported(
        f"{repo} has {len(found)} GGUF files{f' {wanted}' if wanted else ''}: {listed(found)}.",
        f"Name one of them, like {repo}:{some}" if some else f"Name one of them, like {repo}/{found[0]}",
    )


def split_words(model: str) -> tuple[str, str]:
    """``user/repo:Q4_K_M`` or ``user/repo/file.gguf`` as a hub id, and what is wanted of it, if anything."""
    repo, colon, tag = model.partition(":")
    if colon and repo.count("/") == 1 and re.fullmatch(r"[A-Za-z0-9._-]{1,200}", tag):
        return repo, tag
    if is_gguf(model) and model.count("/") == 2:
        return model.rsplit("/", 1)[0], model.rsplit("/", 1)[1]
    return model, ""


def tag_of(name: str) -> str:
    """``Q4_K_M`` of ``tiny-Q4_K_M.gguf``; empty where the name does not say."""
    found = _TAG.findall(name.removesuffix(SUFFIX))
    return str(found[-1]).upper() if found else ""


def listed(names: Iterable[str]) -> str:
    """The first few names, for a sentence."""
    names = list(names)
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    return ", ".join(names[:6]) + more
