"""What a range of layers is checked for before it runs: that our frames give what the model's own would.

Learned masks alone do not tell: a model may hide columns inside its attention by the buffer's length, and a
buffer of ours is longer than what it holds (DESIGN section 5, rule 2). And a layer may keep a state where no
cache sees it, so that a draft could not be taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from transformers import DynamicCache

from pooled_nb.errors import ModelNotSupported
from pooled_nb.shard.arch import OTHER_MODEL
from pooled_nb.shard.frames import Placed

BEFORE = 5
"""Columns that are cached before the frame that is compared."""
COLUMNS = BEFORE + 3

Run = Callable[[torch.Tensor, Placed], torch.Tensor]


class Own(DynamicCache):
    """transformers' own caches, for one run of columns from position 0."""

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Length and offset of a mask: there is nothing before, and a range may have no layer to ask."""
        return query_length, 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Columns before: none."""
        return 0


def check_states(layers: nn.ModuleList, run: Callable[[], torch.Tensor], name: str) -> torch.Tensor:
    """Refuse a model that does more to its hidden states than layers and a norm (here the identity).

    Returns what ``run`` returned.

    Raises
    ------
    ModelNotSupported
        What ``run`` returns is not what the last layer returned.
    """
    ends: list[torch.Tensor] = []
    hook = layers[-1].register_forward_hook(lambda layer, args, out: ends.append(_states(out)))
    try:
        out = run()
    finally:
        hook.remove()
    # Without memory (a trial on the meta device) there are shapes only.
    alike = ends[0].shape == (1, *out.shape) and (
        out.device.type == "meta" or _equal(ends[0][0].to(out.device), out)
    )
    if not alike:
        raise ModelNotSupported(f"{name} does more to its hidden states than layers and a norm.", OTHER_MODEL)
    return out


def check_entry(run: Callable[[torch.Tensor], torch.Tensor], given: torch.Tensor, name: str) -> None:
    """Refuse a model whose later layers look at the embeddings again: another device has them.

    Parameters
    ----------
    run
        Runs the layers on ``given``, with this as the embeddings.

    Raises
    ------
    ModelNotSupported
        Other embeddings give other numbers, though the first layer got the same.
    """
    out, other = run(given), run(-given)
    if given.device.type != "meta" and not _equal(out, other):
        raise ModelNotSupported(
            f"{name} looks at its embeddings again in later layers, so it cannot be split between them.",
            OTHER_MODEL,
        )


def check_frames(
    layers: nn.ModuleList,
    run: Run,
    own: Callable[[torch.Tensor], Any],
    given: torch.Tensor,
    padded: Placed,
    name: str,
    *,
    coarse: bool = False,
) -> None:
    """Compare a conversation in frames, with a draft taken back and with pads, with the model's own run.

    Each layer is fed what it got in the model's own run, so that rounding does not add up over the layers.

    Parameters
    ----------
    run
        Runs a frame; at position 0 after a restart, and after a ``spec`` frame its first column is kept.
    own
        Runs columns from position 0 with transformers' own caches, masks and kernels.
    given
        `COLUMNS` columns: `BEFORE` that are cached first, one that is the first of a draft, then those of the
        frame.
    padded
        The frame as exact mode would run it.
    coarse
        The caches keep rounded numbers.

    Raises
    ------
    ModelNotSupported
        A layer gives other numbers: it masks by itself, or keeps what cannot be taken back.
    """
    whole: list[Seen] = []
    with watching(layers, whole, []):
        own(given)
    wrong = Placed(BEFORE, padded.n + 1, max(padded.rows, padded.n + 1), padded.length, spec=True)
    frames = [Placed(0, BEFORE, BEFORE, BEFORE), wrong, padded]
    good = [BEFORE, 1, padded.n]
    for placed, n in zip(frames, good, strict=True):
        stop = placed.pos + placed.n
        feed = [seen.into[:, placed.pos : stop] for seen in whole]
        if placed.spec:
            feed = [torch.cat((x[:, :1], -x[:, 1:]), dim=1) for x in feed]
        mine: list[Seen] = []
        with watching(layers, mine, feed):
            run(given[placed.pos : stop], placed)
        if given.device.type != "meta" and not all(
            agree(wanted, got, placed.pos, n, coarse=coarse) for wanted, got in zip(whole, mine, strict=True)
        ):
            raise ModelNotSupported(
                f"{name} cannot be cut into frames: a layer masks by itself, or keeps a state of its own.",
                OTHER_MODEL,
            )


class Seen:
    """What went into a layer and what came out: ``[1, rows, dim]`` each."""

    def __init__(self, into: torch.Tensor) -> None:
        self.into = into
        self.out = into


def agree(wanted: Seen, got: Seen, pos: int, n: int, *, coarse: bool) -> bool:
    """Whether two runs of a layer differ by rounding only, measured against what the layer adds.

    Parameters
    ----------
    wanted, got
        Of the model's own run from position 0, and of the frame that begins at ``pos``.
    n
        Columns that count.
    coarse
        The caches keep rounded numbers.
    """
    out = wanted.out[0, pos : pos + n].float()
    if not bool(torch.isfinite(out).all()):
        return True  # numbers that a dtype cannot hold are told when they come from a conversation
    error = (got.out[0, :n].float() - out).norm(dim=-1)
    added = (out - wanted.into[0, pos : pos + n].float()).norm(dim=-1)
    eps = torch.finfo(wanted.out.dtype).eps
    full = eps < 1e-5 and not coarse
    close = error <= (1e-3 if full else 0.1) * added + 4 * eps * out.norm(dim=-1)
    # In half precision rounding may send one column to another expert; hiding by length strikes them all.
    return bool(close.all() if full else close.any())


@contextmanager
def watching(layers: nn.ModuleList, seen: list[Seen], feed: list[torch.Tensor]) -> Iterator[None]:
    """Note what goes in and out of each layer; with ``feed``, its states (and pads) go in instead."""

    def enter(number: int) -> Any:
        def hook(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            states: torch.Tensor = args[0] if args else kwargs["hidden_states"]
            if feed:
                known = feed[number]
                states = torch.cat((known, known[:, -1:].expand(-1, states.shape[1] - known.shape[1], -1)), 1)
            seen.append(Seen(states))
            return ((states, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": states})

        return hook

    def leave(layer: nn.Module, args: Any, out: Any) -> None:
        seen[-1].out = _states(out)

    with ExitStack() as stack:
        for number, layer in enumerate(layers):
            for hook in (
                layer.register_forward_pre_hook(enter(number), with_kwargs=True),
                layer.register_forward_hook(leave),
            ):
                stack.callback(hook.remove)
        yield


def _states(out: Any) -> torch.Tensor:
    states: torch.Tensor = out[0] if isinstance(out, tuple) else out
    return states


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Bit for bit, NaN like NaN: what is no number is told by who finds it, not here."""
    return torch.equal(one.nan_to_num(), other.nan_to_num())
