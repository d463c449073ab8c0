"""One file of the hub, read in ranges of bytes: through huggingface_hub's session, tokens and endpoint."""

from __future__ import annotations

import contextlib
import importlib
import re
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from huggingface_hub import constants, hf_hub_url

from pooled_nb.errors import ModelNotFound
from pooled_nb.shard.sources.answers import Again, Expired, Part, Refused, changed, judge
from pooled_nb.shard.sources.crew import Crew
from pooled_nb.shard.sources.retry import Retry
from pooled_nb.shard.sources.words import HubUnreachable, answering, is_network, said

_hub: Any = importlib.import_module("huggingface_hub.utils")  # its types do not name what it exports
_COMMIT = re.compile(r"[0-9a-f]{40}")


class Body(NamedTuple):
    """What comes: bytes ``[part.lo, part.hi)`` of the file, in chunks."""

    part: Part
    chunks: Iterator[bytes]


class Remote:
    """A file of a model on the hub. Safe for several threads at once.

    Parameters
    ----------
    size, sha256
        As the room or the hub's list says; where what is there now differs, it is refused.
    """

    def __init__(
        self, repo: str, revision: str, name: str, size: int | None = None, sha256: str | None = None
    ) -> None:
        self.repo, self.revision, self.name = repo, revision, name
        self.size = size
        self.ranged = True
        """False once the server has sent the whole file in place of a range."""
        self._sha256 = sha256
        self._url = said(repo, lambda: hf_hub_url(repo, name, revision=revision))
        self._lock = threading.Lock()
        self._led = ""
        self._etags: dict[str, str] = {}

    def read(self, lo: int, hi: int, crew: Crew) -> bytes:
        """Read a range whole, however often it takes; less where the file ends before.

        Raises
        ------
        HubUnreachable, ModelNotFound, Over
        """
        got, retry = bytearray(), Retry()
        while True:
            try:
                with self.ask(lo + len(got), hi, crew) as (part, chunks):
                    hi = min(hi, part.size)
                    skip = lo + len(got) - part.lo
                    for chunk in chunks:
                        crew.check()
                        got += chunk[skip:]
                        retry.came(max(0, len(chunk) - skip))  # what is skipped came before
                        skip = max(0, skip - len(chunk))
                        if len(got) > hi - lo or (len(got) == hi - lo and not part.ranged):
                            break  # else the answer ends here, and its connection is used again
                if len(got) >= hi - lo:
                    return bytes(got[: hi - lo])
                raise Again("it broke off")
            except Again as error:
                pause(retry, error, crew)

    @contextlib.contextmanager
    def ask(self, lo: int, hi: int, crew: Crew) -> Iterator[Body]:
        """Ask for bytes ``[lo, hi)`` once.

        Raises
        ------
        Again
            They may come another time; also where they break off within the block.
        HubUnreachable, ModelNotFound
        """
        if constants.HF_HUB_OFFLINE:
            raise HubUnreachable("HF_HUB_OFFLINE is set")
        with contextlib.ExitStack() as stack:
            with _as_again(crew):
                led = self._led
                try:
                    body = self._answer(stack, led, lo, hi, crew)
                except Expired:  # a signed address holds for an hour or so
                    with self._lock:
                        if self._led == led:
                            self._led = ""
                    body = self._answer(stack, "", lo, hi, crew)
            yield body

    def _answer(self, stack: contextlib.ExitStack, led: str, lo: int, hi: int, crew: Crew) -> Body:
        headers = {"Range": f"bytes={lo}-{hi - 1}", "Accept-Encoding": "identity"}
        if not led:
            headers = _hub.build_hf_headers() | headers
        response = stack.enter_context(
            _hub.get_session().stream(
                "GET",
                led or self._url,
                headers=headers,
                follow_redirects=True,
                timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT,
            )
        )
        stack.enter_context(crew.reading(response))
        try:
            part = judge(
                response.status_code,
                response.headers,
                lo,
                hi,
                size=self.size,
                name=self.name,
                led=bool(led),
            )
        except Refused as error:
            raise self._no(response) from error
        self._note(response, part)
        return Body(part, _chunks(response, crew))

    def _no(self, response: Any) -> Exception:
        """Why the hub refuses, in words."""
        if response.history and response.status_code in (401, 403, 404, 410):
            return ModelNotFound(
                f"The hub leads to a store that does not give {self.name} of {self.repo} away"
                f" ({response.status_code}).",
                "Check this device's clock and proxy, then start again.",
            )
        try:
            with answering(self.repo):
                _hub.hf_raise_for_status(response)
        except (HubUnreachable, ModelNotFound) as error:
            return error
        return ModelNotFound(
            f"The hub answers {response.status_code} when asked for a part of {self.name}.",
            "Set HF_ENDPOINT to another mirror, or try again later.",
        )

    def _note(self, response: Any, part: Part) -> None:
        """Check that it is the file that was meant, and remember where it lies."""
        first = response.history[0] if response.history else response
        commit = first.headers.get(constants.HUGGINGFACE_HEADER_X_REPO_COMMIT, "")
        if _COMMIT.fullmatch(self.revision) and _COMMIT.fullmatch(commit) and commit != self.revision:
            raise changed(self.name, "the hub sends that of another revision")
        linked = _tag(first.headers.get(constants.HUGGINGFACE_HEADER_X_LINKED_ETAG, ""))
        if self._sha256 and re.fullmatch(r"[0-9a-f]{64}", linked) and linked != self._sha256:
            raise changed(self.name, "its hash is another one than the room's")
        if response.history and linked:
            self._etag("the hub's list", linked)
        host = urlsplit(str(response.url)).netloc
        self._etag(host, _tag(response.headers.get("etag", "")))
        with self._lock:
            self.size = part.size
            self.ranged = self.ranged and part.ranged
            if response.history and host != urlsplit(self._url).netloc:
                self._led = str(response.url)

    def _etag(self, host: str, etag: str) -> None:
        if not etag:
            return
        with self._lock:
            if self._etags.setdefault(host, etag) != etag:
                raise changed(self.name, "its tag is another one than before")


@contextlib.contextmanager
def _as_again(crew: Crew) -> Iterator[None]:
    """What the network does in this block may go better another time."""
    try:
        yield
    except Exception as error:
        if not is_network(error):
            raise
        crew.check()  # the crew itself may have cut the connection
        raise Again(type(error).__name__) from error


def _chunks(response: Any, crew: Crew) -> Iterator[bytes]:
    with _as_again(crew):
        yield from response.iter_raw()


def _tag(etag: str) -> str:
    return etag.strip().removeprefix("W/").strip('"')


def pause(retry: Retry, error: Again, crew: Crew) -> None:
    """Wait before the next try.

    Raises
    ------
    HubUnreachable
        It was tried often enough.
    Over
    """
    wait = retry.failed(error.after)
    if wait is None:
        raise HubUnreachable(error.why, error.status) from error
    crew.sleep(wait)
