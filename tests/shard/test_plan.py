"""Both splits of the layers."""

from __future__ import annotations

import math
import random
from itertools import pairwise, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.errors import ModelTooBig
from pooled_nb.shard import Candidate, ModelSize, Plan, plan_memory, plan_speed
from pooled_nb.shard.plan import lent

GB = 10**9


def model(layers: int = 10, each: int = 100, ends: int = 50, kv: int = 0, ctx: int = 256) -> ModelSize:
    return ModelSize(
        label="Tiny-1B", layer_bytes=[each] * layers, kv_bytes=[kv] * layers, ends_bytes=ends, ctx=ctx
    )


def device(id: str, lends: float, **more: object) -> Candidate:
    return Candidate(id=id, name=id.upper(), lends=lends, **more)  # type: ignore[arg-type]


def counts(plan: Plan) -> dict[str, int]:
    return {share.id: share.hi - share.lo for share in plan.shares}


candidates = st.lists(
    st.builds(
        lambda lends, ms, phone, most: {"lends": lends, "ms": ms, "phone": phone, "pledge_max": most},
        st.one_of(st.floats(0, 3000), st.sampled_from([math.nan, math.inf, -1.0, 0.0])),
        st.one_of(st.none(), st.floats(0.01, 100)),
        st.booleans(),
        st.one_of(st.none(), st.floats(0, 5000)),
    ),
    min_size=1,
    max_size=7,
).map(lambda rows: [device(f"d{i}", host=i == 0, **row) for i, row in enumerate(rows)])

sizes = st.builds(
    lambda layers, ends, ctx, scratch, glued: ModelSize(
        label="M",
        layer_bytes=[a for a, _, _ in layers],
        kv_bytes=[b for _, b, _ in layers],
        state_bytes=[c for _, _, c in layers],
        ends_bytes=ends,
        ctx=ctx,
        scratch_bytes=scratch,
        glued=glued,
    ),
    st.lists(
        st.tuples(st.integers(1, 300), st.integers(0, 1), st.sampled_from([0, 0, 40])),
        min_size=1,
        max_size=12,
    ),
    st.integers(0, 200),
    st.integers(1, 600),
    st.sampled_from([0, 0, 1]),
    st.one_of(
        st.just([]),
        st.lists(
            st.tuples(st.integers(0, 11), st.integers(1, 5)).map(lambda t: (t[0], t[0] + t[1])), max_size=3
        ),
    ),
)


def bytes_of(size: ModelSize) -> list[int]:
    """Bytes of each layer, counted once more by hand."""
    ctx = math.ceil(size.ctx / 256) * 256
    return [
        w + k * ctx + s
        for w, k, s in zip(size.layer_bytes, size.kv_bytes, size.state_bytes or size.kv_bytes, strict=True)
    ]


def beside(size: ModelSize, device: Candidate) -> int:
    """Bytes a device needs beside its layers."""
    scratch = size.scratch_bytes * math.ceil(size.ctx / 256) * 256
    return scratch + (size.ends_bytes if device.host else 0)


def cut_apart(size: ModelSize, at: int) -> bool:
    """Whether a cut before layer ``at`` would part layers that share one cache."""
    return any(lo < at < hi for lo, hi in size.glued)


def fits_in_some_order(devices: list[Candidate], size: ModelSize) -> bool:
    """Try every order of the workers, each taking all it can: none of the planner's own code."""
    layers = bytes_of(size)
    host, *workers = devices
    for order in permutations(workers):
        at = 0
        for device in (host, *order):
            room = lent(device) - beside(size, device)
            ends = range(at + 1, len(layers) + 1)
            at = max((e for e in ends if not cut_apart(size, e) and sum(layers[at:e]) <= room), default=at)
            if device.host and not at:
                return False
        if at == len(layers):
            return True
    return False


