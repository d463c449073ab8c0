"""What a range of layers is checked for before it runs: that our frames give what the model's own would.

Learned masks alone do not tell: a model may hide columns inside its attention by the buffer's length, and a
buffer of ours is longer than what it holds (DESIGN section 5, rule 2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from pooled_nb.errors import ModelNotSupported
from pooled_nb.shard.arch import OTHER_MODEL
from pooled_nb.shard.frames import Placed

BEFORE = 5
"""Columns that are cached before the frame that is compared."""
COLUMNS = BEFORE + 3

Run = Callable[[torch.Tensor, Placed], torch.Tensor]


def check_states(layers: nn.ModuleList, run: Callable[[], torch.Tensor], name: str) -> None:
    """Refuse a model that does more to its hidden states than layers and a norm (here the identity).

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
        out.device.type == "meta" or torch.equal(ends[0][0].to(out.device), out)
    )
    if not alike:
        raise ModelNotSupported(f"{name} does more to its hidden states than layers and a norm.", OTHER_MODEL)


def check_padding(layers: nn.ModuleList, run: Run, given: torch.Tensor, padded: Placed, name: str) -> None:
    """Compare a frame in the middle of a conversation, padded over a long buffer, with the plain one.

    Each layer is fed what it got in the plain run, so that rounding does not add up from layer to layer.

    Parameters
    ----------
    given
        `COLUMNS` columns: `BEFORE` that are cached first, then those of the frame.
    padded
        The frame as exact mode would run it.

    Raises
    ------
    ModelNotSupported
        A layer gives other numbers: it masks by itself.
    """
    first, last = given[: padded.pos], given[padded.pos :]
    run(first, Placed(0, padded.pos, padded.pos, padded.pos))
    plain: list[_Seen] = []
    with _watching(layers, plain, []):
        run(last, Placed(padded.pos, padded.n, padded.n, padded.pos + padded.n))
    mine: list[_Seen] = []
    with _watching(layers, mine, plain):
        run(last, padded)
    if given.device.type == "meta":
        return
    for wanted, got in zip(plain, mine, strict=True):
        if not _agree(wanted, got, padded.n):
            raise ModelNotSupported(
                f"{name} attends in a way that cannot be cut into frames: a layer masks by itself.",
                OTHER_MODEL,
            )


class _Seen:
    """What went into a layer and what came out: ``[1, rows, dim]`` each."""

    def __init__(self, into: torch.Tensor) -> None:
        self.into = into
        self.out = into


def _agree(wanted: _Seen, got: _Seen, n: int) -> bool:
    """Whether two runs of a layer differ by rounding only, measured against what the layer adds."""
    out = wanted.out[0].float()
    if not bool(torch.isfinite(out).all()):
        return True  # numbers that a dtype cannot hold are told when they come from a conversation
    error = (got.out[0, :n].float() - out).norm(dim=-1)
    added = (out - wanted.into[0].float()).norm(dim=-1)
    eps = torch.finfo(wanted.out.dtype).eps
    full = eps < 1e-5
    close = error <= (1e-3 if full else 0.1) * added + 4 * eps * out.norm(dim=-1)
    # In half precision rounding may send one column to another expert; hiding by length strikes them all.
    return bool(close.all() if full else close.any())


@contextmanager
def _watching(layers: nn.ModuleList, seen: list[_Seen], feed: list[_Seen]) -> Iterator[None]:
    """Note what goes in and out of each layer; with ``feed``, its states (and pads) go in instead."""

    def enter(number: int) -> Any:
        def hook(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            states: torch.Tensor = args[0] if args else kwargs["hidden_states"]
            if feed:
                known = feed[number].into
                states = torch.cat((known, known[:, -1:].expand(-1, states.shape[1] - known.shape[1], -1)), 1)
            seen.append(_Seen(states))
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
