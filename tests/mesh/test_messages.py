"""PROTOCOL section 3: how control messages are read and written, for every message there is."""

from __future__ import annotations

import inspect
import math
from typing import Annotated, Any, get_args, get_origin

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pooled_nb.mesh.binarypack import pack, unpack
from pooled_nb.mesh.membership import MAX_MEMBERS
from pooled_nb.mesh.messages import Message, Part, base, chat, deal, known, link, read, weights, write
from pooled_nb.mesh.messages.base import Flag

KNOWN = known()
NAMES = sorted(KNOWN)

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=50)
    | st.binary(max_size=8)
)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def field_names(cls: type[Part]) -> list[str]:
    return [f.encode_name for f in msgspec.structs.fields(cls)]


@settings(deadline=None, max_examples=300)
@given(anything)
def test_anything_is_a_message_or_nothing(value: Any) -> None:
    """PROTOCOL section 3: "No map, no string ``t``, an unknown ``t``: ignored"; nothing raises."""
    found = read(value)
    assert found is None or isinstance(found, Message)


@settings(deadline=None, max_examples=400)
@given(st.data())
def test_any_fields_never_raise(data: st.DataObject) -> None:
    """PROTOCOL section 3: any map under a known ``t``, its own field names first: read or dropped,
    then written.
    """
    t = data.draw(st.sampled_from(NAMES))
    keys = st.sampled_from([*field_names(KNOWN[t]), "unknown", "v", "t2"]) | st.text(max_size=5)
    value = data.draw(st.dictionaries(keys, anything, max_size=8))
    value["t"] = t
    found = read(value)
    if found is None:
        return
    assert type(found) is KNOWN[t]
    written = write(found)
    assert None not in written.values()
    again = read(written)
    assert again is not None
    assert same(write(again), written)


