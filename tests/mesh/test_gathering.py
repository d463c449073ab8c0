"""PROTOCOL section 2, ICE: what is gathered from STUN servers and relays, over real packets."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from aioice import stun
from aiortc import RTCPeerConnection

from pooled_nb.errors import LinkFailed
from pooled_nb.mesh import descriptions, gathering, ice, relay
from pooled_nb.mesh.gathering import Gathering
from pooled_nb.mesh.ice import IcePolicy, TurnServer
from pooled_nb.mesh.stacks.over_aiortc import configuration
from tests.front.udpservers import answering, binding, refusal
from tests.front.udpservers import relay as turn_server
from tests.mesh.rtctools import nothing_left, until

SECRET = "hunter2hunter2"
HOSTS = ["127.0.0.3"]


@pytest.fixture(autouse=True)
def _one_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioice.ice.get_host_addresses", lambda use_ipv4, use_ipv6: HOSTS)


def at(port: int, user: str = "alice", password: str = SECRET, transport: str = "udp") -> TurnServer:
    return TurnServer(url=f"turn:127.0.0.1:{port}?transport={transport}", username=user, credential=password)


def has_v6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


async def gathered(policy: IcePolicy) -> tuple[Gathering, str]:
    """What was found, and the text that would be signaled."""
    pc = RTCPeerConnection(configuration())
    pc.createDataChannel("x")
    found = Gathering(policy, pc, limit=ice.GATHER_S)
    await pc.setLocalDescription(await pc.createOffer())
    sdp = descriptions.outgoing(pc.localDescription.sdp, relay_only=found.relay_only)
    await pc.close()
    return found, sdp


def kinds(sdp: str) -> list[tuple[str, str]]:
    lines = [line.split() for line in sdp.splitlines() if line.startswith("a=candidate:")]
    return sorted((line[7], line[4]) for line in lines)


async def test_a_relay_and_a_stun_server() -> None:
    async with (
        nothing_left(),
        answering(turn_server("alice", SECRET)) as port,
        answering(binding(7)) as other,
    ):
        found, sdp = await gathered(IcePolicy(stun=(f"stun:127.0.0.1:{other}",), relays=(at(port),)))
    assert kinds(sdp) == [("host", "127.0.0.3"), ("relay", "127.0.0.1"), ("srflx", "127.0.0.3")]
    assert (found.relay, found.trouble) == (at(port), "")
    # Where a relay's candidate leads to is nobody's business (RFC 8839 section 5.1).
    assert next(line for line in sdp.splitlines() if " typ relay" in line).endswith("raddr 0.0.0.0 rport 9")


@pytest.mark.skipif(not has_v6(), reason="this system has no IPv6")
async def test_a_relay_over_ipv6() -> None:
    async with nothing_left(), answering(turn_server("alice", SECRET), "::1") as port:
        server = TurnServer(url=f"turn:[::1]:{port}?transport=udp", username="alice", credential=SECRET)
        found, _ = await gathered(IcePolicy(relays=(server,)))
    assert found.relay == server


async def test_relay_only_tells_no_address_of_this_device() -> None:
    """PROTOCOL section 2: "relay-only is a setting"."""
    async with nothing_left(), answering(turn_server("alice", SECRET)) as port, answering(binding()) as other:
        policy = IcePolicy(stun=(f"stun:127.0.0.1:{other}",), relays=(at(port),), relay_only=True)
        _, sdp = await gathered(policy)
    assert kinds(sdp) == [("relay", "127.0.0.1")]
    assert "127.0.0.3" not in sdp


def test_relay_only_whatever_was_gathered() -> None:
    """The text that is sent is looked at once more: it is what leaves this device."""
    sdp = "\r\n".join(
        [
            "v=0",
            "o=- 1 1 IN IP4 0.0.0.0",
            "m=application 50001 UDP/DTLS/SCTP webrtc-datachannel",
            "c=IN IP4 192.168.1.5",
            "a=candidate:1 1 udp 1 192.168.1.5 50001 typ host",
            "a=candidate:2 1 udp 1 203.0.113.7 50002 typ srflx raddr 192.168.1.5 rport 50001",
            "a=candidate:3 1 udp 1 198.51.100.1 50003 typ relay raddr 203.0.113.7 rport 50004",
            "a=end-of-candidates",
            "",
        ]
    )
    said = descriptions.outgoing(sdp, relay_only=True)
    assert "192.168.1.5" not in said
    assert "203.0.113.7" not in said
    assert kinds(said) == [("relay", "198.51.100.1")]
    assert "m=application 9 UDP/DTLS/SCTP webrtc-datachannel" in said
    assert descriptions.outgoing(sdp) == sdp


async def test_the_first_stun_server_that_answers_counts() -> None:
    """A list of servers: one that is a black hole costs nothing where another answers."""
    async with nothing_left(), answering(lambda m, a: None) as hole, answering(binding()) as fine:
        policy = IcePolicy(
            stun=(f"stun:127.0.0.1:{hole}", "stun:no-such.invalid:1", f"stun:127.0.0.1:{fine}")
        )
        found, sdp = await asyncio.wait_for(gathered(policy), 2)
    assert kinds(sdp) == [("host", "127.0.0.3"), ("srflx", "127.0.0.3")]
    assert found.trouble == ""


async def test_an_address_that_leads_nowhere_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a bridge or a tunnel: STUN sees one of its addresses, and never the other."""
    monkeypatch.setattr(
        "aioice.ice.get_host_addresses", lambda use_ipv4, use_ipv6: ["127.0.0.3", "127.0.0.4"]
    )
    monkeypatch.setattr(gathering, "OTHERS_S", 0.1)
    sees = binding()
    async with nothing_left(), answering(lambda m, a: sees(m, a) if a[0] == "127.0.0.3" else None) as port:
        policy = IcePolicy(stun=(f"stun:127.0.0.1:{port}",))
        _, sdp = await asyncio.wait_for(gathered(policy), 2)
    assert kinds(sdp) == [("host", "127.0.0.3"), ("host", "127.0.0.4"), ("srflx", "127.0.0.3")]
    assert policy.silent == {}


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (at(0, password="wrong"), "it refuses this user or password"),
        (at(0, user="1700000000:ana"), "this password was for a limited time, and that is over"),
        (at(0, user="", password=""), "it asks for a user and a password"),
    ],
)
async def test_a_relay_that_refuses_does_not_stop_a_direct_path(server: TurnServer, why: str) -> None:
    """The offer goes out at once, and the reason is known; it has neither user nor password in it."""
    async with nothing_left(), answering(turn_server("alice", SECRET)) as port:
        policy = IcePolicy(relays=(at(port, server.username, server.credential),))
        found, sdp = await asyncio.wait_for(gathered(policy), 2)
    assert kinds(sdp) == [("host", "127.0.0.3")]
    assert found.trouble == f"the relay 127.0.0.1:{port}: {why}"


