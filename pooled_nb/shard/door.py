"""The typed door of a shard: what the room may ask of the device's compute, and what it hears back.

The same room runs over a child process, a thread, or a toy (DESIGN section 2). All values are
msgspec structs, so that the child's pipe carries typed msgpack and never a pickle.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, Protocol

from msgspec import Struct, field

from pooled_nb.errors import BadQuestion

BUCKET = 256
"""Columns of one position bucket: caches grow in these steps, and no frame crosses one (DESIGN section 5)."""

Progress = Callable[[int, str], None]
"""Called on the caller's loop with percent (0–100) and a few words: ``(37, "reading layers 1–10")``."""


class FileFact(Struct, frozen=True, kw_only=True):
    """One file of a model.

    Attributes
    ----------
    size
        In bytes.
    sha256
        Of the whole file, where it is known without reading it all.
    sample
        Of weights: a hash over name, dtype and shape of every tensor and pieces of its numbers, 64 hex
        digits. Two states of one fine-tune have the same sizes, and differ here.
    """

    size: int
    sha256: str | None = None
    sample: str | None = None


class DeviceFacts(Struct, frozen=True, kw_only=True):
    """What this device is.

    Attributes
    ----------
    kind
        ``cuda``, ``mps``, ``xpu`` or ``cpu``.
    name
        As people know it (``NVIDIA T4``, the CPU's model name).
    total_gb, free_gb
        Memory of the device and what of it is free now, in GB (10⁹ bytes); a container's limit counts.
    dtypes
        Those it computes natively, torch names: ``float32``, ``bfloat16``, ``float16``.
    gbps
        Measured copy speed in GB/s.
    sig
        Hash of a fixed layer's output: bits agree within one ``sig`` (DESIGN section 5).
    threads
        Threads a CPU shard computes with.
    """

    kind: str
    name: str
    total_gb: float
    free_gb: float
    dtypes: list[str]
    gbps: float
    sig: str
    threads: int
    torch: str
    transformers: str


class ModelFacts(Struct, frozen=True, kw_only=True):
    """What a model is, read from its small files (no weights are read).

    Attributes
    ----------
    repo, revision
        Hub name and commit, or ``local/NAME`` with a hash of the files for a folder.
    folder
        Where this device finds the files, if they are local. Never leaves the device.
    dim
        Numbers of one hidden state.
    dtype
        torch name the files are in: what the room runs when every chain device can.
    layer_bytes
        Bytes of each layer's weights in ``dtype``.
    ends_bytes
        Bytes of embedding, final norm and head; tied weights are counted once.
    kv_bytes
        Bytes one token takes in each layer's cache, 16-bit.
    eos
        Every end-of-turn id the model's files name.
    """

    repo: str
    revision: str
    folder: str | None
    label: str
    arch: str
    layers: int
    dim: int
    vocab: int
    dtype: str
    max_ctx: int
    layer_bytes: list[int]
    ends_bytes: int
    kv_bytes: list[int]
    config_sha256: str
    files: dict[str, FileFact]
    eos: list[int]
    note: str = ""
    """One sentence the person should know (an offline copy is used, …)."""


class LoadSpec(Struct, frozen=True, kw_only=True):
    """Which layers to load, and everything that decides their bits.

    ``ends``: also embedding, final norm, head and tokenizer (the host). ``exact`` off is the fast
    mode: frames of their own width, no buckets, same tokens not promised. ``device``: ``auto``,
    ``cpu``, ``cuda``. ``max_gb``: what the device lends; accelerate places the range within it.
    ``max_download_gb``: GB (10⁹ bytes) that may come from the hub for this load; None for any number.
    """

    repo: str
    revision: str
    folder: str | None
    config_sha256: str
    lo: int
    hi: int
    ends: bool
    ctx: int
    dtype: str
    files: dict[str, FileFact] = field(default_factory=dict)
    width: int = 16
    cols: int = 32
    attn: str = "sdpa"
    experts: str = "batched_mm"
    exact: bool = True
    device: str = "auto"
    max_gb: float | None = None
    max_download_gb: float | None = None


class Loaded(Struct, frozen=True, kw_only=True):
    """What was loaded: bytes of weights and of caches, and how long it took."""

    weights: int
    cache: int
    seconds: float
    placed: str


class Columns(Struct, frozen=True, kw_only=True):
    """The columns of one frame: ``(lane, pos) … (lane, pos + n − 1)``.

    ``wide`` is the frame class of exact mode (DESIGN section 5, rule 3): prompt text runs wide, padded
    to ``cols``; generated text runs at ``width``, whenever it is computed again.
    """

    pos: int
    n: int
    wide: bool
    lane: int = 0


class Control(Struct, frozen=True, kw_only=True):
    """Control that rides on a frame (PROTOCOL section 5): rollback, save, drop, reset, load, in order."""

    reset: bool = False
    spec: bool = False
    rb: int | None = None
    sv: int = 0
    ld: int = 0
    dp: tuple[int, ...] = ()


