"""PROTOCOL section 2, ICE: by which ways a device reaches others, and who says so."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pooled_nb.errors import BadOption
from pooled_nb.mesh.ice import PUBLIC_STUN, IcePolicy
from pooled_nb.mesh.turn import parse, server
from pooled_nb.mesh.turnapi import Given
from pooled_nb.room import networkbox
from pooled_nb.room.doorfacts import NetworkChoice
from pooled_nb.room.networkbox import NetworkBox
from pooled_nb.room.ways import Ways
from tests.mesh.rtctools import HandClock, nothing_left

FAR = "wss://rooms.example.org:443/"
NEAR = "ws://192.168.1.5:9000/"
HERE = "ws://127.0.0.1:9000/"
MINE = "turn:ana:hunter2@mine.example.org"
SAVED = "turn:ana:hunter2@saved.example.org"
SET = "turn:ana:hunter2@set.example.org"
GIVEN = server("turn:given.example.org", "u", "hunter2")
assert GIVEN is not None


@dataclass
class Mesh:
    server: str = "rooms.example.org"
    signaling_up: bool = True


class Deployment:
    """Gives one relay, and counts."""

    def __init__(self, *, has: bool = True) -> None:
        self.asked: list[str] = []
        self.has = has

    async def __call__(self, url: str) -> Given | None:
        self.asked.append(url)
        return Given((GIVEN,), 600) if self.has and GIVEN else None


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POOLED_CONFIG_DIR", str(tmp_path / "config"))


def ways(
    choice: NetworkChoice | None = None,
    *,
    env: dict[str, str] | None = None,
    box: NetworkBox | None = None,
    there: Deployment | None = None,
) -> Ways:
    return Ways(HandClock(), choice, env=env or {}, box=box, fetch=there or Deployment(has=False))


def places(policy: IcePolicy) -> list[str]:
    return [relay.place.partition(":")[0] for relay in policy.relays]


@pytest.mark.parametrize(
    ("base", "local", "stun"),
    [
        ("ws://127.0.0.1:9000/", True, False),
        ("ws://localhost:9000/", True, False),
        ("ws://[::1]:9000/", True, False),
        ("ws://192.168.1.7:9000/", False, False),
        ("wss://0.peerjs.com/", False, True),
        ("ws://8.8.8.8:9000/", False, True),
    ],
)
async def test_stun_servers(base: str, local: bool, stun: bool) -> None:
    """ "default public ones; none for a room on one machine", nor for one of a local network."""
    mine = ways()
    policy = mine.policy(base)
    assert policy.local_only == local
    assert policy.stun == (PUBLIC_STUN if stun else ())
    await mine.close()


async def test_who_says_which_relay() -> None:
    """ "TURN from the user's settings (the network box of the panel, POOLED_TURN), else from the deployment,
    else none".
    """
    there = Deployment()
    everything = {"env": {"POOLED_TURN": SET}, "box": NetworkBox(turn=SAVED), "there": there}
    for mine, place, source in [
        (ways(NetworkChoice(turn=MINE), **everything), "mine", "settings"),  # type: ignore[arg-type]
        (ways(**everything), "saved", "settings"),  # type: ignore[arg-type]
        (ways(NetworkChoice(turn=""), **everything), "set", "environment"),  # type: ignore[arg-type]
        (ways(env={"POOLED_TURN": SET}, there=there), "set", "environment"),
    ]:
        await mine.ready(FAR)
        assert places(mine.policy(FAR)) == [f"{place}.example.org"]
        assert mine.facts(Mesh()).relay == f"{place}.example.org:3478"
        assert mine.facts(Mesh()).relay_from == source
        assert mine.has_relay
        await mine.close()
    assert there.asked == []
    mine = ways(there=there)
    assert places(mine.policy(FAR)) == []  # not known yet
    await mine.ready(FAR)
    assert places(mine.policy(FAR)) == ["given.example.org"]
    assert mine.facts(Mesh()).relay_from == "server"
    assert there.asked == ["https://rooms.example.org:443/api/turn"]
    await mine.close()
    mine = ways()
    await mine.ready(FAR)
    assert (places(mine.policy(FAR)), mine.has_relay, mine.facts(Mesh()).relay) == ([], False, "")
    await mine.close()


@pytest.mark.parametrize(
    ("choice", "env", "box"),
    [
        (NetworkChoice(turn="off"), {"POOLED_TURN": SET}, NetworkBox(turn=SAVED)),
        (None, {"POOLED_TURN": SET}, NetworkBox(turn="off")),
        (None, {"POOLED_TURN": "off"}, NetworkBox()),
    ],
)
async def test_no_relay_at_all(choice: NetworkChoice | None, env: dict[str, str], box: NetworkBox) -> None:
    """The word off: neither another setting nor the deployment, which is not asked."""
    there = Deployment()
    mine = ways(choice, env=env, box=box, there=there)
    await mine.ready(FAR)
    assert (places(mine.policy(FAR)), there.asked) == ([], [])
    await mine.close()


async def test_a_room_on_one_machine_asks_nobody() -> None:
    """Whatever is set: loopback, no server, and the deployment is not asked."""
    there = Deployment()
    chosen = NetworkChoice(turn=MINE, stun=["stun:a"], relay_only=True)
    mine = ways(chosen, env={"POOLED_TURN": "nonsense"}, there=there)
    await mine.ready(HERE)
    assert mine.policy(HERE) == IcePolicy.local()
    facts = mine.facts(Mesh())
    assert (facts.relay, facts.stun, facts.relay_only, mine.has_relay) == ("", [], False, False)
    assert there.asked == []
    await mine.close()


async def test_a_relay_that_was_named_counts_on_a_local_network_too() -> None:
    mine = ways(NetworkChoice(turn=MINE))
    assert mine.policy(NEAR) == IcePolicy(relays=(parse(MINE),))  # type: ignore[arg-type]
    await mine.close()


@pytest.mark.parametrize(
    ("choice", "env", "stun", "only"),
    [
        (None, {}, PUBLIC_STUN, False),
        (None, {"POOLED_STUN": "stun:a, b:9", "POOLED_RELAY_ONLY": "1"}, ("stun:a:3478", "stun:b:9"), True),
        (None, {"POOLED_STUN": "off", "POOLED_RELAY_ONLY": "no"}, (), False),
        (NetworkChoice(stun=[]), {"POOLED_STUN": "stun:a"}, (), False),
        (NetworkChoice(stun=["default"]), {"POOLED_STUN": "stun:a"}, PUBLIC_STUN, False),
        (NetworkChoice(relay_only=False), {"POOLED_RELAY_ONLY": "yes"}, PUBLIC_STUN, False),
        (NetworkChoice(relay_only=True), {}, PUBLIC_STUN, True),
    ],
)
async def test_stun_list_and_relay_only(
    choice: NetworkChoice | None, env: dict[str, str], stun: tuple[str, ...], only: bool
) -> None:
    mine = ways(choice, env=env)
    policy = mine.policy(FAR)
    assert (policy.stun, policy.relay_only) == (stun, only)
    await mine.close()


@pytest.mark.parametrize(
    ("env", "setting"),
    [
        ({"POOLED_TURN": "ana:hunter2@nowhere"}, "POOLED_TURN"),
        ({"POOLED_STUN": "turn:hunter2@x"}, "POOLED_STUN"),
        ({"POOLED_RELAY_ONLY": "hunter2"}, "POOLED_RELAY_ONLY"),
    ],
)
async def test_an_environment_that_cannot_be_read(env: dict[str, str], setting: str) -> None:
    """Said when the room opens, by the name of the variable, and without its text (DESIGN section 7)."""
    with pytest.raises(BadOption, match=setting) as error:
        ways(env=env).policy(FAR)
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    "choice",
    [NetworkChoice(turn="ana:hunter2@nowhere"), NetworkChoice(stun=["turn:ana:hunter2@x"])],
)
async def test_a_choice_that_cannot_be_read_changes_nothing(choice: NetworkChoice) -> None:
    mine = ways(NetworkChoice(turn=MINE))
    before = mine.policy(FAR)
    with pytest.raises(BadOption) as error:
        await mine.choose(choice)
    assert "hunter2" not in f"{error.value} {error.value.args}"
    assert mine.policy(FAR) == before
    with pytest.raises(BadOption):
        ways(choice)
    await mine.close()


async def test_a_choice_counts_from_the_next_connection_on() -> None:
    """The policy is asked anew for each; what was not named stays."""
    there = Deployment()
    mine = ways(there=there)
    await mine.ready(FAR)
    await mine.choose(NetworkChoice(turn=MINE))
    assert places(mine.policy(FAR)) == ["mine.example.org"]
    await mine.choose(NetworkChoice(relay_only=True))
    policy = mine.policy(FAR)
    assert (places(policy), policy.relay_only) == (["mine.example.org"], True)
    await mine.choose(NetworkChoice(turn=""))
    await mine.ready(FAR)
    assert places(mine.policy(FAR)) == ["given.example.org"]
    assert not networkbox.path().exists()
    await mine.close()


async def test_another_server_is_another_deployment() -> None:
    there = Deployment()
    mine = ways(there=there)
    await mine.ready(FAR)
    await mine.ready("wss://other.example.org:443/")
    assert len(there.asked) == 2
    await mine.ready(HERE)
    assert mine.policy(HERE).relays == ()
    await mine.close()


async def test_what_is_remembered(tmp_path: Path) -> None:
    """The network box: a file of this user alone, read by the next room; an empty relay forgets it."""
    mine = ways()
    mine.policy(FAR)
    await mine.choose(NetworkChoice(turn=MINE, relay_only=True, remember=True))
    file = tmp_path / "config" / "network.json"
    assert json.loads(file.read_text()) == {"turn": MINE, "relay_only": True}
    if sys.platform != "win32":
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    later = ways()
    policy = later.policy(FAR)
    assert (places(policy), policy.relay_only) == (["mine.example.org"], True)
    assert "hunter2" not in f"{later!r} {networkbox.read()!r} {later.facts(Mesh())!r}"
    await later.choose(NetworkChoice(turn="", relay_only=False, remember=True))
    assert json.loads(file.read_text()) == {"relay_only": False}
    await mine.close()
    await later.close()


async def test_two_rooms_remember() -> None:
    """One does not undo what another saved meanwhile."""
    one, other = ways(), ways()
    await one.choose(NetworkChoice(turn=MINE, remember=True))
    await other.choose(NetworkChoice(stun=["off"], remember=True))
    assert networkbox.read() == NetworkBox(turn=MINE, stun=["off"])
    await one.close()
    await other.close()


async def test_two_choices_at_once() -> None:
    """One does not undo what the other is just saving."""
    mine = ways()
    await asyncio.gather(
        mine.choose(NetworkChoice(turn=MINE, remember=True)),
        mine.choose(NetworkChoice(relay_only=True, remember=True)),
    )
    assert networkbox.read() == NetworkBox(turn=MINE, relay_only=True)
    await mine.close()


async def test_a_choice_while_connections_are_made() -> None:
    """What is being made keeps the policy that it began with; the deployment that was asked is left alone."""
    asked = asyncio.Event()

    async def never(url: str) -> Given | None:
        asked.set()
        await asyncio.Event().wait()
        return None

    async with nothing_left():
        mine = Ways(HandClock(), env={}, fetch=never)
        joining = asyncio.ensure_future(mine.ready(FAR))
        await asked.wait()
        before = mine.policy(FAR)
        await mine.choose(NetworkChoice(turn=MINE, relay_only=True))
        await joining  # at once: there is nobody to wait for any more
        assert (before.relays, before.relay_only) == ((), False)
        assert (places(mine.policy(FAR)), mine.asks) == (["mine.example.org"], False)
        await mine.close()


async def test_remembering_what_counts_now() -> None:
    """With nothing else said it is what counts in this room."""
    mine = ways(NetworkChoice(turn=MINE))
    mine.policy(FAR)
    await mine.choose(NetworkChoice(remember=True))
    assert networkbox.read() == NetworkBox(turn=MINE)
    await mine.close()


async def test_a_box_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts for this room, and the person is told that it is not kept."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("POOLED_CONFIG_DIR", str(tmp_path / "file"))
    mine = ways()
    mine.policy(FAR)
    with pytest.raises(BadOption, match="cannot be saved") as error:
        await mine.choose(NetworkChoice(turn=MINE, remember=True))
    assert "hunter2" not in str(error.value)
    assert places(mine.policy(FAR)) == ["mine.example.org"]
    await mine.close()


@pytest.mark.skipif(sys.platform == "win32", reason="links need a right there")
def test_a_box_that_is_no_file_of_this_users(tmp_path: Path) -> None:
    where = networkbox.path()
    where.parent.mkdir(mode=0o700)
    (tmp_path / "elsewhere").write_text(json.dumps({"turn": MINE}))
    where.symlink_to(tmp_path / "elsewhere")
    assert networkbox.read() == NetworkBox()
    where.unlink()
    os.mkfifo(where)
    assert networkbox.read() == NetworkBox()


@given(st.binary(max_size=300))
def test_a_damaged_box_is_none(data: bytes) -> None:
    """Whatever a file holds: settings, or none."""
    where = networkbox.path()
    where.parent.mkdir(mode=0o700, exist_ok=True)
    where.write_bytes(data)
    assert isinstance(networkbox.read(), NetworkBox)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"turn": 1}', '{"stun": "x"}', '{"turn": "' + "x" * 20_000 + '"}']
)
def test_a_box_with_wrong_types_is_none(text: str) -> None:
    where = networkbox.path()
    where.parent.mkdir(mode=0o700)
    where.write_text(text)
    assert networkbox.read() == NetworkBox()


async def test_a_saved_relay_that_cannot_be_read_any_more() -> None:
    """Edited by hand: said in words, and not repeated."""
    with pytest.raises(BadOption, match="network box") as error:
        ways(box=NetworkBox(turn="hunter2"))
    assert "hunter2" not in str(error.value)
