"""This machine as others see it (PROTOCOL section 2: rooms on the local network)."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from pooled_nb.mesh import addresses
from pooled_nb.mesh.addresses import own_addresses
from pooled_nb.room import meeting

INTERFACES = {
    "lo": ["127.0.0.1"],
    "bridge": ["172.17.0.1"],
    "wifi": ["192.168.1.5", "fe80::1"],
    "unplugged": ["10.0.0.9"],
}


class Probe:
    """A socket that knows by which address a packet would leave."""

    way: str | None = "192.168.1.5"

    def __init__(self, *_: object) -> None: ...

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *_: object) -> None: ...

    def connect(self, _: object) -> None:
        if self.way is None:
            raise OSError("no way out")

    def getsockname(self) -> tuple[str | None, int]:
        return self.way, 1


def entries(found: list[str]) -> list[Any]:
    return [SimpleNamespace(address=a, family=socket.AF_INET6 if ":" in a else socket.AF_INET) for a in found]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    up = {name: SimpleNamespace(isup=name != "unplugged") for name in INTERFACES}
    monkeypatch.setattr(psutil, "net_if_stats", lambda: up)
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: {n: entries(a) for n, a in INTERFACES.items()})
    names = {"AF_INET": socket.AF_INET, "SOCK_DGRAM": socket.SOCK_DGRAM}
    monkeypatch.setattr(addresses, "socket", SimpleNamespace(socket=Probe, **names))


@pytest.mark.usefixtures("machine")
def test_the_default_way_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL section 2: a room on the local network is told under the address that others reach."""
    assert own_addresses() == ["192.168.1.5", "172.17.0.1"]
    assert meeting.lan_address() == "192.168.1.5"
    monkeypatch.setattr(Probe, "way", None)
    assert own_addresses() == ["172.17.0.1", "192.168.1.5"]


def test_a_machine_without_a_network_has_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN section 1: a room on one machine works without any network."""
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: {"lo": entries(["127.0.0.1"])})
    monkeypatch.setattr(psutil, "net_if_stats", lambda: {"lo": SimpleNamespace(isup=True)})
    assert meeting.lan_address() == "127.0.0.1"
