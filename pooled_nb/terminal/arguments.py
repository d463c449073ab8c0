"""The command line of ``pooled-nb``. Imports nothing heavy: help is there at once."""

from __future__ import annotations

import argparse
import difflib
import re
import textwrap
from collections.abc import Sequence
from typing import Any, NoReturn

from pooled_nb._version import __version__
from pooled_nb.errors import BadCode, BadOption
from pooled_nb.mesh import stacks
from pooled_nb.terminal import tools
from pooled_nb.typed import refuse_relay, refuse_secret, stop_text

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
QUESTION = "What is the water cycle, in one sentence?"
"""Of the demo: one that its small model answers rightly, and to the end."""
_KEY = re.compile(r"[#&?]k=[\w-]{16}", re.IGNORECASE)
STYLES = ("greedy", "focused", "creative")

DRAWN: dict[str, tuple[type, str, str]] = {
    "temperature": (float, "T", "0 is greedy"),
    "top-k": (int, "N", "draw among this many tokens"),
    "top-p": (float, "P", "draw among tokens up to this share"),
    "min-p": (float, "P", "leave out tokens below this part of the likeliest's share"),
    "repetition-penalty": (float, "R", "above 1: tokens of question and answer come less often"),
    "presence-penalty": (float, "P", "above 0: tokens of the answer come less often"),
}
"""How tokens are drawn, by number."""


class Help(argparse.HelpFormatter):
    """Keeps the lines of examples, which are indented, and wraps all others."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(
            line if line.startswith(" ") else textwrap.fill(line, width) for line in text.splitlines()
        )


class Parser(argparse.ArgumentParser):
    """One whose examples keep their lines, and which takes no half-written option for a whole one."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=Help, allow_abbrev=False, **options)


def parser() -> Parser:
    """The whole command line."""
    return _build()[0]


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Read it; exits with status 2 and one sentence where it makes no sense.

    Raises
    ------
    BadCode
        A word is a link that holds a secret, wherever it stands; it is not repeated.
    """
    top, commands = _build()
    for word in argv:
        _refuse_link(word, "ask" if argv[0] == "ask" else "join")
    first = argv[0]
    if not first.startswith("-") and first not in commands:
        top.error(f"There is no command {first!r}.{nearest(first.lower(), commands)}")
    if first.startswith("-") and first not in top._option_string_actions:
        top.error("The command comes first, its options after it.")
    # Argparse keeps what follows -- together only where no option stands before it.
    at = argv.index("--") if first == "ask" and "--" in argv else len(argv)
    args, rest = top.parse_known_args(argv[:at])
    if args.command == "ask":
        # Options may stand between the code and the question.
        args.words += [word for word in rest if word == "-" or not word.startswith("-")]
        args.words += argv[at + 1 :]
        rest = [word for word in rest if word.startswith("-") and word != "-"]
    if rest:
        _too_much(commands[args.command], args.command, rest[0])
    if args.command == "models":
        from pooled_nb.terminal.models import read

        try:
            read(args)
        except BadOption as error:
            commands["models"].error(str(error))
    return args


def _refuse_link(word: str, command: str) -> None:
    """Refuse a link with a key in any place, and a relay: most refusals repeat what was typed."""
    refuse_relay(word)
    value = word.partition("=")[2] if word.startswith("--") else word
    for part in value.split():
        try:
            refuse_secret(part, f"pooled-nb {command}")
        except BadCode:
            from pooled_nb.terminal.asking import is_room

            # A question may hold such letters, too; what is as long as a key is none of its words.
            if "://" in part or _KEY.search(part) or is_room(part):
                raise


def nearest(word: str, known: Sequence[str] | dict[str, Any]) -> str:
    """``Did you mean host?`` with a blank before it; empty where nothing is near."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" Did you mean {near[0]}?" if near else ""


def _too_much(command: Parser, name: str, word: str) -> NoReturn:
    if word.startswith("-"):
        known = [option for action in command._actions for option in action.option_strings]
        option = word.partition("=")[0]
        command.error(f"pooled-nb {name} has no {option}.{nearest(option, known)}")
    command.error(f"{word!r} is too much. Quote what belongs together.")


