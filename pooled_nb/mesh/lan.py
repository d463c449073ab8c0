"""Rooms on the local network, found by their code alone (PROTOCOL section 2, the local network).

The host announces its signaling server over mDNS (zeroconf), and a joiner asks for it. Off unless the person
switched it on: an announcement tells everyone on the network that a room is here. It needs the ``lan``
extra, which is imported at first use.

What is announced is a slow hash of the code, never the code. There are 30^6 codes, which a fast hash would
give away in a second; this one (scrypt, 64 MB) takes some 0.15 s each, so to try them all takes one core
about three and a half years. Its salt is public and the same for all, so that a joiner need not hash once
for each answer: who spends that once can read every announcement. The code is no secret that opens a room:
whoever reads it still stands at the gate (section 4).

Answers are anybody's words. They are typed and bounded, name private or link-local addresses only, and
prove nothing: the room's gate does.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import importlib
import ipaddress
import logging
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pooled_nb.errors import BadOption, PooledError, SignalingDown
from pooled_nb.mesh import specs
from pooled_nb.mesh.addresses import own_addresses

if TYPE_CHECKING:
    from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

log = logging.getLogger(__name__)

SERVICE = "_pooled-nb._tcp.local."
VERSION = "1"
WAIT_S = 3.0
"""How long a joiner looks before it tries other servers."""
MORE_S = 0.3
"""After the first fitting answer: others may have one, too, and the first need not be the true one."""
MAX_SEEN = 128
"""Announcements that one search looks at."""
MAX_FOUND = 8
"""Servers that it returns."""
MAX_ASKED = 16
"""Announcements that came without their details, asked for them at one time."""
MAX_ADDRESSES = 4
"""Of one announcement."""
CLOSE_S = 2.0
_MAX_PATH = 100
_SALT = b"pooled-nb room on the local network, 1"
_SCRYPT = {"n": 1 << 16, "r": 8, "p": 1, "maxmem": 80 * 1024 * 1024, "dklen": 16}


class Announcement:
    """A room that is announced, until `aclose`."""

    def __init__(
        self, zeroconf: AsyncZeroconf, info: AsyncServiceInfo, spreading: asyncio.Future[Any]
    ) -> None:
        self._zeroconf: AsyncZeroconf | None = zeroconf
        self._info = info
        self._spreading = spreading

    async def aclose(self) -> None:
        """Say that it is over. Never raises; a second call does nothing."""
        zeroconf, self._zeroconf = self._zeroconf, None
        if zeroconf is not None:
            self._spreading.cancel()
            await asyncio.gather(self._spreading, return_exceptions=True)
            await _close(zeroconf, self._info)


async def announce(code: str, url: str, *, interfaces: Sequence[str] | None = None) -> Announcement:
    """Announce a room's signaling server on the local network.

    Parameters
    ----------
    code
        The room's, six letters without the hyphen. Only its hash goes out.
    url
        The server. Where it names no single address (``0.0.0.0``, a name), this machine's own are given.
    interfaces
        Addresses of the interfaces to speak on; None: all that are up, loopback left out.

    Raises
    ------
    BadOption
        The ``lan`` extra is missing, or the server listens on this machine only.
    SignalingDown
        The network takes no such messages.
    """
    server = specs.parse(url)
    addresses = _announced(server)
    tag = await _tag(code)
    zeroconf = _open(interfaces)
    from zeroconf.asyncio import AsyncServiceInfo

    name = secrets.token_hex(8)  # nobody's: neither the machine's nor the person's
    info = AsyncServiceInfo(
        SERVICE,
        f"{name}.{SERVICE}",
        port=server.port,
        properties={
            "h": tag,
            "v": VERSION,
            "p": server.path,
            "s": "wss" if server.secure else "ws",
        },
        server=f"pooled-{name}.local.",
        parsed_addresses=addresses,
    )
    try:
        # The name is random, so nobody has to be asked whether it is taken.
        spreading = await zeroconf.async_register_service(info, cooperating_responders=True)
    except BaseException as error:
        await _close(zeroconf, None)
        if isinstance(error, Exception):
            raise _silent(error) from None
        raise
    return Announcement(zeroconf, info, asyncio.ensure_future(spreading))


async def find(code: str, wait_s: float = WAIT_S, *, interfaces: Sequence[str] | None = None) -> list[str]:
    """Look for a room on the local network; specs of signaling servers that say they have it.

    Parameters
    ----------
    code
        The room's, six letters without the hyphen.
    wait_s
        Seconds to look at most. It ends soon after the first answer.

    Returns
    -------
    At most 8, in random order: with many liars among them, each has the same chance.

    Raises
    ------
    BadOption, SignalingDown
        See `announce`.
    """
    tag = await _tag(code)
    zeroconf = _open(interfaces)
    search = _Search(zeroconf, tag)
    try:
        from zeroconf import DNSQuestionType
        from zeroconf.asyncio import AsyncServiceBrowser

        # Answers to all (QM) are wanted from the first question on: where another program of this machine
        # listens for mDNS, too, one to this address alone may be handed to that program, and only the next
        # question, a second later, is answered to us.
        browser = AsyncServiceBrowser(
            zeroconf.zeroconf, SERVICE, handlers=[search.changed], question_type=DNSQuestionType.QM
        )
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(search.first.wait(), wait_s)
                await asyncio.sleep(min(MORE_S, wait_s))
        finally:
            await search.close()
            await browser.async_cancel()
    finally:
        await _close(zeroconf, None)
    found = list(search.found)
    return secrets.SystemRandom().sample(found, min(len(found), MAX_FOUND))


class _Search:
    """Takes announcements in, keeps those of our room."""

    def __init__(self, zeroconf: AsyncZeroconf, tag: str) -> None:
        self._zeroconf = zeroconf
        self._tag = tag
        self._seen: set[str] = set()
        self._asking: set[asyncio.Task[None]] = set()
        self.found: dict[str, None] = {}
        self.first = asyncio.Event()

    def changed(self, **what: Any) -> None:
        """Zeroconf's callback, on the loop: an announcement came, changed or went."""
        from zeroconf import ServiceStateChange
        from zeroconf.asyncio import AsyncServiceInfo

        name = what["name"]
        if what["state_change"] is not ServiceStateChange.Added or name in self._seen:
            return
        if len(self._seen) >= MAX_SEEN:
            return
        self._seen.add(name)
        try:
            info = AsyncServiceInfo(SERVICE, name)
            complete = info.load_from_cache(self._zeroconf.zeroconf)
        except Exception as error:  # a name that is none: anybody may say anything here
            log.debug("an announcement cannot be read: %s", type(error).__name__)
            return
        if complete:
            self._take(info)
        elif len(self._asking) < MAX_ASKED:
            task = asyncio.get_running_loop().create_task(self._ask(info))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

    async def close(self) -> None:
        """Ask no further."""
        tasks = list(self._asking)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, info: AsyncServiceInfo) -> None:
        from zeroconf import DNSQuestionType

        try:
            complete = await info.async_request(
                self._zeroconf.zeroconf, 1_000, question_type=DNSQuestionType.QM
            )
        except Exception as error:
            log.debug("an announcement cannot be read: %s", type(error).__name__)
            return
        if complete:
            self._take(info)

    def _take(self, info: AsyncServiceInfo) -> None:
        for spec in read(self._tag, info.properties, info.parsed_addresses(), info.port):
            if len(self.found) < MAX_SEEN:
                self.found[spec] = None
                self.first.set()


