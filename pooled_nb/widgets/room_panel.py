"""A room: its code, the devices and their layers, the numbers, who wants in, what to do next."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import traitlets

from pooled_nb.errors import PooledError
from pooled_nb.room.core import Status
from pooled_nb.widgets import invites, network
from pooled_nb.widgets.base import Fallback, Panel
from pooled_nb.widgets.bundle import script, style
from pooled_nb.widgets.download import ANSWERS
from pooled_nb.widgets.formats import line, sentence
from pooled_nb.widgets.heard import Custom
from pooled_nb.widgets.settings import chosen
from pooled_nb.widgets.sources import RoomSource
from pooled_nb.widgets.state import room_state

NUMBERS_S = 0.25
"""Between two paintings that change numbers only; a state shows at once."""
INVITE_S = 0.2
"""Between two links that are given out: each is drawn as a picture, and a page may ask without end."""
KNOCKED = 32
"""Names of those who waited, whose notices are not shown again."""
ASKED = 4
"""Views that wait for a link, and answers that wait to be sent; more are dropped."""


class RoomPanel(Panel):
    """The panel of one room.

    Parameters
    ----------
    source
        The room.
    fallback
        What stands where no widget can be shown.
    """

    _esm = script("room.js")
    _css = style("base.css", "room.css", "sheet.css")
    room = traitlets.Dict().tag(sync=True)

    def __init__(self, source: RoomSource, *, fallback: Fallback) -> None:
        self._source = source
        self._mark: object = None
        self._before: Status | None = None
        self._numbers_at = 0.0
        self._asked: deque[tuple[int, bool]] = deque(maxlen=ASKED)
        self._invite_at = 0.0
        self._knocked: deque[str] = deque(maxlen=KNOCKED)
        self._answers: deque[Callable[[], dict[str, Any]]] = deque(maxlen=ASKED)
        super().__init__(fallback=fallback, room=self._state())

    def _listen(self) -> Callable[[], None]:
        return self._source.watch(self.wake)

    def _state(self) -> dict[str, Any]:
        source = self._source
        status, left = source.seen(), source.left
        if status is not None and not left and status.state != "closed":
            self._before = status
        for waits in status.lobby[:KNOCKED] if status is not None else ():
            if waits.name not in self._knocked:
                self._knocked.append(waits.name)
        return room_state(
            status,
            source.role,
            source.progress,
            source.notices,
            left=left,
            before=self._before,
            knocked=self._knocked,
        )

    def _draw(self, now: float) -> float | None:
        again = self._speak(now)
        mark = self._what_is_so()
        if mark == self._mark and now < self._numbers_at:
            return self._numbers_at if again is None else min(again, self._numbers_at)
        self.room = self._state()
        self._mark, self._numbers_at = mark, now + NUMBERS_S
        return again

    def _speak(self, now: float) -> float | None:
        """Give out what was asked for, to the view that asked; when to come again for the rest."""
        if self._asked and now >= self._invite_at:
            self._invite_at = now + INVITE_S
            self._invite(*self._asked.popleft())
        while self._answers:
            self.send(self._answers.popleft()())
        return self._invite_at if self._asked else None

    def _invite(self, id: int, renew: bool) -> None:
        def there() -> None:
            self._answers.append(lambda: invites.answer(id, coming))
            self.wake()

        try:
            coming = self._source.renew_invite(wait=False) if renew else self._source.invite(wait=False)
        except PooledError as error:
            why = sentence(str(error))
            self._answers.append(lambda: invites.refused(id, why))
        else:
            coming.on_end(there)

    def _may(self, verb: str) -> bool:
        status = self._source.seen()
        return status is not None and not self._source.left and verb in status.can

    def _what_is_so(self) -> object:
        """What shows at once: all but what counts up while the room works."""
        source = self._source
        status = source.seen()
        if status is None:
            return source.left, source.role
        return (
            source.left,
            source.role,
            status.state,
            status.can,
            status.mine,
            status.answering,
            status.waits_for,
            status.settings,
            status.lobby,
            status.gate,
            status.trust,
            status.network,
            status.asks,
            status.unverified,
            source.notices[-1:],
        )

    def _rests(self) -> bool:
        return self._source.left

    def _do(self, said: Custom, now: float) -> None:
        status = self._source.seen()
        if status is None or self._source.left:
            return
        # Only what a button of now says: a click may come late, or from a page that missed a change.
        match said.cmd:
            case "set" | "gate" if self._may("set"):
                self._set(said)
            case "allow" | "deny" if self._may(said.cmd):
                if said.id in [waits.number for waits in status.lobby]:
                    self._source.command(said.cmd, {"number": said.id})
            case "kick" if self._may("kick"):
                # As the page knows it, which may be cut: the room gets its own.
                found = [d.id for d in status.devices if not (d.me or d.gone) and line(d.id) == said.key]
                if len(found) == 1:
                    self._source.command("kick", {"id": found[0]})
            case "invite" | "renew" if said.id is not None and self._may("invite"):
                self._asked.append((said.id, said.cmd == "renew"))
            case "network" if self._may("network"):
                self._network(said)
            case "download" | "refuse" if self._may("download"):
                # The very question that the button was under: another one may be asked by now.
                if [said.cmd, said.key] in [[b["cmd"], b["label"]] for b in self._state()["actions"]]:
                    self._source.command("download", {"yes": ANSWERS[said.cmd]})
            case cmd if cmd in [button["cmd"] for button in self._state()["actions"]]:
                self._source.command(cmd, {})

    def _set(self, said: Custom) -> None:
        if said.cmd == "gate":
            if said.key == "ask" and said.value in ("on", "off"):
                self._source.command("gate", {"ask": said.value == "on"})
        elif (options := chosen(said.key, said.value)) is not None:
            self._source.command("set", options)

    def _network(self, said: Custom) -> None:
        """Pass on what was set, once; whether it was taken goes to the view that set it."""
        options: dict[str, object] = {"remember": said.remember}
        if said.turn is not None:
            options["turn"] = said.turn
        if said.relay_only is not None:
            options["relay_only"] = said.relay_only
        if len(options) == 1 or said.id is None:
            return
        id, relay = said.id, bool(said.turn)

        def done(error: str) -> None:
            status = self._source.seen()
            words = network.taken(status.network if status is not None else None, relay=relay)
            self._answers.append(
                lambda: {"t": "done", "id": id, "error": sentence(error), "said": "" if error else words}
            )
            self.wake()

        self._source.command("network", options, done)
