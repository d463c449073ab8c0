"""``%pooled`` and ``%%ask``: a room in a notebook or an IPython terminal."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments
from IPython.display import display

from pooled_nb.errors import NotReady, PooledError
from pooled_nb.plain import visible
from pooled_nb.printed import print_answer
from pooled_nb.progress import in_notebook, waiting
from pooled_nb.typed import refuse_secret, words

if TYPE_CHECKING:
    from pooled_nb.progress import Waiting
    from pooled_nb.room_view import Room

VERBS = {
    "host": "open a room around a model: %pooled host MODEL",
    "join": "join a room: %pooled join CODE (without a code it is asked for, unseen)",
    "start": "deal the layers over the devices now here; the first question does it too",
    "status": "the room: its devices, layers and state",
    "stop": "end the running answer",
    "reset": "begin a new chat (host)",
    "leave": "leave the room; the host's leaving closes it",
    "help": "this text",
}
_OPENS = ("name", "lend", "signal", "folder", "output")
OPTIONS = {
    "host": (*_OPENS, "split", "ctx", "code", "lan", "fast", "dtype", "in_process"),
    "join": (*_OPENS, "role", "in_process"),
    "start": ("devices",),
}
"""Which options belong to which verb; the other verbs take none."""

_HEAD = re.compile(
    r"\s*(-o|--output|--max-tokens|--max|--seed|--temperature|--top-k|--top-p)(?:\s*=\s*|\s+)(\S+)(?=\s|$)"
)
_QUESTION = re.compile(r"%ask[ \t]+(\S.*\?)\s*$")
_STRAY = re.compile(r"\s*(--?[A-Za-z][\w-]*)")


@magics_class
class PooledMagics(Magics):
    """The magics of ``%load_ext pooled_nb``."""

    _panel: tuple[Room, Waiting] | None = None
    """The room that this notebook entered, and the display that shows it."""

    @magic_arguments()
    @argument("verb", nargs="?", default="help", help="host, join, start, status, stop, reset, leave or help")
    @argument(
        "target", nargs="?", default=None, help="host: the model (hub id or folder); join: the code or link"
    )
    @argument("--name", default=None, help="what others call this device")
    @argument("--lend", default=None, metavar="GB", help="memory to lend, like 6GB")
    @argument("--signal", default=None, metavar="SERVERS", help="signaling servers, separated by commas")
    @argument("--folder", default=None, help="where the model's files lie")
    @argument("-o", "--output", default=None, metavar="NAME", help="keep the room in this variable")
    @argument("--role", default=None, choices=["auto", "worker", "guest"], help="join: what to be")
    @argument("--split", default=None, choices=["speed", "memory"], help="host: how layers are dealt")
    @argument("--ctx", default=None, type=int, metavar="TOKENS", help="host: tokens of context")
    @argument("--code", default=None, help="host: open the room under this code")
    @argument("--lan", action="store_true", help="host: open it to the local network")
    @argument("--fast", action="store_true", help="host: faster, without the promise of equal tokens")
    @argument("--dtype", default=None, help="host: numbers of the model, like bfloat16")
    @argument("--devices", default=None, type=int, metavar="N", help="start: wait until N devices are here")
    @argument("--in-process", action="store_true", help="compute in this process, for debugging")
    @line_magic
    def pooled(self, line: str) -> None:
        """Host a room, join one, look at it, leave it.

        Examples::

            %pooled host HuggingFaceTB/SmolLM2-135M-Instruct --lend 2GB
            %pooled join 4TK-G9P --role worker
            %pooled status
            %pooled leave

        Then ask with ``%%ask``. Every option is explained below.
        """
        try:
            typed = words(line)
        except ValueError:
            raise UsageError("A quotation is not closed in this line. Close it, or take it out.") from None
        if "--help" in typed or "-h" in typed:
            self._help()
            return
        args = self.pooled.parser.parse_args(typed)
        if args.verb not in VERBS:
            raise UsageError(f"%pooled does not know {args.verb!r}. It knows {', '.join(VERBS)}.")
        _check_options(args)
        _sentence(getattr(self, f"_{args.verb}"), *([args] if args.verb in OPTIONS else []))

    def _help(self) -> None:
        width = max(map(len, VERBS))
        print("\n".join(f"%pooled {verb:{width}}  {words}" for verb, words in VERBS.items()))
        print(f"%%ask{'':{width + 4}}ask the room; the question is the cell's text")
        print("\nOptions and examples: %pooled? and %%ask?")

    def _host(self, args: Any) -> None:
        from pooled_nb.api import host

        if args.target is None:
            raise UsageError("Which model? For example: %pooled host HuggingFaceTB/SmolLM2-135M-Instruct")
        self._entered(
            host(
                args.target,
                code=args.code,
                name=args.name,
                lend=args.lend,
                split=args.split or "speed",
                ctx=args.ctx,
                exact=not args.fast,
                signal=args.signal,
                lan=args.lan,
                folder=args.folder,
                dtype=args.dtype,
                process=not args.in_process,
                wait=False,
            ),
            args.output,
        )

    def _join(self, args: Any) -> None:
        from pooled_nb.api import join

        refuse_secret(args.target, "%pooled join")
        self._entered(
            join(
                args.target,
                role=args.role or "auto",
                name=args.name,
                lend=args.lend,
                signal=args.signal,
                folder=args.folder,
                process=not args.in_process,
                wait=False,
            ),
            args.output,
        )

    def _entered(self, room: Room, output: str | None) -> None:
        with waiting("entering the room") as view:
            room.result(view=view)
            if view.finish(room._repr_mimebundle_()):
                self._panel = (room, view)
            else:
                print(room.status())
        if output:
            self._keep(output, room)

    def after_cell(self, _: object = None) -> None:
        """Show in the display of a room that it is over: a saved notebook invites nobody to it."""
        if self._panel is not None and self._panel[0].left:
            room, view = self._panel
            self._panel = None
            view.finish(room._repr_mimebundle_())

    def _keep(self, name: str, value: object) -> None:
        assert self.shell is not None
        self.shell.push({name: value})

    def _start(self, args: Any) -> None:
        _room().start(devices=args.devices)

    def _status(self) -> None:
        room = _room()
        display(room.status())
        for notice in room.notices[-3:]:
            print(visible(notice))

    def _stop(self) -> None:
        _room().stop()

    def _reset(self) -> None:
        _room().reset()
        print("A new chat begins.")

    def _leave(self) -> None:
        room = _room()
        room.leave()
        print(f"Left room {room.code}." if room.role != "host" else f"Closed room {room.code}.")

    @magic_arguments()
    @argument("-o", "--output", default=None, metavar="NAME", help="keep the answer in this variable")
    @argument(
        "--max-tokens", "--max", type=int, default=None, metavar="N", help="the most tokens of the answer"
    )
    @argument("--seed", type=int, default=None, help="draw the same tokens again")
    @argument("--temperature", type=float, default=None, help="0 is greedy")
    @argument("--top-k", type=int, default=None, help="draw among this many tokens")
    @argument("--top-p", type=float, default=None, help="draw among tokens up to this share")
    @no_var_expand
    @line_cell_magic
    def ask(self, line: str, cell: str | None = None) -> None:
        """Ask the room; the answer streams into the cell and stays there.

        Examples::

            %%ask -o answer --max-tokens 200
            Why is the sky blue?

            %ask Why is the sky blue?

        Interrupting the kernel stops the answer and the cell, and keeps the room. Braces and dollar signs
        of the question are left alone; ``--`` before it lets it begin with a dash.
        """
        if line.strip() in ("--help", "-h"):
            print(self.ask.__doc__)
            return
        head, rest = _split_head(line)
        args = self.ask.parser.parse_args(head)
        question = "\n".join(part for part in (rest.strip(), (cell or "").strip("\r\n")) if part)
        _sentence(self._answer, question, args)

    def _answer(self, question: str, args: Any) -> None:
        room = _room()
        answer = room.stream(
            question,
            max_tokens=args.max_tokens,
            seed=args.seed,
            temperature=args.temperature,
            top_k=args.top_k,
            top_p=args.top_p,
        )
        if args.output:
            self._keep(args.output, answer)
        with waiting("asking") as view:
            if in_notebook():
                try:
                    answer.result(view=view)
                finally:
                    view.finish(answer._repr_mimebundle_())  # its last line says if it was stopped
            else:
                print_answer(answer, view)


def _room() -> Room:
    from pooled_nb.api import current

    room = current()
    if room is None:
        raise NotReady(
            "This kernel is in no room.", "Open one with %pooled host MODEL, or join with %pooled join CODE."
        )
    return room


def _sentence(do: Callable[..., None], *args: Any) -> None:
    """Run it; an error of ours is shown as its sentence, without a traceback, and the cell fails.

    So it does after an interrupt: the cells that Run All has queued behind it do not run.
    """
    try:
        do(*args)
    except PooledError as error:
        _shown_as(error, visible(str(error)))
        raise
    except KeyboardInterrupt as error:
        _shown_as(error, "Stopped.")
        raise


def _shown_as(error: BaseException, text: str) -> None:
    error._render_traceback_ = lambda: [text]  # type: ignore[attr-defined] # IPython's own hook


def _check_options(args: Any) -> None:
    allowed = OPTIONS.get(args.verb, ())
    for name, value in vars(args).items():
        if name == "verb" or value in (None, False):
            continue
        if name == "target" and args.verb not in ("host", "join"):
            raise UsageError(f"%pooled {args.verb} stands alone; {value!r} is too much.")
        if name != "target" and name not in allowed:
            raise UsageError(f"%pooled {args.verb} has no --{name.replace('_', '-')}.")


def _split_head(line: str) -> tuple[list[str], str]:
    """Options that begin the line, and the rest as it stands: a question may hold quotes and dashes.

    Raises
    ------
    UsageError
        The rest begins like an option; it is no part of the question.
    """
    at, head = 0, []
    while (option := _HEAD.match(line, at)) is not None:
        head += [option[1], option[2]]
        at = option.end()
    rest = line[at:].strip()
    if rest == "--" or rest.startswith("-- "):
        return head, rest[3:]
    if (stray := _STRAY.match(rest)) is not None:
        what = "needs a value" if _HEAD.match(f"{stray[1]} 1") else "is no option of %%ask"
        raise UsageError(f"{stray[1]} {what}. See %%ask? (-- before a question lets it begin with a dash).")
    return head, rest


def complete(shell: Any, event: Any) -> list[str]:
    """Tab after ``%pooled``: its verbs, then the verb's options, and for join the rooms of this machine."""
    words = event.line.split()
    if len(words) <= 1 or (len(words) == 2 and not event.line.endswith(" ")):
        return list(VERBS)
    options = [f"--{name.replace('_', '-')}" for name in OPTIONS.get(words[1], ())]
    if words[1] == "join" and not event.symbol.startswith("-"):
        from pooled_nb.mesh import codes, runtime

        return [codes.shown(room.code) for room in runtime.all_rooms()] + options
    return options


def questions(lines: list[str]) -> list[str]:
    """Lines of a cell; IPython would take the question mark that ends ``%ask …?`` for a call for help."""
    if lines and lines[0].startswith("%%"):
        return lines
    return [
        f"get_ipython().run_line_magic('ask', {found[1]!r})\n" if (found := _QUESTION.match(line)) else line
        for line in lines
    ]


def load(shell: Any) -> None:
    """Register the magics and their completion."""
    magics = PooledMagics(shell)
    shell.register_magics(magics)
    shell.events.register("post_run_cell", magics.after_cell)
    shell.input_transformers_cleanup.append(questions)
    shell.set_hook("complete_command", complete, str_key="%pooled")


def unload(shell: Any) -> None:
    """Take the magics away again."""
    for kind, names in (("line", ("pooled", "ask")), ("cell", ("ask",))):
        for name in names:
            shell.magics_manager.magics[kind].pop(name, None)
    shell.input_transformers_cleanup.remove(questions)
    magics = shell.magics_manager.registry.pop("PooledMagics")
    shell.events.unregister("post_run_cell", magics.after_cell)
    shell.strdispatchers["complete_command"].strs.pop("%pooled", None)