@pytest.mark.parametrize("split", [plan_speed, plan_memory])
@given(devices=candidates, size=sizes)
@settings(deadline=None, max_examples=120)
def test_every_layer_once_and_nobody_over_what_it_lends(split, devices, size):
    """PROTOCOL section 6: a chain from the host on, every layer once, nobody holds more than it lends."""
    each = bytes_of(size)
    try:
        plan = split(devices, size)
    except ModelTooBig as error:
        refused = error
    else:
        refused = None
    if refused is not None:
        assert "GB" in refused.what
        assert refused.next_step
        assert not fits_in_some_order(devices, size)
        return
    by_id = {d.id: d for d in devices}
    assert plan.shares[0].id == "d0"
    assert plan.shares[0].lo == 0
    assert plan.shares[-1].hi == len(each)
    assert all(a.hi == b.lo for a, b in pairwise(plan.shares))
    for share in plan.shares:
        assert share.lo < share.hi
        held = sum(each[share.lo : share.hi]) + beside(size, by_id[share.id])
        assert share.bytes == held <= lent(by_id[share.id])
        assert not cut_apart(size, share.lo)
    assert set(plan.out) == set(by_id) - {share.id for share in plan.shares}
    assert set(plan.out.values()) <= {"unneeded", "small"}
    assert split(devices, size) == plan


@given(seed=st.integers(0, 10_000))
@settings(deadline=None, max_examples=60)
def test_refused_only_when_no_order_of_the_devices_holds_it(seed):
    """PROTOCOL section 6: what fits in some order is not refused, also with layers of different sizes."""
    rng = random.Random(seed)
    size = ModelSize(
        label="M", layer_bytes=[rng.randint(1, 60) for _ in range(8)], kv_bytes=[0] * 8, ends_bytes=10, ctx=1
    )
    cuts = sorted(rng.sample(range(1, 8), 3))
    ranges = list(pairwise([0, *cuts, 8]))
    lends = [sum(size.layer_bytes[a:b]) for a, b in ranges]
    order = rng.sample(range(1, 4), 3)
    devices = [device("h", lends[0] + 10, host=True)] + [
        device(f"w{i}", lends[i], ms=rng.choice([None, 1.0, 5.0]), phone=rng.random() < 0.3) for i in order
    ]
    for split in (plan_speed, plan_memory):
        assert split(devices, size).shares[-1].hi == 8


def test_fastest_first_each_up_to_what_it_holds():
    """PROTOCOL section 6: for speed, the fastest hold all they can, the rest stay guests."""
    devices = [
        device("host", 1050, host=True, ms=4.0),
        device("slow", 1000, ms=9.0),
        device("fast", 300, ms=1.0),
        device("mid", 400, ms=2.0),
    ]
    plan = plan_speed(devices, model())
    assert counts(plan) == {"host": 3, "fast": 3, "mid": 4}
    assert plan.out == {"slow": "unneeded"}


def test_the_host_keeps_at_least_one_layer():
    """PROTOCOL section 6: the host keeps at least one layer, however slow it is."""
    devices = [device("host", 5000, host=True, ms=90.0), device("fast", 5000, ms=1.0)]
    assert counts(plan_speed(devices, model())) == {"host": 1, "fast": 9}


def test_the_fewest_hops_until_measured():
    """PROTOCOL section 6: until measured, the fewest hops win."""
    devices = [device("host", 350, host=True), device("a", 300), device("b", 800), device("c", 350)]
    assert counts(plan_speed(devices, model())) == {"host": 3, "b": 7}


def test_an_unmeasured_phone_costs_twenty_computers():
    """PROTOCOL section 6: twenty computers rather than one phone, but not twenty-one."""
    size = model(layers=22)
    small = [device(f"c{i}", 100) for i in range(21)]
    phone = device("phone", 5000, phone=True)
    twenty = plan_speed([device("host", 250, host=True), *small, phone], size)
    assert len(twenty.shares) == 21
    assert "phone" in twenty.out
    one = plan_speed([device("host", 150, host=True), *small, phone], size)
    assert counts(one) == {"host": 1, "phone": 21}


