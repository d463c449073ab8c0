"""Networks of several devices, one each, with a router between them that can swallow datagrams.

What a black hole is to those beside it: their interfaces stay up, what they send leaves, and nothing comes.
TCP goes on, and with it signaling.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence

TABLE = "77"
"""Of routes; what is looked up there is swallowed."""
KEEP = "echo up; exec cat"  # ends with whoever holds its stdin


class Router:
    """A namespace for each name, all routed through one more; see `netns.need_namespaces`."""

    def __init__(self, names: Sequence[str]) -> None:
        self._subnets = {name: number for number, name in enumerate(names, 1)}
        self._router = _namespace()
        self._edges = {name: _namespace() for name in names}
        self._run(self._router, "ip link set lo up; echo 1 > /proc/sys/net/ipv4/ip_forward")
        self._run(self._router, f"ip route add blackhole default table {TABLE}")
        for name, number in self._subnets.items():
            edge = self._edges[name]
            self._run(
                self._router,
                f"ip link add r{number} type veth peer name e{number}; "
                f"ip link set e{number} netns {edge.pid}; "
                f"ip addr add 10.78.{number}.1/24 dev r{number}; ip link set r{number} up",
            )
            self._run(
                edge,
                f"ip link set lo up; ip addr add {self.address(name)}/24 dev e{number}; "
                f"ip link set e{number} up; ip route add default via 10.78.{number}.1",
            )

    def address(self, name: str) -> str:
        """Where this one is reached by the others."""
        return f"10.78.{self._subnets[name]}.2"

    def prefix(self, name: str) -> list[str]:
        """What runs a command in its network."""
        return ["nsenter", f"--net=/proc/{self._edges[name].pid}/ns/net"]

    @contextlib.contextmanager
    def blackhole(self, one: str, other: str | None = None) -> Iterator[None]:
        """Swallow every datagram from and to ``one``, or those between both."""
        here = f"10.78.{self._subnets[one]}.0/24"
        there = f"10.78.{self._subnets[other]}.0/24" if other else "all"
        ways = ((here, there), (there, here))
        rules = [f"ipproto udp from {a} to {b} lookup {TABLE}" for a, b in ways]
        for rule in rules:
            self._run(self._router, f"ip rule add {rule}")
        try:
            yield
        finally:
            for rule in rules:
                self._run(self._router, f"ip rule del {rule}")

    @staticmethod
    def _run(where: subprocess.Popen[str], commands: str) -> None:
        argv = ["nsenter", f"--net=/proc/{where.pid}/ns/net", "sh", "-ec", commands]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{commands}: {done.stderr}"

    def close(self) -> None:
        """Let the networks go; they end with the last process in each."""
        for keeper in (self._router, *self._edges.values()):
            assert keeper.stdin is not None
            assert keeper.stdout is not None
            keeper.stdin.close()
            keeper.stdout.close()
            keeper.wait(10)


def _namespace() -> subprocess.Popen[str]:
    keeper = subprocess.Popen(
        ["unshare", "-n", "sh", "-ec", KEEP], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert keeper.stdout is not None
    assert keeper.stdout.readline() == "up\n"
    return keeper
