"""What each verb of ``%pooled`` does, and ``%%ask``; what fails is one sentence, and the cell has failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class, no_var_expand
from IPython.display import display

from pooled_nb.answer_output import answering, follow, leave
from pooled_nb.counted import still
from pooled_nb.errors import AnswerFailed, BadOption, PooledError
from pooled_nb.magics.door import DoorVerbs
from pooled_nb.magics.help import ask_help, overview, pooled_doc, verb_help
from pooled_nb.magics.here import NO_ROOM, the_room
from pooled_nb.magics.lines import HELP, read_ask, read_pooled
from pooled_nb.magics.weights import WeightVerbs
from pooled_nb.plain import visible
from pooled_nb.printed import print_answer
from pooled_nb.progress import NotebookWaiting, in_notebook, waiting
from pooled_nb.room_commands import ON_OFF, THINKING, length
from pooled_nb.room_output import show_panel
from pooled_nb.settings_text import settings_text
from pooled_nb.typed import refuse_secret

if TYPE_CHECKING:
    from pooled_nb.answer import Answer
    from pooled_nb.room_view import Room


@magics_class
class PooledMagics(DoorVerbs, WeightVerbs, Magics):
    """The magics of ``%load_ext pooled_nb``."""

    @line_magic
    def pooled(self, line: str) -> None:  # noqa: D102 - made below
        typed = read_pooled(line)
        _sentence(getattr(self, f"_{typed.verb or 'look'}"), typed.target, **typed.options)

    pooled.__doc__ = pooled_doc()

    def _help(self, about: str | None) -> None:
        print(verb_help(about) if about else overview())

    def _look(self, _: None) -> None:
        """Show the panel: ``%pooled`` alone."""
        from pooled_nb.api import current

        room = current()
        if room is None:
            print(" ".join(NO_ROOM))
        elif in_notebook():
            show_panel(room)
        else:
            self._status(None)

    def _host(self, model: str | None, **options: Any) -> None:
        from pooled_nb.api import host

        if model is None:
            raise BadOption("Which model?", "For example: %pooled host HuggingFaceTB/SmolLM2-135M-Instruct.")
        output = options.pop("output", None)
        fast, here = options.pop("fast", False), options.pop("in_process", False)
        guess, ask = not options.pop("no_speculate", False), not options.pop("no_ask", False)
        room = host(
            model,
            **_giving(options),
            speculate=guess,
            ask=ask,
            exact=not fast,
            process=not here,
            wait=False,
        )
        self._entered(room, output)

    def _join(self, code: str | None, **options: Any) -> None:
        from pooled_nb.api import join

        refuse_secret(code, "%pooled join")
        output, here = options.pop("output", None), options.pop("in_process", False)
        self._entered(join(code, **_giving(options), process=not here, wait=False), output)

    def _resume(self, code: str | None, **options: Any) -> None:
        from pooled_nb.api import resume

        refuse_secret(code, "%pooled resume")
        output, here = options.pop("output", None), options.pop("in_process", False)
        room = resume(code, **options, process=not here, wait=False)
        self._entered(room, output)
        failed: PooledError | None = None
        for answer in room.asked_again:  # each is shown, also after one that failed
            try:
                self._show(answer, None)
            except PooledError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def _entered(self, room: Room, output: str | None) -> None:
        with waiting("entering the room") as view:
            try:
                room.result(view=view)
            except KeyboardInterrupt:
                room.leave()  # whoever gave up opening it has no room to leave
                raise
        if output:
            self._keep(output, room)
        if isinstance(view, NotebookWaiting):
            show_panel(room, view.output)
        else:
            print(room.status())

    def _keep(self, name: str, value: object) -> None:
        assert self.shell is not None
        self.shell.push({name: value})

    def _start(self, _: None, devices: int | None = None, fast: bool = False) -> None:
        the_room().start(devices=devices, fast=fast)

    def _redeal(self, _: None, devices: int | None = None) -> None:
        the_room().redeal(devices=devices)

    def _status(self, _: None) -> None:
        room = the_room()
        status = room.status()
        display(status)
        said = str(status)
        for notice in room.notices[-3:]:
            if still(text := visible(notice)) not in still(said):
                print(text)

    def _stop(self, _: None) -> None:
        room = the_room()
        status = room.status()
        if not (status.mine or "stop" in status.can or status.state == "answering" or status.waiting):
            print("Nothing is answered now, and no question waits.")
        room.stop()

    def _continue(self, _: None, max_tokens: int | None = None, output: str | None = None) -> None:
        self._show(the_room().continue_(max_tokens=max_tokens, wait=False), output)

    def _regenerate(self, _: None, output: str | None = None, **options: Any) -> None:
        self._show(the_room().regenerate(**_wished(options), wait=False), output)

    def _set(self, _: None, **options: Any) -> None:
        room = the_room()
        if "length" in options:
            options["max_tokens"] = length(options.pop("length"))
        if "redeal" in options:
            options["redeal"] = ON_OFF[options["redeal"]]
        options = _wished(options)
        if options:
            room.set(**options)
        print(visible(settings_text(room.settings, is_host=room.role == "host")))

    def _reset(self, _: None) -> None:
        the_room().reset()
        print("A new chat begins, for everyone in the room.")

    def _leave(self, _: None, after_answer: bool = False) -> None:
        room = the_room()
        done = f"Left room {room.code}." if room.role != "host" else f"Closed room {room.code}."
        try:
            room.leave(after_answer=after_answer)
        except KeyboardInterrupt as error:
            _shown_as(error, done)  # who gives up waiting has left, too
            raise
        print(done)

    def _close(self, _: None) -> None:
        room = the_room()
        room.close()
        print(f"Closed room {room.code}.")

    @no_var_expand
    @line_cell_magic
    def ask(self, line: str, cell: str | None = None) -> None:  # noqa: D102 - made below
        if line.strip() in HELP:
            print(ask_help())
            return
        options, rest = read_ask(line)
        question = "\n".join(part for part in (rest.strip(), (cell or "").strip("\r\n")) if part)
        _sentence(self._answer, question, **options)

    ask.__doc__ = ask_help()

    def _answer(
        self, question: str, *, output: str | None = None, background: bool = False, **options: Any
    ) -> None:
        self._show(the_room().stream(question, **_wished(options)), output, background=background)

    def _show(self, answer: Answer, output: str | None, *, background: bool = False) -> None:
        if output:
            self._keep(output, answer)
        if background:
            self._go_on(answer, output)
            return
        with answering(answer, quiet=False) as view:
            if isinstance(view, NotebookWaiting):
                try:
                    answer.result(view=view)
                except PooledError as error:
                    # The output says why. The error may not say it again, and empty it is an empty red box.
                    what = "The answer failed" if isinstance(error, AnswerFailed) else "Not answered"
                    _shown_as(error, f"{what}: see above.")
                    raise
                finally:
                    leave(view, answer)
                return
            try:
                print_answer(answer, view)
            except KeyboardInterrupt as error:
                _shown_as(error, " ")  # the line below the answer says it
                raise

    def _go_on(self, answer: Answer, output: str | None) -> None:
        """Let it be answered while other cells run."""
        if not in_notebook():
            print(f"It is answered meanwhile; {output or 'pooled_nb.current().last'} keeps the answer.")
            return
        try:
            follow(answer)
        except BaseException:
            answer.stop()  # nobody would see it
            raise


def _giving(options: dict[str, Any]) -> dict[str, Any]:
    """Options as Python takes them; what is not said is left to the place and the settings."""
    return options | {"give": False} if options.pop("no_give", False) else options


def _wished(options: dict[str, Any]) -> dict[str, Any]:
    """Options as Python takes them."""
    if "thinking" in options:
        return options | {"thinking": THINKING[options["thinking"]]}
    return options


def _sentence(do: Callable[..., None], *args: Any, **options: Any) -> None:
    """Run it; an error of ours is shown as its sentence, without a traceback, and the cell fails.

    So it does after an interrupt: the cells that Run All has queued behind it do not run.
    """
    try:
        do(*args, **options)
    except PooledError as error:
        _shown_as(error, visible(str(error)))
        raise
    except KeyboardInterrupt as error:
        _shown_as(error, "Stopped.")
        raise


def _shown_as(error: BaseException, text: str) -> None:
    def once() -> list[str]:
        # An answer keeps its error, and may raise it in another cell, where there is nothing above.
        del error._render_traceback_  # type: ignore[attr-defined] # IPython's own hook
        return [text]

    if not hasattr(error, "_render_traceback_"):
        error._render_traceback_ = once  # type: ignore[attr-defined]