def read(tag: str, properties: dict[Any, Any], addresses: Sequence[str], port: int | None) -> list[str]:
    """Specs of an announcement of the room with this hash; empty where it is another's, or nonsense."""
    if not hmac.compare_digest(_text(properties, "h").encode(), tag.encode()):
        return []
    path, scheme = _text(properties, "p"), _text(properties, "s")
    if (
        _text(properties, "v") != VERSION
        or scheme not in ("ws", "wss")
        or len(path) > _MAX_PATH
        or not path.startswith("/")
        or port is None
        or not 0 < port < 65_536
    ):
        return []
    found = []
    for address in [address for address in addresses if is_near(address)][:MAX_ADDRESSES]:
        host = f"[{address}]" if ":" in address else address
        with contextlib.suppress(PooledError):
            found.append(specs.parse(f"{scheme}://{host}:{port}{path}").base)
    return found


def is_near(address: str) -> bool:
    """Whether an announcement may name it: private, or link-local, and nobody's loopback.

    An announcement that names 127.0.0.1, or a server in the open, would send this device there.
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        # A link-local address of IPv6 means nothing without its interface, which a spec cannot name.
        return found in ipaddress.IPv6Network("fc00::/7")
    private = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16")
    return any(found in ipaddress.IPv4Network(net) for net in private)


def _announced(server: specs.Server) -> list[str]:
    """Which addresses to give for this server."""
    try:
        own = ipaddress.ip_address(server.host)
    except ValueError:
        own = None
    if server.kind != "url" or (own is not None and own.is_loopback):
        raise BadOption(
            "A signaling server of this machine alone cannot be announced on the local network.",
            "Open the room to the network (lan=True, --lan).",
        )
    single = own is not None and not own.is_unspecified
    given = [server.host] if single else own_addresses()
    near = [address for address in given if is_near(address)][:MAX_ADDRESSES]
    if not near:
        raise BadOption(
            "This machine has no address on a local network.",
            "Others join with the server's address: --signal, signal=.",
        )
    return near


async def _tag(code: str) -> str:
    return await asyncio.to_thread(tag_of, code)


def tag_of(code: str) -> str:
    """The hash that is announced. Takes 0.15 s and 64 MB: off the loop."""
    return hashlib.scrypt(code.encode(), salt=_SALT, **_SCRYPT).hex()


def _open(interfaces: Sequence[str] | None) -> AsyncZeroconf:
    try:
        zeroconf = importlib.import_module("zeroconf.asyncio")
    except ImportError:
        raise BadOption(
            "To find rooms on the local network, the package zeroconf is needed.",
            'Install it: pip install "pooled-nb[lan]".',
        ) from None
    try:
        made: AsyncZeroconf = zeroconf.AsyncZeroconf(interfaces=list(interfaces or own_addresses()))
    except Exception as error:  # of the system, or of zeroconf where there is no network
        raise _silent(error) from None
    return made


async def _close(zeroconf: AsyncZeroconf, info: AsyncServiceInfo | None) -> None:
    """Never raises; the goodbye is sent where it can be."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(CLOSE_S):
            if info is not None:
                await (await zeroconf.async_unregister_service(info))
    with contextlib.suppress(Exception):
        await zeroconf.async_close()


def _silent(error: Exception) -> SignalingDown:
    why = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
    return SignalingDown(
        f"The local network cannot be asked for rooms ({why}).",
        "Name the signaling server instead (--signal, signal=).",
    )


def _text(properties: dict[Any, Any], key: str) -> str:
    value = properties.get(key.encode())
    if not isinstance(value, bytes) or len(value) > _MAX_PATH:
        return ""
    try:
        return value.decode("ascii")
    except UnicodeDecodeError:
        return ""
