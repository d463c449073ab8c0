"""A room whose linear weights are kept in fewer bits: on the wire, in dealing, and in words."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from pooled_nb.errors import BadOption, ModelTooBig
from pooled_nb.room import opening, sentences
from pooled_nb.room.dealing import Deal, Fixed, Seat, make_deal
from pooled_nb.room.loadmessage import load_message
from pooled_nb.room.loadspec import Own, spec_of
from pooled_nb.room.sizing import Form, need_gb, size_of
from pooled_nb.shard import QUANT_CLASSES, Linears, LoadSpec
from tests.room.rooms import alone, ask, open_rooms
from tests.room.test_dealing import member
from tests.room.toy import LAYERS, MODEL
from tests.sim.clock import simulate

# Nearly all of a layer's 10 MB of 16-bit numbers lie in linear layers, in rows that groups of 128 divide.
LINEARS = Linears(numbers=4_096_000, rows=4000, grouped=4_096_000, grouped_rows=4000, groups=32_000)
BIG = msgspec.structs.replace(MODEL, dtype="bfloat16", linears=[LINEARS] * LAYERS)
OWN = Own(folder=None, lends_gb=1.0, max_download_gb=1.0, room="")


def test_sizes_are_those_of_the_form() -> None:
    """PROTOCOL section 6: what a device counts is what it holds; an unknown model counts as it is."""
    sizes = {quant: size_of(BIG, Form("bfloat16", quant=quant), 1024) for quant in ("", "int8", "int4")}
    assert sizes[""].layer_bytes == [10_000_000] * LAYERS
    assert sizes["int8"].layer_bytes == [10_000_000 - 8_192_000 + 4_096_000 + 8000] * LAYERS
    assert sizes["int4"].layer_bytes == [10_000_000 - 8_192_000 + 2_048_000 + 32_000 * 4] * LAYERS
    assert len({size.ends_bytes for size in sizes.values()}) == 1
    wide = size_of(BIG, Form("float32", quant="int8"), 1024).layer_bytes
    assert wide == [20_000_000 - 16_384_000 + 4_096_000 + 16_000] * LAYERS
    unknown = msgspec.structs.replace(BIG, linears=[])
    assert size_of(unknown, Form("bfloat16", quant="int4"), 1024).layer_bytes == [10_000_000] * LAYERS


def test_a_deal_fits_where_16_bits_do_not() -> None:
    """PROTOCOL section 6: what does not fit is refused with how many GB are short, in the room's form."""
    members = [member("h", 0.08)]
    how = {"split": "memory", "ctx": 1024, "exact": True, "dtype": "float32"}
    with pytest.raises(ModelTooBig):
        make_deal(members, "h", BIG, **how)  # type: ignore[arg-type]  # by keyword
    assert need_gb(BIG, Form("float32", quant="int4"), 1024) < 0.08
    made = make_deal(members, "h", BIG, quant="int4", **how)  # type: ignore[arg-type]  # by keyword
    assert made.quant == "int4"
    # A deal again keeps to what the first start fixed.
    again = make_deal([member("h", 1.0)], "h", BIG, fixed=Fixed("float32", 16, "f16", "int8"), **how)  # type: ignore[arg-type]  # by keyword
    assert again.quant == "int8"


@pytest.mark.parametrize(("quant", "name"), [("", None), *QUANT_CLASSES.items()])
def test_the_class_on_the_wire(quant: str, name: str | None) -> None:
    """PROTOCOL section 6: ``quant`` is the class or absent; another name is refused in words."""
    seats = (Seat("h", "host", 0, 2, 0.1), Seat("w", "worker", 2, 6, 0.1))
    deal = Deal(seats, {}, "float32", 16, 32, 1024, one_sig=True, reasons={}, quant=quant)
    message = load_message(deal, "w", model=MODEL, host="h", number=1)
    assert message.nb is not None
    assert message.nb.quant == name
    wanted = spec_of(message, OWN)
    assert isinstance(wanted, LoadSpec)
    assert wanted.quant == quant
    for other in ("int8", "int4", "int4-g64", "INT8-ROW"):
        changed = msgspec.structs.replace(message, nb=msgspec.structs.replace(message.nb, quant=other))
        assert spec_of(changed, OWN) == (
            f"Weights kept as {other!r} are not known here. Update the older device."
        )


def test_a_room_says_its_class_everywhere() -> None:
    """PROTOCOL section 6: every device loads the form; DESIGN section 5: the class is shown to everybody."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), quant="int8")
        guest = await rooms.add(gb=0, name="guest")
        await rooms.host.start()
        await asyncio.sleep(1)
        assert [s.spec.quant for s in (rooms.host_shard, *rooms.shards) if s.spec] == ["int8", "int8"]
        assert rooms.host.status().quant == guest.status().quant == "int8-row"
        assert rooms.host.status().exact
        assert guest.status().exact
        assert rooms.host.status().sentence == (
            "Online over host and worker. The text is the same as one device alone would give with int8 "
            "weights. Answers are exact among devices of this class (int8-row), and differ from 16-bit ones."
        )
        assert (await ask(guest, "q")).text == (await alone(["q"]))[0].text
        await rooms.close()

    simulate(scenario)


def test_sentences_name_both_forms() -> None:
    """DESIGN section 5, rule 5: which promise holds, and in which class."""
    how = {"one_sig": True, "kv": "q8", "quant": "int4-g128"}
    assert sentences.online(["a"], exact=True, **how) == (  # type: ignore[arg-type]  # by keyword
        "Online on a, which holds every layer, with int4 weights and caches in int8. Answers are exact among "
        "devices of this class (int4-g128), and differ from 16-bit ones."
    )
    assert sentences.online(["a", "b"], exact=False, **how) == (  # type: ignore[arg-type]  # by keyword
        "Online over a and b, with int4 weights and caches in int8. Fast mode: the text may differ from "
        "another split's."
    )
    # What a stranger names is shown by no word of ours.
    assert sentences.online(["a"], one_sig=True, exact=True, quant="<b>") == (
        "Online on a, which holds every layer."
    )


async def test_another_form_opens_no_room() -> None:
    """What no room can be is refused before anything is opened."""
    with pytest.raises(BadOption, match=r"'int2' is no way to keep weights. Choose one of int8, int4"):
        await opening.host("toy/model", quant="int2")
