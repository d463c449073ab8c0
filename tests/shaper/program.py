"""The shaper as a process: ``python -m tests.shaper.program``; only `tests.shaper.handle` runs it.

Lines of JSON in, one line of JSON out for each. It has a signaling server, too, which leads each connection
that is signaled through a path of its own: candidates are replaced, and nothing else is touched.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import threading
from typing import Any

import msgspec

from tests.e2e.lyingserver import LyingServer, Signal, lying_server, with_sdp
from tests.shaper import candidates
from tests.shaper.line import LineSettings
from tests.shaper.paths import Path, Where
from tests.shaper.relay import Relay


class Detour:
    """The `Lie` of a signaling server: every connection goes through the relay."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._paths: dict[str, Path] = {}
        """By connection."""

    def __call__(self, signal: Signal) -> list[Signal]:
        payload, cid = signal["payload"], signal["payload"]["connectionId"]
        if signal["type"] == "CANDIDATE":
            path = self._paths.get(cid)
            return [signal] if path is None else self._candidate(signal, path)
        try:
            at = candidates.first(payload["sdp"]["sdp"])
        except ValueError:
            at = None  # they come one by one
        if signal["type"] == "OFFER":
            names = (signal["src"], signal["dst"])
            self._paths[cid] = self._relay.open(at, names=names, label=payload.get("label", ""))
        elif (path := self._paths.get(cid)) is not None:
            self._relay.place(path, b=at)
        else:
            return [signal]
        stand_in = self._stand_in(signal, self._paths[cid])
        return [with_sdp(signal, lambda text: candidates.rewritten(text, stand_in))]

    def _candidate(self, signal: Signal, path: Path) -> list[Signal]:
        told = signal["payload"]["candidate"]
        is_a = signal["src"] == path.a.name
        if not told["candidate"]:
            return [signal]  # the end of the list
        at = candidates.address_of(told["candidate"])
        if at is None or (path.a if is_a else path.b).at is not None:
            return []  # one way is enough
        self._relay.place(path, **{"a" if is_a else "b": at})
        told = {**told, "candidate": candidates.moved(told["candidate"], self._stand_in(signal, path))}
        return [{**signal, "payload": {**signal["payload"], "candidate": told}}]

    @staticmethod
    def _stand_in(signal: Signal, path: Path) -> candidates.Address:
        """What the other end is told."""
        return path.for_b if signal["src"] == path.a.name else path.for_a


class Orders:
    """What the process is told to do."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def obey(self, do: str, **order: Any) -> dict[str, Any]:
        """Do one thing; what is answered."""
        where = msgspec.convert(order.pop("where", {}), Where)
        match do:
            case "open":
                a, b = (tuple(at) if at else None for at in (order["a"], order["b"]))
                path = self._relay.open(a, b, names=tuple(order["names"]), label=order["label"])
                return {"path": path.number, "for_a": path.for_a, "for_b": path.for_b}
            case "place":
                ends = {name: tuple(order[name]) for name in ("a", "b") if order.get(name)}
                self._relay.place(self._relay.path(order["path"]), **ends)
            case "change":
                self._relay.change(msgspec.convert(order["settings"], LineSettings), where)
            case "freeze":
                self._relay.freeze(order["seconds"], where)
            case "swallow":
                self._relay.swallow(order["seconds"] if order["seconds"] is not None else 1e9, where)
            case "counts":
                return {"counts": self._relay.counts(where)}
            case _:
                raise ValueError(f"nobody knows how to {do}")
        return {}


def _say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def _listen(orders: Orders, over: Any) -> None:
    for line in sys.stdin:
        order = json.loads(line)
        number = order.pop("n")
        try:
            _say(re=number, **orders.obey(**order))
        except Exception as error:
            _say(re=number, error=f"{type(error).__name__}: {error}")
    over()


async def _main(seed: int, settings: LineSettings) -> None:
    relay = Relay(seed, settings)
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    server: LyingServer
    async with lying_server() as server:
        server.lie = Detour(relay)
        _say(url=server.url)
        args = (Orders(relay), lambda: loop.call_soon_threadsafe(over.set))
        threading.Thread(target=_listen, args=args, name="orders", daemon=True).start()
        await over.wait()
    relay.close()


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--settings", default="{}")
    args = parser.parse_args()
    asyncio.run(_main(args.seed, msgspec.json.decode(args.settings.encode(), type=LineSettings)))
    sys.stdout.flush()
    os._exit(0)  # a thread may still read


if __name__ == "__main__":
    main()
