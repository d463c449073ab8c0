"""What every room offers to the front door, whichever part this device plays. Runs on the mesh loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Literal, Protocol

from msgspec import Struct, field

from pooled_nb.room.doorfacts import GateChoices, Invite, LobbyLine, NetworkChoice, NetworkFacts, Trust
from pooled_nb.room.weights.ask import DownloadAsk
from pooled_nb.shard import Source

Role = Literal["host", "worker", "guest"]
State = Literal["open", "loading", "online", "answering", "waiting", "degraded", "away", "closed"]
"""``waiting``: an answer is held, since a device of the chain does not respond, or comes back; nothing is
dropped yet (host only). ``degraded``: a device of the chain is gone. ``away``: this device has lost its host,
and knocks."""
Reason = Literal["stop", "max", "ctx", "abort", "error"]
Style = Literal["greedy", "focused", "creative"]
"""How tokens are drawn: on the wire ``exact``, ``focused``, ``creative`` (PROTOCOL section 7)."""
Visibility = Literal["all", "host", "asker"]
Persona = Literal["plain", "kind", "expert"]
Again = Literal["continue", "regen"]
Verb = Literal[
    "download",
    "allow",
    "deny",
    "start",
    "redeal",
    "stop",
    "continue",
    "regen",
    "reset",
    "set",
    "invite",
    "kick",
    "network",
    "close",
    "leave",
]


class AskOptions(Struct, frozen=True, kw_only=True):
    """How one question is to be answered. None: the room's default.

    ``max_tokens`` counts generated tokens; ``temperature`` 0 is greedy; what is given by number goes before
    ``style``. ``system`` stands before this question in place of the room's. ``fast``: give up the promise
    of equal tokens for speed, where the room has not started yet. The rest as in `pooled_nb.shard.Sampling`.
    """

    max_tokens: int | None = None
    style: Style | None = None
    system: str | None = None
    thinking: bool | None = None
    fast: bool = False
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: dict[int, float] | None = None
    stop: list[str] | None = None
    seed: int | None = None


class ChatSettings(Struct, frozen=True, kw_only=True):
    """How the room answers, from the next question on. The host's person sets them.

    ``max_tokens`` of an answer; ``visibility``: who sees question and answer; ``persona``: the wording;
    ``thinking`` None is the model's own way; ``system`` stays on the host, and is empty elsewhere.
    """

    style: Style = "greedy"
    max_tokens: int = 512
    visibility: Visibility = "all"
    persona: Persona = "plain"
    thinking: bool | None = None
    system: str = ""
    redeal: bool = True
    """Deal again by itself, 60 s after a device dropped (PROTOCOL section 8). Stays on the host."""


class Stats(Struct, frozen=True, kw_only=True):
    """What one answer took: tokens, milliseconds, tokens per second (the first token aside); how many drafts
    were tried, and how many of them were right.
    """

    tokens: int = 0
    prompt: int = 0
    reused: int = 0
    drafted: int = 0
    accepted: int = 0
    ms: float = 0.0
    first_ms: float = 0.0

    @property
    def tps(self) -> float:
        """Tokens per second after the first; 0 when not measured."""
        span = self.ms - self.first_ms
        return (self.tokens - 1) * 1e3 / span if self.tokens > 1 and span > 0 else 0.0


class Queued(Struct, frozen=True, tag="queued"):
    """The question waits; ``place`` counts from 1."""

    place: int


class Started(Struct, frozen=True, tag="started"):
    """The answer begins; again under another number, where a host that was started anew makes it again."""

    mid: int


class Piece(Struct, frozen=True, tag="piece"):
    """Text that was added; ``source``: how its token was guessed, where it was (`pooled_nb.shard.Source`)."""

    text: str
    source: Source = ""


class Notice(Struct, frozen=True, tag="notice"):
    """A sentence about the answer while it runs (waiting for a device, …)."""

    text: str


class Done(Struct, frozen=True, tag="done"):
    """The answer ended. ``tokens``: the ids, known on the host only; ``hidden``: it is shown elsewhere."""

    reason: Reason
    stats: Stats
    why: str = ""
    tokens: list[int] | None = None
    hidden: bool = False


AnswerEvent = Queued | Started | Piece | Notice | Done


class DeviceLine(Struct, frozen=True, kw_only=True):
    """One device as people see it."""

    id: str
    name: str
    role: Role
    kind: str
    lends_gb: float
    layers: tuple[int, int] | None = None
    """0-based, hi exclusive; people are shown 1-based, inclusive."""
    held_gb: float = 0.0
    progress: int | None = None
    rtt_ms: float | None = None
    """Round trip of the last minute's pings, median; as people read it (`lines.milliseconds`)."""
    rtt_p95_ms: float | None = None
    """What 19 of 20 of them stayed below; None: too few were seen."""
    loss: float | None = None
    """Share of this device's packets to it that had to be sent again, 0 to 1; None: not known."""
    queued_bytes: int = 0
    """Bytes of frames for it that wait on this device."""
    stripes: int = 0
    """Connections to it beside the link's own (PROTOCOL section 5)."""
    wanted: int = 0
    """As many of them this device opens; 0 where the other one does."""
    path: str = "unknown"
    out: str = ""
    """Why it holds no layers, in a word."""
    me: bool = False
    silent_s: int = 0
    """Whole seconds for which it does not respond while it is waited for; 0: it responds, or nobody waits."""
    patience_s: int = 0
    """Seconds of silence after which it is dropped; 0 where ``silent_s`` is."""
    asks: bool = False
    """It loads nothing before its person has allowed a download; the host alone knows."""
    gone: bool = False
    """It holds these layers by the deal, and is not in the room any more."""


