"""What a device's person may do now, where it makes sense: decides only."""

from __future__ import annotations

from collections.abc import Sequence

from pooled_nb.room.core import Again, Role, State, Verb


def verbs(
    role: Role,
    state: State,
    *,
    mine: bool = False,
    changed: bool = False,
    chat: bool = False,
    again: Sequence[Again] = (),
    lobby: bool = False,
    others: bool = False,
    asks: bool = False,
    download: bool = False,
) -> list[Verb]:
    """What may be done, the most obvious first.

    Parameters
    ----------
    mine
        The running answer is to a question of this device.
    changed
        Devices came since the deal that could hold layers.
    chat
        There is something that a new chat would clear.
    lobby
        Somebody waits to be let in.
    others
        There are other devices, one of which may be thrown out.
    asks
        An answer is under way; it may wait.
    download
        Its person is asked whether it may download something.
    again
        What may be done with the newest answer, by its asker or the host.
    """
    if state == "closed":
        return []
    host = role == "host"
    may: list[Verb] = ["download"] if download else []
    if host and lobby:
        may += ["allow", "deny"]
    if host and state == "open":
        may.append("start")
    if host and (state in ("degraded", "waiting") or (state == "online" and changed)):
        may.append("redeal")
    runs = state in ("answering", "waiting") or (state in ("degraded", "loading", "away") and (asks or mine))
    if runs and (host or mine):
        may.append("stop")
    if state == "online":
        may += again
    if host:
        if chat and state != "loading":
            may.append("reset")
        may += ["set", "invite"]
        if others:
            may.append("kick")
        may.append("close")
    return [*may, "network", "leave"]
