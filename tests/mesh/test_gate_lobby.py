"""The lobby of the creator's gate, and who is denied (PROTOCOL sections 3 and 4)."""

from __future__ import annotations

import pytest

from pooled_nb.mesh import gatecreator
from pooled_nb.mesh.gate import Refuse, Say
from pooled_nb.mesh.gatecreator import LOBBY_S
from pooled_nb.mesh.gatekeeper import (
    MAX_DENIED,
    MAX_LOBBY,
    MAX_TRIES,
    TOLD,
    TRIES_S,
    Gatekeeper,
    GateSettings,
)
from pooled_nb.mesh.messages.link import Hello, Lobby
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