class Status(Struct, frozen=True, kw_only=True):
    """The room, whole, for people and panels. Holds no secret."""

    code: str
    state: State
    sentence: str
    """The state in words, and what to do next."""
    model: str = ""
    label: str = ""
    layers: int = 0
    ctx: int = 0
    used: int = 0
    exact: bool = True
    devices: list[DeviceLine] = field(default_factory=list)
    waiting: int = 0
    queue: list[str] = field(default_factory=list)
    """Names of those who wait, next first; only the host knows them."""
    answering: str = ""
    mine: bool = False
    """The running answer is to a question of this device."""
    can: list[Verb] = field(default_factory=list)
    """What this device's person may do now, and it makes sense."""
    newest: int = 0
    """``mid`` of the newest answer that this device sees: what continue and regen are about; 0: of none."""
    settings: ChatSettings = field(default_factory=ChatSettings)
    tps: float = 0.0
    """Tokens per second of the last answer whose numbers this device knows; 0: not known."""
    dtype: str = ""
    kv: str = "f16"
    """How caches are kept: ``f16`` (the room's dtype) or ``q8`` (a class of exactness of its own)."""
    quant: str = ""
    """How linear weights are kept: ``int8-row``, ``int4-g128`` (classes of their own), or as they are."""
    drafts: str = ""
    """What can draft besides prompt lookup: ``model``, ``layers``, or nothing."""
    runs: str = ""
    """Where this device's own layers lie and how it computes them, in words; empty: nothing is to be said."""
    need_gb: float = 0.0
    """What the model needs in this room (weights and caches, GB); 0: not known here."""
    signaling: str = ""
    lobby: list[LobbyLine] = field(default_factory=list)
    """Who waits to be let in, longest first (host only)."""
    gate: GateChoices = field(default_factory=GateChoices)
    """Who comes in; known on the host only."""
    trust: Trust = ""
    """How this device knows its host; empty on the host."""
    digits: str = ""
    """The six digits of this device's own link to its host; empty where there are none."""
    network: NetworkFacts = field(default_factory=NetworkFacts)
    waits_for: list[str] = field(default_factory=list)
    """Names of the devices that the answer, or the room, waits for."""
    loading: str = ""
    """What this device's own load does now, in words; empty: it loads nothing."""
    asks: DownloadAsk | None = None
    """What this device's person is asked: `RoomCore.allow_download` answers it."""
    unverified: str = ""
    """What of this device's layers only another device vouches for, in a sentence (DESIGN section 6)."""
    given: str = ""
    """What this device gave of weights to others, in a sentence; empty: nothing."""
    redeal_in: int | None = None
    """Whole seconds until the room deals again by itself; None: it does not (host only)."""


