"""A range of layers that runs frames: control, pads, masks, the model's own forward, the slab, and NaN."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from transformers import Cache

from pooled_nb.errors import ModelNotSupported, WrongNumbers
from pooled_nb.shard import masks, mixers, probe
from pooled_nb.shard.arch import OTHER_MODEL, Parts, where
from pooled_nb.shard.attend import grouped_attention
from pooled_nb.shard.cache import Slab
from pooled_nb.shard.checkpoints import Checkpoints
from pooled_nb.shard.compat import cache_keyword, quiet
from pooled_nb.shard.damage import refuse_damage
from pooled_nb.shard.disk import Copies
from pooled_nb.shard.door import Columns, Control
from pooled_nb.shard.faults import no_memory
from pooled_nb.shard.frames import Act, Drop, Lane, Load, Placed, Restart, Rollback, Rules, Save
from pooled_nb.shard.graphs import Recorder, Segment, building, recorder_for
from pooled_nb.shard.handover import all_finite
from pooled_nb.shard.state import StateLayer

OTHER_DTYPE = "Start the room in another dtype (bfloat16 or float32), or check the model's files."

_BROKEN = (LookupError, ValueError, TypeError, AttributeError, RuntimeError)
"""What layers raise that cannot be run so."""


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
    lasting
        See `Slab`.
    recorder
        What records frames on a device; None: `graphs.recorder_for`.

    Attributes
    ----------
    runs
        How frames are computed, in words; empty on a CPU.
    """

    def __init__(
        self,
        parts: Parts,
        lo: int,
        rules: Rules,
        dtype: torch.dtype,
        *,
        embeds: bool,
        lasting: frozenset[int] = frozenset(),
        recorder: Callable[[torch.device], Recorder | None] | None = None,
    ) -> None:
        base: Any = parts.base
        self.base = base
        self.layers = parts.list()
        self.lo = lo
        self.rules = rules
        self.dtype = dtype
        self.dim = int(base.config.hidden_size)
        self.lane = Lane(rules)
        self._keyword = cache_keyword(self.base)
        self._device = where(base if embeds else self.layers[0])
        records = (recorder or recorder_for)(self._device)
        spare = int(records is not None or self._device.type == "cuda")
        self.slab = Slab(len(self.layers), rules.capacity, rules.kv, lasting, spare=spare)
        self._inlet: torch.Tensor | None = None
        self._mixers: list[mixers.Mixer] = []
        self._rounds = False
        self._segment: Segment | None = None
        self.runs = ""
        hooks = [layer.register_forward_hook(self._leave) for layer in self.layers]
        if not embeds:
            hooks.append(self.layers[0].register_forward_pre_hook(self._enter, with_kwargs=True))
        try:
            with torch.inference_mode(), quiet():  # a kernel that is not installed is no news
                self._plan = self._learn(embeds)
        except BaseException:
            for hook in hooks:
                hook.remove()  # the layers stay as they were given
            for mixer in self._mixers:
                mixer.detach()
            raise
        if not self._rounds:
            for hook in hooks[: len(self.layers)]:
                hook.remove()
        self.slab.clear()
        if spare:
            with torch.inference_mode(), quiet():
                self._segment, self.runs = self._fixed(embeds, records)
            self.slab.clear()
        self.checkpoints = Checkpoints(self.slab, self.lane.lost)

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
        if given.is_floating_point() and not all_finite(given):
            self.clear()
            raise WrongNumbers(
                f"NaN or infinity arrived here, before layer {self.lo + 1}.",
                "Look at the device before this one.",
            )
        self.checkpoints.bring(control.ld)
        placed, acts = self.lane.accept(columns, control)
        try:
            for act in acts:
                self._do(act)
            self.checkpoints.before_write(placed.pos)
            real, finite = self._frame(given, placed)
            if not finite:
                source = self._source(given, placed)
                raise WrongNumbers(
                    f"NaN or infinity was produced here, in {source}{_limit(self.dtype)}.", OTHER_DTYPE
                )
        except BaseException:
            # The lane has gone on and some layers have not: what the caches hold is no conversation any more.
            self.clear()
            raise
        return real

    def clear(self) -> None:
        """Forget everything, checkpoints too: a host drops them after any failed lap (PROTOCOL section 7)."""
        self.lane.clear()
        self.checkpoints.clear()
        self.slab.clear()

    def cut(self, length: int) -> bool:
        """Take back all columns from ``length`` on; false, and nothing is done, where states are kept."""
        if any(isinstance(layer, StateLayer) and layer.slots for layer in self.slab.slabs):
            return False
        self.lane.cut(length)
        return True

    def keep(self, budget: int | None, copies: Copies | None, found: dict[int, int]) -> None:
        """Say what checkpoints may take and where else they may go; see `Checkpoints`."""
        self.checkpoints = Checkpoints(self.slab, self.lane.lost, budget=budget, copies=copies, found=found)
        self.lane.found(found)

    def _do(self, act: Act) -> None:
        match act:
            case Rollback():
                self.slab.rollback(act.column)
            case Save():
                self.checkpoints.save(act.slot, act.length)
            case Drop():
                self.checkpoints.drop(act.slots)
            case Restart():
                self.slab.restart()
            case Load():
                self.checkpoints.load(act.slot)

    def _frame(self, given: torch.Tensor, placed: Placed) -> tuple[torch.Tensor, bool]:
        """Run a frame: its real columns, good until the next frame, and whether they are finite."""
        if self._segment is None:
            real = self._run(given, placed)[: placed.n]
            finite = all_finite(real) if real.device.type == "cpu" else bool(torch.isfinite(real).all())
            return real, finite
        if not self.rules.exact:
            # Few numbers of rows, so that few kinds of frames are recorded.
            placed = replace(placed, rows=1 << (placed.n - 1).bit_length())
        out = self._segment.run(given, placed)
        return out[: placed.n], self._segment.is_finite(placed)

    def _run(self, given: torch.Tensor, placed: Placed) -> torch.Tensor:
        """Run a frame by the model's own layers: all its rows."""
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

    def _call(
        self,
        given: torch.Tensor,
        positions: torch.Tensor,
        mask: Any,
        cache: Cache | None = None,
        *,
        beside: torch.Tensor | None = None,
    ) -> torch.Tensor:
        states: dict[str, torch.Tensor] = {}
        if given.is_floating_point():
            self._inlet = given[None]
            # A copy: a model may scale its embeddings in place, and the first layer gets what came.
            states["inputs_embeds"] = self._inlet.clone() if beside is None else beside[None].clone()
        else:
            states["input_ids"] = given[None]
        keep = {self._keyword: self.slab if cache is None else cache, "use_cache": True}
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

    def _leave(self, layer: nn.Module, args: tuple[Any, ...], out: Any) -> Any:
        """Round what a layer gives to the room's dtype, in which it would travel: no split changes a bit."""
        states = out[0] if isinstance(out, tuple) else out
        if states.dtype == self.dtype:
            return None
        self._rounds = True
        rounded = states.to(self.dtype)
        return (rounded, *out[1:]) if isinstance(out, tuple) else rounded

    def _learn(self, embeds: bool) -> masks.Plan:
        """Run the model a few times: the slab takes its shape, and what we rely on is checked."""
        rows = 2
        given = self._sample(embeds)
        positions = torch.arange(rows, device=self._device)

        def run(mask: Any, beside: torch.Tensor | None = None) -> Any:
            self.slab.frame = Placed(0, rows, rows, rows)
            self.slab.restart()
            return self._call(given[:rows], positions, mask, beside=beside)

        name = type(self.base).__name__
        try:
            like = torch.zeros(1, dtype=self.dtype, device=self._device)
            with mixers.watching(self.layers, self.slab) as found:
                plan = self._plan = masks.learn(self.base, self.layers, run, rows, like, self.slab.attends)
            self.slab.settle()
            self._mixers = mixers.attach(found, self.slab, name)
            mask = plan.prepare(positions, rows, self.dtype)

            def check() -> None:
                out = probe.check_states(self.layers, lambda: run(mask), name)
                if self._device.type != "meta" and not bool(torch.isfinite(out).all()):
                    refuse_damage(self.base, self.layers, self.lo, self.dtype)
                if not embeds:
                    probe.check_entry(lambda beside: run(mask, beside), given[:rows], name)
                self._check_frames(given, name)

            try:
                check()
            except (ModelNotSupported, *_BROKEN) as error:
                if no_memory(error) or not mixers.go_slowly(self._mixers):
                    raise
                check()
        except _BROKEN as error:
            if no_memory(error) or self._device.type == "meta":  # without memory it may be that only
                raise
            # A layer that looks itself up by its number in the whole model, say, or takes no such frames.
            raise ModelNotSupported(
                f"{name} cannot be cut into frames and ranges: {type(error).__name__} in its layers.",
                OTHER_MODEL,
            ) from error
        return plan

    def _check_frames(self, given: torch.Tensor, name: str) -> None:
        drafted = False

        def run(columns: torch.Tensor, placed: Placed) -> torch.Tensor:
            nonlocal drafted
            if placed.pos == 0:
                self.slab.restart()
            elif drafted:
                self.slab.rollback(0)
            drafted = placed.spec
            return self._run(columns, placed)

        def own(columns: torch.Tensor) -> Any:
            cache = probe.Own(config=self.base.config)
            return self._call(columns, torch.arange(len(columns), device=self._device), None, cache)

        coarse = self.rules.kv != "f16"
        probe.check_frames(self.layers, run, own, given, self._probed(), name, coarse=coarse)

    def _sample(self, embeds: bool) -> torch.Tensor:
        """Columns to try the layers with: any numbers will do, and these need no generator."""
        if embeds:
            return torch.arange(probe.COLUMNS, device=self._device) % int(self.base.config.vocab_size)
        ramp = torch.linspace(-1, 1, probe.COLUMNS * self.dim, device=self._device)
        # Columns that are no multiples of each other: attention must be able to tell them apart.
        return torch.sin(37 * ramp).reshape(probe.COLUMNS, self.dim).to(self.dtype)

    def _probed(self) -> Placed:
        """A frame in the middle of a conversation, over the longest buffer there is."""
        n = probe.COLUMNS - probe.BEFORE - 1
        rows = max(n, self.rules.width) if self.rules.exact else n
        return Placed(probe.BEFORE + 1, n, rows, self.rules.capacity)

    def _fixed(self, embeds: bool, records: Recorder | None) -> tuple[Segment | None, str]:
        """What runs frames of fixed shapes, if these layers can be run so, and what that is in words."""
        return building.segment_of(
            building.Layers(
                base=self.base,
                layers=self.layers,
                slab=self.slab,
                plan=self._plan,
                rules=self.rules,
                dim=self.dim,
                dtype=self.dtype,
                device=self._device,
                mixes=bool(self._mixers),
            ),
            call=self._call,
            plain=self._run,
            sample=self._sample(embeds),
            recorder=records,
        )

    def _source(self, given: torch.Tensor, placed: Placed) -> str:
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


def _limit(dtype: torch.dtype) -> str:
    # The usual cause in a room of GPUs without bfloat16.
    return "; float16 holds no number above 65,504" if dtype is torch.float16 else ""