def test_an_unmeasured_phone_beside_measured_computers():
    """PROTOCOL section 6: a phone that was not measured comes after every computer."""
    devices = [
        device("host", 150, host=True, ms=5.0),
        device("phone", 5000, phone=True),
        device("new", 500),
        device("old", 600, ms=10.0),
    ]
    assert counts(plan_speed(devices, model())) == {"host": 1, "old": 6, "new": 3}


def test_by_memory_in_proportion_with_the_largest_remainders_first():
    """PROTOCOL section 6: by memory, in proportion to what each lends, largest remainders first."""
    devices = [device("host", 1000, host=True), device("a", 500), device("b", 1400)]
    # Quotas of 10 layers: 3.45, 1.72, 4.83.
    assert counts(plan_memory(devices, model())) == {"host": 3, "a": 2, "b": 5}


def test_by_memory_at_least_one_each_and_never_above_the_cap():
    """PROTOCOL section 6: at least one layer each; a device never holds more than it lends."""
    devices = [device("host", 5000, host=True), device("tiny", 100), device("b", 3000)]
    assert counts(plan_memory(devices, model()))["tiny"] == 1
    # The host's quota is 5 layers, but embedding and head leave it room for 2.
    capped = [device("host", 1000, host=True), device("b", 1000)]
    assert counts(plan_memory(capped, model(ends=800))) == {"host": 2, "b": 8}


def test_phones_hold_none_while_the_computers_can_hold_the_model():
    """PROTOCOL section 6: by memory, phones come in only when the computers cannot hold it."""
    phone = device("phone", 5000, phone=True)
    plan = plan_memory([device("host", 700, host=True), device("a", 700), phone], model())
    assert plan.out == {"phone": "unneeded"}
    plan = plan_memory([device("host", 300, host=True), device("a", 300), phone], model())
    assert counts(plan)["phone"] == 8


def test_more_devices_than_layers():
    """PROTOCOL section 6: who would hold no layer stays a guest."""
    devices = [device("host", 100, host=True)] + [device(f"d{i}", 100 + i) for i in range(5)]
    plan = plan_memory(devices, model(layers=3, ends=0))
    assert counts(plan) == {"host": 1, "d3": 1, "d4": 1}
    assert set(plan.out.values()) == {"unneeded"}


@pytest.mark.parametrize("cap", [math.nan, math.inf, -5.0, 0.0])
def test_a_cap_that_is_no_positive_number_counts_as_nothing(cap):
    """PROTOCOL section 6: a cap that is not a positive number counts as nothing."""
    for split in (plan_speed, plan_memory):
        plan = split([device("host", 5000, host=True), device("odd", cap, ms=0.001)], model())
        assert counts(plan) == {"host": 10}
        assert plan.out == {"odd": "small"}


def test_caches_and_ends_are_counted():
    """PROTOCOL section 6: weights, KV at this ctx, and the host's embedding and head are counted."""
    size = model(kv=1, ctx=300)  # in steps of 256: 512 bytes a layer more
    assert plan_speed([device("host", 50 + 10 * 612, host=True)], size).shares[0].bytes == 6170
    with pytest.raises(ModelTooBig):
        plan_speed([device("host", 49 + 10 * 612, host=True)], size)


def test_states_and_what_each_device_needs_beside_its_layers_are_counted():
    """PROTOCOL section 6: never more than it lends; a running state has its snapshots with it."""
    size = ModelSize(
        label="M",
        layer_bytes=[100] * 4,
        kv_bytes=[1, 0, 1, 0],
        state_bytes=[0, 70, 0, 70],
        ends_bytes=50,
        ctx=256,
        scratch_bytes=2,
    )
    assert size.total == 400 + 2 * 256 + 140 + 50 + 512
    devices = [device("h", 50 + 512 + 100 + 256, host=True), device("w", 300 + 140 + 256 + 512)]
    plan = plan_speed(devices, size)
    assert [(s.id, s.lo, s.hi, s.bytes) for s in plan.shares] == [("h", 0, 1, 918), ("w", 1, 4, 1208)]
    with pytest.raises(ModelTooBig):
        plan_speed([devices[0], device("w", 1207)], size)


