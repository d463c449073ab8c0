"""Passes and seats at the creator's gate: who keeps one, who loses one (PROTOCOL sections 3, 4 and 8)."""

from __future__ import annotations

from typing import Any

import pytest

from pooled_nb.mesh import gatecreator, proofs
from pooled_nb.mesh.gate import Pass, Refuse
from pooled_nb.mesh.gatecreator import PROBE_S
from pooled_nb.mesh.gatekeeper import (
    MAX_PASSES,
    Gatekeeper,
    GateSettings,
)
from pooled_nb.mesh.messages.link import Admit, Hello
from pooled_nb.mesh.newcomer import Credentials, Newcomer
from tests.mesh.gatetools import DEVICE, Pair, creator, invited, pair


def test_five_hundred_passes_are_kept_and_none_of_who_is_here_goes() -> None:
    """PROTOCOL section 4: "at most 500 kept": of those who are away the one goes that left first."""
    keeper = Gatekeeper(GateSettings(ask=False))
    here, away = Newcomer(), Newcomer()
    inside = pair(keeper, here, id="device-here")
    pair(keeper, away, id="device-away").creator.gate.closed()
    crowd = []
    for n in range(MAX_PASSES - 2):
        crowd.append(Newcomer())
        pair(keeper, crowd[-1], id=f"device-{n}").creator.gate.closed()
    assert len(keeper.secrets.passes) == MAX_PASSES
    pair(keeper, id="one-more").creator.gate.closed()
    assert len(keeper.secrets.passes) == MAX_PASSES
    inside.creator.gate.closed()
    inside = pair(keeper, here, id="device-here")
    assert inside.creator.passes[0].came_back
    assert not pair(keeper, away, id="device-away").creator.passes[0].came_back
    assert pair(keeper, crowd[-1], id="device-back").creator.passes[0].came_back

    # Whose pass is the oldest, but who was here lately, stays; and so after a restart.
    inside.creator.gate.closed()
    for n in range(MAX_PASSES - 3):
        pair(keeper, id=f"next-{n}").creator.gate.closed()
    assert pair(keeper, here, id="device-here").creator.passes[0].came_back
    assert not pair(keeper, crowd[1], id="device-1").creator.passes[0].came_back
    again = Gatekeeper(saved=keeper.secrets)
    assert again.secrets == keeper.secrets
    assert pair(again, here, id="device-here").creator.passes[0].came_back


def test_throwing_out_revokes() -> None:
    """PROTOCOL section 3: "A device thrown out loses its passes": also those of earlier visits under that
    name, and what was being proved just then; others keep theirs.
    """
    keeper = Gatekeeper()
    bad, other, here = (invited(keeper) for _ in range(3))
    link = pair(keeper, bad, name="bad")
    early = bad.credentials
    second = Newcomer(Credentials(keeper.key))
    pair(keeper, second, name="bad").creator.gate.closed()
    pair(keeper, other, id="device-b", name="good").creator.gate.closed()
    still = pair(keeper, here, id="device-c", name="bad")  # a namesake that is here
    (passed,) = link.creator.passes
    keeper.revoke(passed.seat)
    keeper.renew_key()
    keeper.deny(DEVICE)
    link.creator.gate.closed()
    for held in (early, second.credentials):
        back = pair(keeper, Newcomer(held), name="bad")
        assert back.creator.refusals == [Refuse(gatecreator.DENIED)]
        elsewhere = pair(keeper, Newcomer(held), id="device-new", name="bad")
        assert elsewhere.creator.kinds[-1] == "lobby"
        elsewhere.creator.gate.closed()
    assert pair(keeper, other, id="device-b").creator.passes[0].came_back
    still.creator.gate.closed()
    assert pair(keeper, here, id="device-c").creator.passes[0].came_back


class Seats:
    """What a creator's links know of one seat that another device has."""

    def __init__(self, quiet: float) -> None:
        self.holder, self.quiet_s = DEVICE, quiet
        self.probes: list[str] = []

    def more(self) -> dict[str, Any]:
        return {"holder": lambda _seat: (self.holder, self.quiet_s), "probe": self.probes.append}