@pytest.mark.parametrize(
    ("code", "why"), [(486, "quota"), (508, "no place left"), (300, "error 300"), (442, "does not relay UDP")]
)
async def test_a_relay_without_a_place(code: int, why: str) -> None:
    async with nothing_left(), answering(lambda request, addr: refusal(request, code)) as port:
        found, _ = await asyncio.wait_for(gathered(IcePolicy(relays=(at(port),))), 2)
    assert why in found.trouble


async def test_a_relay_that_does_not_answer_costs_no_more_than_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """DESIGN section 4: a black hole holds the offer up for a bounded time, and leaves nothing behind."""
    assert ice.GATHER_S == 3
    monkeypatch.setattr(ice, "GATHER_S", 0.3)
    async with nothing_left(), answering(lambda m, a: None) as port:
        found, sdp = await asyncio.wait_for(gathered(IcePolicy(relays=(at(port),))), 2)
        assert kinds(sdp) == [("host", "127.0.0.3")]
        assert found.trouble == f"the relay 127.0.0.1:{port} does not answer"
        found, sdp = await asyncio.wait_for(gathered(IcePolicy(relays=(at(port),), relay_only=True)), 2)
        assert kinds(sdp) == []


async def test_a_black_hole_delays_the_first_connection_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each connection gathers anew, on both ends: what was silent a moment ago is hardly waited for."""
    monkeypatch.setattr(ice, "GATHER_S", 5)
    monkeypatch.setattr(gathering, "HUSHED_S", 0.01)
    async with nothing_left(), answering(lambda m, a: None) as port:
        stun = (f"stun:127.0.0.1:{port}",)
        now = asyncio.get_running_loop().time()
        hushed = {at(port).url: now + 60, stun[0]: now + 60}
        policy = IcePolicy(stun=stun, relays=(at(port),), silent=hushed)
        found, sdp = await asyncio.wait_for(gathered(policy), 2)
        assert kinds(sdp) == [("host", "127.0.0.3")]
        assert found.trouble == f"the relay 127.0.0.1:{port} does not answer"
        assert all(until > now + 60 for until in hushed.values())
        monkeypatch.setattr(ice, "GATHER_S", 0.1)
        forgotten = IcePolicy(stun=stun, silent={stun[0]: now - 1})
        await gathered(forgotten)
        assert forgotten.silent[stun[0]] > now
    async with nothing_left(), answering(binding()) as port:
        stun = (f"stun:127.0.0.1:{port}",)
        policy = IcePolicy(stun=stun, silent={stun[0]: now + 60})
        monkeypatch.setattr(gathering, "HUSHED_S", 2)
        _, sdp = await gathered(policy)
        assert ("srflx", "127.0.0.3") in kinds(sdp)


async def test_of_several_relays_the_first_that_lets_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that refuses or is silent gives way to the next: where UDP is blocked, one over TLS may do."""
    monkeypatch.setattr(gathering, "NEXT_RELAY_S", 0.1)
    async with (
        nothing_left(),
        answering(lambda m, a: None) as hole,
        answering(turn_server("bob", "other")) as closed,
        answering(turn_server("alice", SECRET)) as port,
    ):
        policy = IcePolicy(relays=(at(hole), at(closed), at(port)))
        found, sdp = await asyncio.wait_for(gathered(policy), 2)
        assert list(policy.silent) == [at(hole).url]  # the next connection asks it last
        monkeypatch.setattr(gathering, "NEXT_RELAY_S", 30)
        found, sdp = await asyncio.wait_for(gathered(policy), 2)
    assert (found.relay, found.trouble) == (at(port), "")
    assert [kind for kind, _ in kinds(sdp)] == ["host", "relay"]


