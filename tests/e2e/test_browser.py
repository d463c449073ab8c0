"""A browser at the other end, in both directions: npm ``peerjs`` in Chromium with a gate of its own.

PROTOCOL sections 2, 3 and 4 hold between two programs that share no line of code (DESIGN section 9).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pooled_nb.errors import PooledError
from pooled_nb.mesh import codes
from pooled_nb.mesh.frame import Frame, Kind
from pooled_nb.mesh.gatejoiner import IMPOSTOR, NOT_PROVED, UNRECOGNISED
from pooled_nb.room.hostroom import HostRoom
from pooled_nb.room.opening import host
from tests.e2e.browser import Tab, tabs
from tests.e2e.kernel import kernel
from tests.e2e.node import peer_server
from tests.mesh.recorder import CODE, ROOM, leave
from tests.mesh.rtctools import STACKS, served, until
from tests.shard.tinychat import write_model

pytestmark = pytest.mark.timeout(150)
KEY = "BrWfTQDvRk8aXk0nBqEZ1A"
WRONG = "AAAAAAAAAAAAAAAAAAAAAA"


@contextlib.asynccontextmanager
async def one_tab() -> AsyncIterator[Tab]:
    async with tabs(1) as (tab,):
        yield tab


async def test_a_page_joins_a_room_of_ours_by_key_and_by_pass_and_asks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PROTOCOL section 4: "role=host" of the key, then of the pass, after a reload; section 7: `ai-ask`."""
    monkeypatch.setenv("POOLED_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("POOLED_DATA_DIR", str(tmp_path / "data"))
    model = write_model(tmp_path / "talker")
    async with peer_server() as (_, url), one_tab() as tab:
        room = await host(str(model), servers=[url], ctx=256, dtype="float32", draft="off", process=False)
        assert isinstance(room, HostRoom)
        try:
            await room.start()
            await tab.register(url)
            tab.begin("join", {"code": room.code, "key": codes.parse(room.invite().link).key})
            hello = (await tab.event("greeted"))["hello"]
            assert (hello["v"], hello["gate"], hello["ask"], hello["auth"]) == (4, 1, 1, 1)
            said = await tab.event("admitted")
            assert (said["via"], said["proved"], said["pass"]) == ("key", True, True)
            roster = (await tab.heard("roster"))["members"]
            assert [member["id"] for member in roster] == [f"pooled-room-{room.code}", said["id"]]
            assert [member.get("a") for member in roster] == [1, 1]
            assert [member["name"] for member in roster][1] == "tab"

            await tab.run("tell", f"pooled-room-{room.code}", {"t": "ai-ask", "text": "Hello?", "rid": "q1"})
            start = await tab.heard("ai-genstart")
            assert (start["text"], start["asker"], start["name"]) == ("Hello?", said["id"], "tab")
            token = await tab.heard("ai-token")
            assert isinstance(token["text"], str)
            done = await tab.heard("ai-gendone")
            assert not done.get("failed")
            assert done["reason"] in ("stop", "max", "ctx")

            await tab.reload()
            tab.kept.clear()
            await tab.register(url)
            kept = await tab.value(f"localStorage.getItem('pass {room.code}')")
            tab.begin("join", {"code": room.code, "pass": kept})
            again = await tab.event("admitted")
            assert (again["via"], again["proved"], again["pass"]) == ("pass", True, False)
            roster = (await tab.heard("roster"))["members"]
            # Its seat: the same place and name under another id, also while the old link is not known dead.
            assert [(member["id"], member["name"]) for member in roster][1:] == [(again["id"], "tab")]
        finally:
            await room.leave()


async def test_a_page_waits_in_the_lobby_until_a_person_decides() -> None:
    """PROTOCOL section 4: "shown `482 019` on both ends"; then `admit`, or `bye` in words."""
    async with served() as server, one_tab() as tab:
        owner = kernel("host")
        keeper = owner.gates.keeper
        await owner.mesh.create(CODE, [server.url])
        try:
            await tab.register(server.url)
            for holds in (
                {},
                {"key": WRONG},
            ):  # a key that the room does not know is no error: a person is asked
                tab.begin("join", {"code": CODE, "name": "mira", **holds})
                shown = (await tab.event("lobby"))["digits"]
                await until(lambda: keeper.lobby)
                (request,) = keeper.lobby
                assert (request.name, request.digits) == ("mira", shown)
                keeper.decide(request.number, allow=True)
                owner.mesh.decided()
                said = await tab.event("admitted")
                assert (said["via"], said["pass"]) == (None, True)
                assert len((await tab.heard("roster"))["members"]) == 2
                await tab.run("hang", ROOM)
                await until(lambda: len(owner.mesh.roster) == 1)

            tab.begin("join", {"code": CODE})
            await until(lambda: keeper.lobby)
            keeper.decide(keeper.lobby[0].number, allow=False)
            owner.mesh.decided()
            refused = await tab.event("refused")
            assert refused["reason"] == "The host did not let this device in."
            assert not keeper.lobby
            # It does not knock again.
            tab.begin("join", {"code": CODE})
            assert (await tab.event("refused"))["reason"] == refused["reason"]
            assert not keeper.lobby
        finally:
            await leave(owner)


@pytest.mark.parametrize("transport", STACKS)
async def test_a_page_that_offers_names_alone_is_reached_both_ways(transport: str) -> None:
    """PROTOCOL section 2: "A browser may offer only `….local` candidates"."""
    async with served() as server, tabs(2, names=True) as (tab, other):
        owner = kernel("host", transport=transport)
        await owner.mesh.create(CODE, [server.url])
        guest = kernel("mira", key=KEY, transport=transport)
        try:
            await tab.register(server.url)
            tab.begin("join", {"code": CODE, "key": owner.gates.keeper.key})
            assert (await tab.event("admitted"))["proved"]
            await opens(other, server.url, "AAAAAA")
            await guest.mesh.join("AAAAAA", [server.url])
            assert guest.gates.newcomer.trust == "proved"
        finally:
            await leave(guest, owner)


async def opens(tab: Tab, url: str, code: str, **more: object) -> None:
    """The page is the creator of this room."""
    await tab.register(url, f"pooled-room-{code}")
    await tab.run("host", {"code": code, "key": KEY, **more})


async def test_we_join_a_page_by_key_by_pass_and_through_its_lobby() -> None:
    """PROTOCOL section 4: the page proves `hp`; the digits are the same on both ends."""
    async with served() as server, one_tab() as tab:
        await opens(tab, server.url, CODE)
        first = kernel("mira", key=KEY)
        await first.mesh.join(CODE, [server.url])
        assert (await tab.event("proof"))["via"] == "key"
        assert first.gates.newcomer.trust == "proved"
        assert first.names == ["page", "mira"]
        held = first.gates.newcomer.credentials.pass_
        assert held
        await leave(first)

        second = kernel("mira", pass_=held)
        await second.mesh.join(CODE, [server.url])
        assert (await tab.event("proof"))["via"] == "pass"
        assert second.gates.newcomer.trust == "proved"
        assert second.gates.newcomer.credentials.pass_ == held
        await leave(second)

        # It holds nothing: trust on first use. Then a key that the page does not know: its person compares.
        for key, trust in ((None, "first"), (WRONG, "confirmed")):
            third = kernel("nora", key=key)
            newcomer = third.gates.newcomer
            joining = asyncio.ensure_future(third.mesh.join(CODE, [server.url]))
            knock = await tab.event("knock")
            await until(lambda n=newcomer: n.waiting == "lobby")  # type: ignore[misc]
            assert newcomer.digits == knock["digits"] != ""
            await tab.run("decide", knock["remote"], True)
            if key is not None:
                await until(lambda n=newcomer: n.waiting == "confirm")  # type: ignore[misc]
                assert not joining.done()
                newcomer.confirm(same=True)
                third.mesh.decided()
            await joining
            assert newcomer.trust == trust
            await leave(third)


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        ("hp", IMPOSTOR),
        ("no-via", UNRECOGNISED),
    ],
)
async def test_a_page_that_only_claims_to_know_our_link_is_left(lie: str, words: str) -> None:
    """PROTOCOL section 4: "a wrong `hp`: leave, say so loudly"; no `via`: "only after a `lobby`"."""
    async with served() as server, one_tab() as tab:
        await opens(tab, server.url, CODE, lie=lie)
        victim = kernel("mira", key=KEY)
        with pytest.raises(PooledError, match=re.escape(words)) as refused:
            await victim.mesh.join(CODE, [server.url])
        assert "ask the host for a new one" in str(refused.value)
        assert victim.mesh.roster == ()
        assert victim.gates.newcomer.trust == ""
        await tab.event("closed")


