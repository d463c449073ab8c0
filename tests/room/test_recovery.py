"""What keeps a deal whole: events in, actions out, every time of PROTOCOL section 8."""

from __future__ import annotations

import pytest

from pooled_nb.room.dealing import Seat
from pooled_nb.room.recovery import (
    MAX_FAILED,
    REDEAL_S,
    SOON_S,
    Degrade,
    Hold,
    Moved,
    Recovery,
    Redeal,
    Relink,
    Reload,
    Whole,
)

HOST, A, B, C = (Seat(id, name, 2 * i, 2 * i + 2, 0.1, key) for i, (id, name, key) in enumerate(
    [("h", "host", ""), ("a", "attic", "ka"), ("b", "barn", "kb"), ("c", "cellar", "kc")]
))  # fmt: skip


def online(*workers: Seat, now: float = 0.0) -> Recovery:
    recovery = Recovery()
    recovery.online((HOST, *(workers or (A, B, C))), now)
    return recovery


def kinds(actions: list[object]) -> list[str]:
    return [type(action).__name__ for action in actions]


def test_a_device_that_comes_back_under_its_id_is_told_its_layers_again() -> None:
    """PROTOCOL section 3, dead links: ``ai-load`` again, with the deal as it is; ready: whole."""
    recovery = online()
    (hold,) = recovery.away("b", 10.0)
    assert hold == Hold("The link to barn broke; the room waits for it.")
    assert (recovery.health, recovery.names) == ("held", ["barn"])
    actions = recovery.back("b", "barn", 12.0, was="b", key="kb")
    assert actions[0] == Reload("b")
    assert kinds(actions) == ["Reload", "Hold"]
    assert recovery.loading == ["b"]
    assert recovery.ready("b", 12.1) == [Whole(degraded=False)]
    assert recovery.sentence == ""


def test_back_before_anybody_knew_that_it_was_away() -> None:
    """PROTOCOL section 3: a new link replaces the old one; what was under way over it is lost."""
    recovery = online()
    assert kinds(recovery.back("b", "barn", 5.0, was="b", key="kb")) == ["Reload", "Hold"]
    assert recovery.ready("b", 5.1) == [Whole(degraded=False)]


def test_another_id_links_the_one_before_anew_and_tells_the_one_after() -> None:
    """PROTOCOL section 3: where its id changed, the device before it gets ``ai-next {relink: 1}``."""
    recovery = online()
    recovery.away("b", 1.0)
    actions = recovery.back("b2", "barn", 2.0, was="b", key="kb")
    assert actions[:4] == [Moved("b", "b2", "barn"), Reload("c"), Reload("b2"), Relink("a", "b2")]
    recovery.ready("c", 2.1)
    recovery.linked("a", "b2", 2.2, ok=True)
    assert recovery.health == "held", "its own layers are not sure yet"
    assert recovery.ready("b2", 2.3) == [Whole(degraded=False)]


def test_an_attempt_to_reach_an_id_that_is_no_more_is_not_waited_for() -> None:
    """PROTOCOL section 6, ``ai-next {relink}``: the new id is dialed at once, whatever is under way."""
    recovery = online()
    assert Relink("a", "b") in recovery.link_lost("a", "barn", 1.0)
    recovery.gone("b", "barn dropped; layers 5–6 are missing.", 2.0, left=False)
    assert Relink("a", "b2") in recovery.back("b2", "barn", 3.0, was="", key="kb")


@pytest.mark.parametrize("place", ["first", "last"])
def test_the_ends_of_the_chain_have_the_host_as_neighbour(place: str) -> None:
    """PROTOCOL section 6: the host needs no ``ai-next``; it learns ids by itself."""
    recovery = online()
    was = "a" if place == "first" else "c"
    recovery.away(was, 1.0)
    name, key = ("attic", "ka") if place == "first" else ("cellar", "kc")
    actions = recovery.back("new", name, 2.0, was=was, key=key)
    told = [a for a in actions if isinstance(a, Reload | Relink)]
    assert told == ([Reload("b"), Reload("new")] if place == "first" else [Reload("new"), Relink("b", "new")])


def test_a_device_is_known_by_its_pass_after_it_was_dropped() -> None:
    """PROTOCOL section 3: a seat goes to the device that proves the pass given for it, to nobody else."""
    recovery = online()
    recovery.gone("b", "barn dropped; layers 5–6 are missing.", 10.0, left=False)
    assert recovery.back("x", "barn", 20.0, was="", key="other") == [], "its name does not count"
    actions = recovery.back("y", "barn 2", 30.0, was="", key="kb")
    assert actions[0] == Moved("b", "y", "barn 2")
    assert Reload("y") in actions
    recovery.ready("c", 30.1)
    recovery.linked("a", "y", 30.1, ok=True)
    assert recovery.ready("y", 30.2) == [Whole(degraded=True)]
    assert recovery.tick(10.0 + REDEAL_S) == [], "nothing is left to deal anew for"


