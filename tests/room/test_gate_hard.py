"""The door of a whole room at its worst moments: while it answers, saves, is closed, or nobody says a word
(PROTOCOL sections 3 and 4).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pooled_nb.errors import NotReady, PooledError, RoomClosed, RoomRefused
from pooled_nb.mesh import ownfiles
from pooled_nb.mesh.newcomer import Credentials, Newcomer
from pooled_nb.mesh.proofs import new_nonce
from pooled_nb.room.core import Again
from pooled_nb.room.deviceroom import DeviceRoom
from pooled_nb.room.doorfacts import Doubt, GateChoices
from pooled_nb.room.keeping import Claim, SavedPass, Slot, claim_gate, claim_pass
from pooled_nb.room.sentences import HOST_STARTS
from tests.room.rooms import CODE, again, alone, ask, open_rooms
from tests.room.test_gate_room import knocking
from tests.sim.clock import simulate
from tests.sim.network import SimNetwork

AGAIN: tuple[Again, ...] = ("continue", "regen")


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POOLED_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.delenv("POOLED_KEEP_SECRETS", raising=False)
    return tmp_path / "data"


def slow_writes(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Saving takes a while from now on; the event says that it began."""
    write, began = ownfiles.write, threading.Event()

    def slowly(path: Path, data: bytes) -> None:
        began.set()
        time.sleep(0.2)
        write(path, data)

    monkeypatch.setattr(ownfiles, "write", slowly)
    return began


def is_free(claim: Claim[SavedPass]) -> bool:
    """Whether the first place could be had, and nothing lay there."""
    assert claim.slot
    claim.slot.release()
    return claim.slot.path.stem.endswith("-0") and claim.saved is None


# -- who is asked, and says no word --------------------------------------------------------------------


async def _never(doubt: Doubt) -> bool:
    await asyncio.Event().wait()
    return True


async def _deaf(doubt: Doubt) -> bool:
    """Says yes after two minutes, whether or not it still is to be asked."""
    try:
        await asyncio.sleep(121)
    except asyncio.CancelledError:
        await asyncio.sleep(2)
    return True


async def _interrupted(doubt: Doubt) -> bool:
    raise asyncio.CancelledError


async def _broken(doubt: Doubt) -> bool:
    raise ValueError("no screen")


@pytest.mark.parametrize(
    ("confirm", "words", "after"),
    [
        (_never, "Nobody compared the six digits here within two minutes", 120),
        (_deaf, "Nobody compared the six digits here within two minutes", 120),
        (_interrupted, "asking you to compare the six digits failed", 0),
        (_broken, "asking you to compare the six digits failed", 0),
    ],
)
def test_no_answer_is_no_yes(confirm: Callable[[Doubt], Awaitable[bool]], words: str, after: float) -> None:
    """PROTOCOL section 4, Device: it waits for its person to confirm; what is no answer never says that the
    digits differed.
    """

    async def scenario() -> None:
        rooms = await open_rooms(ask=True)
        joining = knocking(rooms, newcomer=Newcomer(Credentials(key=new_nonce())), confirm=confirm)
        await asyncio.sleep(1)
        began = asyncio.get_running_loop().time()
        await rooms.host.allow(1)
        with pytest.raises(RoomRefused, match=words):
            await joining
        assert after <= asyncio.get_running_loop().time() - began < after + 2
        await asyncio.sleep(5)
        assert [device.name for device in rooms.host.status().devices] == ["host"]
        await rooms.close()

    simulate(scenario)


def test_digits_of_a_link_that_broke_are_shown_no_more() -> None:
    """PROTOCOL section 4: the digits are one link's; a host that proved itself has none to compare."""

    async def scenario() -> None:
        rooms = await open_rooms()
        mira = await rooms.add(gb=0.0)
        newcomer, one, two = mira._admission.newcomer, object(), object()
        newcomer.waits(one, "lobby", "482 019")
        assert mira.status().digits == "482 019"
        newcomer.waits(one, "", "")
        assert mira.status().digits == "482 019", "of the way in"
        newcomer.waits(two, "lobby", "")
        assert mira.status().digits == ""
        newcomer.waits(two, "lobby", "123 456")
        newcomer.admitted(pass_=None, mesh_key=newcomer.mesh_key, trust="proved")
        assert mira.status().digits == ""
        await rooms.close()

    simulate(scenario)