async def test_a_page_that_can_prove_nothing_is_entered_only_when_our_person_says_so() -> None:
    """PROTOCOL section 4: "without `auth` there are no digits, and it says that this host cannot …"."""
    async with served() as server, one_tab() as tab:
        await opens(tab, server.url, CODE, lie="no-auth")
        for same in (False, True):
            device = kernel("mira", key=KEY)
            newcomer = device.gates.newcomer
            joining = asyncio.ensure_future(device.mesh.join(CODE, [server.url]))
            knock = await tab.event("knock")
            assert knock["digits"] == ""
            await tab.run("decide", knock["remote"], True)
            await until(lambda n=newcomer: n.waiting == "confirm")  # type: ignore[misc]
            assert newcomer.digits == ""
            assert any("cannot prove itself" in notice for notice in device.notices)
            newcomer.confirm(same=same)
            device.mesh.decided()
            if same:
                await joining
                assert newcomer.trust == "confirmed"
            else:
                with pytest.raises(PooledError, match=re.escape(NOT_PROVED)):
                    await joining
            await leave(device)


@pytest.mark.parametrize("transport", STACKS)
async def test_links_and_stripes_between_a_page_and_a_kernel_are_proved_both_ways(transport: str) -> None:
    """PROTOCOL section 4: `mesh` on device-device links, either end dialing, and alone on every stripe.

    PROTOCOL section 5: `swarm-wire`, `swarm-ka`, "pre-negotiated, no in-band open", carry slices to a page.
    """
    async with served() as server, tabs(2) as (dialed, dials):
        owner = kernel("host", transport=transport)
        key = owner.gates.keeper.key
        await owner.mesh.create(CODE, [server.url])
        worker = kernel("worker", key=key, transport=transport)
        try:
            ids = []
            for tab in (dialed, dials):
                ids.append(await tab.register(server.url))
                tab.begin("join", {"code": CODE, "key": key})
                await tab.event("admitted")
            await worker.mesh.join(CODE, [server.url])
            await asyncio.wait_for(worker.mesh.connect(ids[0]), 30)
            assert (await dialed.event("mesh", what="link"))["proved"]
            dials.begin("meet", worker.mesh.id)
            assert (await dials.event("mesh", what="link"))["proved"]
            await until(lambda: worker.mesh.facts(ids[1]) is not None)

            # BinaryPack both ways over such a link.
            text = "żółw " * 5_000
            await dials.run("tell", worker.mesh.id, {"t": "ai-error", "message": text[:900]})
            await until(lambda: any(sender == ids[1] for sender, _ in worker.messages))

            # Slices of a frame, there and back, over the link and over the stripes (section 5).
            await dialed.value("page.echoes = true")
            worker.mesh.chain([ids[0]])
            sent = Frame(kind=Kind.HIDDEN_B, pos=7, n=4, payload=bytes(range(200)) * 80)
            assert worker.mesh.send_frame(ids[0], sent)
            sizes = [await dialed.event("swarm-wire") for _ in range(4)]
            assert [(slice["size"], slice["mark"]) for slice in sizes[:3]] == [(4_600, 0x5357)] * 3
            assert sum(slice["size"] for slice in sizes) == 4 * 32 + 16_000
            await until(lambda: worker.frames)
            assert worker.frames == [(ids[0], sent)]

            # Stripes: the kernel's to a page, a page's to the kernel, and one that proves another key.
            await asyncio.wait_for(worker.mesh._dialing.stripe(ids[0]), 30)
            assert (await dialed.event("mesh", what="stripe"))["proved"]
            dials.begin("stripe", worker.mesh.id)
            assert (await dials.event("mesh", what="stripe"))["proved"]
            dials.begin("stripe", worker.mesh.id, WRONG)
            await dials.event("mesh", what="stripe")
            assert (await dials.event("closed", label="stripe"))["remote"] == worker.mesh.id
            assert worker.mesh.facts(ids[1]) is not None, "the link itself goes on"
        finally:
            await leave(worker, owner)