def test_a_drop_is_dealt_anew_after_a_minute_and_once() -> None:
    """PROTOCOL section 8, auto re-deal: 60 s after the drop."""
    recovery = online()
    why = "barn dropped; layers 5–6 are missing."
    assert recovery.gone("b", why, 10.0, left=False) == [Degrade(why)]
    assert recovery.redeal_in(10.0) == REDEAL_S
    assert recovery.tick(69.9) == []
    assert recovery.next_at(69.9) == 70.0
    assert recovery.tick(70.0) == [Redeal(why)]
    assert recovery.dealing
    assert recovery.tick(200.0) == []


@pytest.mark.parametrize("how", ["left", "unloaded", "host"])
def test_where_nobody_is_waited_for_it_comes_at_once(how: str) -> None:
    """PROTOCOL section 6: it left, or its layers are gone: a minute would bring nothing."""
    recovery = online()
    if how == "left":
        recovery.gone("b", "barn left; layers 5–6 are missing.", 5.0, left=True)
    else:
        recovery.unloaded("b" if how == "unloaded" else "h", "says: it was killed.", 5.0)
    assert recovery.health == "degraded"
    assert recovery.names == []
    assert recovery.tick(5.0 + SOON_S - 0.1) == []
    assert kinds(recovery.tick(5.0 + SOON_S)) == ["Redeal"]


def test_two_that_drop_count_from_the_first() -> None:
    """PROTOCOL section 8: one deal for both, 60 s after the first drop; one sentence names both."""
    recovery = online()
    recovery.gone("a", "attic dropped; layers 3–4 are missing.", 0.0, left=False)
    (degrade,) = recovery.gone("c", "cellar dropped; layers 7–8 are missing.", 50.0, left=False)
    assert degrade == Degrade("attic and cellar are gone; layers 3–4 and 7–8 are missing.")
    assert kinds(recovery.tick(60.0)) == ["Redeal"]


def test_no_deal_while_a_device_that_came_back_loads() -> None:
    """It would throw away what that device has; and a load that does not move holds nobody up."""
    recovery = online()
    recovery.gone("c", "cellar dropped.", 0.0, left=False)
    recovery.back("c", "cellar", 59.0, was="", key="kc")
    assert recovery.redeal_in(59.0) is None
    assert recovery.sentence == "cellar is back; the room waits until it holds its layers again."
    assert recovery.tick(61.0) == []
    recovery.progress("c", 100.0)
    assert recovery.tick(159.0) == []
    assert kinds(recovery.tick(160.0)) == ["Redeal"]


def test_a_load_that_stalls_degrades_a_room_that_was_held() -> None:
    """Every state ends by a timer or an event: here by the minute in which nothing was loaded."""
    recovery = online()
    recovery.back("c", "cellar", 0.0, was="c", key="kc")
    assert recovery.tick(59.9) == []
    actions = recovery.tick(60.0)
    assert kinds(actions) == ["Degrade", "Redeal"]
    assert actions[0] == Degrade("cellar came back, and has loaded nothing for 60 s.")


def test_away_again_while_it_loads() -> None:
    """PROTOCOL section 3: the same device twice; each time it is told its layers anew."""
    recovery = online()
    recovery.away("c", 0.0)
    assert Reload("c") in recovery.back("c", "cellar", 1.0, was="c", key="kc")
    assert kinds(recovery.away("c", 2.0)) == ["Hold"]
    assert recovery.ready("c", 2.5) == [], "that was said over the link before"
    assert Reload("c2") in recovery.back("c2", "cellar", 3.0, was="c", key="kc")
    recovery.linked("b", "c2", 3.1, ok=True)
    assert recovery.ready("c2", 3.2) == [Whole(degraded=False)]


def test_a_device_is_told_only_once_the_next_one_is_here() -> None:
    """PROTOCOL section 6: ``ai-ready`` needs the link to ``next``: two that dropped wait for each other."""
    recovery = online()
    recovery.away("a", 0.0)
    recovery.away("b", 0.0)
    assert not [x for x in recovery.back("a", "attic", 3.0, was="a", key="ka") if isinstance(x, Reload)]
    actions = recovery.back("b2", "barn", 6.0, was="b", key="kb")
    assert [x for x in actions if isinstance(x, Reload | Relink)] == [Reload("c"), Reload("b2"), Reload("a")]
    for id in ("c", "b2"):
        assert Whole(degraded=False) not in recovery.ready(id, 7.0)
    assert recovery.ready("a", 7.0) == [Whole(degraded=False)], "its ready says that the link stands"


