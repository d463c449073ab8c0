"""What the creator's gate keeps: lobby, passes, denied ids (PROTOCOL sections 3 and 4)."""

from __future__ import annotations

from typing import Any

import pytest

from pooled_nb.mesh import gatecreator, proofs
from pooled_nb.mesh.gate import Pass, Refuse, Say
from pooled_nb.mesh.gatecreator import LOBBY_S, PROBE_S
from pooled_nb.mesh.gatekeeper import (
    MAX_DENIED,
    MAX_LOBBY,
    MAX_PASSES,
    MAX_TRIES,
    TOLD,
    TRIES_S,
    Gatekeeper,
    GateSettings,
)
from pooled_nb.mesh.messages.link import Admit, Hello, Lobby
from pooled_nb.mesh.newcomer import Credentials, Newcomer
from tests.mesh.gatetools import DEVICE, Pair, creator, invited, joiner, pair


def names(keeper: Gatekeeper) -> list[str]:
    return [request.name for request in keeper.lobby]


def test_eight_wait_and_the_ninth_is_told_so() -> None:
    """PROTOCOL section 3, before admission: "8 requests wait in the lobby (the ninth: `bye`)"; who proves the
    key does not wait at all, and a place that becomes free is given again.
    """
    keeper = Gatekeeper()
    links = [pair(keeper, id=f"device-{n}") for n in range(MAX_LOBBY)]
    assert [link.creator.kinds[-1] for link in links] == ["lobby"] * 8
    ninth = pair(keeper, id="device-8")
    assert ninth.creator.refusals == [Refuse(gatecreator.FULL)]
    assert pair(keeper, invited(keeper), id="device-9").device.passes
    links[3].creator.gate.closed()  # it left
    assert len(keeper.lobby) == 7
    assert pair(keeper, id="device-8").creator.kinds[-1] == "lobby"
    assert [request.number for request in keeper.lobby] == [1, 2, 3, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("end", ["allowed", "denied", "left", "nobody decided"])
def test_each_way_out_of_the_lobby(end: str) -> None:
    """PROTOCOL section 4: "`lobby {}`, later `admit` or `bye`": each frees the place, and is told once."""
    changes: list[int] = []
    keeper = Gatekeeper()
    link = pair(keeper)
    keeper.on_change = lambda: changes.append(len(keeper.lobby))
    (request,) = keeper.lobby
    link.at(LOBBY_S - 1)
    assert not link.creator.is_over
    if end == "left":
        link.creator.gate.closed()
    elif end == "nobody decided":
        link.at(LOBBY_S)
        assert link.creator.refusals == [Refuse(gatecreator.NOBODY_CAME)]
    else:
        assert keeper.decide(request.number, allow=end == "allowed") is request
        link.at(LOBBY_S)
        assert bool(link.creator.passes) == (end == "allowed")
        assert link.creator.refusals == ([Refuse(gatecreator.DENIED)] if end == "denied" else [])
    assert keeper.lobby == ()
    assert changes[-1] == 0
    assert keeper.decide(request.number, allow=True) is None
    link.at(2 * LOBBY_S)
    assert len(link.creator.passes + link.creator.refusals) == (0 if end == "left" else 1)


def test_denied_devices_do_not_knock_again() -> None:
    """PROTOCOL section 4: a denied id is refused at once; a proof still counts, since signaling can make
    anybody seem of that id, and the person may have sent a link meanwhile.
    """
    keeper = Gatekeeper()
    link = pair(keeper)
    keeper.decide(1, allow=False)
    link.at(1.0)
    assert not keeper._tries  # a person saw these digits
    again = pair(keeper)
    assert again.creator.kinds == ["hello"]
    assert again.creator.refusals == [Refuse(gatecreator.DENIED)]
    with_old_link = pair(keeper, Newcomer(Credentials(key="k" * 22)))
    assert with_old_link.creator.refusals == [Refuse(gatecreator.DENIED)]
    assert keeper.lobby == ()
    assert pair(keeper, invited(keeper)).device.passes
    for n in range(MAX_DENIED):
        keeper.deny(f"other-{n}")
    assert not keeper.is_denied(DEVICE)  # bounded


def test_an_id_waits_once_and_its_newest_link_counts() -> None:
    """PROTOCOL section 3: one device cannot hold all places; what a person says of a number counts for the
    link whose digits it saw, never for a later one of that id.
    """
    keeper = Gatekeeper()
    first = pair(keeper)
    (old,) = keeper.lobby
    links = [pair(keeper) for _ in range(20)]
    (new,) = keeper.lobby
    assert (new.number, new.id) == (21, DEVICE)
    assert new.digits != old.digits
    assert keeper.decide(old.number, allow=True) is None
    first.at(0.5)
    assert first.creator.refusals == [Refuse(gatecreator.ASKED_AGAIN)]
    keeper.decide(new.number, allow=True)
    for link in links:
        link.at(0.5)
    assert [bool(link.creator.passes) for link in links] == [False] * 19 + [True]
    assert keeper.lobby == ()


def test_names_in_the_lobby() -> None:
    """PROTOCOL section 3, names: what waits is shown under a name that is text, short, and told apart.

    CASES, names: "Emoji, right-to-left, 200 characters, line breaks, `<script>`".
    """
    keeper = Gatekeeper()
    for n, name in enumerate(
        ["laptop", "laptop", "<script>x</script>", "a\nb\u202ec", "🦙" * 100, "", "laptop"]
    ):
        pair(keeper, id=f"device-{n}", name=name)
    assert names(keeper)[:4] == ["laptop", "laptop 2", "scriptx/script", "a bc"]
    assert names(keeper)[4:] == ["🦙" * 20, "device", "laptop 3"]


def test_names_do_not_pass_for_digits() -> None:
    """PROTOCOL section 4, six digits: who stands in the middle knows those of the other screen before it
    says a name; where the host looks for digits there are none but its own.
    """
    keeper = Gatekeeper()
    said = [
        "leo 482 019",
        "leo 482-019",
        "４８２ 𝟎𝟏𝟗",
        "4.8.2.0.1.9 x",
        "RTX 4090",
        "ip-10-0-3",
        "leo 135 790",
    ]
    for n, name in enumerate(said):
        link = pair(keeper, id=f"device-{n}", name=name)
        assert link.creator.waits[0].startswith(f"{keeper.lobby[-1].name} asks to join. Its screen must show")
    assert names(keeper) == [
        "leo ### ###", "leo ###-###", "### ###", "#.#.#.#.#.# x", "RTX 4090", "ip-10-0-3", "leo ### ### 2",
    ]  # fmt: skip


def test_a_screen_is_not_filled_with_sentences() -> None:
    """PROTOCOL section 3, before admission: who knocks again and again is not told each time; all are in the
    lobby.
    """
    keeper = Gatekeeper()
    links = []
    for n in range(30):
        links.append(pair(keeper, id=f"device-{n}"))
        assert names(keeper) == [f"laptop {n + 1}" if n else "laptop"]  # a name that was typed names no other
        links[-1].creator.gate.closed()
    told = [text for link in links for text in link.creator.waits if text]
    assert len(told) == TOLD
    assert all(" asks to join. Its screen must show " in text for text in told)
    late = Pair(keeper.door(links[0].creator.gate._doorway), links[0].device.gate)  # type: ignore[attr-defined]
    assert late.creator.waits == []
    assert keeper.tells(61.0)


def searched(keeper: Gatekeeper, tries: int) -> None:
    """So many challenges whose digits were others than hoped for."""
    for n in range(tries):
        gate = creator(keeper, id=f"search-{n}")
        gate.greeted(joiner(Newcomer(), id=f"search-{n}").hello(Hello(v=4)), 0.0)
        gate.closed()
        gate.closed()  # counts once


def test_digits_cannot_be_searched_for() -> None:
    """PROTOCOL section 4, six digits: who stands in the middle knows the digits of its victim's link, and
    those of a challenge before it answers: after 200 that ended in nothing nobody new is asked about for ten
    minutes; who has the link or a pass comes in, and who is told so meanwhile makes it no longer.
    """
    keeper = Gatekeeper()
    waits = pair(keeper, id="device-waits")
    searched(keeper, MAX_TRIES - 1)
    pair(keeper, invited(keeper), id="device-a").creator.gate.closed()  # counts not at all
    pair(keeper, id="device-b").creator.gate.closed()  # it is asked about still, and left: the last one
    for n in range(MAX_TRIES):
        found = pair(keeper, id=f"found-{n}", now=1.0 + n)
        assert found.creator.kinds == ["hello"]  # no digits at all
        assert found.creator.refusals == [Refuse(gatecreator.SEARCHED)]
        liar = pair(keeper, Newcomer(Credentials("k" * 22)), id=f"liar-{n}", now=1.0 + n)
        assert liar.creator.kinds == ["hello", "auth"]
        assert liar.creator.refusals == [Refuse(gatecreator.SEARCHED)]
    old = creator(keeper, id="old").greeted(Hello(name="old", v=4, join=True), 300.0)
    assert old == [Refuse(gatecreator.SEARCHED)]
    assert [request.id for request in keeper.lobby] == ["device-waits"]
    assert pair(keeper, invited(keeper), id="device-c").device.passes
    keeper.decide(1, allow=True)
    assert waits.at(300.0).creator.passes
    assert pair(keeper, id="device-d", now=TRIES_S).creator.kinds[-1] == "lobby"
    for at in (500.0, 0.0, *[500.0] * (MAX_TRIES - 1)):  # one that waited long ends among the new
        keeper.tried(at)
    assert keeper.is_searched(700.0)


def test_who_has_no_digits_cannot_knock_without_end() -> None:
    """PROTOCOL section 4, gate transcript: a device without `auth` that waits and leaves counts like any."""
    keeper = Gatekeeper()
    for n in range(MAX_TRIES):
        old = creator(keeper, id=f"old-{n}")
        assert old.greeted(Hello(name=f"old {n}", v=4, join=True), 0.0)[0] == Say(Lobby())
        old.closed()
    assert pair(keeper, id="device-b").creator.refusals == [Refuse(gatecreator.SEARCHED)]


def test_a_challenge_of_a_full_lobby_is_no_way_into_it() -> None:
    """PROTOCOL section 4, six digits: while the lobby is full challenges are no tries, so their digits are
    never shown: not when a place becomes free between challenge and answer.
    """
    keeper = Gatekeeper()
    links = [pair(keeper, id=f"device-{n}") for n in range(MAX_LOBBY)]
    gate, near = creator(keeper, id="late"), joiner(Newcomer(Credentials("k" * 22)), id="late")
    (challenge,) = gate.greeted(near.hello(Hello(v=4, name="late")), 1.0)
    assert isinstance(challenge, Say)
    links[0].creator.gate.closed()
    (answer,) = near.message(challenge.message, 1.1)
    assert isinstance(answer, Say)
    assert gate.message(answer.message, 1.2) == [Refuse(gatecreator.FULL)]
    gate.closed()
    assert len(keeper._tries) == 1  # the one that left the lobby


@pytest.mark.parametrize("old_link", [False, True])
def test_a_class_of_forty_with_a_code(old_link: bool) -> None:
    """PROTOCOL section 3, before admission: forty devices knock within ten minutes, all ask again every 20 s
    while eight others wait, some give up and ask again, the host allows one every 12 s; then each leaves and
    comes back: no rule against attackers meets any of them.
    """
    keeper = Gatekeeper()
    waiting: dict[int, Pair] = {}
    devices: dict[int, Newcomer] = {}
    inside: set[int] = set()
    for now in range(0, 600, 4):
        for n in range(now // 4 % 5, 40, 5):
            if n in waiting and n % 4 == 0 and now < 60:
                waiting.pop(n).creator.gate.closed()  # it was stopped, and its cell is run again
            if n not in waiting and n not in inside:
                newcomer = Newcomer(Credentials("k" * 22 if old_link else None))
                link = pair(keeper, newcomer, id=f"{n}-{now}", now=float(now))
                assert link.creator.refusals in ([], [Refuse(gatecreator.FULL)])
                if link.creator.refusals:
                    link.creator.gate.closed()
                else:
                    waiting[n] = link
                    devices[n] = newcomer
        if now % 12 == 0 and keeper.lobby:
            keeper.decide(keeper.lobby[0].number, allow=True)
        for n, link in list(waiting.items()):
            if link.at(float(now)).creator.passes:
                if old_link:
                    assert devices[n].confirm(same=True)
                    link.at(float(now))
                inside.add(n)
                waiting.pop(n).creator.gate.closed()
                back = pair(keeper, devices[n], id=f"{n}-back", now=float(now))
                assert back.creator.passes[0].came_back
    assert len(inside) == 40
    assert len(keeper._tries) < 40  # of those that gave up, none of those that were let in


def test_asking_switched_off_leaves_those_who_wait() -> None:
    """PROTOCOL section 4: for who waits already a person was to be asked."""
    keeper = Gatekeeper()
    link = pair(keeper)
    keeper.settings = GateSettings(ask=False)
    link.at(5.0)
    assert not link.creator.is_over
    assert pair(keeper, id="device-b").device.passes


# -- passes ------------------------------------------------------------------------------------------


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
