"""The chat of a room, as any thread uses it: questions, what may follow an answer, the settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Literal, Self, TypedDict, Unpack, overload

import msgspec

from pooled_nb.answer import Answer
from pooled_nb.answer_output import answering, leave
from pooled_nb.counted import still
from pooled_nb.errors import NotReady, RoomClosed
from pooled_nb.job import Job
from pooled_nb.left import its_turn
from pooled_nb.plain import isolated, visible
from pooled_nb.progress import Waiting
from pooled_nb.room import core as seam
from pooled_nb.room.memory import Resumable
from pooled_nb.room.questions import check_again, check_question
from pooled_nb.room.sentences import GOING_ON, listed
from pooled_nb.room_life import Opening, RoomLife
from pooled_nb.threads import mesh

SETTINGS = seam.ChatSettings.__struct_fields__


class Changes(TypedDict, total=False):
    """What `RoomChat.set` takes: fields of `ChatSettings`."""

    style: seam.Style
    max_tokens: int
    visibility: seam.Visibility
    persona: seam.Persona
    thinking: bool | None
    system: str
    redeal: bool


class RoomChat(RoomLife):
    """Asks, and sets how the room answers. The base of `Room`."""

    def __init__(self, opening: Opening, *, quiet: bool = False) -> None:
        self.last: Answer | None = None
        self.asked_again: list[Answer] = []
        self._begun: Answer | None = None
        self._held_before = ""
        self._quiet = quiet
        super().__init__(opening)

    def _begin(self, core: seam.RoomCore) -> None:
        if isinstance(core, Resumable):
            for question in core.asked:
                turn = partial(its_turn, core, question)
                self.last = Answer(core, question.text, question.options, room=self, first=turn)
                self.asked_again.append(self.last)

    def _wake(self) -> None:
        super()._wake()
        if (begun := self._begun) is not None and begun.done():
            begun.touched()  # what may follow it may have changed
        held, before = self._held_now(), self._held_before
        if held != before:
            self._held_before = held
            for answer in dict.fromkeys((begun, self.last)):
                if answer is not None and not answer.done():
                    answer.touched()

    def ask(
        self,
        text: str,
        *,
        max_tokens: int | None = None,
        style: seam.Style | None = None,
        system: str | None = None,
        thinking: bool | None = None,
        fast: bool = False,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repetition_penalty: float | None = None,
        presence_penalty: float | None = None,
        logit_bias: dict[int, float] | None = None,
        stop: str | list[str] | None = None,
        seed: int | None = None,
        on_text: Callable[[str], None] | None = None,
        wait: bool = True,
    ) -> Answer:
        """Ask the room. On a host that has not started yet, the layers are dealt and loaded first.

        The chat is common to the room: the model sees what others asked before. An interrupt stops this
        answer, keeps the room, and is raised; what had come is in `last`.

        Parameters
        ----------
        text
            The question, up to 8,000 characters.
        max_tokens
            The most tokens of the answer.
        style
            ``greedy``, ``focused`` or ``creative``; None: the room's.
        system
            Stands before this question in place of the room's own.
        thinking
            Whether the model thinks first, where it can; None: the room's way.
        fast
            Give up the promise of equal tokens for speed. Counts where this question starts the room.
        temperature, top_k, top_p, min_p, seed
            How tokens are drawn, by number; they go before ``style``. Temperature 0 is greedy. ``min_p``
            leaves out tokens with less than this part of the likeliest one's probability.
        repetition_penalty
            Makes tokens of question and answer less likely (above 1, 1.1 is usual) or more, as in
            transformers.
        presence_penalty
            Subtracted from the logit of every token of the answer (-2 to 2), as of OpenAI.
        logit_bias
            Added to logits, by token id of the room's model (-100 to 100). -100 bans a token.
        stop
            A text, or several: the answer ends before the first that comes, and shows nothing of it. Where
            it ends at its length instead, the beginning of one may still be held back, for `continue_`.
        on_text
            Called with each piece of text, in the calling thread. Only with ``wait``.
        wait
            False: return the live answer at once.

        Raises
        ------
        BadQuestion, QueueFull, NotReady, AnswerFailed, RoomClosed
        """
        options = seam.AskOptions(
            max_tokens=max_tokens,
            style=style,
            system=system,
            thinking=thinking,
            fast=fast,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            presence_penalty=presence_penalty,
            logit_bias=logit_bias,
            stop=[stop] if isinstance(stop, str) else stop,
            seed=seed,
        )
        options = check_question(text, options)
        core = self._open_core()
        return self._answered(Answer(core, text, options, room=self), on_text, wait)

    def stream(self, text: str, **options: Any) -> Answer:
        """Ask, and iterate over the answer: ``async for piece in room.stream("…")``, or ``for``.

        Takes the options of `ask`. Leaving the loop early stops the answer.
        """
        return self.ask(text, **options, wait=False)

    def continue_(
        self,
        *,
        max_tokens: int | None = None,
        on_text: Callable[[str], None] | None = None,
        wait: bool = True,
    ) -> Answer:
        """Go on with the room's last answer, which stopped before its end (its asker, or the host).

        Where this device asked for that answer, the text begins with what was there.

        Parameters
        ----------
        max_tokens
            The most tokens that are added.
        on_text, wait
            See `ask`.

        Raises
        ------
        NotReady
            There is nothing to continue, or another device asked for it.
        BadQuestion, QueueFull, AnswerFailed, RoomClosed
        """
        options = check_again("continue", seam.AskOptions(max_tokens=max_tokens))
        return self._answered(self._once_more("continue", options), on_text, wait)

    def regenerate(
        self,
        *,
        max_tokens: int | None = None,
        style: seam.Style | None = None,
        system: str | None = None,
        thinking: bool | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repetition_penalty: float | None = None,
        presence_penalty: float | None = None,
        logit_bias: dict[int, float] | None = None,
        stop: str | list[str] | None = None,
        seed: int | None = None,
        on_text: Callable[[str], None] | None = None,
        wait: bool = True,
    ) -> Answer:
        """Make the room's last answer anew (its asker, or the host). Takes the options of `ask`.

        Raises
        ------
        NotReady
            There is no answer yet, or another device asked for it.
        BadQuestion, QueueFull, AnswerFailed, RoomClosed
        """
        options = seam.AskOptions(
            max_tokens=max_tokens,
            style=style,
            system=system,
            thinking=thinking,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            presence_penalty=presence_penalty,
            logit_bias=logit_bias,
            stop=[stop] if isinstance(stop, str) else stop,
            seed=seed,
        )
        options = check_again("regen", options)
        return self._answered(self._once_more("regen", options), on_text, wait)

    def _once_more(self, what: seam.Again, options: seam.AskOptions) -> Answer:
        core, begun = self._open_core(), self._begun
        question = begun.question if begun is not None else ""
        return Answer(core, question, options, room=self, again=what, after=begun)

    def _answered(self, answer: Answer, on_text: Callable[[str], None] | None, wait: bool) -> Answer:
        self.last = answer
        if not wait:
            return answer
        # Text goes to on_text where there is one, else it grows in the display of the wait.
        with answering(answer, quiet=self._quiet or on_text is not None) as view:
            try:
                answer.result(on_text=on_text, view=view)
            finally:
                # What was read stays where it was read, whole or not.
                if leave(view, answer):
                    answer.shown()
        return answer

    # What answers need (see `pooled_nb.answer_life.Asked`).

    def loading(self, percent: int | None, words: str) -> None:
        """A question has begun to load the room."""
        self._report(percent, words)

    def held(self, told: str = "") -> str:
        """Why nothing is answered now, in a sentence; empty where something is, or may be.

        ``told``: what the answer was told; where that counts seconds, the room knows how many there are now.
        """
        now = self._held_now()
        return now if not told or still(now) == still(told) else told

    def _held_now(self) -> str:
        status = self._status
        if self._left or status is None:
            return ""
        match status.state:
            case "open" if status.sentence.startswith(GOING_ON):
                return status.sentence
            case "waiting":
                names = listed([isolated(visible(name)) for name in status.waits_for])
                return (
                    status.sentence or f"Waiting for {names or 'a device'}. The answer goes on where it is."
                )
            case "loading":
                return "The layers are loading. Answers go on after that."
            case "degraded" if status.redeal_in is not None:
                return f"A device is gone. The room deals again by itself in {status.redeal_in} s."
            case "degraded":
                return "A device is gone. Answers go on once its layers are dealt again."
            case "away":
                return "The host does not answer. Answers go on when it is back."
        return ""

    def began(self, answer: Answer) -> None:
        """The room has begun it: nothing may follow the one before any more."""
        before, self._begun = self._begun, answer
        if before is not None:
            before.touched()

    def may_again(self, answer: Answer) -> tuple[seam.Again, ...]:
        """Whether this answer may be continued, or made anew, by this device's person now."""
        status = self._status
        if self._left or status is None or not self._is_newest(answer):
            return ()
        both: tuple[seam.Again, ...] = ("continue", "regen")
        return tuple(verb for verb in both if verb in status.can)

    def _is_newest(self, answer: Answer) -> bool:
        # A host also sees answers to others: below one of its own, their verbs would mislead.
        return self._begun is answer and self._status is not None and self._status.newest == answer.mid

    def ask_again(self, what: seam.Again, answer: Answer | None = None) -> Answer:
        """Continue the newest answer or make it anew: live.

        Raises
        ------
        NotReady
            ``answer`` was meant, and is not the newest any more.
        RoomClosed
        """
        if answer is not None and not self._left and not self._is_newest(answer):
            raise NotReady("This answer is not the room's newest any more.", "Ask its question again.")
        follows = self.last = self._once_more(what, seam.AskOptions())
        return follows

    # How the room answers.

    @property
    def settings(self) -> seam.ChatSettings:
        """How the room answers now: style, length, who sees it, wording, thinking."""
        self._open_core()
        self._refresh()
        assert self._status is not None
        return self._status.settings

    @overload
    def set(self, *, wait: Literal[True] = True, **changes: Unpack[Changes]) -> Self: ...
    @overload
    def set(self, *, wait: Literal[False], **changes: Unpack[Changes]) -> Job[Self]: ...
    def set(self, *, wait: bool = True, **changes: Unpack[Changes]) -> Self | Job[Self]:
        """Set how the room answers, for everyone, from the next question on (host only). The rest stays.

        Parameters
        ----------
        style
            ``greedy``, ``focused`` or ``creative``.
        max_tokens
            The most tokens of an answer.
        visibility
            Who sees question and answer: ``all``, ``host`` or ``asker``.
        persona
            The wording: ``plain``, ``kind`` or ``expert``.
        thinking
            True, False, or None: the model's own way.
        system
            A text that stands before the chat.
        redeal
            Whether the room deals again by itself, 60 s after a device dropped.
        wait
            False: return at once; await what comes back, or call its ``result``.

        Raises
        ------
        NotReady
            This device does not host the room.
        BadOption
        """
        core = self._open_core()
        unknown = [name for name in changes if name not in SETTINGS]
        if unknown:
            raise TypeError(f"set() has no {unknown[0]!r}; it has {', '.join(SETTINGS)}")

        async def change() -> None:
            # On the loop: two changes in a row are both kept.
            await core.configure(msgspec.structs.replace(core.status().settings, **dict(changes)))

        return self._do(change, wait)

    # What `Room` has more of.

    def ask_person(self, view: Waiting) -> None:
        """Ask what its person has to decide, in the thread that waits."""

    def _refresh(self) -> None:
        raise NotImplementedError

    def _open_core(self) -> seam.RoomCore:
        raise RoomClosed("This room is over.", "Host or join another one.")

    def _do(
        self, work: Callable[[], Awaitable[None]], wait: bool, view: Waiting | None = None
    ) -> Self | Job[Self]:
        job = mesh.submit(self._then(work))
        return job.result(tick=self._ticker(view))._acted() if wait else job

    def _ticker(self, view: Waiting | None) -> Callable[[], None] | None:
        if view is None:
            return None

        def tick() -> None:
            view.report(*self.progress)
            view.tick()

        return tick