def test_a_link_between_workers_is_made_again() -> None:
    """PROTOCOL section 6, ``ai-linklost``, ``ai-next {relink}``, ``ai-linked``."""
    recovery = online()
    actions = recovery.link_lost("a", "barn", 5.0)
    assert actions == [
        Relink("a", "b"),
        Hold("The link between attic and barn is gone; they make a new one."),
    ]
    assert recovery.link_lost("b", "attic", 5.1) == [], "the other end says the same"
    assert recovery.linked("a", "b", 6.0, ok=True) == [Whole(degraded=False)]
    assert recovery.link_lost("b", "attic", 6.5) == [], "that was the old link"
    assert kinds(recovery.link_lost("b", "attic", 12.0)) == ["Relink", "Hold"]


def test_a_link_is_waited_for_15_s() -> None:
    """PROTOCOL section 6, ``ai-linked``: the host holds a waiting answer for it 15 s at most."""
    recovery = online()
    recovery.link_lost("a", "barn", 5.0)
    assert recovery.linked("a", "b", 6.0, ok=False) == []
    assert recovery.tick(8.9) == []
    assert recovery.tick(9.0) == [Relink("a", "b")]
    assert recovery.tick(19.9) == []
    assert recovery.tick(20.0) == [Degrade("The link between attic and barn is gone.")]
    assert recovery.redeal_in(20.0) == REDEAL_S
    assert recovery.linked("a", "b", 30.0, ok=True) == [Whole(degraded=True)], "late is better than anew"


def test_a_link_that_never_comes_is_dealt_around() -> None:
    """PROTOCOL section 8: 60 s after that."""
    recovery = online()
    recovery.link_lost("a", "barn", 0.0)
    now = 0.0
    seen: list[object] = []
    while not recovery.dealing and now < 200:
        now = recovery.next_at(now) or 200.0
        seen += recovery.tick(now)
    assert now == 75.0
    assert kinds(seen).count("Degrade") == 1


def test_a_degraded_room_whose_devices_are_back_waits_for_their_links() -> None:
    """PROTOCOL section 3, seat, and section 6, ``ai-linked``: nothing is given up, so no deal is due; until
    the link is.
    """
    recovery = online()
    recovery.gone("b", "barn dropped.", 0.0, left=False)
    assert recovery.given_up
    recovery.back("b2", "barn", 5.0, was="", key="kb")
    recovery.ready("b2", 6.0)
    recovery.ready("c", 6.0)
    assert (recovery.health, recovery.given_up, recovery.redeal_in(6.0)) == ("degraded", False, None)
    assert recovery.sentence == "The link between attic and barn is gone; they make a new one."
    recovery.tick(21.0)
    assert (recovery.given_up, recovery.redeal_in(21.0)) == (True, REDEAL_S)
    recovery.linked("a", "b2", 22.0, ok=True)
    assert (recovery.health, recovery.given_up) == ("whole", False)


def test_a_lost_link_is_the_first_word_of_a_device_that_dies() -> None:
    """PROTOCOL section 6: the neighbour sees it first; once the device is away, its own time counts."""
    recovery = online()
    recovery.link_lost("a", "barn", 0.0)
    assert kinds(recovery.away("b", 1.0)) == ["Hold"]
    assert recovery.names == ["barn"]
    assert recovery.tick(16.0) == [], "no verdict on a link to somebody who is away"
    assert kinds(recovery.gone("b", "barn dropped; layers 5–6 are missing.", 16.0, left=False)) == ["Degrade"]
    assert recovery.sentence == "barn dropped; layers 5–6 are missing."


def test_a_load_that_cannot_link_is_told_again() -> None:
    """A worker whose link to the next failed holds nothing: it gets ``ai-load`` anew, then the time ends."""
    recovery = online()
    assert Reload("a") in recovery.back("a", "attic", 0.0, was="a", key="ka")
    recovery.linked("a", "b", 1.0, ok=False)
    assert Reload("a") in recovery.tick(4.0)
    recovery.linked("a", "b", 20.0, ok=False)
    assert recovery.health == "degraded"
    assert recovery.sentence == "The link between attic and barn is gone."


