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
    assert again.name == "laptop 2"
    assert [m.id for m in room.members] == ["c", "a", "m", "z"]


def test_who_is_in_keeps_place_and_name() -> None:
    """PROTOCOL section 3: a new connection under the id of an admitted device keeps its place."""
    room = Membership("c", "host", DeviceMeta())
    room.admit("a", hello("x", contrib_gb=1.0))
    room.admit("b", hello("x"))
    back = room.admit("a", hello("another", contrib_gb=2.0))
    assert back is not None
    assert back.name == "x"
    assert back.meta.contrib_gb == 2.0
    assert [m.id for m in room.members] == ["c", "a", "b"]


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
        st.tuples(st.sampled_from(["in", "out"]), st.sampled_from("abcdef"), st.text(max_size=60)),
        max_size=40,
    )
)
def test_names_stay_unique(steps: list[tuple[str, str, str]]) -> None:
    """PROTOCOL section 3, names: at most 40 characters, none of `<>"'&` and backtick, unique, whatever
    devices ask for.
    """
    room = Membership("c", "host", DeviceMeta())
    order = ["c"]
    for what, id, name in steps:
        if what == "in":
            room.admit(id, hello(name))
            order += [] if id in order else [id]
        elif room.leave(id):
            order.remove(id)
        names = [m.name for m in room.members]
        assert len(set(names)) == len(names)
        assert all(0 < len(n) <= 40 for n in names)
        assert not any(c in n for n in names for c in "<>\"'&`\n\x00")
        assert [m.id for m in room.members] == order


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
