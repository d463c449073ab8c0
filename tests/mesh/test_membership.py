"""The creator's roster, and how a device reads it (PROTOCOL section 3)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.mesh import outage
from pooled_nb.mesh.membership import MAX_MEMBERS, Membership, read_roster
from pooled_nb.mesh.messages import read, write
from pooled_nb.mesh.messages.link import DeviceMeta, Hello, Member, Roster


def hello(name: str, **meta: float) -> Hello:
    return Hello(name=name, v=4, meta=DeviceMeta(**meta))  # type: ignore[arg-type]


def test_creator_first_then_in_order_of_joining() -> None:
    """PROTOCOL section 3, roster: creator first, then in order of joining; names made unique by
    the creator.
    """
    room = Membership("c", "laptop", DeviceMeta(gpu="T4"))
    for id, name in [("z", "laptop"), ("a", "laptop"), ("m", "<b>Ann</b>")]:
        assert room.admit(id, hello(name)) is not None
    assert [m.id for m in room.members] == ["c", "z", "a", "m"]
    assert [m.name for m in room.members] == ["laptop", "laptop 2", "laptop 3", "bAnn/b"]
    assert room.leave("z") is not None
    assert room.leave("z") is None
    assert room.leave("c") is None
    again = room.admit("z", hello("laptop"))
    assert again is not None
    assert again.member.name == "laptop 2"
    assert again.gone == ()
    assert [m.id for m in room.members] == ["c", "a", "m", "z"]


def test_who_proves_its_pass_keeps_place_and_name() -> None:
    """PROTOCOL section 3: "a **seat** goes to the device that proves the pass given for it", and keeps place
    and name, whatever its id is now; it says its `meta` anew.
    """
    room = Membership("c", "host", DeviceMeta())
    room.admit("a", hello("x", contrib_gb=1.0), seat="A")
    room.admit("b", hello("x"), seat="B")
    same = room.admit("a", hello("another", contrib_gb=2.0), seat="A", came_back=True, name="of old")
    assert same is not None
    assert (same.member.name, same.member.meta.contrib_gb, same.gone) == ("x", 2.0, ())
    moved = room.admit("z", hello("x", contrib_gb=3.0), seat="A", came_back=True)
    assert moved is not None
    assert [m.id for m in moved.gone] == ["a"]
    assert [(m.id, m.name) for m in room.members] == [("c", "host"), ("z", "x"), ("b", "x 2")]
    assert (room.seat_of("z"), room.seat_of("b"), room.seat_of("a")) == ("A", "B", None)
    assert [m.a for m in room.members] == [True, False, False]  # as each said in its `hello`


def test_a_seat_goes_to_nobody_else() -> None:
    """PROTOCOL section 3: "to nobody else": a newcomer under the id of an admitted device is a new device, at
    the end and with a name of its own, and the one that was there is gone. Nobody gets the creator's id.
    """
    room = Membership("c", "host", DeviceMeta())
    room.admit("a", hello("x"), seat="A")
    room.admit("b", hello("y"), seat="B")
    thief = room.admit("a", hello("x"), seat="new")
    assert thief is not None
    assert [(m.id, m.name) for m in thief.gone] == [("a", "x")]
    assert [(m.id, m.name) for m in room.members] == [("c", "host"), ("b", "y"), ("a", "x")]
    assert room.seat_of("a") == "new"
    # With the pass of one device and the id of another: the first moves, the other is gone.
    both = room.admit("a", hello("y"), seat="B", came_back=True)
    assert both is not None
    assert sorted((m.id, m.name) for m in both.gone) == [("a", "x"), ("b", "y")]
    assert [(m.id, m.name) for m in room.members] == [("c", "host"), ("a", "y")]
    assert room.admit("c", hello("host"), seat="B", came_back=True) is None
    assert room.admit("d", hello("d"), came_back=True)  # an older device's: no seat is no seat of anybody
    assert room.admit("e", hello("e"), came_back=True)
    assert [m.id for m in room.members] == ["c", "a", "d", "e"]


def test_a_pass_of_a_device_that_left() -> None:
    """PROTOCOL section 3: "a pass belongs to a seat, not to a name: a name taken meanwhile is made unique
    again": who left and comes back is at the end, called as its pass says.
    """
    room = Membership("c", "host", DeviceMeta())
    room.admit("a", hello("ann"), seat="A")
    room.admit("b", hello("bob"), seat="B")
    assert room.leave("a")
    assert room.seat_of("a") is None
    back = room.admit("z", hello("whatever"), seat="A", came_back=True, name="ann")
    assert back is not None
    assert (back.member.name, back.gone) == ("ann", ())
    room.leave("z")
    room.admit("n", hello("ann"), seat="N")
    room.admit("z", hello("whatever"), seat="A", came_back=True, name="ann")
    assert [(m.id, m.name) for m in room.members][1:] == [("b", "bob"), ("n", "ann"), ("z", "ann 2")]


def test_a_full_room() -> None:
    """PROTOCOL section 3, roster: what one may carry is bounded."""
    room = Membership("c", "host", DeviceMeta())
    for i in range(MAX_MEMBERS - 1):
        assert room.admit(f"d{i}", hello("d")) is not None
    assert room.admit("one more", hello("d")) is None
    assert room.admit("d0", hello("d")) is not None
    assert len({m.name for m in room.members}) == MAX_MEMBERS
    assert read(write(room.message)) == room.message


def test_pledge_within_what_it_may_lend() -> None:
    """PROTOCOL section 3, pledge: a device changed the memory it lends, never above its `pledgeMax`."""
    room = Membership("c", "host", DeviceMeta())
    room.admit("a", hello("a", contrib_gb=1.0, pledge_max=4.0))
    assert room.pledge("a", 3.0)
    assert (m := room.get("a"))
    assert m.meta.contrib_gb == 3.0
    assert room.pledge("a", 9.0)
    assert (m := room.get("a"))
    assert m.meta.contrib_gb == 4.0
    assert not room.pledge("a", 9.0)
    assert not room.pledge("nobody", 1.0)


def test_a_device_reads_only_a_roster_of_its_room() -> None:
    """PROTOCOL section 3, roster: creator first, the receiver included; anything else is ignored."""
    c, me, other = Member(id="c", name="h"), Member(id="me", name="m"), Member(id="o", name="evil\u202e<x>")
    got = read_roster(Roster(members=[c, other, me, Member(id="me", name="twice")]), creator="c", me="me")
    assert got is not None
    assert [(m.id, m.name) for m in got] == [("c", "h"), ("o", "evilx"), ("me", "m")]
    for bad in ([], [c], [me, c], [c, other], [other, me]):
        assert read_roster(Roster(members=bad), creator="c", me="me") is None


@settings(deadline=None, max_examples=150)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["in", "back", "out"]),
            st.sampled_from("abdefg"),
            st.sampled_from("ABC"),
            st.text(max_size=60),
        ),
        max_size=40,
    )
)
def test_names_stay_unique(steps: list[tuple[str, str, str, str]]) -> None:
    """PROTOCOL section 3, names: at most 40 characters, none of `<>"'&` and backtick, unique, whatever
    devices ask for, and whoever comes back to its seat.
    """
    room = Membership("c", "host", DeviceMeta())
    order, seats = ["c"], dict[str, str]()
    for what, id, seat, name in steps:
        if what == "out":
            assert (room.leave(id) is not None) == (id in order)
            order = [one for one in order if one != id]
            seats.pop(id, None)
        else:
            was = next((one for one, kept in seats.items() if kept == seat), None) if what == "back" else None
            fresh = seat if what == "back" else f"new {len(seats)} {name}"
            entry = room.admit(id, hello(name), seat=fresh, came_back=what == "back", name="of old")
            assert entry is not None
            assert {m.id for m in entry.gone} == ({id} & set(order) if was != id else set()) | (
                {was} if was not in (None, id) else set()
            )
            if was is None:
                order = [one for one in order if one != id] + [id]
            else:
                order = [id if one == was else one for one in order if one == was or one != id]
                del seats[was]
            seats[id] = fresh
        names = [m.name for m in room.members]
        assert len(set(names)) == len(names)
        assert all(0 < len(n) <= 40 for n in names)
        assert not any(c in n for n in names for c in "<>\"'&`\n\x00")
        assert [m.id for m in room.members] == order
        assert {m.id: room.seat_of(m.id) for m in room.members[1:]} == seats


def test_an_outage_is_told_once_in_30_s() -> None:
    """PROTOCOL section 2: the same notice to the user at most once in 30 s; what was told last is true in the
    end.
    """
    out = outage.Outage()
    assert out.changed(True, 0.0) is True
    told = [out.changed(i % 2 == 0, 1.0 + i) for i in range(20)]
    assert told == [None] * 20
    assert out.tick(29.9) is None
    assert out.tick(30.0) is False
    assert out.tick(31.0) is None
    assert out.changed(True, 100.0) is True
    assert out.changed(False, 131.0) is False
