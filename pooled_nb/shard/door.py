"""The typed door of a shard: what the room may ask of the device's compute, and what it hears back.

The same room runs over a child process, a thread, or a toy (DESIGN section 2). All values are
msgspec structs, so that the child's pipe carries typed msgpack and never a pickle.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Literal, Protocol

from msgspec import Meta, Struct, field

from pooled_nb.errors import BadQuestion
from pooled_nb.shard.pieces import Missing, Sent
from pooled_nb.shard.quant.forms import Linears

BUCKET = 256
"""Columns of one position bucket: caches grow in these steps, and no frame crosses one (DESIGN section 5)."""

Progress = Callable[[int, str], None]
"""Called on the caller's loop with percent (0–100) and a few words: ``(37, "reading layers 1–10")``."""


Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
"""A hash in hex. Who reads a message that has another text in its place refuses it."""


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
    header
        Of weights: bytes of the header, where they are known: the first block that can be asked for.
    """

    size: int
    sha256: Sha256 | None = None
    sample: Sha256 | None = None
    header: int = 0


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
    note
        Why an accelerator that is here is not computed on, in a sentence; mostly empty.
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
    note: str = ""


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
        Bytes one token takes in each layer's cache, 16-bit; 0 where a layer keeps no keys and values.
    kv_rows
        Rows of one token in each layer's cache, one of keys and one of values for each head: where caches are
        int8 (``q8``), each has a scale.
    state_bytes
        Bytes of each layer's running state, in the dtypes it is kept in; 0 for attention alone. A device
        also keeps one more for each column of a ``spec`` frame (PROTOCOL section 5).
    glued
        Ranges ``[lo, hi)`` that one device must hold whole: layers that share one cache.
    draft_layers, draft_bytes
        The model's own draft layers in its files (multi-token prediction), and their bytes in ``dtype``.
    linears
        What decides how much each layer's linear weights take in 8 or 4 bits; empty: it is not known.
    eos
        Every end-of-turn id the model's files name.
    file_bytes, ends_file_bytes
        Bytes of each layer and of the ends in the files: what a device fetches. Empty and 0 where the
        headers were not read.
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
    kv_rows: list[int] = field(default_factory=list)
    state_bytes: list[int] = field(default_factory=list)
    glued: list[tuple[int, int]] = field(default_factory=list)
    draft_layers: int = 0
    draft_bytes: int = 0
    linears: list[Linears] = field(default_factory=list)
    file_bytes: list[int] = field(default_factory=list)
    ends_file_bytes: int = 0
    note: str = ""
    """One sentence the person should know (an offline copy is used, …)."""

    @property
    def words(self) -> str:
        """What finds the very same model again: a GGUF file of a hub's repository is named after it."""
        only = next(iter(self.files)) if len(self.files) == 1 else ""
        return f"{self.repo}/{only}" if only.endswith(".gguf") and self.folder is None else self.repo


