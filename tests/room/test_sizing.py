"""What a room's model takes: caches in either form, states, what drafts, ranges that are never cut."""

from typing import Any

import msgspec
import pytest

from pooled_nb.errors import ModelTooBig
from pooled_nb.mesh.messages import deal as wire
from pooled_nb.mesh.messages.link import Member
from pooled_nb.room.dealing import make_deal
from pooled_nb.room.sizing import Drafts, Form, need_gb, size_of
from pooled_nb.shard import ModelFacts
from tests.room.rooms import open_rooms
from tests.room.test_dealing import member
from tests.room.toy import LAYERS, MODEL
from tests.sim.clock import simulate

BIG = msgspec.structs.replace(
    MODEL, dtype="bfloat16", kv_bytes=[4096] * LAYERS, kv_rows=[16] * LAYERS, ends_bytes=1_000_000
)


def deal(members: list[Member], model: ModelFacts = BIG, **how: object):  # type: ignore[no-untyped-def]  # short
    return make_deal(members, "h", model, **{"split": "memory", "ctx": 1024, "exact": True, **how})  # type: ignore[arg-type]  # by keyword


def test_int8_caches_are_counted_as_what_they_are() -> None:
    """PROTOCOL section 6: a device never holds more than it lends: KV at this ctx, in the room's form."""
    plain, small = (size_of(BIG, Form("bfloat16", kv), 1024) for kv in ("f16", "q8"))
    assert plain.kv_bytes == [4096] * LAYERS
    assert small.kv_bytes == [2048 + 16 * 2] * LAYERS
    assert (plain.scratch_bytes, small.scratch_bytes) == (0, 4096)
    assert size_of(BIG, Form("float32"), 1024).kv_bytes == [8192] * LAYERS
    assert size_of(BIG, Form("float32", "q8"), 1024).kv_bytes == [2048 + 16 * 4] * LAYERS
    long = 100_000
    assert need_gb(BIG, Form("bfloat16", "q8"), long) < 0.75 * need_gb(BIG, Form("bfloat16"), long)


def test_a_deal_in_int8_fits_where_16_bit_does_not() -> None:
    """PROTOCOL section 6: what does not fit is refused with how many GB are short."""
    members = [member("h", 0.08), member("a", 0.08)]
    with pytest.raises(ModelTooBig, match=r"short by 0\.\d+ GB for Toy"):
        deal(members, ctx=4000)
    made = deal(members, ctx=4000, kv="q8")
    assert made.kv == "q8"
    assert sum(s.hi - s.lo for s in made.seats) == LAYERS
    assert all(s.gb <= 0.08 for s in made.seats)


def test_states_count_with_their_snapshots() -> None:
    """PROTOCOL sections 5 and 6: a device keeps a snapshot for each column of a ``spec`` frame."""
    model = msgspec.structs.replace(BIG, kv_bytes=[0, 4096] * 3, state_bytes=[1_000_000, 0] * 3)
    size = size_of(model, Form("float32"), 256)
    assert size.state_bytes == [17_000_000, 0] * 3
    made = deal([member("h", 0.2), member("a", 0.2)], model, dtype="float32", ctx=256)
    assert [(s.lo, s.hi) for s in made.seats] == [(0, 3), (3, 6)]
    # Weights twice as wide as in the files; the host's ends with its own.
    assert made.seats[0].gb == pytest.approx((3 * 20e6 + 2 * 17e6 + 256 * 8192 + 2e6) / 1e9)


def test_a_shared_cache_is_never_cut() -> None:
    """PROTOCOL section 6: layers that share one cache stay on one device."""
    model = msgspec.structs.replace(BIG, glued=[(2, 5)])
    for split in ("memory", "speed"):
        made = deal([member("h", 0.06), member("a", 0.06)], model, split=split)
        assert [(s.lo, s.hi) for s in made.seats] in ([(0, 2), (2, 6)], [(0, 5), (5, 6)])
    with pytest.raises(ModelTooBig, match=r"its layers 3 to 5 share one cache, so one device must hold"):
        deal([member("h", 0.04), member("a", 0.032), member("b", 0.032)], model)