# -- the lobby -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["interrupted", "killed"])
def test_who_stops_waiting_frees_its_place(how: str) -> None:
    """PROTOCOL section 3: 8 wait. An interrupted one says so; one that is dead is noticed by its silence."""

    async def scenario() -> None:
        rooms = await open_rooms(ask=True)
        waiting = [knocking(rooms, f"d{n}") for n in range(8)]
        await asyncio.sleep(1)
        with pytest.raises(RoomRefused, match="Eight devices wait"):
            await rooms.add(gb=0.0, name="ninth")
        first = rooms.host._gate.keeper.lobby[0]
        gone = waiting.pop(int(first.name[1:]))
        if how == "interrupted":
            gone.cancel()
            await asyncio.sleep(1)
        else:
            rooms.net.kill(first.id)
            await asyncio.sleep(60)
        assert {line.name for line in rooms.host.status().lobby} == {f"d{n}" for n in range(8)} - {first.name}
        ninth = knocking(rooms, "ninth")
        await asyncio.sleep(1)
        assert rooms.host.status().lobby[-1].name == "ninth"
        await rooms.host.leave()
        ends = await asyncio.gather(*waiting, ninth, return_exceptions=True)
        assert all(isinstance(end, RoomClosed) for end in ends)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)

    simulate(scenario)


# -- who is thrown out while ... -------------------------------------------------------------------


def test_a_worker_is_thrown_out_in_the_middle_of_an_answer() -> None:
    """PROTOCOL section 3, `bye`: the answer waits and says why; it goes on with a new deal of the others."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0), net=SimNetwork(latency=0.02))
        await rooms.host.start()
        guest = await rooms.add(gb=0.0, name="mira")
        asking = asyncio.create_task(ask(guest, "hello"))
        await asyncio.sleep(0.5)
        assert rooms.host.status().state == "answering"
        await rooms.host.kick(rooms.devices[0].mesh.id)
        status = rooms.host.status()
        assert status.state == "degraded"
        assert status.sentence.startswith("worker was taken out; layers ")
        assert [d.name for d in status.devices if not d.gone] == ["host", "worker 2", "mira"]
        heard = await asyncio.wait_for(asking, 15)
        assert heard.text == (await alone(["hello"]))[0].text
        assert rooms.devices[0].status().state == "closed"
        assert rooms.shards[0].closed, "its memory is given back"
        assert [d.name for d in rooms.host.status().devices if d.layers] == ["host", "worker 2"]
        assert (await ask(guest, "hello", max_tokens=5)).done.reason == "max"
        await rooms.close()

    simulate(scenario)


def test_a_guest_is_thrown_out_while_it_asks() -> None:
    """PROTOCOL section 7: its waiting questions go; what it hears is that it is out, not silence."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), net=SimNetwork(latency=0.02))
        await rooms.host.start()
        guest = await rooms.add(gb=0.0, name="mira")
        asking = [asyncio.create_task(ask(guest, text)) for text in ("one", "two")]
        await asyncio.sleep(0.3)
        assert rooms.host.status().answering == "mira"
        await rooms.host.kick(guest.mesh.id)
        assert rooms.host.status().state == "answering", "the others see it"
        for end in await asyncio.wait_for(asyncio.gather(*asking, return_exceptions=True), 5):
            assert isinstance(end, RoomClosed)
            assert "took this device out" in str(end)
        assert rooms.host.status().waiting == 0
        assert (await ask(rooms.host, "three", max_tokens=5)).done.reason == "max"
        await rooms.close()

    simulate(scenario)


def test_a_worker_is_thrown_out_while_the_room_loads() -> None:
    """PROTOCOL section 6: the room deals without it."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0), net=SimNetwork(latency=0.02))
        starting = asyncio.create_task(rooms.host.start())
        await asyncio.sleep(0.03)
        assert rooms.host.status().state == "loading"
        await rooms.host.kick(rooms.devices[0].mesh.id)
        await asyncio.wait_for(starting, 30)
        status = rooms.host.status()
        assert (status.state, [d.name for d in status.devices]) == ("online", ["host", "worker 2"])
        await rooms.close()

    simulate(scenario)


def test_who_only_waits_is_not_thrown_out() -> None:
    """PROTOCOL section 3: it is no member; the words lead to the lobby, and the link stays as it was."""

    async def scenario() -> None:
        rooms = await open_rooms(ask=True)
        joining = knocking(rooms)
        await asyncio.sleep(1)
        link = rooms.host.invite()
        with pytest.raises(NotReady, match=r"not in the room.*%pooled deny"):
            await rooms.host.kick(rooms.host._gate.keeper.lobby[0].id)
        assert rooms.host.invite() == link
        await rooms.host.deny(1)
        with pytest.raises(RoomRefused):
            await joining
        await rooms.close()

    simulate(scenario)


# -- whose question starts it ----------------------------------------------------------------------


def test_what_a_guest_hears_is_not_what_the_host_hears() -> None:
    """PROTOCOL section 7, `ai-busy`: with the host alone starting, a guest's words change nobody else's."""

    async def scenario() -> None:
        rooms = await open_rooms(starts="host")
        guest = await rooms.add(gb=0.0, name="mira")

        async def refused(asked: Awaitable[object]) -> str:
            with pytest.raises(PooledError) as caught:
                await asked
            assert rooms.host.status().state == "open"
            return str(caught.value)

        assert HOST_STARTS in await refused(ask(guest, "hello"))
        assert "Ask the host" not in await refused(ask(rooms.host, "hello"))
        for what in AGAIN:
            assert "There is no answer to" in await refused(again(guest, what))
        await rooms.host.start()
        await ask(guest, "hello", max_tokens=3)
        rooms.host_shard.fail_load = "The disk is gone."
        with pytest.raises(PooledError):
            await rooms.host.start()
        for what in AGAIN:
            assert "The new deal did not work" in await refused(again(guest, what))
        assert HOST_STARTS in await refused(ask(guest, "again"))
        rooms.host_shard.fail_load = ""
        await rooms.host.set_gate(GateChoices(ask=False, starts="all"))
        assert (await ask(guest, "hello", max_tokens=3)).done.reason == "max"
        await rooms.close()

    simulate(scenario)


# -- what is saved ---------------------------------------------------------------------------------


def test_a_room_that_is_closed_in_the_middle_of_a_save_leaves_nothing(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PROTOCOL section 4: the save that was under way ends before its file goes; the place is free."""
    began = slow_writes(monkeypatch)

    async def scenario() -> None:
        rooms = await open_rooms()
        rooms.host.keep(claim_gate(CODE).slot, embedded=True)
        await asyncio.to_thread(began.wait, 5)
        await rooms.host.renew_invite()
        await rooms.close()
        assert not (data / "rooms" / f"{CODE}.json").exists()
        after = claim_gate(CODE)
        assert after.slot
        assert after.saved is None
        after.slot.release()

    simulate(scenario)


