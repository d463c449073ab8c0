"""What a link passes and keeps until it is proved, and until a person said yes (PROTOCOL sections 3, 4)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pooled_nb.errors import LinkFailed
from pooled_nb.mesh.linkstate import HELD_IN, HELD_PEER
from pooled_nb.mesh.messages import chat
from pooled_nb.mesh.newcomer import Credentials
from tests.mesh.rawpeer import RawPeer
from tests.mesh.recorder import CODE, ROOM, Recorder, device, leave
from tests.mesh.test_stripes import proof
from tests.sim.clock import simulate
from tests.sim.network import SimNetwork


async def two_of_a_room(net: SimNetwork) -> tuple[Recorder, Recorder, RawPeer, str]:
    """A creator, a device, and another played by hand with its link to the creator; and the mesh key."""
    host, one = device(net, "host"), device(net, "one")
    await host.mesh.create(CODE, ["local"])
    await one.mesh.join(CODE, ["local"])
    hand = await RawPeer.dial(net, ROOM, id="hand")
    hand.say("hello", name="hand", v=4)
    await asyncio.sleep(0.1)
    return host, one, hand, hand.told_of("admit")[0]["mk"]


@pytest.mark.parametrize("what", ["nothing", "another key", "its own back", "none"])
def test_a_link_that_does_not_prove_itself(what: str) -> None:
    """PROTOCOL section 4, mesh: "is closed after 10 s; a wrong proof closes it", though the other end is in
    the roster; nothing that it sends is heard, and nothing of the room is sent to it.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one, hand, _ = await two_of_a_room(net)
        link = await RawPeer.dial(net, one.mesh.id, id="hand")
        link.say("hello", name="hand", v=4)
        link.say("ai-ask", text="psst")
        await asyncio.sleep(0.1)
        (theirs,) = link.told_of("mesh")
        assert not one.mesh.send("hand", chat.Queue(n=1))
        one.mesh.broadcast(chat.Queue(n=2), but=ROOM)
        said: dict[str, Any] | None = {
            "another key": {"p": proof(link.connection, "k" * 43)},
            "its own back": {"p": theirs["p"]},
            "none": {"none": 1},
        }.get(what)
        if said is not None:
            link.say("mesh", v=1, **said)
            await asyncio.sleep(0.5)
        else:
            await asyncio.sleep(9)
            assert link.connection.state == "connected"
            await asyncio.sleep(2)
        assert link.connection.state == "closed"
        assert {m["t"] for m in link.told} <= {"hello", "mesh", "ping", "pong", "leaving"}
        assert one.messages == []
        assert one.gone == []
        # It may be dialed again, and then it proves itself.
        link = await RawPeer.dial(net, one.mesh.id, id="hand")
        link.say("hello", name="hand", v=4)
        link.say("mesh", v=1, p=proof(link.connection, hand.told_of("admit")[0]["mk"]))
        await asyncio.sleep(0.1)
        assert one.mesh.send("hand", chat.Queue(n=3))
        await leave(one, host)

    simulate(scenario)


