"""Which STUN servers and relay this device would use, as a room reads them (PROTOCOL section 2, ICE)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from pooled_nb.errors import BadOption
from pooled_nb.mesh import stacks
from pooled_nb.mesh.clock import LoopClock
from pooled_nb.mesh.ice import PUBLIC_STUN
from pooled_nb.mesh.turnapi import Given, NoSuchServiceError
from pooled_nb.room.ways import Ways

FAR = "wss://rooms.invalid:443/"
"""Stands for a signaling server in the open; nobody is asked."""
NAMES = {"settings": "the network box", "environment": "POOLED_TURN"}


class Network(Struct, frozen=True, kw_only=True):
    """What is set.

    Attributes
    ----------
    relay
        A `TurnServer` or None; in no text form of this object.
    source
        Where the relay is set.
    asks
        Whether a deployment is asked for one where none is set.
    transport
        What makes connections.
    problem, step
        What cannot be read, and how to write it.
    """

    stun: tuple[str, ...] = PUBLIC_STUN
    relay: Any = None
    source: str = ""
    asks: bool = True
    relay_only: bool = False
    transport: str = stacks.DEFAULT
    problem: str = ""
    step: str = ""


async def read(env: Mapping[str, str]) -> Network:
    """The network box and the environment, as a room that opens now would take them. Never raises."""
    ways = None
    try:
        ways = Ways(LoopClock(), env=env, fetch=_nobody)
        policy = ways.policy(FAR)
        relay = policy.relays[0] if policy.relays else None
        return Network(
            stun=policy.stun,
            relay=relay,
            source=NAMES.get(ways.relay_from, ""),
            asks=ways.asks,
            relay_only=policy.relay_only,
            transport=ways.transport,
        )
    except BadOption as error:
        return Network(problem=error.what, step=error.next_step, asks=False)
    finally:
        if ways is not None:
            await ways.close()


async def _nobody(url: str) -> Given | None:
    raise NoSuchServiceError