class Forwarded(Struct, frozen=True, kw_only=True):
    """Hidden states after this shard's layers, little-endian, in the spec's dtype.

    ``n`` columns from ``pos``: all that went in, or with ``last`` only the last one.
    """

    data: bytes
    pos: int
    n: int
    ms: float


class Sampling(Struct, frozen=True, kw_only=True):
    """How a token is drawn. ``temperature`` 0 is greedy; ``top_k`` 0 and ``top_p`` 1 are off.

    Raises
    ------
    BadQuestion
        One of them is no number that a token can be drawn with.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        _need(
            math.isfinite(self.temperature) and self.temperature >= 0, "temperature", "0 or a larger number"
        )
        _need(0 <= self.top_k < 1 << 63, "top_k", "0 or a larger whole number")
        _need(0 <= self.top_p <= 1, "top_p", "a number from 0 to 1")  # NaN is none
        _need(-(1 << 63) <= self.seed < 1 << 64, "seed", "a whole number of at most 64 bits")


def _need(good: bool, name: str, what: str) -> None:
    if not good:
        raise BadQuestion(f"No token can be drawn with this {name}.", f"Give {what}.")


class Sampled(Struct, frozen=True, kw_only=True):
    """Tokens drawn, one per column, with the text they add to the answer (whole characters only)."""

    tokens: list[int]
    text: str
    end: bool
    """The last token ends the turn (it adds no text)."""


class Turn(Struct, frozen=True, kw_only=True):
    """One message of a conversation.

    ``ids``: the tokens an assistant's text was generated as; ``thinking``: what the template was told when
    the assistant began to speak.
    """

    role: Literal["system", "user", "assistant"]
    text: str
    ids: list[int] | None = None
    thinking: bool | None = None


class Prompt(Struct, frozen=True, kw_only=True):
    """A conversation as tokens. ``generated[i]``: token i is assistant text, which runs at ``width``."""

    ids: list[int]
    generated: list[bool]


class Shard(Protocol):
    """One device's compute. One job at a time, in the order asked; every call may raise `PooledError`."""

    on_died: Callable[[str], None] | None
    """Called once, on the caller's loop, when the shard ends on its own: the last thing known about why."""

    async def device(self) -> DeviceFacts:
        """What this device is. The first call imports torch and measures: seconds."""

    async def inspect(
        self,
        model: str,
        *,
        revision: str | None = None,
        folder: str | None = None,
        progress: Progress | None = None,
    ) -> ModelFacts:
        """Find a model and read its small files.

        Parameters
        ----------
        model
            A hub id, a local folder, or the name under which a room knows it (then ``folder`` or the
            user's folders say where it lies).
        folder
            Look here first.

        Raises
        ------
        ModelNotFound, ModelNotSupported
        """

    async def load(self, spec: LoadSpec, progress: Progress | None = None) -> Loaded:
        """Load layers ``[lo, hi)``; what was loaded before is freed first.

        Raises
        ------
        ModelNotFound, ModelNotSupported, ModelTooBig, ShardDied
        """

    async def forward(
        self,
        columns: Columns,
        control: Control,
        *,
        tokens: list[int] | None = None,
        data: bytes | None = None,
        last: bool = False,
    ) -> Forwarded:
        """Apply ``control``, then run the columns: ``tokens`` are embedded first, ``data`` are hidden states.

        Raises
        ------
        FrameRefused
            The position is not the cache's length after control, or the frame is too wide, crosses a
            position bucket, has no column, or names an unknown slot.
        WrongNumbers
            NaN or infinity: says whether it arrived or was produced here, and in which layer.
        """

    async def sample(
        self,
        data: bytes,
        *,
        pos: int,
        n: int,
        sampling: Sampling,
        first: bool = False,
        after: list[int] | None = None,
    ) -> Sampled:
        """Final norm, head, and one token per column; that of column i sits at position ``pos + i + 1``.

        ``first`` begins an answer's text, or goes on with it ``after`` the tokens whose text is out already:
        no space is lost there, and a character whose first part they hold becomes whole. Drawn by an RNG
        keyed by (seed, position of the token).
        """

    async def flush(self) -> str:
        """Text held back for a character that never became whole."""

    async def render(self, turns: list[Turn], *, thinking: bool | None = None) -> Prompt:
        """The conversation through the model's chat template, up to where the assistant speaks.

        Where the last turn is the assistant's, it stays open: the assistant goes on from there.

        Parameters
        ----------
        thinking
            Whether the model is to think first, where its template can say so; None: its own way.

        Raises
        ------
        BadQuestion
            The template refuses (said in its own words), or a text holds half a character.
        """

    async def unload(self) -> None:
        """Free the weights and caches."""

    async def close(self) -> None:
        """End the shard. Never raises."""
