"""Where secrets of the door must never be: what people are shown, logs, texts of objects, errors (DESIGN
section 7).
"""

from __future__ import annotations

import asyncio
import gc
import io
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from pooled_nb.errors import PooledError
from pooled_nb.mesh.gatekeeper import Gatekeeper, GateSettings
from pooled_nb.mesh.newcomer import Credentials, Newcomer
from pooled_nb.mesh.proofs import new_nonce
from pooled_nb.room.deviceroom import DeviceRoom
from pooled_nb.room.doorfacts import Doubt, Invite, NetworkChoice
from pooled_nb.room.hostgate import HostGate
from pooled_nb.room.hostroom import HostRoom
from pooled_nb.room.keeping import Claim, SavedGate, SavedPass, Slot, claim_gate, claim_pass
from pooled_nb.room.roomfile import Found, SavedRoom, SavedWays, Taken
from pooled_nb.room.saver import Saver
from tests.room.rooms import CODE, open_rooms
from tests.sim.clock import simulate

TEXTED = (
    HostRoom, HostGate, DeviceRoom, Gatekeeper, Newcomer, Credentials, SavedGate, SavedPass, SavedRoom, Claim,
    Taken, Slot, Saver, Invite, NetworkChoice,
)  # fmt: skip
"""Of each of these an object lives in the scenario below, and is asked for all its texts."""


def rich_text(thing: object) -> str:
    console = Console(file=io.StringIO(), width=2_000)
    console.print(thing)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


async def _yes(doubt: Doubt) -> bool:
    return True


def test_nothing_that_is_shown_holds_a_secret(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """DESIGN section 7: invite key, pass, mesh key, token, over a whole visit with every kind of entry."""
    monkeypatch.setenv("POOLED_DATA_DIR", str(tmp_path))
    caplog.set_level(logging.DEBUG)
    old_key = new_nonce()
    secrets: dict[str, str] = {"old key": old_key, "turn": "hunter2hunter2"}
    said: list[str] = []

    async def scenario() -> None:
        rooms = await open_rooms(ask=True, keeper=Gatekeeper(GateSettings(ask=True)))
        host = rooms.host
        host.keep(claim_gate(CODE).slot, embedded=True)
        invite = host.invite()
        secrets["key"] = host._gate.keeper.key
        secrets["token"] = host.mesh.token
        secrets["mk"] = host._gate.keeper.mesh_key
        claims: list[Any] = [claim_pass(CODE, "mira")]
        choice = NetworkChoice(turn="turn:me:hunter2hunter2@relay.example")
        mira = await rooms.add(
            name="mira", newcomer=Newcomer(Credentials(key=secrets["key"])), slot=claims[0].slot
        )
        tasks = [
            asyncio.create_task(
                rooms.add(gb=0.0, name="leo", newcomer=Newcomer(Credentials(key=old_key)), confirm=_yes)
            ),
            asyncio.create_task(rooms.add(gb=0.0, name="ana")),
        ]
        await asyncio.sleep(1)
        said.extend(map(repr, host.status().lobby))
        number = {line.name: line.number for line in host.status().lobby}
        await host.allow(number["leo"])
        await host.deny(number["ana"])
        _, denied = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(denied, PooledError)
        said.extend((str(denied), repr(denied), repr(denied.args)))
        await asyncio.sleep(1)
        for room in (host, *rooms.devices):
            status = room.status()
            said.extend((repr(status), rich_text(status), msgspec.json.encode(status).decode()))
        for device in rooms.devices:
            secrets[f"pass of {device.mesh.name}"] = device._admission.newcomer.credentials.pass_ or ""
        for kept in host._gate.keeper.secrets.passes:
            secrets[f"hash of the pass of {kept[2]}"] = kept[1]
        await host.kick(mira.mesh.id)
        await host.renew_invite()
        secrets["new key"] = host._gate.keeper.key
        claims += [
            SavedGate(
                code=CODE, server="sim", token=secrets["token"], key=secrets["key"], mesh_key=secrets["mk"]
            )
        ]
        claims += [SavedPass(code=CODE, name="mira", pass_=secrets["pass of mira"], met="first")]
        claims += [Claim(saved=claims[-1]), Claim(saved=claims[-2]), choice, invite]
        memory = host.memory()
        assert memory is not None
        left = SavedRoom(code=CODE, memory=memory, ways=SavedWays.of(choice))
        said.append(left.packed().decode())
        claims += [left, Taken(claims[-3], left), Found(left, 1.0)]
        found = [thing for thing in gc.get_objects() if type(thing) in TEXTED]
        found += [*claims, *(saved.secrets for saved in claims if isinstance(saved, SavedGate))]
        assert {type(thing) for thing in found} >= set(TEXTED)
        for thing in found:
            said.extend((repr(thing), str(thing), rich_text(thing)))
        said.extend(text for heard in (rooms.notices, *rooms.heard.values()) for text in heard)
        await rooms.close()
        said.extend(repr(room.status()) for room in (host, *rooms.devices))

    simulate(scenario)
    said.extend(record.getMessage() + str(record.exc_text) + repr(record.args) for record in caplog.records)
    assert all(len(secret) >= 8 for secret in secrets.values()), {n: len(s) for n, s in secrets.items()}
    for name, secret in secrets.items():
        assert not [text for text in said if secret in text], f"{name} is shown"
