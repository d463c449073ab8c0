"""How the person of a device asks that is not its host: the part of `DeviceRoom` for questions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from pooled_nb.errors import NotReady, RoomClosed
from pooled_nb.mesh.messages import Message, chat
from pooled_nb.room.asking import Asking
from pooled_nb.room.core import Again, AnswerEvent, AskOptions, State
from pooled_nb.room.handing import ASKED, HandingOver
from pooled_nb.room.questions import check_again, check_question, params_of
from pooled_nb.room.transcript import Transcript


class DeviceAsks:
    """Puts questions to the host."""

    transcript: Transcript
    _asking: Asking
    _handing: HandingOver
    _state: State
    _why: str

    def ask(self, text: str, options: AskOptions) -> AsyncIterator[AnswerEvent]:
        """See `RoomCore.ask`."""
        return self._put(
            lambda: check_question(text, options),
            lambda rid, checked: chat.Ask(text=text, rid=rid, nb=params_of(checked)),
        )

    def again(self, what: Again, options: AskOptions) -> AsyncIterator[AnswerEvent]:
        """See `RoomCore.again`."""
        return self._put(
            lambda: check_again(what, options),
            lambda rid, checked: chat.Cmd(
                cmd=what, rid=rid, nb=params_of(checked), mid=self.transcript.newest or None
            ),
        )

    def _put(
        self, check: Callable[[], AskOptions], say: Callable[[str, AskOptions], Message]
    ) -> AsyncIterator[AnswerEvent]:
        def may_ask() -> AskOptions:
            options = check()
            if self._state == "closed":
                raise RoomClosed(self._why or "The room is over.", "Join another room.")
            if self._state == "away":
                raise NotReady("The host does not answer; this device knocks.", "Ask again when it is back.")
            if self._handing.is_on:
                raise NotReady(ASKED, "Join again to ask.")
            return options

        return self._asking.put(may_ask, say)

    async def stop(self) -> None:
        """See `RoomCore.stop`."""
        self._asking.stop()