def test_leaving_waits_for_all_that_is_put_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 3: thrown out, it loses its pass; who leaves then finds nothing left of it."""

    async def scenario() -> None:
        rooms = await open_rooms()
        mira = await rooms.add(name="mira", slot=claim_pass(CODE, "mira").slot)
        await asyncio.sleep(1)
        slow_writes(monkeypatch)
        remove = Slot.remove

        def slowly(slot: Slot) -> None:
            time.sleep(0.2)
            remove(slot)

        monkeypatch.setattr(Slot, "remove", slowly)
        leaving: list[asyncio.Task[None]] = []
        out = asyncio.Event()

        def closed() -> None:
            if mira.status().state == "closed" and not leaving:
                mira._admission._saver._again()  # type: ignore[union-attr]  # it is being saved at this moment
                leaving.append(asyncio.create_task(mira.leave()))
                out.set()

        mira.on_change = closed
        await rooms.host.kick(mira.mesh.id)
        await out.wait()
        await leaving[0]
        assert is_free(claim_pass(CODE, "mira"))
        assert rooms.shards[0].closed
        await rooms.close()

    simulate(scenario)


def test_memory_is_given_back_where_the_pass_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 3: whatever fails on the way out, the process that computes ends."""

    def broken(self: Slot) -> None:
        raise RuntimeError("cannot schedule new futures after shutdown")

    async def scenario() -> None:
        rooms = await open_rooms()
        claim = claim_pass(CODE, "mira")
        mira = await rooms.add(name="mira", slot=claim.slot)
        with monkeypatch.context() as patch:
            patch.setattr(Slot, "release", broken)
            await mira.leave()
        assert rooms.shards[0].closed
        assert claim.slot
        claim.slot.release()
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("names", [("mira", "mira"), ("mira", "leo")])
def test_two_kernels_of_one_user_and_one_is_restarted(names: tuple[str, str]) -> None:
    """PROTOCOL section 3: each has a pass of its own; the one that was killed takes its own seat again."""

    async def scenario() -> None:
        rooms = await open_rooms(ask=True)

        async def come(name: str) -> tuple[DeviceRoom, Slot, str]:
            claim = await asyncio.to_thread(claim_pass, CODE, name)
            assert claim.slot
            held = claim.saved.pass_ if claim.saved else ""
            joining = knocking(
                rooms, name, newcomer=Newcomer(Credentials(pass_=held or None)), slot=claim.slot
            )
            await asyncio.sleep(1)
            for line in rooms.host.status().lobby:
                assert not held, "who holds a pass is not asked for again"
                await rooms.host.allow(line.number)
            room = await joining
            await asyncio.sleep(1)
            return room, claim.slot, held

        (one, _, _), (two, slot, _) = [await come(name) for name in names]
        passes = [room._admission.newcomer.credentials.pass_ for room in (one, two)]
        assert len(set(passes)) == 2
        seat = rooms.host.mesh.seat(two.mesh.id)
        shown = two.mesh.name
        rooms.net.kill(two.mesh.id)
        slot.release()  # as the system does for a process that is killed
        back, _, held = await come(names[1])
        assert held == passes[1]
        assert rooms.host.mesh.seat(back.mesh.id) == seat
        assert back.mesh.name == shown
        assert [device.name for device in rooms.host.status().devices] == ["host", one.mesh.name, shown]
        assert one.status().state == "open"
        await rooms.close()
        await two.leave()

    simulate(scenario)