def _build() -> tuple[Parser, dict[str, Parser]]:
    top = Parser(
        prog="pooled-nb",
        description="One open language model, split over the devices of a room.",
        epilog="A room lives as long as its host: Ctrl-C leaves, and the host's leaving closes it.\n"
        "pooled-nb COMMAND --help explains a command, with an example.",
    )
    top.add_argument("--version", action="version", version=f"pooled-nb {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    found: dict[str, Parser] = {}

    def command(name: str, help: str, *examples: str, parents: Sequence[Parser] = ()) -> Parser:
        shown = "\n".join(f"  pooled-nb {example}" for example in examples)
        found[name] = commands.add_parser(
            name,
            help=help,
            description=f"{help[0].upper()}{help[1:]}.",
            epilog=f"Example{'s' if len(examples) > 1 else ''}:\n{shown}",
            parents=list(parents),
        )
        return found[name]

    _demo(
        command(
            "demo", "three kernels on this machine share one model and answer", "demo", "demo --devices 2"
        )
    )
    device = [_place(), _device()]
    _host(command("host", "open a room around a model", f"host {MODEL} --split memory", parents=device))
    _resume(
        command("resume", "take back a room whose process died on this machine", "resume", "resume 4TK-G9P")
    )
    _join(command("join", "join a room", "join 4TK-G9P", "join 4TK-G9P --role guest", parents=device))
    _ask(
        command(
            "ask",
            "ask a room one question as a guest, print the answer, and leave",
            'ask 4TK-G9P "Why is the sky blue?"',
            "ask 4TK-G9P - < question.txt",
            'ask 4TK-G9P "Name three birds" --json --seed 7 --creative',
            parents=[_place()],
        )
    )
    _status(command("status", "the rooms that are open on this machine", "status", "status 4TK-G9P --json"))
    tools.models(
        command(
            "models",
            "the models that are kept on this device: list, pull, delete, prune",
            "models",
            f"models pull {MODEL} --layers 1-12",
            f"models delete {MODEL}",
            "models prune --keep 20GB",
        )
    )
    tools.signal(
        command(
            "signal",
            "run a signaling server, by which devices of several machines find each other",
            "signal",
            "signal --host 0.0.0.0 --port 9000",
        )
    )
    tools.doctor(
        command(
            "doctor",
            "what works on this machine, and what to do about what does not",
            "doctor",
            "doctor --signal cloud --json",
        )
    )
    return top, found


def _place() -> Parser:
    place = Parser(add_help=False)
    place.add_argument("--name", help="what others call this device")
    place.add_argument(
        "--signal",
        action="append",
        metavar="SERVER",
        help="a signaling server; may be repeated, tried in order",
    )
    place.add_argument(
        "--stun", action="append", metavar="URL", help="a STUN server, like stun:HOST:PORT; may be repeated"
    )
    place.add_argument(
        "--relay-only",
        action="store_true",
        default=None,
        help="use nothing but the relay of POOLED_TURN",
    )
    place.add_argument(
        "--transport",
        choices=stacks.NAMES,
        help="what makes the connections (default aiortc; wrtc takes less CPU, and is an extra)",
    )
    return place


def _device() -> Parser:
    device = Parser(add_help=False)
    device.add_argument("--lend", metavar="GB", help="memory to lend, like 6GB")
    device.add_argument("--folder", help="where the model's files lie")
    device.add_argument("--no-give", action="store_true", help="give no weights to other devices of the room")
    device.add_argument("--ask", metavar="TEXT", help="ask this, print the answer, and leave")
    _most(device)
    return device


def _most(to: Parser) -> None:
    to.add_argument("--max-tokens", "--max", type=int, metavar="N", help="the most tokens of an answer")


def _demo(demo: Parser) -> None:
    demo.add_argument(
        "--devices", type=int, default=3, metavar="N", help="kernels, the host counted (default 3)"
    )
    demo.add_argument("--model", default=MODEL, help="the model")
    demo.add_argument("--ask", default=QUESTION, metavar="TEXT", help="the question")
    demo.add_argument("--max-tokens", type=int, default=64, metavar="N", help="the most tokens of the answer")


def _host(host: Parser) -> None:
    host.add_argument("model", help="a Hugging Face id (GGUF: user/repo:Q4_K_M), a folder, or a GGUF file")
    host.add_argument(
        "--devices", type=int, metavar="N", help="start when N devices are here, this one counted"
    )
    host.add_argument(
        "--split",
        choices=["speed", "memory", "alone"],
        help="how layers are dealt: over as few devices as hold the model (speed, the default), over all "
        "of them (memory), or over this one only (alone)",
    )
    host.add_argument("--ctx", type=int, metavar="TOKENS", help="tokens of context")
    host.add_argument("--code", help="open the room under this code")
    host.add_argument("--lan", action="store_true", help="open the room to the local network")
    host.add_argument(
        "--no-ask",
        action="store_true",
        help="let in whoever knows the code; else you are asked, unless a device holds the invite link",
    )
    host.add_argument("--starts", choices=["all", "host"], default="all", help="whose question may start it")
    host.add_argument(
        "--invite-file",
        metavar="PATH",
        help="write the invite link, a secret, into this file, for you alone to read; others join with "
        "it in POOLED_LINK",
    )
    host.add_argument("--fast", action="store_true", help="faster, without the promise of equal tokens")
    host.add_argument("--dtype", help="numbers of the model, like bfloat16")
    host.add_argument(
        "--kv",
        choices=["f16", "q8"],
        default="f16",
        help="how caches are kept: in the room's numbers (f16, the default), or in int8 (q8), which takes "
        "about half the memory; its tokens are others, and the same for any split",
    )
    host.add_argument(
        "--quant",
        choices=["int8", "int4"],
        help="keep the weights of the layers in 8 or 4 bits a number, at a half or 0.27 of the memory of "
        "16-bit ones; its tokens are others, and the same for any split",
    )
    host.add_argument(
        "--draft",
        metavar="MODEL",
        help="a small model of the same tokenizer that guesses tokens ahead on this device; off: none, and "
        "none of the model's own draft layers",
    )
    host.add_argument("--no-speculate", action="store_true", help="guess no token ahead")


def _resume(resume: Parser) -> None:
    resume.add_argument("code", nargs="?", help="which room; the one that lived last when absent")
    resume.add_argument("--name", help="what others call this device; as before when absent")
    resume.add_argument("--lend", metavar="GB", help="memory to lend, like 6GB; as before when absent")
    resume.add_argument("--ask", metavar="TEXT", help="ask this, print the answer, and leave")
    _most(resume)


def _join(join: Parser) -> None:
    join.add_argument("code", nargs="?", help="the code or link; asked for, unseen, when absent")
    join.add_argument(
        "--role",
        choices=["auto", "worker", "guest"],
        help="lend memory (worker), only ask (guest), or lend where this device can (auto, the default)",
    )
    _lan(join)


def _lan(to: Parser) -> None:
    to.add_argument("--lan", action="store_true", help="look for the room on the local network, too")


def _ask(ask: Parser) -> None:
    ask.add_argument(
        "words",
        nargs="*",
        metavar="CODE TEXT",
        help="the room's code, then the question, or - to read it from standard input. Without a code it "
        "comes from POOLED_LINK, or is asked for unseen",
    )
    _lan(ask)
    _most(ask)
    ask.add_argument("--seed", type=int, metavar="N", help="draw the same tokens again")
    ask.add_argument("--system", metavar="TEXT", help="what stands before this question")
    style = ask.add_mutually_exclusive_group()
    for name, help in zip(
        STYLES,
        ("the likeliest token, always", "close to the likeliest", "with more surprise"),
        strict=True,
    ):
        style.add_argument(f"--{name}", dest="style", action="store_const", const=name, help=help)
    for name, (kind, value, help) in DRAWN.items():
        ask.add_argument(f"--{name}", type=kind, metavar=value, help=help)
    ask.add_argument(
        "--stop",
        action="append",
        type=stop_text,
        metavar="TEXT",
        help=r"end before this text (\n ends a line); may be repeated",
    )
    ask.add_argument("--thinking", choices=["on", "off", "auto"], help="whether the model thinks first")
    ask.add_argument(
        "--json", action="store_true", help="print one object at the end: text, tokens, stats, reason"
    )


def _status(status: Parser) -> None:
    status.add_argument("code", nargs="?", help="only this room")
    status.add_argument("--json", action="store_true", help="print one object")
