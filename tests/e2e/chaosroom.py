"""Rooms of real devices under chaos, around a tiny real model; see `tests.e2e.chaos`."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.chaos import LIMIT_S, ROOT, Asked, Device
from tests.e2e.needs import bound

PACE_S = 0.02
"""That each token takes longer: so that faults fall in the middle of an answer."""
GB = 1.0
"""That each device lends."""


@dataclass(frozen=True)
class Question:
    """A question that is asked of a room, and of one device alone."""

    text: str
    tokens: int = 160
    seed: int | None = 7
    """None: greedy."""

    def options(self, never: Sequence[int]) -> dict[str, Any]:
        """``never``: tokens that would end the answer early."""
        bias = {str(token): -100.0 for token in never}
        drawn = {"temperature": 0.9, "seed": self.seed} if self.seed is not None else {"temperature": 0.0}
        return {"max_tokens": self.tokens, "logit_bias": bias, **drawn}


QUESTION = Question("Why is the sky blue?")


def talker(folder: Path) -> tuple[Path, list[int]]:
    """Write a tiny model; its folder, and the tokens that would end its answers."""
    from tests.shard.tinychat import SPECIAL, write_model

    write_model(folder, layers=6, hidden_size=64)
    words = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    return folder, [word["id"] for word in words if word["content"] in SPECIAL]


class Stage:
    """A room: a host, workers by name, and guests; all are ended with `close`."""

    def __init__(
        self,
        folder: Path,
        model: Path,
        never: Sequence[int],
        *,
        pace: float = PACE_S,
        env: dict[str, str] | None = None,
        prefixes: dict[str, Sequence[str]] | None = None,
        servers: Sequence[str] = ("local",),
        **host: Any,
    ) -> None:
        self.folder, self.model, self.never = folder, model, list(never)
        self._env = {
            "POOLED_RUNTIME_DIR": str(folder / "run"),
            "POOLED_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "POOLED_CHAOS_PACE": str(pace),
            **(env or {}),
        }
        self._prefixes = prefixes or {}
        self.servers = list(servers)
        self._options = {"split": "memory", "lend": GB, "ctx": 1024, "servers": self.servers, **host}
        self.devices: dict[str, Device] = {}
        self._closed: list[Device] = []
        self.code = self.link = ""

    def process(self, name: str) -> Device:
        """A process for a device of this name, which is in no room yet."""
        env = {
            **self._env,
            "POOLED_DATA_DIR": str(self.folder / "data"),
            "POOLED_CONFIG_DIR": str(self.folder),
        }
        return Device(self.folder / name, env=env, prefix=self._prefixes.get(name, ()))

    def open(self, *workers: str) -> Stage:
        """The host, and workers that join with its link; it is not started."""
        started = {name: self.process(name) for name in ("host", *workers)}
        self.devices.update(started)
        said = self.host.call("host", model=str(self.model), name="host", **self._options)
        self.code, self.link = said["code"], said["link"]
        joins = [(name, self.join(name, wait=False)) for name in workers]
        for name, number in joins:
            self.devices[name].answer(number)
        return self

    def join(self, name: str, *, by_pass: bool = False, role: str = "worker", wait: bool = True) -> int:
        """This device joins: with the link, or by the code and the pass of an earlier process of it."""
        device = self.devices.get(name)
        if device is None or device.process.poll() is not None:
            device = self.replace(name, self.process(name))
        code = self.code if by_pass else self.link
        servers = None if self.servers == ["local"] else self.servers
        number = device.tell("join", code=code, name=name, role=role, servers=servers, lend=GB)
        if wait:
            device.answer(number)
        return number

    def replace(self, name: str, device: Device) -> Device:
        """This process is the device of this name from now on."""
        if name in self.devices:
            self._closed.append(self.devices[name])
        self.devices[name] = device
        return device

    @property
    def host(self) -> Device:
        return self.devices["host"]

    def __getitem__(self, name: str) -> Device:
        return self.devices[name]

    def ask(self, question: Question, of: str = "host") -> Asked:
        """Ask in a new chat."""
        return self.devices[of].ask(question.text, **question.options(self.never))

    def is_whole(self) -> bool:
        """Every device lives and holds layers, and the room is online."""
        if any(device.process.poll() is not None for device in self.devices.values()):
            return False
        now = self.host.now
        here = sorted(name for name, layers, gone in now["devices"] if layers and not gone)
        return now["state"] == "online" and here == sorted(self.devices)

    def until_signaling(self, name: str) -> float:
        """Wait until this device is registered at its signaling server; when it was."""
        end = time.monotonic() + LIMIT_S
        while not self.devices[name].call("status")["status"]["network"]["up"]:
            assert time.monotonic() < end, "it never came back to its server"
            time.sleep(0.02)
        return time.monotonic()

    def layers(self) -> dict[str, list[int] | None]:
        """Who holds which layers, as the host shows it."""
        return {name: layers for name, layers, gone in self.host.now["devices"] if not gone}

    def shown(self, question: Question, text: str) -> None:
        """Every device's screen shows this exchange alone, and none took back what it had shown."""
        want = [[question.text, text]]
        for name, device in self.devices.items():
            if name == "host":
                continue
            end = time.monotonic() + 20  # what the host's asker has heard may be under way to others
            while (shown := device.call("shown")["shown"]) != want and time.monotonic() < end:
                time.sleep(0.05)
            assert shown == want, name
            changed = [said for said in device.said if said.get("heard") == "changed"]
            assert not changed, (name, changed[0])

    def close(self) -> None:
        """End every process."""
        for device in [*self.devices.values(), *self._closed]:
            device.close()


class Rooms:
    """Rooms for tests, one after the other. One that is whole serves the next test, too: it saves a start,
    and what befell it befalls that one.
    """

    def __init__(self, make: Callable[[], Stage]) -> None:
        self._make = make
        self._last: Stage | None = None

    def __call__(self, *workers: str, start: bool = True) -> Stage:
        """A room of a host and these workers, in a new chat; started, unless it is not to be."""
        last = self._last
        if (
            last is not None
            and start
            and sorted(last.devices) == sorted(("host", *workers))
            and last.is_whole()
        ):
            last.host.call("reset")
            return last
        self.close()
        self._last = self._make()
        self._last.open(*workers)
        if start:
            self._last.host.call("start")
        return self._last

    def close(self) -> None:
        """End the last one."""
        if self._last is not None:
            self._last.close()
            self._last = None


class Signaling:
    """``pooled-nb signal`` in a process of its own, which can be gone for a while."""

    def __init__(self, folder: Path, host: str = "127.0.0.1", prefix: Sequence[str] = ()) -> None:
        self._host, self._prefix, self._port = host, list(prefix), 0
        self._log = (folder / "signaling.txt").open("w")
        self._start()

    @property
    def url(self) -> str:
        """Its address."""
        return f"ws://{self._host}:{self._port}/"

    def _start(self) -> None:
        where = ("--host", self._host, "--port", str(self._port))
        self._process = subprocess.Popen(
            [*self._prefix, *bound(sys.executable, "-u", "-m", "pooled_nb.cli", "signal", *where)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if found := re.search(r"runs at ws://[^/]*:(\d+)/", line):
                self._port = int(found[1])
            if "Ctrl-C" in line:
                return
        pytest.fail("the signaling server ended")

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    @contextlib.contextmanager
    def down(self) -> Iterator[None]:
        """Gone in the block, and there again after it, at the same address."""
        self._kill()
        try:
            yield
        finally:
            self._start()

    def close(self) -> None:
        """End it."""
        self._kill()
        self._log.close()

    def __enter__(self) -> Signaling:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
