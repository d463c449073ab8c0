import asyncio

import pytest

from pooled_nb.errors import ModelTooBig
from pooled_nb.mesh.messages.link import DeviceMeta, Member, NbMeta
from pooled_nb.room.dealing import COLS_CPU, WIDTH, grew, lenders, make_deal
from tests.room.rooms import open_rooms
from tests.room.toy import MODEL
from tests.sim.clock import simulate


def member(
    id: str,
    gb: float = 1.0,
    *,
    device: str = "cpu",
    dtypes: tuple[str, ...] = ("float32", "bfloat16"),
    width: int = 16,
    cols: int = 256,
    sig: str = "s",
    nb: bool = True,
) -> Member:
    offers = NbMeta(v=1, device=device, dtypes=list(dtypes), width=width, cols=cols, sig=sig)
    return Member(
        id=id, name=id.upper(), meta=DeviceMeta(webgpu=gb > 0, contrib_gb=gb, nb=offers if nb else None)
    )


def test_a_deal_covers_every_layer_in_chain_order() -> None:
    """PROTOCOL section 1: host, then workers in layer order; section 6: ``prev`` and ``next`` of each."""
    deal = make_deal([member("h"), member("a"), member("b")], "h", MODEL, split="memory", ctx=256, exact=True)
    assert deal.seats[0].lo == 0
    assert deal.seats[0].id == "h"
    assert [s.hi for s in deal.seats[:-1]] == [s.lo for s in deal.seats[1:]]
    assert deal.seats[-1].hi == MODEL.layers
    second, third = deal.seats[1].id, deal.seats[2].id
    assert deal.neighbours(second) == ("h", third)
    assert deal.neighbours(third) == (second, "host")
    assert deal.width == WIDTH
    assert deal.cols == COLS_CPU
    assert deal.one_sig


def test_for_speed_the_fewest_hops_win_until_measured() -> None:
    """PROTOCOL section 6: the others stay guests, ``unneeded``."""
    deal = make_deal([member("h"), member("a")], "h", MODEL, split="speed", ctx=256, exact=True)
    assert [s.id for s in deal.seats] == ["h"]
    assert deal.out == {"a": "unneeded"}


@pytest.mark.parametrize(
    "other",
    [member("x", 0.0), member("x", nb=False), member("x", width=8)],
    ids=["lends nothing", "not ours", "narrow frames"],
)
def test_who_offers_less_holds_no_layers(other: Member) -> None:
    """PROTOCOL section 5: a device that offers less than ``width`` holds no layers."""
    deal = make_deal([member("h"), other, member("b")], "h", MODEL, split="memory", ctx=256, exact=True)
    assert deal.seat("x") is None
    assert deal.out["x"] == "unneeded"


def test_the_dtype_is_one_that_every_chain_device_runs() -> None:
    """DESIGN section 5: T4-class GPUs have no native bf16, so the room runs another dtype."""
    model = MODEL.__class__(
        **{**{f: getattr(MODEL, f) for f in MODEL.__struct_fields__}, "dtype": "bfloat16"}
    )
    both = [member("h"), member("t4", device="cuda", dtypes=("float16", "float32"))]
    assert make_deal(both, "h", model, split="memory", ctx=256, exact=True).dtype == "float32"
    gpus = [member(i, device="cuda", dtypes=("float16", "float32")) for i in "ha"]
    deal = make_deal(gpus, "h", model, split="memory", ctx=256, exact=True)
    assert deal.dtype == "float16"
    assert deal.cols == 256
    assert make_deal(both[:1], "h", model, split="memory", ctx=256, exact=True).dtype == "bfloat16"


@pytest.mark.parametrize(
    ("kinds", "cols"),
    [("cuda cuda", 256), ("mps xpu", 256), ("xpu", 256), ("cuda cpu", COLS_CPU), ("cpu mps", COLS_CPU)],
)
def test_prompt_frames_are_wide_where_no_cpu_is_in_the_chain(kinds: str, cols: int) -> None:
    """DESIGN section 5, rule 3: as wide as a CPU likes where the chain has one, 256 on GPUs."""
    members = [member("hab"[i], device=kind) for i, kind in enumerate(kinds.split())]
    assert make_deal(members, "h", MODEL, split="memory", ctx=256, exact=True).cols == cols


def test_rooms_of_several_sigs_say_so() -> None:
    """DESIGN section 5, rule 5: bits agree within one ``sig``."""
    mixed = [member("h"), member("a", sig="other")]
    assert not make_deal(mixed, "h", MODEL, split="memory", ctx=256, exact=True).one_sig
    assert make_deal(mixed, "h", MODEL, split="speed", ctx=256, exact=True).one_sig, "only the chain counts"


def test_a_device_left_out_is_named_and_its_memory_not_counted() -> None:
    """PROTOCOL section 6, ``ai-layers.out``: ``late``."""
    members = [member("h", 0.03), member("a"), member("b")]
    deal = make_deal(members, "h", MODEL, split="memory", ctx=256, exact=True, excluded={"a": "no licence"})
    assert deal.seat("a") is None
    assert deal.out == {"a": "late"}
    with pytest.raises(ModelTooBig):
        make_deal(members[:2], "h", MODEL, split="memory", ctx=256, exact=True, excluded={"a": "no licence"})


def test_the_context_counts() -> None:
    """PROTOCOL section 6: KV at this ``ctx`` is counted; what does not fit is refused."""
    small = [member("h", 0.09)]
    assert make_deal(small, "h", MODEL, split="memory", ctx=1024, exact=True).seats[0].gb < 0.09
    with pytest.raises(ModelTooBig, match="short by"):
        make_deal(small, "h", MODEL, split="memory", ctx=100_000, exact=True)


def test_a_new_deal_helps_where_more_is_lent() -> None:
    """PROTOCOL section 6, ``ai-redeal``: somebody came, or lends more; who lends less brings nothing."""
    before = lenders([member("h"), member("a"), member("x", 0.0)], "h", "memory")
    assert before == {"a": 1.0}
    assert grew(before, {"a": 1.5})
    assert grew(before, {"a": 1.0, "b": 0.1})
    assert not grew(before, {"a": 0.5})
    assert not grew(before, {})
    assert lenders([member("h"), member("a")], "h", "alone") == {}


def test_a_device_that_says_nothing_gets_no_layers() -> None:
    """PROTOCOL section 6: dealt over the devices that respond; the others come in with the next."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0))
        host, silent = rooms.host.mesh.id, rooms.devices[1].mesh.id
        await asyncio.sleep(1)
        rooms.net.partition(host, silent)
        await asyncio.sleep(8)
        await rooms.host.start()
        assert [d.name for d in rooms.host.status().devices if d.layers] == ["host", "worker"]
        line = next(d for d in rooms.host.status().devices if d.id == silent)
        assert line.out == "it does not respond."
        rooms.net.heal(host, silent)
        await asyncio.sleep(3)
        assert "redeal" in rooms.host.status().can
        await rooms.host.start()
        assert [d.name for d in rooms.host.status().devices if d.layers] == ["host", "worker", "worker 2"]
        await rooms.close()

    simulate(scenario)
