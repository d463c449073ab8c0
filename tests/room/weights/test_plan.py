"""Who is asked for which piece (PROTOCOL section 6, DESIGN section 6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.room.weights.givers import Giver, givers_of
from pooled_nb.room.weights.plan import AT_ONCE, Plan
from pooled_nb.shard import Piece

FILE = "model.safetensors"
HOST = "host"


def piece(n: int, name: str = FILE) -> Piece:
    return Piece(name=name, lo=n * 10, hi=n * 10 + 10, size=1_000)


def having(*numbers: int) -> Giver:
    return Giver({FILE: [(n * 10, n * 10 + 10) for n in numbers]})


def plan_of(n: int, givers: dict[str, Giver], *, unknown: Collection[int] = (), linked: bool = True) -> Plan:
    plan = Plan(
        [piece(i) for i in range(n)],
        givers,
        host=HOST,
        me="me",
        vouched=lambda p: p.lo // 10 not in unknown,
    )
    for id in givers if linked else ():
        plan.linked(id)
    return plan


def asked(plan: Plan) -> list[tuple[int, str]]:
    return [(ask.piece.lo // 10, ask.device) for ask in plan.next()]


def test_rarest_first_and_in_their_order() -> None:
    """DESIGN section 6: who alone has a piece is busy from the beginning."""
    plan = plan_of(4, {"a": having(0, 1, 2, 3), "b": having(0, 1)})
    assert asked(plan) == [(2, "a"), (3, "a"), (0, "b"), (1, "b")]


def test_the_host_comes_last_of_equals() -> None:
    """DESIGN section 6: everybody asks the host, so that another that has a piece as well is asked first."""
    plan = plan_of(2, {HOST: Giver(None), "a": having(0, 1)})
    assert asked(plan) == [(0, "a"), (1, HOST)], "and the least busy first"
    plan.ended(piece(0), here=False)
    assert asked(plan) == [(0, HOST)]


def test_four_at_a_time_of_one_device() -> None:
    """PROTOCOL section 6: at most 8 at once per link; half of that is for one load."""
    plan = plan_of(10, {"a": Giver(None)})
    assert asked(plan) == [(n, "a") for n in range(AT_ONCE)]
    assert asked(plan) == []
    plan.ended(piece(2), here=True)
    assert asked(plan) == [(4, "a")]


def test_nobody_is_asked_without_a_direct_link() -> None:
    """PROTOCOL section 2: weights never cross a relay; who cannot be reached costs only its pieces."""
    plan = plan_of(2, {"a": having(0, 1), "b": having(1)}, linked=False)
    assert asked(plan) == []
    assert plan.unlinked == {"a", "b"}
    plan.without("a")
    assert plan.unlinked == {"b"}
    assert [p.lo for p in plan.left] == [0]
    plan.linked("b")
    assert asked(plan) == [(1, "b")]
    plan.ended(piece(1), here=True)
    assert plan.is_over


def test_a_link_that_broke_is_looked_for_anew() -> None:
    """PROTOCOL section 3: a device comes back, and may be asked for the same piece again."""
    plan = plan_of(1, {HOST: Giver(None)})
    assert asked(plan) == [(0, HOST)]
    plan.ended(piece(0), here=False, again=True)
    plan.unlink(HOST)
    assert asked(plan) == []
    assert not plan.is_over
    assert plan.unlinked == {HOST}
    plan.linked(HOST)
    assert asked(plan) == [(0, HOST)]


def test_what_nobody_vouches_for_is_asked_of_the_host_alone() -> None:
    """DESIGN section 6: "counts only when its hash is one the host vouches for"."""
    plan = plan_of(2, {HOST: having(0), "a": having(0, 1)}, unknown={0, 1})
    assert asked(plan) == [(0, HOST)]
    assert [p.lo for p in plan.unknown] == [10], "the other is asked for already"
    plan.unvouched(piece(1))
    assert [p.lo for p in plan.left] == [10]
    plan.ended(piece(0), here=False)
    assert [p.lo for p in plan.unknown] == [0]
    plan = plan_of(1, {HOST: having(0), "a": having(0)}, unknown={0})
    plan.unvouched(piece(0))
    assert plan.unknown == []
    assert asked(plan) == [(0, HOST)], "what it gives it vouches for"
    plan.ended(piece(0), here=False)
    assert plan.is_over


def test_who_is_refused_gives_nothing() -> None:
    """DESIGN section 6: it serves no more weights in this room."""
    plan = Plan([piece(0)], {"a": Giver(None)}, host=HOST, vouched=lambda _: True, refused={"a"})
    assert plan.is_over
    assert plan.left == [piece(0)]
    plan = plan_of(2, {"a": Giver(None)})
    assert len(asked(plan)) == 2
    plan.ended(piece(0), here=False)
    plan.without("a")
    plan.ended(piece(1), here=False, again=True)
    assert plan.is_over
    assert len(plan.left) == 2


def test_devices_that_want_the_same_begin_with_others() -> None:
    """DESIGN section 6: three that load from three ask not all the same one first."""
    givers = {id: Giver(None) for id in "abc"}
    seen = set()
    for n in range(30):
        plan = Plan([piece(0)], givers, host=HOST, me=f"me{n}", vouched=lambda _: True)
        for id in givers:
            plan.linked(id)
        seen.add(asked(plan)[0][1])
    assert seen == set("abc")


def test_the_host_of_a_local_model_has_all_of_it() -> None:
    """PROTOCOL section 6: "The host serves what only it has"; small files it read of every model."""
    small = Piece(name="config.json", lo=0, hi=7, size=7)
    have = {"a": {FILE: [(0, 10)]}, "me": {FILE: [(0, 100)]}, "b": {}}
    local = givers_of("local/mine", [small, piece(5)], have, host=HOST, me="me")
    assert set(local) == {"a", HOST}
    assert local[HOST].gives(piece(5))
    hub = givers_of("some/model", [small, piece(5)], have, host=HOST, me="me")
    assert hub[HOST].gives(small)
    assert not hub[HOST].gives(piece(5))
    assert set(givers_of("some/model", [piece(5)], have, host=HOST, me="me")) == {"a"}
    assert set(givers_of("local/mine", [small], have, host="me", me="me")) == {"a"}


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(0, 5))
def test_any_course_ends_with_every_piece_here_or_left(seed: int, n: int, devices: int) -> None:
    """PROTOCOL section 6: "Any failure falls back to the network"; nobody is asked for what it has not."""
    rng = Random(seed)
    ids = [HOST, *"abcd"][:devices]
    givers = {
        id: Giver(None) if rng.random() < 0.2 else having(*[i for i in range(n) if rng.random() < 0.6])
        for id in ids
    }
    unknown = {i for i in range(n) if rng.random() < 0.3}
    plan = plan_of(n, givers, unknown=unknown, linked=False)
    asked_now: dict[Piece, str] = {}
    tried: Counter[tuple[Piece, str]] = Counter()
    gone: set[str] = set()
    here: set[Piece] = set()
    for _ in range(10_000):
        if plan.is_over:
            break
        for ask in plan.next():
            assert ask.piece not in asked_now, "once at a time"
            assert givers[ask.device].gives(ask.piece)
            assert ask.device not in gone
            assert ask.piece.lo // 10 not in unknown or ask.device == HOST
            tried[ask.piece, ask.device] += 1
            asked_now[ask.piece] = ask.device
        busy = Counter(asked_now.values())
        assert all(count <= AT_ONCE for count in busy.values())
        # Every turn something happens, and what cannot get on is told so.
        choice = rng.random()
        if asked_now and choice < 0.8:
            done = rng.choice(sorted(asked_now, key=lambda p: p.lo))
            device = asked_now.pop(done)
            how = rng.choice(["here", "miss", "gone", "bad"])
            again = how == "gone" and tried[done, device] < 3
            plan.ended(done, here=how == "here", again=again)
            if how == "here":
                here.add(done)
            if how == "gone":
                plan.unlink(device)
            if how == "bad":
                gone.add(device)
                plan.without(device)
        elif plan.unlinked:
            id = rng.choice(sorted(plan.unlinked))
            if rng.random() < 0.7:
                plan.linked(id)
            else:
                gone.add(id)
                plan.without(id)
        elif plan.unknown:
            plan.unvouched(rng.choice(plan.unknown))
    assert plan.is_over
    assert here | set(plan.left) == {piece(i) for i in range(n)}
    assert not here & set(plan.left)