def test_256_messages_are_kept_until_both_proofs_stand() -> None:
    """PROTOCOL section 4, mesh: "keeps at most 256 messages each way": those of the other end are heard in
    order once it is proved, later ones are dropped. This end keeps none: a room that wants to send waits for
    `Mesh.connect`, which returns when the link is proved.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one, _, key = await two_of_a_room(net)
        link = await RawPeer.dial(net, one.mesh.id, id="hand")
        link.say("hello", name="hand", v=4)
        for i in range(300):
            link.say("ai-token", text=f"{i}")
        link.say("ping", ts=5)
        await asyncio.sleep(2)
        waiting = asyncio.create_task(one.mesh.connect("hand"))
        await asyncio.sleep(1)
        assert one.messages == []
        assert {"t": "pong", "ts": 5} in link.told
        assert not waiting.done()
        assert not one.mesh.send("hand", chat.Queue(n=1))
        link.say("mesh", v=1, p=proof(link.connection, key))
        await asyncio.sleep(0.1)
        assert [m.text for _, m in one.messages] == [f"{i}" for i in range(HELD_PEER)]  # type: ignore[attr-defined]
        await waiting
        assert one.mesh.send("hand", chat.Queue(n=1))
        await asyncio.sleep(0.1)
        assert link.told[-1] == {"t": "ai-queue", "n": 1}
        await leave(one, host)

    simulate(scenario)


def test_connect_says_what_was_not_proved() -> None:
    """DESIGN section 1: every wait ends in words: a device that is dialed and does not hold the key."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one = device(net, "host"), device(net, "one")
        await host.mesh.create(CODE, ["local"])
        await one.mesh.join(CODE, ["local"])
        hand = await RawPeer.dial(net, ROOM, id="hand")
        hand.say("hello", name="hand", v=4)
        peers = await RawPeer.listen(net, "hand")
        await asyncio.sleep(0.1)
        waiting = asyncio.create_task(one.mesh.connect("hand"))
        await asyncio.sleep(0.1)
        peers[0].say("hello", name="hand", v=4)
        with pytest.raises(LinkFailed, match="There is no link to hand: it did not prove itself"):
            await waiting
        await leave(one, host)

    simulate(scenario)


async def unsure(net: SimNetwork, after: float = 0.5) -> tuple[Recorder, Recorder, asyncio.Task[None]]:
    """A device whose link the host did not recognise: let in by the host's person, not by its own yet."""
    host = device(net, "host", ask=True)
    one = device(net, "one", credentials=Credentials(key="k" * 22))
    await host.mesh.create(CODE, ["local"])
    joining = asyncio.create_task(one.mesh.join(CODE, ["local"]))
    await asyncio.sleep(after)
    host.gates.keeper.decide(host.gates.keeper.lobby[0].number, allow=True)
    host.mesh.decided()
    await asyncio.sleep(0.1)
    assert host.names == ["host", "one"]
    assert one.gates.newcomer.waiting == "confirm"
    return host, one, joining


def test_what_the_creator_sends_meanwhile_is_kept() -> None:
    """PROTOCOL section 4, device: while its own person compares the digits, the room counts it in: all that
    the creator sends is kept, long and chunked messages too, and heard in order once the person said yes.
    """

    async def scenario() -> None:
        net = SimNetwork()
        host, one, joining = await unsure(net)
        history = chat.History(items=[chat.Exchange(text="x" * 40_000)] * 20)
        assert host.mesh.send(one.mesh.id, history)
        for i in range(1_000):
            assert host.mesh.send(one.mesh.id, chat.Token(text=f"{i}"))
        await asyncio.sleep(20)
        assert one.messages == []
        assert one.names == []
        assert not joining.done()
        one.gates.newcomer.confirm(same=True)
        one.mesh.decided()
        await asyncio.wait_for(joining, 0.1)
        assert one.names == ["host", "one"]
        assert one.messages[0] == (ROOM, history)
        assert [m.text for _, m in one.messages[1:]] == [f"{i}" for i in range(1_000)]  # type: ignore[attr-defined]
        await leave(one, host)

    simulate(scenario)


@pytest.mark.parametrize("how", ["many", "large"])
def test_more_than_can_be_kept_ends_it_in_words(how: str) -> None:
    """PROTOCOL section 4, device: nothing that it was sent may be missing: beyond what is kept it leaves."""

    async def scenario() -> None:
        net = SimNetwork()
        host, one, joining = await unsure(net)
        many, text = (HELD_IN + 1, "t") if how == "many" else (5, "t" * 399_000)
        for _ in range(many):
            message = (
                chat.Token(text=text)
                if how == "many"
                else chat.History(items=[chat.Exchange(text=text)] * 10)
            )
            assert host.mesh.send(one.mesh.id, message)
        await asyncio.sleep(3)
        with pytest.raises(LinkFailed, match="person was being asked") as error:
            await joining
        assert "compare the six digits" in error.value.next_step
        assert one.messages == []
        assert host.gone == [("one", "it left", True)]
        await leave(one, host)

    simulate(scenario)
