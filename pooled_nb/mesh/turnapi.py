"""Short-lived credentials of a relay, from the deployment: ``POST /api/turn`` (PROTOCOL section 2, ICE).

Asked of the signaling server that answered, over TLS or within a private network only. What it answers is
untrusted: typed, bounded, no redirect is followed, and a relay that it names is used only where that leads
out of this device's own network, unless the server is in there itself. Where there is none, or it fails,
there is no relay and nobody hears of it: most rooms need none.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from pooled_nb.mesh import turn
from pooled_nb.mesh.clock import Clock, Timer
from pooled_nb.mesh.ice import TurnServer
from pooled_nb.mesh.peerjs.quiet import quiet
from pooled_nb.mesh.specs import is_near

log = logging.getLogger(__name__)

WAIT_S = 2.5
"""Longest that a join waits for the first answer. A later one counts from the next connection on."""
ANSWER_S = 5.0
MAX_BYTES = 16_384
PATH = "/api/turn"
SHARE = 0.75
"""Of their life, after which credentials are asked for anew."""
MAX_LIFE_S = 86_400.0
"""A longer one counts as this."""
DEFAULT_LIFE_S = 600.0
RETRY_S = (5.0, 300.0)
"""First and longest pause after a failure, doubled from one to the next; none is shorter than the first."""
NEVER = frozenset({301, 302, 303, 307, 308, 400, 401, 403, 404, 405, 410, 501})
"""Answers that mean: not here. It is not asked again."""

_Text = Annotated[str, Meta(max_length=512)]


class _Server(Struct):
    urls: _Text | Annotated[list[_Text], Meta(max_length=8)]
    username: _Text = ""
    credential: _Text = ""

    def __repr__(self) -> str:
        return f"_Server(urls={self.urls!r})"


class _Answer(Struct, rename="camel"):
    ice_servers: Annotated[list[_Server], Meta(max_length=8)]
    ttl: float | None = None


@dataclass(frozen=True, slots=True)
class Given:
    """What a deployment gave: relays in the order in which they are tried, good for these seconds."""

    relays: tuple[TurnServer, ...]
    life_s: float


class NoSuchServiceError(Exception):
    """This server has no ``/api/turn``."""


Fetch = Callable[[str], Awaitable[Given | None]]
"""Asks a URL; None for what failed, or makes no sense. Raises `NoSuchServiceError`."""


def urls_of(base: str) -> tuple[str, ...]:
    """Where to ask, by the URL of the signaling server: beside it, then at its root. Empty: nowhere.

    A password does not cross a public network in the clear.
    """
    parts = urlsplit(base)
    secure = parts.scheme in ("wss", "https")
    if not secure and not is_near(parts.hostname or ""):
        return ()
    origin = f"{'https' if secure else 'http'}://{parts.netloc}"
    return tuple(dict.fromkeys((f"{origin}{parts.path.rstrip('/')}{PATH}", f"{origin}{PATH}")))


class TurnApi:
    """Keeps credentials of one deployment fresh. Runs on the mesh loop.

    Parameters
    ----------
    base
        URL of the signaling server that answered (``wss://host:443/``).
    fetch
        See `Fetch`.
    """

    def __init__(self, clock: Clock, base: str, fetch: Fetch | None = None) -> None:
        self.base = base
        self._clock = clock
        self._fetch = fetch or ask
        self._urls = list(urls_of(base))
        self._relays: tuple[TurnServer, ...] = ()
        self._until = 0.0
        self._pause = RETRY_S[0]
        self._timer: Timer | None = None
        self._first = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        if self._urls:
            self._begin()
        else:
            self._first.set()

    @property
    def relays(self) -> tuple[TurnServer, ...]:
        """What is good now."""
        return self._relays if self._clock.now() < self._until else ()

    async def ready(self) -> None:
        """Wait for the first answer, `WAIT_S` at most. Never raises."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S):
                await self._first.wait()

    async def close(self) -> None:
        """Ask no more."""
        self._urls.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._first.set()

    def _begin(self) -> None:
        self._timer = None
        self._task = asyncio.get_running_loop().create_task(self._ask())

    async def _ask(self) -> None:
        given = None
        try:
            given = await self._first_of()
        except Exception as error:
            log.debug("asking for a relay: %s", type(error).__name__)
        finally:
            self._first.set()
        if not self._urls:
            return
        if given is None:
            pause, self._pause = self._pause, min(2 * self._pause, RETRY_S[1])
        else:
            self._relays = given.relays
            self._until = self._clock.now() + given.life_s
            pause, self._pause = max(SHARE * given.life_s, RETRY_S[0]), RETRY_S[0]
        self._timer = self._clock.call_later(pause, self._begin)

    async def _first_of(self) -> Given | None:
        while self._urls:
            try:
                return await self._fetch(self._urls[0])
            except NoSuchServiceError:
                del self._urls[:1]
        return None


async def ask(url: str) -> Given | None:
    """One request, of `ANSWER_S` at most; see `Fetch`."""
    from tornado.httpclient import HTTPRequest
    from tornado.simple_httpclient import SimpleAsyncHTTPClient

    # One of its own: what it may read is bounded per client.
    client = SimpleAsyncHTTPClient(force_instance=True, max_body_size=MAX_BYTES, max_header_size=MAX_BYTES)
    request = HTTPRequest(
        url,
        method="POST",
        body=b"{}",
        headers={"Content-Type": "application/json", "Accept": "application/json"},
        connect_timeout=ANSWER_S,
        request_timeout=ANSWER_S,
        follow_redirects=False,
        decompress_response=False,
    )
    # Tornado cannot be told to stop: the task that it starts is ended here, its socket at its own limit.
    others = asyncio.all_tasks()
    with quiet():
        asking = client.fetch(request, raise_error=False)
    jobs = asyncio.all_tasks() - others
    try:
        async with asyncio.timeout(ANSWER_S):
            answer = await asking
    except Exception as error:  # whatever a network and a stranger's server make of it
        log.debug("asking for a relay: %s", type(error).__name__)
        return None
    finally:
        for job in jobs if asking.cancelled() else ():
            job.cancel()
        with contextlib.suppress(Exception):
            client.close()
    if answer.code in NEVER:
        raise NoSuchServiceError
    return read(answer.body, urlsplit(url).hostname or "") if answer.code == 200 else None


def read(body: bytes, named_by: str = "") -> Given | None:
    """What an answer says: ``{"iceServers": [{"urls", "username", "credential"}], "ttl"}``; None: nothing.

    Parameters
    ----------
    named_by
        Host of the server that says so (`TurnServer.named_by`).
    """
    if len(body) > MAX_BYTES:
        return None
    try:
        said = msgspec.json.decode(body, type=_Answer)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    life = DEFAULT_LIFE_S if said.ttl is None else said.ttl
    if not life > 0:
        return None
    found = [
        replace(relay, named_by=named_by)
        for one in said.ice_servers
        for url in ([one.urls] if isinstance(one.urls, str) else one.urls)
        if (relay := turn.server(url, one.username, one.credential)) is not None
    ]
    return Given(turn.in_order(found), min(life, MAX_LIFE_S))