def test_the_setting_off_and_on() -> None:
    """PROTOCOL section 8, auto re-deal (setting, on): switched on late, it counts from there."""
    recovery = online()
    recovery.gone("b", "barn dropped.", 0.0, left=False)
    assert recovery.allow(False, 10.0) == [Degrade("barn dropped.")], "what comes next is another thing"
    assert recovery.redeal_in(20.0) is None
    assert recovery.allow(False, 20.0) == []
    assert recovery.tick(500.0) == []
    assert recovery.allow(True, 500.0) == [Degrade("barn dropped.")]
    assert recovery.redeal_in(500.0) == REDEAL_S
    assert kinds(recovery.tick(560.0)) == ["Redeal"]


def test_what_does_not_fit_is_tried_again_when_somebody_comes_and_every_minute() -> None:
    """PROTOCOL section 6: refused with how many GB are short; the room stays degraded, and tries on."""
    recovery = online()
    recovery.gone("b", "barn dropped.", 0.0, left=False)
    assert kinds(recovery.tick(60.0)) == ["Redeal"]
    assert recovery.not_dealt("Short by 1 GB.", 60.0) == []
    assert (recovery.trouble, recovery.redeal_in(60.0)) == ("Short by 1 GB.", REDEAL_S)
    recovery.joined(80.0)
    assert kinds(recovery.tick(80.0 + SOON_S)) == ["Redeal"]
    recovery.not_dealt("Short by 0.5 GB.", 82.0)
    assert kinds(recovery.tick(142.0)) == ["Redeal"]
    for i in range(10):
        recovery.not_dealt("Short.", 142.0 + i)
    assert recovery.redeal_in(152.0) is not None, "to look costs nothing, so it never ends"


def test_loads_that_fail_again_and_again_become_a_persons_affair() -> None:
    """A process that is killed each time must not be killed every minute for ever."""
    recovery = online()
    recovery.begin()
    now = 0.0
    for _ in range(MAX_FAILED - 1):
        assert kinds(recovery.failed("the process was killed.", now)) == ["Degrade"], (
            "the room loaded meanwhile"
        )
        assert recovery.by_itself
        now += REDEAL_S
        assert kinds(recovery.tick(now)) == ["Redeal"]
    assert kinds(recovery.failed("the process was killed.", now)) == ["Degrade"]
    assert (recovery.health, recovery.by_itself) == ("degraded", False)
    assert recovery.redeal_in(now) is None


def test_during_a_start_nothing_is_decided() -> None:
    """A start knows better what happens to the devices it deals over."""
    recovery = online()
    recovery.begin()
    assert recovery.gone("b", "barn dropped.", 1.0, left=False) == []
    assert recovery.back("b", "barn", 2.0, was="", key="kb") == []
    recovery.online((HOST, A), 3.0)
    assert (recovery.health, recovery.tick(500.0)) == ("whole", [])


def test_a_device_that_comes_back_after_its_last_second() -> None:
    """PROTOCOL section 8: at 59.9 s it heals the room; at 60.1 s a new deal is under way without it."""
    for at, healed in ((59.9, True), (60.1, False)):
        recovery = online()
        recovery.gone("c", "cellar dropped.", 0.0, left=False)
        if not healed:
            recovery.tick(60.0)
        assert (Reload("c") in recovery.back("c", "cellar", at, was="", key="kc")) == healed


def test_a_guest_is_none_of_this() -> None:
    """A device without layers: nothing changes, whatever it does."""
    recovery = online()
    assert recovery.away("guest", 0.0) == []
    assert recovery.back("guest", "guest", 1.0, was="guest", key="kg") == []
    assert recovery.gone("guest", "gone.", 2.0, left=False) == []
    assert recovery.unloaded("guest", "says no.", 3.0) == []
    assert recovery.health == "whole"


def test_a_new_deal_begins_with_nothing_to_mend() -> None:
    """PROTOCOL section 8: what the deal before had lost is told no more, and shortens no wait of this one."""
    recovery = online()
    recovery.gone("b", "barn dropped.", 0.0, left=False)
    assert kinds(recovery.tick(60.0)) == ["Redeal"]
    recovery.online((HOST, A, C), 61.0)
    assert recovery.tick(62.0) == []
    assert recovery.away("c", 70.0) == [Hold("The link to cellar broke; the room waits for it.")]
    assert recovery.health == "held"


def test_who_comes_back_while_a_deal_is_tried_that_does_not_fit_heals_the_room() -> None:
    """PROTOCOL section 3, dead links: nobody is forgotten because another deal was tried just then."""
    recovery = online()
    recovery.gone("b", "barn dropped.", 0.0, left=False)
    assert kinds(recovery.tick(60.0)) == ["Redeal"]
    assert recovery.back("b2", "barn", 60.1, was="", key="kb") == []
    actions = recovery.not_dealt("Short by 1 GB.", 60.2)
    assert actions[0] == Moved("b", "b2", "barn")
    assert Reload("b2") in actions
