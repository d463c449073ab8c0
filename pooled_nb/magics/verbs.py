"""What ``%pooled`` and ``%%ask`` understand: one table, for reading them, for their help and for tab."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pooled_nb.mesh import stacks
from pooled_nb.mesh.wiresettings import MAX_STRIPES
from pooled_nb.room import wirechoice
from pooled_nb.room.questions import LENGTHS
from pooled_nb.typed import stop_text

STYLES = ("greedy", "focused", "creative")
THINKING = ("on", "off", "auto")
ON_OFF = ("on", "off")


@dataclass(frozen=True, kw_only=True)
class Option:
    """``--name VALUE``, or a flag where ``value`` is empty."""

    names: tuple[str, ...]
    what: str
    value: str = ""
    kind: Callable[[str], Any] = str
    choices: tuple[str, ...] = ()
    """The only values there are."""
    likely: tuple[str, ...] = ()
    """Values that tab offers, others being possible too."""
    many: bool = False
    """It may be repeated; its value is a list."""

    @property
    def key(self) -> str:
        """Under which name its value is found."""
        return max(self.names, key=len).lstrip("-").replace("-", "_")


@dataclass(frozen=True, kw_only=True)
class Verb:
    """A word after ``%pooled``."""

    what: str
    target: str = ""
    """What stands after it, in capitals."""
    optional: bool = False
    """It may be left out."""
    words: bool = False
    """It may be several words: a device's name."""
    options: tuple[Option, ...] = ()
    more: str = ""
    """A paragraph of its own help."""
    example: str = ""


def _choice(name: str, choices: tuple[str, ...], what: str) -> Option:
    return Option(names=(name,), value=name.lstrip("-").upper(), choices=choices, what=what)


_OPENS = (
    Option(names=("--name",), value="NAME", what="what others call this device"),
    Option(
        names=("--lend",),
        value="GB",
        likely=("2GB", "4GB", "8GB"),
        what="memory to lend, like 6GB; a share of what is free when absent",
    ),
    Option(
        names=("--signal",), value="SERVERS", likely=("local",), what="signaling servers, separated by commas"
    ),
    Option(
        names=("--stun",), value="URL", many=True, what="a STUN server, like stun:HOST:PORT; may be repeated"
    ),
    Option(names=("--relay-only",), what="use nothing but the relay (see %pooled network)"),
    _choice("--transport", stacks.NAMES, "what makes the connections; wrtc: less CPU (extra wrtc)"),
    Option(names=("--folder",), value="FOLDER", what="where the model's files lie"),
    Option(names=("--no-give",), what="give no weights to other devices of the room"),
    Option(names=("-o", "--output"), value="NAME", what="keep the room in this variable"),
    Option(names=("--in-process",), what="compute in this process, for debugging"),
)
RESUMED = ("name", "lend", "output", "in_process")
"""What may be said anew of a room that goes on; the rest is as it was."""
_DEVICES = Option(names=("--devices",), value="N", kind=int, what="wait until N devices are here")

_OUTPUT = Option(names=("-o", "--output"), value="NAME", what="keep the answer in this variable")
_HOW = (
    Option(names=("--max-tokens", "--max"), value="N", kind=int, what="the most tokens of the answer"),
    Option(names=("--seed",), value="N", kind=int, what="draw the same tokens again"),
    Option(names=("--system",), value="TEXT", what="stands before this question; quote it if it has spaces"),
    Option(names=("--greedy",), what="always the likeliest token"),
    Option(names=("--focused",), what="draw close to the likeliest"),
    Option(names=("--creative",), what="draw freely"),
    Option(names=("--thinking",), value="THINKING", choices=THINKING, what="whether the model thinks first"),
    Option(names=("--temperature",), value="T", kind=float, what="0 is greedy"),
    Option(names=("--top-k",), value="N", kind=int, what="draw among this many tokens"),
    Option(names=("--top-p",), value="P", kind=float, what="draw among tokens up to this share"),
    Option(
        names=("--min-p",),
        value="P",
        kind=float,
        what="leave out tokens below this part of the likeliest's share",
    ),
    Option(
        names=("--repetition-penalty",),
        value="R",
        kind=float,
        what="above 1: tokens of question and answer come less often",
    ),
    Option(
        names=("--presence-penalty",),
        value="P",
        kind=float,
        what="above 0: tokens of the answer come less often",
    ),
    Option(
        names=("--stop",),
        value="TEXT",
        kind=stop_text,
        many=True,
        what=r"end before this text (\n ends a line); may be repeated",
    ),
)
"""How one answer is wished for."""