async def test_a_relay_that_is_gone_is_not_waited_for_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing gives the place back; one that answers no more is left, with no task or socket."""
    monkeypatch.setattr(relay, "LEAVE_S", 0.1)
    server = turn_server("alice", SECRET)
    gone = False
    async with nothing_left(), answering(lambda m, a: None if gone else server(m, a)) as port:
        policy = IcePolicy(relays=(at(port),))
        pc = RTCPeerConnection(configuration())
        pc.createDataChannel("x")
        Gathering(policy, pc, limit=ice.GATHER_S)
        await pc.setLocalDescription(await pc.createOffer())
        gone = True
        await asyncio.wait_for(pc.close(), 2)
        await until(lambda: all("TurnTransport" not in repr(task) for task in asyncio.all_tasks()))


async def test_a_clock_that_is_set_back_ends_no_relayed_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """CASES, Network: "The clock set an hour back or forth: no timer moves". aioice renews a channel at the
    relay by the wall clock, and the relay forgets one that is not renewed.
    """
    wall, steady = 1_700_000_000.0, 0.0
    clock = SimpleNamespace(time=lambda: wall, monotonic=lambda: steady)
    monkeypatch.setattr("aioice.turn.time", clock)
    monkeypatch.setattr(relay, "time", clock)
    bound = 0
    server = turn_server("alice", SECRET)

    def counts(message: stun.Message, addr: tuple[str, int]) -> stun.Message | bytes | None:
        nonlocal bound
        bound += message.message_method == stun.Method.CHANNEL_BIND and "NONCE" in message.attributes
        return server(message, addr)

    async with nothing_left(), answering(counts) as port:
        transport, _ = await relay.allocate(at(port), asyncio.DatagramProtocol)
        transport.sendto(b"one", ("127.0.0.1", 9))
        await until(lambda: bound == 1)
        wall, steady = wall - 3600 + 501, 501.0  # aioice renews after 500 s, the relay forgets after 600
        await until(lambda: not transport._TurnTransport__send_tasks)
        transport.sendto(b"two", ("127.0.0.1", 9))
        await until(lambda: bound == 2)
        wall, steady = wall + 7200, 502.0
        transport.sendto(b"three", ("127.0.0.1", 9))
        await until(lambda: not transport._TurnTransport__send_tasks)
        assert bound == 2
        await relay.give_back(transport)


@pytest.mark.parametrize("transport", ["udp", "tcp"])
async def test_a_server_in_the_open_names_no_place_of_this_network(
    monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    """What a deployment says must not send this device's packets round its own network, also where a name
    hides that; one that is in this network itself may.
    """
    loop = asyncio.get_running_loop()
    resolve = loop.getaddrinfo
    names = {"rooms.example.org": "198.41.0.4", "turn.example.org": "127.0.0.1", "rooms.school": "10.0.0.2"}

    async def resolved(host: str, port: int, **more: Any) -> Any:
        return await resolve(names.get(host, host), port, **more)

    monkeypatch.setattr(loop, "getaddrinfo", resolved)
    asked: list[object] = []
    async with nothing_left(), answering(lambda m, a: asked.append(m)) as port:
        for host in ("127.0.0.1", "turn.example.org", "::1", "[::ffff:127.0.0.1]"):
            url = f"turn:{host}:{port}?transport={transport}"
            named = TurnServer(url=url, username="u", credential="p", named_by="rooms.example.org")
            found, _ = await asyncio.wait_for(gathered(IcePolicy(relays=(named,))), 5)
            assert found.trouble.endswith(relay.INSIDE)
        assert asked == []
    async with nothing_left(), answering(turn_server("alice", SECRET)) as port:
        for named_by in ("rooms.school", ""):
            found, _ = await gathered(IcePolicy(relays=(replace(at(port), named_by=named_by),)))
            assert found.relay is not None


async def test_where_there_is_no_way_over_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device with IPv6 alone: of a relay's addresses one counts that it has a way to."""
    if not has_v6():
        pytest.skip("this system has no IPv6")
    loop = asyncio.get_running_loop()
    both = [
        (socket.AF_INET, socket.SOCK_DGRAM, 17, "", ("255.255.255.255", 9)),  # no way there
        (socket.AF_INET6, socket.SOCK_DGRAM, 17, "", ("::1", 9, 0, 0)),
    ]

    async def resolved(host: str, port: int, **more: Any) -> Any:
        return list(both)

    monkeypatch.setattr(loop, "getaddrinfo", resolved)
    assert await relay._resolved("turn.example.org", 9) == "::1"
    del both[1:]
    assert await relay._resolved("turn.example.org", 9) == "255.255.255.255"  # which says why