def same(a: Any, b: Any) -> bool:
    """Equal, where NaN equals itself: opaque values may hold one."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    return bool(a == b)


EXAMPLES: list[Message] = [
    link.Hello(v=4, meta=link.DeviceMeta(contrib_gb=2.5, ua="Jupyter", nb=link.NbMeta(v=1, probe=True))),
    link.Hello(join=True, auth=True, jc="a" * 64, pid="b" * 32),
    link.Auth(v=1, hn="A" * 22),
    link.AuthProof(jn="A" * 22, kp="0" * 64),
    link.Admit(pass_="P" * 22, via="key", mk="M" * 43),
    link.MeshProof(v=1, p="f" * 64),
    link.Roster(
        members=[link.Member(id="pooled-room-4TKG9P", name="d", a=True), link.Member(id="x", name="y")]
    ),
    link.Pledge(gb=3.5),
    link.Ping(ts=1234567.25),
    link.Bye(reason="The room is over.", closed=True),
    link.Leaving(),
    deal.Load(
        v=4,
        model="m/x",
        range=[7, 14],
        ctx=4096,
        next="host",
        host="h",
        nb=deal.NbLoad(
            repo="m/x", revision="r", config="c" * 64, prev="h", ranges={"h": [0, 7], "w": [7, 14]}
        ),
    ),
    deal.Load(
        v=4,
        model="m/x",
        range=[0, 1],
        ctx=8,
        next="host",
        host="h",
        nb=deal.NbLoad(
            repo="m/x",
            revision="r",
            config="c" * 64,
            prev="h",
            files={"m.safetensors": {"size": 9, "header": 5}},
            inv={"w": {"m.safetensors": ["0-8"]}},
        ),
    ),
    deal.Inv(url="m/x@r/m.safetensors", have=["0-8", "5000000000-5000000001"]),
    weights.Wget(id="a", url="m/x@r/m.safetensors", lo=0, hi=2**53 - 1, win=4_096),
    weights.Wpart(id=7, off=0, data=bytes(65_536)),
    weights.Wack(id=7, got=65_536),
    weights.NbHash(url="m/x@r/m.safetensors", lo=0, hi=8, sha256="d" * 64, by="w"),
    weights.NbHash(url="m/x@r/m.safetensors", lo=0, hi=8),
    weights.NbHashes(url="m/x@r/m.safetensors", all={"0-8": "d" * 64}),
    weights.NbBad(url="m/x@r/m.safetensors", lo=0, hi=8, id="w"),
    deal.Ready(slots=[1, 65534], ckpt=True),
    deal.LayersHeld(by={"desk": "0–6"}, held={"desk": 0.5}, out={"phone": "small"}, ranges={"h": [0, 7]}),
    deal.HostProgress(all={"desk": 100, "lap": 5}, at=7),
    deal.Error(message="NaN in layer 3.", pos=17),
    deal.Error(message="No.", load=True),
    deal.Telemetry(k=deal.Compute(one=1.5)),
    chat.Ask(text="Why?", rid="r-1", nb=chat.NbParams(temperature=0.0, seed=0)),
    chat.Ask(
        text="Why?",
        nb=chat.NbParams(min_p=0.1, repetition_penalty=1.5, logit_bias={5: -100.0, 0: 0.5}, stop=["\n", "é"]),
    ),
    chat.GenStart(mid=0, name="otter", text="Why?", asker="x"),
    chat.Token(text="Because", mid=3),
    chat.GenDone(
        stats="12 tokens", ctx=chat.Used(used=1, max=2), reason="ctx", nb=chat.NbStats(tokens=1, ms=1.5)
    ),
    chat.History(items=[chat.Exchange(name="a", text="q", reply="r", mid=1)]),
]


@pytest.mark.parametrize("msg", EXAMPLES, ids=lambda m: m.t)
def test_roundtrip(msg: Message) -> None:
    """PROTOCOL section 3: what is written is read as it was, also through BinaryPack."""
    assert read(write(msg)) == msg
    assert read(unpack(pack(write(msg)))) == msg


def test_optional_fields_are_absent() -> None:
    """PROTOCOL section 3: "A flag is ``1`` or absent …; an optional field is absent, never null"."""
    assert write(link.Bye(closed=True)) == {"t": "bye", "reason": "", "closed": 1}
    assert write(link.Bye()) == {"t": "bye", "reason": ""}
    assert write(link.Admit()) == {"t": "admit"}
    assert write(link.Hello(v=4))["meta"] == {}


@pytest.mark.parametrize(
    ("raw", "flag"),
    [(raw, True) for raw in (1, True, "yes", 0.5, [0])] + [(raw, False) for raw in (0, False, "", None)],
)
def test_flags(raw: object, flag: bool) -> None:
    """PROTOCOL section 3: "any true value is read as 1"."""
    found = read({"t": "bye", "reason": "x", "closed": raw})
    assert isinstance(found, link.Bye)
    assert found.closed is flag


@pytest.mark.parametrize("t", NAMES)
def test_a_field_of_the_wrong_type_counts_as_absent(t: str) -> None:
    """PROTOCOL section 3: "counts as absent, and the message is dropped when it needs it", field by field."""

    class Strange:
        """Of no type that a field has."""

    cls = KNOWN[t]
    needed = [f.encode_name for f in msgspec.structs.fields(cls) if f.required]
    found = read({"t": t} | {name: Strange() for name in field_names(cls) if name not in opaque(cls)})
    assert (found is None) == bool(needed)
    if found is not None:
        defaults = {f.name: getattr(cls(), f.name) for f in msgspec.structs.fields(cls)}
        flags = {f.name for f in msgspec.structs.fields(cls) if hint(cls, f.name) == Flag}
        for name, value in defaults.items():
            assert getattr(found, name) == (True if name in flags else value)


def hint(cls: type[Part], name: str) -> Any:
    return inspect.get_annotations(cls, eval_str=True)[name]


def opaque(cls: type[Part]) -> list[str]:
    """Fields that carry whatever the peer said."""
    return [f.encode_name for f in msgspec.structs.fields(cls) if hint(cls, f.name) is Any]


def test_unknown_things_are_ignored() -> None:
    """PROTOCOL section 3: "ignored; unknown fields too"."""
    assert read({"t": "no-such"}) is None
    assert read({"t": 5}) is None
    assert read({"t": ["hello"]}) is None
    assert read({}) is None
    assert read([]) is None
    assert read({"t": "leaving", "new": {"a": 1}, 5: 6}) == link.Leaving()


def test_bounds() -> None:
    """PROTOCOL section 3: every text, list and number has a bound; what exceeds it is absent."""
    assert read({"t": "ai-ask", "text": "x" * 8_000}) is not None
    assert read({"t": "ai-ask", "text": "x" * 8_001}) is None
    assert read({"t": "pledge", "gb": -1}) is None
    assert read({"t": "pledge", "gb": math.nan}) is None
    assert read({"t": "pledge", "gb": math.inf}) is None
    assert read({"t": "pledge", "gb": 2**64}) is None
    assert read({"t": "roster", "members": [{"id": "a", "name": "b"}] * 300}) is None
    assert read({"t": "ai-ready", "slots": [0]}) == deal.Ready()
    hello = read({"t": "hello", "v": 2**40, "name": "x" * 300, "jc": "A" * 64})
    assert hello == link.Hello()


@pytest.mark.parametrize(
    ("raw", "heard"),
    [
        ({"5": 1, "2147483647": -100}, {5: 1.0, 2**31 - 1: -100.0}),
        ({5: 1.0}, {5: 1.0}),
        ({}, {}),
        ({"-1": 1}, None),
        ({"05": 1}, None),
        ({"five": 1}, None),
        ({"2147483648": 1}, None),
        ({"9" * 30: 1}, None),
        ({"5": 101}, None),
        ({"5": True}, None),
        ({"5": math.nan}, None),
        ({str(i): 1 for i in range(301)}, None),
    ],
)  # fmt: skip
def test_maps_with_numbers_for_keys(raw: dict[Any, Any], heard: dict[int, float] | None) -> None:
    """PROTOCOL section 3: the keys of a map are texts; one that is out of bounds makes the map absent."""
    ask = read({"t": "ai-ask", "text": "q", "nb": {"logit_bias": raw}})
    assert ask == chat.Ask(text="q", nb=chat.NbParams(logit_bias=heard))


def test_numbers_from_a_browser() -> None:
    """PROTOCOL section 3: a number that a browser computed may come as a double; a true is no number."""
    found = read({"t": "ai-progress", "pct": 37.0})
    assert found == deal.Progress(pct=37)
    assert isinstance(found, deal.Progress)
    assert type(found.pct) is int
    assert read({"t": "ai-progress", "pct": 37.5}) is None
    assert read({"t": "ai-progress", "pct": True}) is None
    assert read({"t": "pledge", "gb": 3}) == link.Pledge(gb=3.0)


@pytest.mark.parametrize("ts", [0, -3, 1764458000000.25, 2**53], ids=str)
def test_a_ping_is_echoed(ts: float) -> None:
    """PROTOCOL section 3: "``ts`` is an opaque number, echoed": any number that can travel, nothing else."""
    ping = read(unpack(pack({"t": "ping", "ts": ts})))
    assert isinstance(ping, link.Ping)
    assert unpack(pack(write(link.Pong(ts=ping.ts)))) == {"t": "pong", "ts": ts}


@pytest.mark.parametrize("ts", [math.nan, math.inf, "x", [1], {"a": b"x" * 1000}, None], ids=str)
def test_what_cannot_be_echoed(ts: object) -> None:
    """PROTOCOL section 3: "a field of the wrong type counts as absent": a peer cannot make this end
    repeat it.
    """
    assert read({"t": "ping", "ts": ts}) == link.Ping()


def test_one_bad_member_does_not_spoil_a_roster() -> None:
    """PROTOCOL section 3: what is wrong in one part of a list costs that part alone."""
    found = read(
        {"t": "roster", "members": [{"id": "a", "name": "x"}, 5, {"id": 7, "name": "y"}, {"id": "b"}]}
    )
    assert found == link.Roster(members=[link.Member(id="a", name="x")])


def test_every_message_of_this_build() -> None:
    """PROTOCOL section 3: the names on the wire are those of sections 3, 4, 6 and 7."""
    assert {"hello", "roster", "ping", "pong", "leaving", "bye", "pledge", "admit", "lobby", "auth"} <= set(
        NAMES
    )
    assert {"ai-load", "ai-ready", "ai-ready-all", "ai-layers", "ai-progress", "ai-error", "ai-wait"} <= set(
        NAMES
    )
    assert {"ai-ask", "ai-queued", "ai-genstart", "ai-token", "ai-gendone", "ai-stop", "ai-reset"} <= set(
        NAMES
    )
    assert all(issubclass(cls, Message) and cls.__doc__ for cls in KNOWN.values())


class Unread(list[Any]):
    """A list that says when somebody looks into it."""

    def __iter__(self) -> Any:
        pytest.fail("it was read, though it is too long to be taken")

    __getitem__ = __iter__  # type: ignore[assignment]


def bounded() -> list[tuple[str, Any, int]]:
    """Every field of every message that is a list or map with a bound: its name, its hint, the bound."""
    rows = []
    for t, cls in sorted(KNOWN.items()):
        for f in msgspec.structs.fields(cls):
            for option in (hint(cls, f.name), *get_args(hint(cls, f.name))):
                if get_origin(option) is Annotated and get_origin(get_args(option)[0]) in (list, dict):
                    most = [m.max_length for m in get_args(option)[1:] if m.max_length is not None]
                    rows += [(f"{t}.{f.encode_name}", option, n) for n in most]
    return rows


@pytest.mark.parametrize(("name", "hint", "most"), bounded(), ids=lambda v: v if isinstance(v, str) else "")
def test_what_is_too_long_is_not_read(name: str, hint: Any, most: int) -> None:
    """PROTOCOL section 3: every list has a bound, and it is looked at before the list."""
    assert base._read_value(hint, Unread([{}] * (most + 1))) is base._ABSENT, name


def test_the_lists_that_have_a_bound() -> None:
    """PROTOCOL section 3: the roster and the history are lists of maps, each of which costs more to read."""
    lists = {name for name, _, _ in bounded()}
    assert {"roster.members", "ai-history.items", "ai-inv.have", "nb-hashes.all"} <= lists


def test_a_list_that_is_too_short() -> None:
    """PROTOCOL section 6: ``range: [lo, hi]`` is two numbers, not one and not three."""
    said = write(next(m for m in EXAMPLES if isinstance(m, deal.Load)))
    assert read(said) is not None
    assert [read(said | {"range": bad}) for bad in ([], [7], [7, 8, 9])] == [None] * 3


def test_a_full_room_fits_a_message() -> None:
    """PROTOCOL section 3, roster: the largest message of an honest room has no more values than are read."""
    nb = link.NbMeta(
        v=1,
        device="cuda",
        dtypes=["bfloat16", "float16", "float32"],
        enc=["f16", "bf16", "f32"],
        sig="s" * 64,
        probe=True,
    )
    meta = link.DeviceMeta(
        webgpu=True,
        contrib_gb=1.5,
        max_buf_gb=1.5,
        gbps=9.5,
        gpu="g" * 40,
        ua="Jupyter",
        phone=True,
        pledge_max=2.5,
        wake=True,
        api=1,
        client="c",
        ctx=4096,
        nb=nb,
    )
    full = link.Roster(
        members=[link.Member(id=f"device-{i}", name=f"n{i}", meta=meta, a=True) for i in range(MAX_MEMBERS)]
    )
    assert read(unpack(pack(write(full)))) == full
