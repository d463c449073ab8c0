"""All probes at once, each within its time, and what their facts mean."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from typing import Any, TypeVar

from pooled_nb import places
from pooled_nb.doctor import channels, device, folders, network, place, relay, signaling, stun, udp, versions
from pooled_nb.doctor.findings import Finding
from pooled_nb.errors import SignalingDown
from pooled_nb.mesh import specs
from pooled_nb.mesh.loop import new_loop

T = TypeVar("T")

DEVICE_S = 40.0
"""torch takes seconds to load, and from a cold disk or with a GPU many of them."""
FILES_S = 5.0
NETWORK_S = 10.0
"""A net below each probe's own limits, which say more about what did not answer."""


def examined(signal: Sequence[str], env: Mapping[str, str]) -> list[Finding]:
    """Run every probe, and judge what it saw.

    Parameters
    ----------
    signal
        Specs of signaling servers; the embedded one is looked at anyway.
    env
        The environment: which place this is, and how its network is set.
    """
    loop = new_loop()
    loop.set_default_executor(_Daemons())
    try:
        return loop.run_until_complete(examine(signal, env))
    finally:
        loop.close()


async def examine(signal: Sequence[str], env: Mapping[str, str]) -> list[Finding]:
    """See `examined`; on a loop."""
    ways = await network.read(env)
    has_relay = ways.relay is not None
    away = any(not is_near(spec) for spec in signal)
    seen = versions.look()
    computes = all(p.have is not None for p in seen.packages if p.name in ("torch", "transformers"))
    parts = await asyncio.gather(
        _within("device", DEVICE_S, device.look, device.judge) if computes else _no_device(),
        _within("disk for models", FILES_S, lambda: _apart(folders.look_at_disk), folders.judge_disk),
        _within("runtime folder", FILES_S, lambda: _apart(folders.look_at_runtime), folders.judge_runtime),
        _within("UDP", NETWORK_S, udp.look, udp.judge),
        _within("data channels", NETWORK_S, lambda: channels.look(ways.transport), channels.judge),
        _within(
            "STUN",
            NETWORK_S,
            lambda: stun.look(ways.stun),
            lambda facts: stun.judge(facts, needed=away, relay=has_relay),
        ),
        _within(
            "relay",
            NETWORK_S,
            lambda: relay.look(ways, signal),
            lambda facts: relay.judge(facts, relay_only=ways.relay_only),
        ),
        _within("signaling", NETWORK_S, lambda: signaling.look(signal), signaling.judge),
    )
    found = versions.judge(seen)
    for part in parts:
        found += part
    return found + place.judge(places.here(env), relay=has_relay)


def is_near(spec: str) -> bool:
    """Whether devices that meet there need no STUN: they are on this machine, or on one local network."""
    try:
        host = specs.parse(spec).host
    except SignalingDown:
        return True  # no server at all, which its own finding says
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return host == "localhost"


async def _within(
    what: str, limit: float, look: Callable[[], Awaitable[T]], judge: Callable[[T], list[Finding]]
) -> list[Finding]:
    try:
        return judge(await asyncio.wait_for(look(), limit))
    except TimeoutError:
        return [
            Finding(
                what=what,
                mark="warn",
                result=f"no answer within {limit:.0f} s",
                todo="Run this again when the machine is less busy.",
            )
        ]
    except ImportError as error:
        name = (error.name or "a library").partition(".")[0]
        result = f"not looked at: {name} is not installed, or does not load"
        return [Finding(what=what, mark="skip", result=result)]
    except Exception as error:
        return [
            Finding(
                what=what,
                mark="fail",
                result=f"this check itself failed: {type(error).__name__}",
                todo="Report it, with the versions above.",
            )
        ]


async def _no_device() -> list[Finding]:
    result = "not looked at, since torch or transformers is missing; this machine can join as a guest"
    return [Finding(what="device", mark="skip", result=result)]


async def _apart(look: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, look)


class _Daemons(ThreadPoolExecutor):
    """A thread for each job, which nobody waits for: a resolver that hangs must not hold the end back."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()

        def work() -> None:
            # By then nobody may wait for it any more, and its loop may be closed.
            with contextlib.suppress(RuntimeError, InvalidStateError):
                try:
                    done.set_result(fn(*args, **kwargs))
                except BaseException as error:
                    done.set_exception(error)

        threading.Thread(target=work, name="pooled-doctor", daemon=True).start()
        return done
