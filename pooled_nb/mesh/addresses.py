"""This machine's own addresses, as others on its networks see them."""

from __future__ import annotations

import contextlib
import ipaddress
import socket

import psutil

NOBODY = ("192.0.2.1", 9)
"""RFC 5737: an address that is nobody's. A socket that is connected to it sends nothing."""


def own_addresses() -> list[str]:
    """IPv4 addresses of the interfaces that are up, loopback left out; that of the default way first."""
    up = {name for name, facts in psutil.net_if_stats().items() if facts.isup}
    found = [
        entry.address
        for name, entries in psutil.net_if_addrs().items()
        if name in up
        for entry in entries
        if entry.family == socket.AF_INET and not ipaddress.ip_address(entry.address).is_loopback
    ]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(NOBODY)
        first = probe.getsockname()[0]
        found.sort(key=lambda address: address != first)
    return found