def test_a_library_of_another_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is reached for below aiortc and is not there is said in words, with both versions."""
    ice = SimpleNamespace(get_component_candidates=None, remote_candidates=[], _protocols=[])
    under = SimpleNamespace(transport=SimpleNamespace(transport=SimpleNamespace(_connection=ice)))
    for sctp in (None, under):
        with pytest.raises(LinkFailed, match=r"aiortc [0-9.]+ and aioice [0-9.]+"):
            Gathering(IcePolicy(), SimpleNamespace(sctp=sctp), limit=1)  # type: ignore[arg-type]


async def test_a_local_room_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 2: none for a room on one machine."""
    asked: list[object] = []

    def hears(message: object, addr: object) -> None:
        asked.append(message)

    async with nothing_left(), answering(hears) as port:
        policy = IcePolicy(
            local_only=True, stun=(f"stun:127.0.0.1:{port}",), relays=(at(port),), relay_only=True
        )
        _, sdp = await gathered(policy)
    assert asked == []
    assert [kind for kind, _ in kinds(sdp)] == ["host"]


async def test_no_secret_in_any_log(caplog: pytest.LogCaptureFixture) -> None:
    """DESIGN section 7: aioice's packets name users and realms; its lines about relays are not kept."""
    caplog.set_level(logging.DEBUG)
    async with answering(turn_server("alice", SECRET)) as port:
        await gathered(IcePolicy(relays=(at(port),)))
        await gathered(IcePolicy(relays=(at(port, password="wrongwrong"),)))
    assert "TURN allocation created" in caplog.text
    for secret in ("alice", SECRET, "wrongwrong", "REALM", "NONCE"):
        assert secret not in caplog.text


def test_words_for_what_a_system_says() -> None:
    """Each ends in a sentence; an error that is not known, too."""
    server = at(1)
    for error, words in [
        (TimeoutError(), "no answer"),
        (socket.gaierror(), "name is not found"),
        (ssl.SSLCertVerificationError(), "certificate"),
        (ssl.SSLError(), "TLS"),
        (ConnectionRefusedError(), "nothing answers"),
        (ConnectionError("secret"), "no answer that makes sense"),
        (OSError(101, "Network is unreachable"), "Network is unreachable"),
        (ValueError("secret"), "no answer that makes sense"),
    ]:
        assert words in relay.why(error, server)
        assert "secret" not in relay.why(error, server)