def unheard(*_: object) -> None:
    """What `RoomCore.on_change` and `RoomCore.on_notice` are until somebody listens."""


class RoomCore(Protocol):
    """A room on the mesh loop. `pooled_nb.api.Room` wraps it for any thread."""

    code: str
    """Six characters, as typed in links; shown ``4TK-G9P``."""
    on_change: Callable[[], None]
    """Called (mesh loop) after anything `status` shows has changed. Set it to hear; it never is None."""
    on_notice: Callable[[str], None]
    """A sentence for the person: signaling down, a device left, … Set it to hear; it never is None."""

    @property
    def role(self) -> Role:
        """The part this device plays now."""

    def status(self) -> Status:
        """The room now."""

    async def start(self, progress: Callable[[int, str], None] | None = None, *, fast: bool = False) -> None:
        """Deal and load over the devices now here; returns when the room is online (host only).

        ``fast`` counts at the first start only: the frames' widths are fixed there (PROTOCOL section 5).
        """

    def ask(self, text: str, options: AskOptions) -> AsyncIterator[AnswerEvent]:
        """Ask; the last event is always `Done`. Closing the iterator early stops the answer.

        Raises
        ------
        BadQuestion, QueueFull, NotReady, RoomClosed
        """

    def again(self, what: Again, options: AskOptions) -> AsyncIterator[AnswerEvent]:
        """Continue the last answer, or make it anew (its asker or the host); events as of `ask`.

        A continued answer keeps how it was made, so only ``max_tokens`` may be given; its events, ids and
        stats are of what is new, and follow what was there without a seam. One that is made anew is asked
        as before, but for what is given.

        Raises
        ------
        BadQuestion, QueueFull, NotReady, RoomClosed
        """

    async def configure(self, settings: ChatSettings) -> None:
        """How the room answers from the next question on (host only). Raises `NotReady`, `BadOption`."""

    async def allow(self, number: int) -> str:
        """Let a device of the lobby in (host only); returns its name.

        Raises
        ------
        NotReady
            This device does not host the room, or that one waits no longer.
        """

    async def deny(self, number: int) -> str:
        """Send a device of the lobby away: under its id it knocks no more (host only). As `allow`."""

    async def kick(self, id: str) -> str:
        """Throw a device out (host only); returns its name.

        Its pass counts no more, and links given out before let nobody in without asking: it may hold one.

        Raises
        ------
        NotReady
            This device does not host the room, or that one is not in it.
        """

    def invite(self) -> Invite:
        """The link that lets its holder in without asking (host only). Raises `NotReady`."""

    async def renew_invite(self) -> Invite:
        """A new link; the old ones only lead to the lobby. As `invite`."""

    async def set_gate(self, choices: GateChoices) -> None:
        """Who comes in from now on (host only). Raises `NotReady`."""

    async def allow_download(self, *, yes: bool) -> None:
        """Answer `Status.asks`. Raises `NotReady` where nothing is asked (any more)."""

    async def set_network(self, choice: NetworkChoice) -> NetworkFacts:
        """By which ways new connections of this device are looked for. Raises `BadOption`."""

    async def stop(self) -> None:
        """End the running answer after the lap in flight, or take back the newest waiting question."""

    async def reset(self) -> None:
        """New chat (host only)."""

    async def leave(self, *, after_answer: bool = False) -> None:
        """Leave the room; the host's leaving closes it. Never raises.

        ``after_answer``: politely. The running answer ends first; a device that holds layers hands them over
        before it goes, so that the room deals without it between two answers. Calling again without it
        leaves at once.
        """
