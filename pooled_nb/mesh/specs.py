"""Signaling servers as people write them (PROTOCOL section 2, specs)."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import SplitResult, urlencode, urlsplit

from pooled_nb.errors import SignalingDown

DEFAULT_PORT = 9000
"""The PeerJS server's own default: for a host in the local network that is named without one."""
CLIENT_VERSION = "1.5.5"
"""The PeerJS client whose messages ours equal."""
KEY = "peerjs"
_CLOUD = "0.peerjs.com"
_MAX_SPEC = 300

_HOST = re.compile(
    r"[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?(?:\.[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?"
)
_PATH = re.compile(r"(?:/[A-Za-z0-9._~%-]+)*/?")
_SECURE = {"ws": False, "http": False, "wss": True, "https": True}
_NEXT = "Write it as HOST, HOST:PORT/PATH, ws://…, wss://…, or one of the words local and cloud."


@dataclass(frozen=True, slots=True)
class Server:
    """One signaling server.

    Attributes
    ----------
    kind
        ``local``: the one embedded on this machine, whose port the runtime file says (``port`` is 0 here);
        ``cloud``: the PeerJS project's public one; ``url``: any other.
    host, port, secure
        Where; ``host`` without brackets.
    path
        Begins and ends with ``/``; ``/`` is PeerJS's default.
    shown
        As people see it: the spec as typed.
    """

    kind: Literal["local", "cloud", "url"]
    host: str
    port: int
    secure: bool
    path: str
    shown: str

    @property
    def base(self) -> str:
        """``ws://host:port/path/``."""
        return f"{'wss' if self.secure else 'ws'}://{self._place}{self.path}"

    @property
    def http(self) -> str:
        """``http://host:port/path/``."""
        return f"{'https' if self.secure else 'http'}://{self._place}{self.path}"

    def socket_url(self, id: str, token: str) -> str:
        """The WebSocket of a client (DESIGN section 4)."""
        query = urlencode({"key": KEY, "id": id, "token": token, "version": CLIENT_VERSION})
        return f"{self.base}peerjs?{query}"

    @property
    def _place(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse(spec: str) -> Server:
    """Read one spec.

    Raises
    ------
    SignalingDown
        It names no server; says how to write one.
    """
    text = spec.strip()
    if text == "local":
        return Server("local", "127.0.0.1", 0, False, "/", text)
    if text == "cloud":
        return Server("cloud", _CLOUD, 443, True, "/", text)
    if not text or len(text) > _MAX_SPEC or not text.isascii() or not text.isprintable() or " " in text:
        raise _bad(text, "is no signaling server")
    scheme, mark, _rest = text.partition("://")
    if mark and scheme.lower() not in _SECURE:
        raise _bad(text, f"begins with {scheme}://, where ws, wss, http or https can be")
    try:
        parts = urlsplit(text if mark else f"//{text}")
        port = parts.port
    except ValueError as exc:
        raise _bad(text, "is no address that can be read") from exc
    host = _host(parts, text)
    if parts.query or parts.fragment:
        raise _bad(text, "has a part after ? or #, which a signaling server does not take")
    if port == 0:
        raise _bad(text, "has port 0")
    if not _PATH.fullmatch(parts.path) or ".." in parts.path.split("/"):
        raise _bad(text, "has a path that is not plain")
    path = parts.path if parts.path.endswith("/") else f"{parts.path}/"
    if mark:
        secure = _SECURE[scheme.lower()]
        return Server("url", host, port or (443 if secure else 80), secure, path, text)
    # Without a scheme: what has a certificate is in the open, what has none is near.
    secure = port == 443 or not is_near(host)
    return Server("url", host, port or (443 if secure else DEFAULT_PORT), secure, path, text)


def _host(parts: SplitResult, text: str) -> str:
    host = parts.hostname or ""
    if "@" in parts.netloc:
        raise _bad(text, "came with a user name or password, which a signaling server does not take")
    if "[" in parts.netloc or ":" in host:
        try:
            return str(ipaddress.IPv6Address(host))
        except ValueError as exc:
            raise _bad(text, "is no address that can be read") from exc
    if not _HOST.fullmatch(host) or len(host) > 253:
        raise _bad(text, "names no host")
    return host


def is_near(host: str) -> bool:
    """Loopback, private and link-local addresses, and names that only a local network knows."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        name = host.rstrip(".").lower()
        return "." not in name or name.endswith((".local", ".localhost", ".lan", ".internal", ".home.arpa"))
    return address.is_loopback or address.is_private or address.is_link_local


def without_secrets(text: str) -> str:
    """A spec without what may be a password, a token or a key: short enough for a sentence."""
    before, mark, _ = text.strip().replace("#", "?").partition("?")
    # With both, each may stand inside of the other.
    bare = "…" if mark and "@" in text else before.rpartition("@")[2]
    return bare if len(bare) <= 60 else f"{bare[:60]}…"


def _bad(text: str, why: str) -> SignalingDown:
    return SignalingDown(f"The signaling server {without_secrets(text)!r} {why}.", _NEXT)
