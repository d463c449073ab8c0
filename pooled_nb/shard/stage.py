"""A range of layers that runs frames: control, pads, masks, the model's own forward, the slab, and NaN."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from pooled_nb.errors import ModelNotSupported, WrongNumbers
from pooled_nb.shard import masks, probe
from pooled_nb.shard.arch import OTHER_MODEL, Parts, where
from pooled_nb.shard.cache import Slab
from pooled_nb.shard.compat import cache_keyword, grouped_attention
from pooled_nb.shard.door import Columns, Control
from pooled_nb.shard.faults import no_memory
from pooled_nb.shard.frames import Lane, Placed, Rules

OTHER_DTYPE = "Start the room in another dtype (bfloat16 or float32), or check the model's files."


class Stage:
    """Layers ``[lo, lo + n)`` of a model, over a slab.

    Parameters
    ----------
    parts
        A loaded short model; its norm is the identity.
    lo
        Number of its first layer in the whole model (0-based).
    rules
        Frame classes and context.
    embeds
        It begins with tokens (the host).
    """

    def __init__(self, parts: Parts, lo: int, rules: Rules, dtype: torch.dtype, *, embeds: bool) -> None:
        base: Any = parts.base
        self.base = base
        self.layers = parts.list()
        self.lo = lo
        self.rules = rules
        self.dtype = dtype
        self.dim = int(base.config.hidden_size)
        self.lane = Lane(rules)
        self.slab = Slab(len(self.layers), rules.capacity)
        self._keyword = cache_keyword(self.base)
        self._device = where(base if embeds else self.layers[0])
        self._inlet: torch.Tensor | None = None
        enter = None
        if not embeds:
            enter = self.layers[0].register_forward_pre_hook(self._enter, with_kwargs=True)
        try:
            with torch.inference_mode():
                self._plan = self._learn(embeds)
        except BaseException:
            if enter is not None:
                enter.remove()  # the layers stay as they were given
            raise
        self.slab.clear()

    @torch.inference_mode()
    def forward(self, columns: Columns, control: Control, given: torch.Tensor) -> torch.Tensor:
        """Apply control, then run a frame.

        Parameters
        ----------
        given
            Tokens ``[n]`` (int64) where the stage embeds, else hidden states ``[n, dim]``.

        Returns
        -------
        Tensor
            ``[n, dim]``: hidden states after the last layer of the range.

        Raises
        ------
        FrameRefused
            See `frames.Lane.accept`.
        WrongNumbers
            NaN or infinity arrived or was produced; the caches are cleared, as by any failure on the way.
        """
        if given.is_floating_point() and not bool(torch.isfinite(given).all()):
            self.clear()
            raise WrongNumbers(
                f"NaN or infinity arrived here, before layer {self.lo + 1}.",
                "Look at the device before this one.",
            )
        placed = self.lane.accept(columns, control)
        try:
            real = self._run(given, placed)[: placed.n]
            if not bool(torch.isfinite(real).all()):
                where = self._where(given, placed)
                raise WrongNumbers(f"NaN or infinity was produced here, in {where}.", OTHER_DTYPE)
        except BaseException:
            # The lane has gone on and some layers have not: what the caches hold is no conversation any more.
            self.clear()
            raise
        return real

    def clear(self) -> None:
        """Forget everything."""
        self.lane.clear()
        self.slab.clear()

    def _run(self, given: torch.Tensor, placed: Placed) -> torch.Tensor:
        if placed.rows > placed.n:
            last = given[-1:].expand(placed.rows - placed.n, *given.shape[1:])
            given = torch.cat((given, last))
        positions = torch.arange(placed.pos, placed.pos + placed.rows, device=self._device)
        if placed.rows > placed.n:
            # A pad stands where the last real column stands: no position is past what the model knows.
            positions.clamp_(max=placed.pos + placed.n - 1)
        # In fast mode one column that sees all there is needs no mask.
        lone = not self.rules.exact and placed.rows == 1 and placed.length == placed.pos + 1
        mask = self._plan.alone(placed.length) if lone else False
        if mask is False:
            mask = self._plan.prepare(positions, placed.length, self.dtype)
        self.slab.frame = placed
        return self._call(given.to(self._device), positions, mask)

    def _call(self, given: torch.Tensor, positions: torch.Tensor, mask: Any) -> torch.Tensor:
        states: dict[str, torch.Tensor] = {}
        if given.is_floating_point():
            states["inputs_embeds"] = self._inlet = given[None]
        else:
            states["input_ids"] = given[None]
        keep = {self._keyword: self.slab, "use_cache": True}
        with grouped_attention(self._device):
            out: torch.Tensor = self.base(
                attention_mask=mask, position_ids=positions[None], **states, **keep
            )[0]
        return out[0]

    def _enter(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Hand the first layer exactly what arrived: what a model does to embeddings was done on the host."""
        if args:
            return (self._inlet, *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": self._inlet}

    def _learn(self, embeds: bool) -> masks.Plan:
        """Run the model a few times: the slab takes its shape, and what we rely on is checked."""
        rows = 2
        given = self._sample(embeds)
        positions = torch.arange(rows, device=self._device)

        def run(mask: Any) -> Any:
            self.slab.frame = Placed(0, rows, rows, rows)
            return self._call(given[:rows], positions, mask)

        name = type(self.base).__name__
        try:
            like = torch.zeros(1, dtype=self.dtype, device=self._device)
            plan = self._plan = masks.learn(self.base, self.layers, run, rows, like)
            probe.check_states(self.layers, lambda: run(plan.prepare(positions, rows, self.dtype)), name)
            if any(layer.keys is None for layer in self.slab.slabs):
                raise ModelNotSupported(f"{name} has layers without a cache of their own.", OTHER_MODEL)
            probe.check_padding(self.layers, self._run, given, self._probed(), name)
        except (LookupError, ValueError, TypeError, AttributeError, RuntimeError) as error:
            if no_memory(error) or self._device.type == "meta":  # without memory it may be that only
                raise
            # A layer that looks itself up by its number in the whole model, say, or takes no such frames.
            raise ModelNotSupported(
                f"{name} cannot be cut into frames and ranges: {type(error).__name__} in its layers.",
                OTHER_MODEL,
            ) from error
        return plan

    def _sample(self, embeds: bool) -> torch.Tensor:
        """Columns to try the layers with: any numbers will do, and these need no generator."""
        if embeds:
            return torch.arange(probe.COLUMNS, device=self._device) % int(self.base.config.vocab_size)
        ramp = torch.linspace(-1, 1, probe.COLUMNS * self.dim, device=self._device)
        # Columns that are no multiples of each other: attention must be able to tell them apart.
        return torch.sin(37 * ramp).reshape(probe.COLUMNS, self.dim).to(self.dtype)

    def _probed(self) -> Placed:
        """A frame in the middle of a conversation, over the longest buffer there is."""
        n = probe.COLUMNS - probe.BEFORE
        rows = max(n, self.rules.width) if self.rules.exact else n
        return Placed(probe.BEFORE, n, rows, self.rules.capacity)

    def _where(self, given: torch.Tensor, placed: Placed) -> str:
        """Name the layer in which a wrong number arose: run the frame again and look after each layer."""
        bad: list[int] = []

        def look(number: int) -> Any:
            def hook(layer: nn.Module, args: Any, out: Any) -> None:
                states = out[0] if isinstance(out, tuple) else out
                if not bool(torch.isfinite(states[0, : placed.n]).all()):
                    bad.append(number)

            return hook

        hooks = [layer.register_forward_hook(look(self.lo + i)) for i, layer in enumerate(self.layers)]
        try:
            self._run(given, placed)
        finally:
            for hook in hooks:
                hook.remove()
        if bad:
            return f"layer {bad[0] + 1}"
        return f"layers {self.lo + 1} to {self.lo + len(self.layers)}"