class LoadSpec(Struct, frozen=True, kw_only=True):
    """Which layers to load, and everything that decides their bits.

    ``ends``: also embedding, final norm, head and tokenizer (the host). ``exact`` off is the fast
    mode: frames of their own width, no buckets, same tokens not promised. ``device``: ``auto``,
    ``max_download_gb``: GB (10⁹ bytes) that may come from the hub for this load; None for any number.

    ``kv``: how caches are kept: ``f16`` (the room's dtype) or ``q8`` (int8; a class of its own, other bits).
    ``room``: what disk copies of checkpoints are kept under; empty: none are kept. ``draft``: a small model
    with the same tokenizer that drafts (whole, on the host); ``draft_layers``: how many of the model's own
    draft layers are loaded (host).
    ``sent``: what counts of what devices sent, by file: what the room vouches for.
    ``quant``: weights of the layers as ``int8`` or ``int4`` (classes of their own); empty: as they are.
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
    kv: str = "f16"
    room: str = ""
    draft: LoadSpec | None = None
    draft_layers: int = 0
    sent: dict[str, list[Sent]] = field(default_factory=dict)
    quant: str = ""


class Loaded(Struct, frozen=True, kw_only=True):
    """What was loaded: bytes of weights and of caches (states and their snapshots included), and how long
    it took. ``slots``: checkpoints read back from disk (PROTOCOL section 7). ``drafts``: what can draft
    besides prompt lookup: ``model``, ``layers`` or nothing. ``note``: what the person should know, in words.
    ``runs``: how frames are computed, in words. ``layer_ms``: milliseconds a layer took for one frame of
    generated text; 0: it was not measured.
    """

    weights: int
    cache: int
    seconds: float
    placed: str
    slots: list[int] = field(default_factory=list)
    drafts: str = ""
    note: str = ""
    runs: str = ""
    layer_ms: float = 0.0


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
    """How a token is drawn, and which texts end an answer.

    ``temperature`` 0 is greedy. Off are ``top_k`` 0, ``top_p`` 1, ``min_p`` 0 (the part of the largest
    probability that a token needs), ``repetition_penalty`` 1 (of Hugging Face: every token of prompt and
    answer), ``presence_penalty`` 0 (of OpenAI: every token of the answer). ``logit_bias`` is added to
    logits, by token id. ``stop``: the answer ends before the first of these texts.

    Raises
    ------
    BadQuestion
        One of them is no number that a token can be drawn with, or a stop text is empty.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    logit_bias: dict[int, float] = field(default_factory=dict)
    stop: tuple[str, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        _need(
            math.isfinite(self.temperature) and self.temperature >= 0, "temperature", "0 or a larger number"
        )
        _need(0 <= self.top_k < 1 << 63, "top_k", "0 or a larger whole number")
        _need(0 <= self.top_p <= 1, "top_p", "a number from 0 to 1")  # NaN is none
        _need(0 <= self.min_p <= 1, "min_p", "a number from 0 to 1")
        _need(
            math.isfinite(self.repetition_penalty) and self.repetition_penalty > 0,
            "repetition_penalty",
            "a number above 0",
        )
        _need(math.isfinite(self.presence_penalty), "presence_penalty", "a number")
        _need(
            all(i >= 0 and math.isfinite(b) for i, b in self.logit_bias.items()),
            "logit_bias",
            "numbers by token id",
        )
        _need(all(self.stop), "stop", "texts of at least one character")
        _need(-(1 << 63) <= self.seed < 1 << 64, "seed", "a whole number of at most 64 bits")


def _need(good: bool, name: str, what: str) -> None:
    if not good:
        raise BadQuestion(f"No token can be drawn with this {name}.", f"Give {what}.")


Source = Literal["", "draft", "lookup"]
"""Where drafts come from: nowhere, a draft model or draft layers, or text that stands there already."""


class Want(Struct, frozen=True, kw_only=True):
    """How many drafts the next frame may have, by where they come from. Lookup is tried first."""

    lookup: int = 0
    draft: int = 0


class Sampled(Struct, frozen=True, kw_only=True):
    """Tokens drawn, with the text each adds to the answer (whole characters only).

    Of a verify frame these are the drafts that agree with what was drawn, and one token more: the columns
    after it were computed from a wrong draft.
    """

    tokens: list[int]
    texts: list[str]
    end: bool
    """The last token ends the turn (it adds no text)."""
    stopped: bool = False
    """The last token completed a stop text; neither it nor what follows is in ``texts``."""
    drafts: list[int] = field(default_factory=list)
    """Guesses for the next frame, after the last token: at most as many as wanted."""
    source: Source = ""

    @property
    def text(self) -> str:
        """What all of them add."""
        return "".join(self.texts)


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

    async def missing(self, spec: LoadSpec, progress: Progress | None = None) -> Missing:
        """What a load of this would have to fetch: nothing of it is fetched, nothing held is touched.

        Raises
        ------
        ModelNotFound, ModelNotSupported
            What is here already is not the room's model, or no model that is read.
        """

    async def load(self, spec: LoadSpec, progress: Progress | None = None) -> Loaded:
        """Load layers ``[lo, hi)``; what was loaded before is freed first.

        Whoever cancels it stops it: what it holds is freed, what was fetched is kept for the next try.

        Raises
        ------
        ModelNotFound, ModelNotSupported, ModelTooBig, OutOfMemory, ShardDied
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
        seen: list[int] | None = None,
        drafts: list[int] | None = None,
        want: Want | None = None,
    ) -> Sampled:
        """Final norm, head, and one token per column; that of column i sits at position ``pos + i + 1``.

        Parameters
        ----------
        first
            Begins an answer's text, or goes on with it ``after`` the tokens whose text is out already: no
            space is lost there, and a character whose first part they hold becomes whole.
        seen
            With ``first``: all tokens of the prompt (``after`` included): what penalties count, and what
            lookup and draft models read. The shard remembers them, and what it draws, until the next first.
        drafts
            Tokens of columns 1 to n − 1 of a verify frame. Drawing stops at the first that differs.
        want
            Guesses to bring for the next frame.

        Each token is drawn by an RNG keyed by (seed, position of the token), with penalties counted over
        all tokens before it, so that verify frames and plain ones draw the same (PROTOCOL section 7).
        """

    async def flush(self) -> str:
        """Text held back: for a character, a tag or a stop text that never became whole."""

    async def render(
        self, turns: list[Turn], *, thinking: bool | None = None, sampling: Sampling | None = None
    ) -> Prompt:
        """The conversation through the model's chat template, up to where the assistant speaks.

        Where the last turn is the assistant's, it stays open: the assistant goes on from there.

        Parameters
        ----------
        thinking
            Whether the model is to think first, where its template can say so; None: its own way.
        sampling
            How the answer will be drawn: refused here, before anything is computed, where this model cannot.

        Raises
        ------
        BadQuestion
            The template refuses (said in its own words), a text holds half a character, or ``logit_bias``
            names a token that the model does not have.
        """

    async def unload(self) -> None:
        """Free the weights and caches; disk copies of the room's checkpoints are removed."""

    async def close(self) -> None:
        """End the shard, disk copies included, as far as a second allows. Never raises.

        They stay where a shard dies, for the device that comes back (PROTOCOL section 7).
        """
