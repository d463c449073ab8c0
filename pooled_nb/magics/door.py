"""The verbs of the door: who waits, who comes in, the invite link, by which ways."""

from __future__ import annotations

from getpass import getpass
from typing import TYPE_CHECKING, Any

from IPython.display import display

from pooled_nb import api, reaching, whom
from pooled_nb.errors import BadOption
from pooled_nb.magics.here import the_room
from pooled_nb.plain import visible
from pooled_nb.printed import show_link
from pooled_nb.progress import in_notebook
from pooled_nb.room import doorwords, wirechoice
from pooled_nb.room_output import show_panel
from pooled_nb.typed import Unseen

if TYPE_CHECKING:
    from pooled_nb.room_view import Room

PRESS = "Invite in the panel copies the link; it is shown nowhere in the notebook."
KEPT = "Rooms that this user opens or joins from now on begin with that."
_WIRE = {"stripes": "stripes", "twice": "twice", "keepalive": "keepalive_ms", "transport": "transport"}
HELD = "The link is a secret, so it is not printed here: pooled_nb.current().invite().link holds it."


class DoorVerbs:
    """What they do; mixed into the magics."""

    def _lobby(self, _: None) -> None:
        display(the_room().lobby)

    def _allow(self, who: str | None) -> None:
        print(visible(f"{_decided(the_room(), who, allow=True)} is let in."))

    def _deny(self, who: str | None) -> None:
        print(visible(f"{_decided(the_room(), who, allow=False)} is sent away."))

    def _kick(self, name: str | None) -> None:
        room = the_room()
        if name is None:
            raise BadOption("Which device?", "Write its name as %pooled status shows it.")
        room.kick(name)
        print(visible(doorwords.kicked(name, ask=room.gate().ask)))

    def _invite(self, _: None, new: bool = False) -> None:
        room = the_room()
        link = room.renew_invite() if new else room.invite()
        if new:
            print(doorwords.renewed(ask=room.gate().ask))
        if in_notebook():
            show_panel(room)
            print(PRESS)
        elif not show_link(link):
            print(HELD)

    def _gate(self, _: None, **options: Any) -> None:
        choices = {name: value if name == "starts" else value == "on" for name, value in options.items()}
        print(the_room().gate(**choices))

    def _network(self, _: None, **options: Any) -> None:
        _either(options, "turn", "no_turn")
        _either(options, "stun", "no_stun")
        _either(options, "relay_only", "direct")
        same = ("stun", "relay_only", "remember")
        changes: dict[str, Any] = {name: options[name] for name in same if name in options}
        for option, name in _WIRE.items():
            if option in options:
                changes[name] = wirechoice.typed(name, options[option], f"--{option}")
        if "no_stun" in options:
            changes["stun"] = []
        if "direct" in options:
            changes["relay_only"] = False
        if "no_turn" in options:
            changes["turn"] = ""
        if "turn" in options:
            changes["turn"] = _asked_relay()
        print(reaching.network(**changes))
        if changes and api.current() is None:
            print(KEPT)


def _decided(room: Room, who: str | None, *, allow: bool) -> str:
    """Decide about who is meant; its name."""
    line = whom.waiting(room.lobby, who) if room.role == "host" else None
    number = who if line is None else line.number
    (room.allow if allow else room.deny)(number)
    return line.name if line is not None else ""


def _either(options: dict[str, Any], one: str, other: str) -> None:
    if one in options and other in options:
        names = [f"--{name.replace('_', '-')}" for name in (one, other)]
        raise BadOption(f"{names[0]} and {names[1]} exclude each other.", "Leave one of them out.")


def _asked_relay() -> str:
    """The relay, typed unseen."""
    try:
        text = getpass("Relay, as turn:USER:PASSWORD@HOST:PORT (not shown): ")
    except (EOFError, NotImplementedError) as error:
        raise BadOption("Nobody is here to type the relay.", "Set POOLED_TURN to it instead.") from error
    if not text.strip():
        raise BadOption("No relay was typed.", "To use none, write %pooled network --no-turn.")
    return Unseen(text.strip())