def back(
    keeper: Gatekeeper, newcomer: Newcomer, seats: Seats, *, id: str = "device-copy", **more: Any
) -> Pair:
    return pair(keeper, newcomer, id=id, **seats.more(), **more)


@pytest.mark.parametrize("quiet", [0.0, 1.0])
def test_a_seat_whose_device_does_not_answer_is_given_back(quiet: float) -> None:
    """PROTOCOL section 8: "a name asked for while a quiet device holds it | quiet 1 s, probe 1.5 s": who
    comes back under another id, before the room noticed that it went, has its seat again after the probe,
    also when it was heard just before (a page that was loaded anew).
    """
    keeper = Gatekeeper()
    newcomer = invited(keeper)
    pair(keeper, newcomer)
    seats = Seats(quiet)
    link = back(keeper, newcomer, seats)
    (seat,) = seats.probes
    for now in (0.5, 1.0, PROBE_S - 0.01):
        seats.quiet_s = quiet + now
        link.at(now)
        assert not link.creator.is_over
    seats.quiet_s = quiet + PROBE_S
    link.at(PROBE_S)
    (passed,) = link.creator.passes
    assert (passed.seat, passed.came_back) == (seat, True)
    assert seats.probes == [seat]


@pytest.mark.parametrize("quiet", [0.2, 6.0], ids=["heard just now", "heard long ago"])
@pytest.mark.parametrize("ask", [True, False])
def test_a_pass_that_is_proved_twice(quiet: float, ask: bool) -> None:
    """PROTOCOL section 3: "a **seat** goes to the device that proves the pass given for it": who is here
    keeps it; the copy is a new device: its host is asked, and told, or with asking off it is refused in
    words.
    """
    keeper = Gatekeeper()
    owner = invited(keeper)
    pair(keeper, owner, name="laptop")
    keeper.settings = GateSettings(ask=ask)
    seats = Seats(quiet)
    thief = Newcomer(Credentials(pass_=owner.credentials.pass_))
    link = back(keeper, thief, seats)
    seats.quiet_s = 0.1
    link.at(0.5)
    if ask:
        assert link.creator.kinds[-1] == "lobby"
        assert keeper.lobby[0].note == gatecreator.SAME_PASS.format(name="laptop")
    else:
        assert link.creator.refusals == [Refuse(gatecreator.IN_USE)]
    # With the key it comes in as another device, with a pass of its own.
    both = Newcomer(Credentials(keeper.key, owner.credentials.pass_))
    seats = Seats(0.1)
    second = back(keeper, both, seats, id="device-two").at(0.5)
    (passed,) = second.creator.passes
    assert not passed.came_back
    assert both.credentials.pass_ != owner.credentials.pass_
    assert both.trust == "proved"


def test_a_seat_that_another_took_while_it_was_probed() -> None:
    """PROTOCOL section 3: of two that prove one pass at once the first has the seat, and is asked itself
    before the second may have it.
    """
    keeper = Gatekeeper()
    newcomer = invited(keeper)
    pair(keeper, newcomer)
    seats = Seats(5.0)
    link = back(keeper, newcomer, seats)
    seats.holder, seats.quiet_s = "device-first", PROBE_S  # it said its proof just before
    link.at(PROBE_S)
    assert not link.creator.is_over
    assert len(seats.probes) == 2
    seats.quiet_s = 0.1  # and answers
    link.at(PROBE_S + 0.5)
    assert not link.creator.passes[0].came_back  # it has the key: another device


def test_a_pass_revoked_while_its_seat_is_probed() -> None:
    """PROTOCOL section 3: "A device thrown out loses its passes": at once."""
    keeper = Gatekeeper()
    newcomer = invited(keeper)
    (passed,) = pair(keeper, newcomer).creator.passes
    seats = Seats(5.0)
    link = back(keeper, newcomer, seats)
    keeper.revoke(passed.seat)
    keeper.renew_key()
    link.at(PROBE_S)
    assert link.creator.kinds[-1] == "lobby"