VERBS: dict[str, Verb] = {
    "host": Verb(
        what="open a room around a model",
        target="MODEL",
        options=(
            *_OPENS,
            _choice("--split", ("speed", "memory", "alone"), "how layers are dealt; alone: on this device"),
            Option(names=("--ctx",), value="TOKENS", kind=int, what="tokens of context"),
            Option(names=("--code",), value="CODE", what="open the room under this code"),
            Option(names=("--lan",), what="open it to the local network"),
            Option(names=("--no-ask",), what="let in whoever knows the code, without asking you"),
            _choice("--starts", ("all", "host"), "whose question may start the room"),
            Option(names=("--fast",), what="faster, without the promise of equal tokens"),
            Option(
                names=("--dtype",),
                value="DTYPE",
                likely=("bfloat16", "float16", "float32"),
                what="numbers of the model, like bfloat16",
            ),
            _choice("--kv", ("f16", "q8"), "how caches are kept; q8: about half the memory, other tokens"),
            _choice("--quant", ("int8", "int4"), "keep weights in fewer bits: less memory, other tokens"),
            Option(
                names=("--draft",),
                value="MODEL",
                likely=("off",),
                what="a small model of the same tokenizer that guesses ahead",
            ),
            Option(names=("--no-speculate",), what="guess no token ahead"),
        ),
        more="MODEL is a Hugging Face id, or a folder with safetensors files. You are asked before a device "
        "comes in (%pooled allow), unless it holds the invite link (%pooled invite).",
        example="%pooled host HuggingFaceTB/SmolLM2-135M-Instruct --lend 2GB",
    ),
    "join": Verb(
        what="join a room; without a code it is asked for, unseen",
        target="CODE",
        optional=True,
        options=(
            *_OPENS,
            _choice("--role", ("auto", "worker", "guest"), "what to be"),
            Option(names=("--lan",), what="look for the room on the local network, too"),
        ),
        more="A worker lends memory, a guest only asks. A link with a secret is never typed into a cell. "
        "Without one this waits until the host has let this device in: compare the six digits.",
        example="%pooled join 4TK-G9P --role worker",
    ),
    "resume": Verb(
        what="take back a room of this machine whose kernel started again",
        target="CODE",
        optional=True,
        options=(*(option for option in _OPENS if option.key in RESUMED),),
        more="For 15 minutes after its kernel started again, or died, a room goes on with its devices, its "
        "settings and its chat; one that was closed is over. Without a code it is the room that lived last.",
        example="%pooled resume",
    ),
    "start": Verb(
        what="deal the layers over the devices now here; the first question does it too",
        options=(
            _DEVICES,
            Option(names=("--fast",), what="faster, without the promise of equal tokens; first start only"),
        ),
        example="%pooled start --devices 3",
    ),
    "status": Verb(what="the room in words: its devices, layers and state"),
    "stop": Verb(what="end the running answer"),
    "redeal": Verb(
        what="deal anew: devices have come, or one is gone",
        options=(_DEVICES,),
        more="An answer that waits for a device goes on over the new deal; nothing that is shown changes.",
        example="%pooled redeal",
    ),
    "continue": Verb(
        what="go on with the last answer",
        options=(
            Option(
                names=("--max-tokens", "--max"),
                value="N",
                kind=int,
                what="the most tokens that are added",
            ),
            _OUTPUT,
        ),
        more="Whoever asked for that answer may, and the host.",
    ),
    "regenerate": Verb(
        what="make the last answer anew",
        options=(_OUTPUT, *_HOW),
        more="Whoever asked for that answer may, and the host. What is not given stays as it was asked.",
        example="%pooled regenerate --creative",
    ),
    "set": Verb(
        what="how the room answers; alone it shows that",
        options=(
            _choice("--style", STYLES, "how tokens are drawn"),
            Option(
                names=("--length",),
                value="LENGTH",
                likely=tuple(LENGTHS),
                what=", ".join(f"{name} ({n:,} tokens)" for name, n in LENGTHS.items()) + ", or a number",
            ),
            _choice("--visibility", ("all", "host", "asker"), "who sees question and answer"),
            _choice("--persona", ("plain", "kind", "expert"), "the wording"),
            _choice("--thinking", THINKING, "whether the model thinks first; auto is its own way"),
            Option(names=("--system",), value="TEXT", what="stands before the chat; '' takes it away"),
            _choice("--redeal", ON_OFF, "deal again by itself, 60 s after a device dropped"),
        ),
        more="The host's person sets it, for everyone, from the next question on.",
        example="%pooled set --style focused --length short",
    ),
    "lobby": Verb(what="who waits to be let in, with the digits to compare (host)"),
    "allow": Verb(
        what="let in who waits: a name or number, or the only one (host)",
        target="NAME",
        optional=True,
        words=True,
        more="Its screen must show the digits that %pooled lobby shows.",
        example="%pooled allow laptop",
    ),
    "deny": Verb(
        what="send away who waits; whoever joins anew is asked about anew (host)",
        target="NAME",
        optional=True,
        words=True,
        example="%pooled deny laptop",
    ),
    "kick": Verb(
        what="throw a device out, and renew the invite link (host)",
        target="NAME",
        words=True,
        more="Whoever holds an older link has to ask again.",
        example="%pooled kick laptop",
    ),
    "invite": Verb(
        what="the link that lets its holder in without asking: by the panel's Invite button (host)",
        options=(Option(names=("--new",), what="a new link; whoever holds an older one has to ask"),),
        more="The link is a secret. It goes to the clipboard, and never into the notebook.",
    ),
    "gate": Verb(
        what="who comes in; alone it shows that (host)",
        options=(
            _choice("--ask", ON_OFF, "you are asked before a device comes in; off: the code is enough"),
            _choice("--starts", ("all", "host"), "whose question may start the room"),
            _choice("--api", ON_OFF, "programs that speak for others may come"),
            _choice("--older", ON_OFF, "devices that can prove nothing count by raw keys"),
        ),
        example="%pooled gate --ask off",
    ),
    "network": Verb(
        what="by which ways this device meets others; alone it shows that",
        options=(
            Option(names=("--turn",), what="a relay: it is asked for, unseen, since it holds a password"),
            Option(names=("--no-turn",), what="no relay"),
            Option(names=("--stun",), value="URL", many=True, what="a STUN server; may be repeated"),
            Option(names=("--no-stun",), what="no STUN server"),
            Option(names=("--relay-only",), what="use nothing but the relay"),
            Option(names=("--direct",), what="use direct paths where there are some"),
            Option(
                names=("--stripes",),
                value="N",
                choices=(*map(str, range(MAX_STRIPES + 1)), wirechoice.AUTO),
                what="more connections per link that this device dials (no host does); auto: 3, or 0",
            ),
            _choice("--twice", (*ON_OFF, wirechoice.AUTO), "small frames go over two connections"),
            Option(
                names=("--keepalive",),
                value="MS",
                likely=("0", "10", wirechoice.AUTO),
                what="milliseconds without a frame after which a byte is sent; 0: never",
            ),
            _choice("--transport", (*stacks.NAMES, wirechoice.AUTO), "what makes the connections"),
            Option(names=("--remember",), what="keep it for later rooms, in a file that only you can read"),
        ),
        more="A relay is typed unseen as turn:USER:PASSWORD@HOST:PORT, or comes from POOLED_TURN. Relay and "
        "STUN servers count from the next connection on; stripes, twice, keepalive and transport from the "
        "next room on, and so with --remember.",
        example="%pooled network --turn --remember",
    ),
    "download": Verb(
        what="may this device download so much: allow, refuse; alone it shows what it asks",
        target="ANSWER",
        optional=True,
        more="It asks above what POOLED_MAX_DOWNLOAD allows one load (8 GB when not set).",
        example="%pooled download allow",
    ),
    "models": Verb(
        what="the models kept on this device: list, pull, delete, prune; alone it lists them",
        target="VERB",
        optional=True,
        words=True,
        options=(
            Option(names=("--layers",), value="1-12", what="pull only these; from 1 on with a host's ends"),
            Option(names=("--revision",), value="REV", what="pull or delete this branch, tag or commit"),
            Option(
                names=("--keep",),
                value="SIZE",
                likely=("10GB", "20GB", "50GB"),
                what="prune until the range cache holds no more",
            ),
        ),
        more="pull fetches a model ahead; an interrupt keeps what came, and pulling it again goes on. delete "
        "removes what rooms fetched of it; prune what was not used for longest.",
        example="%pooled models pull HuggingFaceTB/SmolLM2-135M-Instruct",
    ),
    "reset": Verb(what="begin a new chat, for everyone (host)"),
    "leave": Verb(
        what="leave the room; the host's leaving closes it",
        options=(
            Option(
                names=("--after-answer",),
                what="politely: the running answer ends first, and layers are handed over",
            ),
        ),
        more="An interrupt amid a polite leaving leaves at once.",
        example="%pooled leave --after-answer",
    ),
    "close": Verb(what="close the room for everyone (host)"),
    "help": Verb(what="this text"),
}

ASK: tuple[Option, ...] = (
    _OUTPUT,
    *_HOW,
    Option(names=("--fast",), what="faster, without the promise of equal tokens; if it starts the room"),
    Option(names=("--background",), what="go on with other cells meanwhile"),
)


@dataclass(frozen=True, kw_only=True)
class Typed:
    """A line that was understood."""

    verb: str
    target: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    """Those that were given."""
