"""PROTOCOL sections 2 and 3: whatever signaling says, nothing is lost, raised or opened without end."""

import asyncio
import json
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pooled_nb.errors import LinkFailed
from pooled_nb.mesh import endpoint as endpoint_module
from pooled_nb.mesh.clock import LoopClock
from pooled_nb.mesh.endpoint import RtcEndpoint
from pooled_nb.mesh.ice import IcePolicy
from pooled_nb.mesh.network import Connection, Line
from tests.mesh.rtctools import ROOM, linked, nothing_left, offer_text, raw, registered, said, served, until


async def test_foreign_late_and_duplicate_messages():
    """PROTOCOL section 2: signaling messages that belong to nothing here are ignored."""
    async with nothing_left(), served() as server:
        stranger = await raw(server, "stranger")
        async with registered(server.url, id=ROOM) as host, registered(server.url) as guest:
            incoming: list[Connection] = []
            host.on_connection = incoming.append
            connection, offer = await offer_text()
            for text in (
                said(
                    "ANSWER",
                    {"sdp": {"type": "answer", "sdp": "v=0"}, "type": "data", "connectionId": "dc_9"},
                ),
                said("CANDIDATE", {"candidate": {"candidate": "x"}, "type": "data", "connectionId": "dc_9"}),
                said("EXPIRE"),
                said("LEAVE"),
                said("OFFER", {**offer, "serialization": "json"}),
                said("OFFER", {**offer, "reliable": False}),
                said("OFFER", {**offer, "type": "media"}),
                said("OFFER", {**offer, "sdp": {"type": "answer", "sdp": offer["sdp"]["sdp"]}}),
                said("OFFER", {**offer, "sdp": {"type": "offer", "sdp": "v=0"}}),
                said("OFFER", {**offer, "sdp": 7}),
                said("OFFER"),
            ):
                await stranger.say(text)
            for _ in range(3):
                await stranger.say(said("OFFER", offer))
            answer = await stranger.hear("ANSWER")
            assert answer["src"] == ROOM
            assert set(answer["payload"]) == {"sdp", "type", "connectionId"}
            # somebody else's answer and candidates for the guest's dial change nothing
            near, _ = await linked(guest, host)
            await stranger.say(
                said(
                    "ANSWER",
                    {"sdp": answer["payload"]["sdp"], "type": "data", "connectionId": near.connection_id},
                )
            )
            assert [c.remote for c in incoming] == ["stranger"]
            await connection.close()
        stranger.close()


async def test_an_answer_with_two_certificates():
    """PROTOCOL section 4: an answer that names other than one fingerprint is refused, and the dial ends."""
    async with nothing_left(), served() as server:
        forger = await raw(server, "forger")
        async with registered(server.url, id=ROOM) as host:
            dial = asyncio.create_task(host.dial("forger"))
            offer = await forger.hear("OFFER")
            sdp = offer["payload"]["sdp"]["sdp"].replace("a=setup:actpass", "a=setup:active")
            sdp += "a=fingerprint:sha-256 " + ":".join(["22"] * 32) + "\r\n"
            await forger.say(
                said(
                    "ANSWER",
                    {
                        "sdp": {"type": "answer", "sdp": sdp},
                        "type": "data",
                        "connectionId": offer["payload"]["connectionId"],
                    },
                )
            )
            with pytest.raises(LinkFailed, match="exactly one certificate"):
                await dial
        forger.close()


async def test_incoming_connections_are_bounded(monkeypatch):
    """PROTOCOL section 3: strangers cannot make this device open connections without end."""
    monkeypatch.setattr(endpoint_module, "MAX_NEW", 5)
    monkeypatch.setattr(endpoint_module, "MAX_NEW_PER_DEVICE", dict.fromkeys(Line, 3))
    async with nothing_left(), served() as server:
        one, two = await raw(server, "one"), await raw(server, "two")
        async with registered(server.url, id=ROOM) as host:
            incoming: list[Connection] = []
            host.on_connection = incoming.append
            connection, offer = await offer_text()
            for n in range(6):
                for socket in (one, two):
                    await socket.say(said("OFFER", {**offer, "connectionId": f"dc_{n}"}))
            await until(lambda: len(incoming) == 5)
            await asyncio.sleep(0.2)
            # Which of the two sockets is read first is up to the loop.
            assert sorted(Counter(c.remote for c in incoming).values()) == [2, 3]
            await incoming[0].close()
            await one.say(said("OFFER", {**offer, "connectionId": "dc_again"}))
            await until(lambda: len(incoming) == 6)
            await connection.close()
        one.close()
        two.close()


@pytest.fixture
async def quiet_endpoint():
    """An endpoint whose socket is never used: messages are handed to it."""
    endpoint = RtcEndpoint(
        id="me",
        token="t",
        resumes=False,
        clock=LoopClock(),
        ice=IcePolicy.local(),
        urls=["ws://x/"],
        shown=["x"],
    )
    endpoint.on_connection = lambda connection: None
    yield endpoint
    await endpoint.close()
    await asyncio.gather(*(c.close() for c in list(endpoint._connections.values())))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
payloads = json_values | st.fixed_dictionaries(
    {},
    optional={
        "sdp": st.fixed_dictionaries({"type": st.sampled_from(["offer", "answer", "x"]), "sdp": st.text()}),
        "type": st.sampled_from(["data", "media"]),
        "connectionId": st.sampled_from(["dc_1", "dc_2", ""]),
        "serialization": st.sampled_from(["binary", "json"]),
        "reliable": st.booleans(),
        "candidate": json_values | st.fixed_dictionaries({"candidate": st.text()}),
    },
)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "type": st.sampled_from(["OFFER", "ANSWER", "CANDIDATE", "EXPIRE", "LEAVE", "NEWS"]),
                "src": st.sampled_from(["a", "b", "me"]) | json_values,
                "payload": payloads,
            }
        ),
        max_size=10,
    )
)
async def test_anything_a_server_says(quiet_endpoint, messages):
    """PROTOCOL section 2: a message from the server is typed and bounded, and never raises."""
    client = quiet_endpoint._session._client
    if not client.is_up:
        client.start(0.0)
        client.opened(1, 0.0)
        client.received(1, '{"type":"OPEN"}', 0.0)
    for message in messages:
        quiet_endpoint._session._do(client.received(1, json.dumps(message), 0.0))
    assert not quiet_endpoint._connections