@pytest.mark.parametrize("how", ["key", "pass", "person", "nothing"])
def test_the_id_of_a_device_that_is_here(how: str) -> None:
    """PROTOCOL section 3: "a **seat** goes to the device that proves the pass given for it, to nobody else":
    not for the key, nor for the pass of another seat; a person is told before it decides.
    """
    keeper = Gatekeeper()
    other = invited(keeper)
    pair(keeper, other, id="device-other").creator.gate.closed()
    held = {
        "key": Credentials(keeper.key),
        "pass": Credentials(pass_=other.credentials.pass_),
        "person": Credentials(),
        "nothing": Credentials(),
    }[how]
    keeper.settings = GateSettings(ask=how != "nothing")
    link = pair(keeper, Newcomer(held), seat=lambda: "f" * 32)
    if how == "nothing":
        assert link.creator.refusals == [Refuse(gatecreator.TAKEN_ID)]
        return
    (request,) = keeper.lobby
    assert request.note == gatecreator.SAME_ID
    assert gatecreator.SAME_ID in link.creator.waits[0]
    keeper.decide(request.number, allow=True)
    link.at(0.5)
    (passed,) = link.creator.passes
    assert not passed.came_back
    assert passed.seat != "f" * 32


def test_all_that_a_person_should_know() -> None:
    """PROTOCOL section 4, gate transcript: "the person is asked": that somebody may stand between the two is
    not hidden by a device of the same id, which is what a redial looks like, nor that there are no digits.
    """
    keeper = Gatekeeper()
    redial = Newcomer(Credentials(pass_="p" * 22))
    pair(keeper, redial, seat=lambda: "f" * 32)
    assert keeper.lobby[0].note == f"{gatecreator.OLD_LINK} {gatecreator.SAME_ID}"
    old = creator(keeper, id="old", seat=lambda: "f" * 32)
    old.greeted(Hello(name="old", v=4, join=True), 0.0)
    assert keeper.lobby[1].note == f"{gatecreator.NO_DIGITS} {gatecreator.SAME_ID}"


def test_an_id_that_is_taken_while_somebody_waits() -> None:
    """PROTOCOL section 3: a person's yes throws out nobody of whom it was not told."""
    keeper = Gatekeeper()
    seats: list[str] = []
    link = pair(keeper, seat=lambda: seats[0] if seats else None)
    (request,) = keeper.lobby
    assert request.note == ""
    seats.append("f" * 32)
    keeper.decide(request.number, allow=True)
    link.at(0.5)
    assert link.creator.refusals == [Refuse(gatecreator.TAKEN_ID)]
    assert keeper.lobby == ()


def test_a_new_key_ends_the_old_link() -> None:
    """PROTOCOL section 4: links given out before count no more, also for a proof that is on its way; passes
    do.
    """
    keeper = Gatekeeper()
    first = invited(keeper)
    pair(keeper, first).creator.gate.closed()
    changes: list[None] = []
    keeper.on_change = lambda: changes.append(None)
    old = keeper.key
    keeper.renew_key()
    assert changes
    assert keeper.key != old
    assert pair(keeper, Newcomer(Credentials(old)), id="device-b").creator.kinds[-1] == "lobby"
    assert pair(keeper, first).creator.passes[0].came_back


def test_what_the_room_raises_does_not_reach_a_link(caplog: pytest.LogCaptureFixture) -> None:
    """DESIGN section 7: a full disk, say, is logged without any secret, and the device is let in."""
    keeper = Gatekeeper(GateSettings(ask=False))
    newcomer = Newcomer()

    def broken() -> None:
        raise OSError("no space left")

    keeper.on_change = newcomer.on_change = broken
    assert pair(keeper, newcomer).device.passes == [Pass()]
    assert "no space left" in caplog.text
    assert keeper.mesh_key not in caplog.text
    assert isinstance(keeper.secrets.passes[0][0], str)
    assert proofs.pass_secret(str(newcomer.credentials.pass_)) not in caplog.text


def test_the_first_word_is_admit() -> None:
    """PROTOCOL section 3, order after admission: `admit` first, and once."""
    keeper = Gatekeeper(GateSettings(ask=False))
    link = pair(keeper)
    assert [type(m) for m in link.creator.said].count(Admit) == 1
    assert link.creator.gate.tick(99.0) == []