def test_what_drafts_is_a_part_of_the_hosts_ends() -> None:
    """PROTOCOL section 6: the host's embedding, head and drafts are counted."""
    model = msgspec.structs.replace(BIG, draft_layers=2, draft_bytes=20_000_000)
    plain = size_of(model, Form("bfloat16"), 1024).ends_bytes
    both = size_of(model, Form("bfloat16"), 1024, Drafts(layers=2)).ends_bytes
    assert both - plain == 20_000_000 + 2 * 4096 * 1024
    one = size_of(model, Form("bfloat16"), 1024, Drafts(layers=1)).ends_bytes
    assert one - plain == 10_000_000 + 4096 * 1024
    small = msgspec.structs.replace(MODEL, dtype="bfloat16", label="Small")
    drafting = size_of(model, Form("bfloat16", "q8"), 1024, Drafts(model=small)).ends_bytes
    assert drafting - plain == size_of(small, Form("bfloat16"), 1024).total


def test_own_draft_layers_give_way_and_a_model_asked_for_does_not() -> None:
    """PROTOCOL section 6: what nobody asked for costs nobody a room."""
    model = msgspec.structs.replace(BIG, draft_layers=1, draft_bytes=30_000_000)
    members = [member("h", 0.05), member("a", 0.05)]
    assert deal([member("h", 0.1), member("a", 0.1)], model, drafts=Drafts(layers=1)).draft_layers == 1
    assert deal(members, model, drafts=Drafts(layers=1)).draft_layers == 0
    with pytest.raises(ModelTooBig, match="short by"):
        deal(members, model, drafts=Drafts(model=MODEL))


def test_what_drafts_is_loaded_on_the_host_alone() -> None:
    """PROTOCOL sections 6 and 7: a draft model lies whole on the host, within what it lends."""

    async def scenario() -> None:
        small = msgspec.structs.replace(MODEL, repo="toy/small", label="Small", max_ctx=512, layers=2)
        rooms = await open_rooms(workers=(1.0,), kv="q8", drafts=Drafts(model=small))
        await rooms.host.start()
        spec, other = rooms.host_shard.spec, rooms.shards[0].spec
        assert spec
        assert spec.draft
        assert (spec.draft.repo, spec.draft.lo, spec.draft.hi, spec.draft.ends) == ("toy/small", 0, 2, True)
        assert (spec.draft.ctx, spec.draft.kv, spec.draft.dtype) == (512, "f16", spec.dtype)
        drafting = size_of(small, Form(spec.dtype), 512).total / 1e9
        assert spec.max_gb == pytest.approx(1.0 - drafting)
        assert other
        assert (other.draft, other.draft_layers, other.max_gb, other.kv) == (None, 0, 1.0, "q8")
        await rooms.close()

    simulate(scenario)


def test_a_model_that_drafts_is_named_where_both_do_not_fit() -> None:
    """PROTOCOL section 6: who asks for a draft model hears that it is what is too much."""
    small = msgspec.structs.replace(MODEL, label="Small")
    with pytest.raises(ModelTooBig, match=r"short by .* for Toy with Small"):
        deal([member("h", 0.1)], drafts=Drafts(model=small))


def test_the_person_hears_what_a_load_lacks() -> None:
    """DESIGN section 1: a room that goes on without what was asked for says so."""

    async def scenario() -> None:
        rooms = await open_rooms()
        plain = rooms.host_shard.load

        async def load(*args: Any, **kwargs: Any) -> Any:
            return msgspec.structs.replace(await plain(*args, **kwargs), note="Answers come without it.")

        rooms.host_shard.load = load  # type: ignore[method-assign]  # a load that says so
        await rooms.host.start()
        assert rooms.notices == ["Answers come without it."]
        await rooms.close()

    simulate(scenario)


def test_the_form_travels_and_is_shown() -> None:
    """PROTOCOL section 6: ``kv`` in ``ai-load`` and *(nb)* in ``ai-layers``; f16 where nothing is said."""
    assert wire.LayersHeld(kv="q8").kv == "q8"
    assert wire.LayersHeld().kv is None