@pytest.mark.parametrize("split", [plan_speed, plan_memory])
def test_layers_that_share_a_cache_stay_on_one_device(split):
    """PROTOCOL section 6: a range that one device must hold whole is never cut, however much each lends."""
    size = ModelSize(
        label="M", layer_bytes=[100] * 10, kv_bytes=[0] * 10, ends_bytes=0, ctx=256, glued=[(4, 8), (7, 10)]
    )
    devices = [device("h", 500, host=True), device("a", 700), device("b", 450)]
    plan = split(devices, size)
    whole = next(share for share in plan.shares if share.hi == 10)
    assert (whole.id, whole.hi) == ("a", 10)
    assert whole.lo <= 4
    with pytest.raises(ModelTooBig) as caught:
        split([device("h", 500, host=True), device("a", 550, pledge_max=GB), device("b", 450)], size)
    assert caught.value.what == (
        "The memory lent is short by 0.01 GB for M: its layers 5 to 10 share one cache, so one device must "
        "hold them all."
    )
    assert caught.value.next_step == "A could give 0.99 GB more."


def test_by_memory_near_the_proportion_where_layers_may_be_cut():
    """PROTOCOL section 6: in proportion to what each lends, as near as glued layers allow."""
    size = ModelSize(
        label="M", layer_bytes=[100] * 12, kv_bytes=[0] * 12, ends_bytes=0, ctx=256, glued=[(3, 7)]
    )
    devices = [device("h", 1000, host=True), device("a", 1000), device("b", 1000)]
    plan = plan_memory(devices, size)
    assert [(s.lo, s.hi) for s in plan.shares] == [(0, 3), (3, 8), (8, 12)]


def test_too_big_for_a_host_whose_first_layers_share_a_cache():
    """PROTOCOL section 6: the sentence counts layers from 1 and says why they are not cut."""
    size = ModelSize(
        label="M", layer_bytes=[GB] * 4, kv_bytes=[0] * 4, ends_bytes=GB, ctx=256, glued=[(0, 3)]
    )
    with pytest.raises(
        ModelTooBig, match=r"short by 2 GB for M on H, .* layers 1 to 3, which share one cache"
    ):
        plan_speed([device("h", 2 * GB, host=True), device("a", 9 * GB)], size)


def test_too_big_says_how_much_is_short_and_who_could_give_more():
    """PROTOCOL section 6: refused with how many GB are short and who could give more."""
    size = ModelSize(label="Big-8B", layer_bytes=[GB] * 8, kv_bytes=[0] * 8, ends_bytes=GB, ctx=256)
    devices = [
        device("host", 3 * GB, host=True, pledge_max=3 * GB),
        device("lab", 2 * GB, pledge_max=16 * GB),
        device("old", 1 * GB, pledge_max=1.5 * GB),
    ]
    for split in (plan_speed, plan_memory):
        with pytest.raises(ModelTooBig) as caught:
            split(devices, size)
        assert caught.value.what == "The memory lent is short by 3 GB for Big-8B."
        assert caught.value.next_step == "LAB could give 14 GB more."


def test_too_big_for_the_host_alone_names_the_host():
    """PROTOCOL section 6: the host's own part has to fit on the host."""
    size = ModelSize(label="Big-8B", layer_bytes=[GB] * 8, kv_bytes=[0] * 8, ends_bytes=4 * GB, ctx=256)
    devices = [
        device("host", 3 * GB, host=True, pledge_max=6 * GB),
        device("lab", 90 * GB, pledge_max=95 * GB),
    ]
    with pytest.raises(ModelTooBig, match=r"short by 2 GB for Big-8B on HOST") as caught:
        plan_speed(devices, size)
    assert caught.value.next_step == "HOST could give 3 GB more."


def test_a_plan_needs_one_host():
    with pytest.raises(ValueError, match="exactly one host"):
        plan_speed([device("a", 1)], model())
