"""A hub on loopback: the answers of the real one that a download needs, and what goes wrong on the way.

Weights are led to a store of their own at another address, as the real one does, by links that can expire.
It keeps what it was asked for.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CHUNK = 64 << 10


@dataclass
class Fault:
    """What goes wrong with a request for a part of a file; ``times`` in a row, or for ever below 0.

    ``status``: is answered instead. ``cut``: the connection ends after so many bytes of the body.
    ``whole``: ranges are ignored. ``short``, ``shift``: the part ends or begins elsewhere, and says so.
    ``size``: of the file, as said. ``etag``: of the file, as said. ``pause``: seconds before each 64 KiB.
    ``hold``: nothing comes until this is set.
    """

    times: int = 1
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    whole: bool = False
    short: int = 0
    shift: int = 0
    size: int | None = None
    etag: str = ""
    pause: float = 0.0
    hold: threading.Event | None = None
    store: bool = True
    """At the store; else at the hub, before it leads there."""


@dataclass
class Part:
    """Bytes ``[lo, hi)`` of a file that were asked for, and how many of them were sent."""

    name: str
    lo: int
    hi: int
    sent: int = 0
    token: str = ""
    """What the hub or the store was told of who asks."""


class Hub:
    """Serves the files of some folders as repositories."""

    def __init__(self) -> None:
        self.repos: dict[str, Path] = {}
        self.errors: dict[str, tuple[int, str]] = {}
        self.fetched: list[str] = []
        """Names of files that were sent, or parts of them."""
        self.parts: list[Part] = []
        self.faults: dict[str, list[Fault]] = {}
        self.tokens: set[str] = set()
        """What the hub itself was told of who asks for weights."""
        self.connections = 0
        self.private = False
        self.gated: str | bool = False
        self.url = self.store = ""
        self.busy = 0
        """Parts that are being sent."""
        self.links = 0
        """Times that the hub led to the store."""
        self.link_uses = 1 << 30
        """Requests after which a link has expired."""
        self._used: dict[str, int] = {}
        self._tags: dict[tuple[Path, int], str] = {}
        self._lock = threading.Lock()

    @property
    def sent(self) -> int:
        """Bytes of weights that were sent."""
        return sum(part.sent for part in self.parts)

    # answers

    def answer(self, handler: BaseHTTPRequestHandler, *, body: bool) -> None:
        path = handler.path.split("?")[0].strip("/")
        if path.startswith("store/"):
            self._of_store(handler, path, body)
            return
        if path.startswith("api/models/"):
            repo = "/".join(path.split("/")[2:4])
            if self._refused(handler, repo):
                return
            self._send(handler, json.dumps(self._info(repo)).encode(), {}, body)
            return
        parts = path.split("/")
        repo, name = "/".join(parts[:2]), "/".join(parts[4:])
        if self._refused(handler, repo):
            return
        file = self.repos[repo] / name
        if not file.is_file():
            self._send(handler, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}, body, 404)
            return
        etag, size = self._tag(file), file.stat().st_size
        if file.suffix not in (".safetensors", ".gguf"):
            if body:
                self.fetched.append(name)
            self._send(handler, file.read_bytes(), {"X-Repo-Commit": COMMIT, "ETag": f'"{etag}"'}, body)
            return
        self.tokens.add(handler.headers.get("Authorization", ""))
        fault = self._fault(name, store=False)
        if fault and fault.status:
            self._send(handler, b"{}", fault.headers, True, fault.status)
            return
        with self._lock:
            self.links += 1
            link = self.links
        headers = {
            "X-Repo-Commit": COMMIT,
            "X-Linked-Size": str(size),
            "X-Linked-Etag": f'"{(fault and fault.etag) or etag}"',
            "Location": f"{self.store}/store/{link}/{repo}/{name}",
            "ETag": '"of the pointer"',
        }
        self._send(handler, b"", headers, body, 302)

    def _of_store(self, handler: BaseHTTPRequestHandler, path: str, body: bool) -> None:
        _, link, owner, model, name = path.split("/", 4)
        with self._lock:
            uses = self._used[link] = self._used.get(link, 0) + 1
        if uses > self.link_uses:
            self._send(handler, b"<Error>expired</Error>", {}, True, 403)
            return
        file = self.repos[f"{owner}/{model}"] / name
        fault = self._fault(name, store=True) if body else None
        fault = fault or Fault()
        if fault.status:
            self._send(handler, b"{}", fault.headers, True, fault.status)
            return
        size = file.stat().st_size
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", handler.headers.get("Range", ""))
        lo, hi = (int(asked[1]), int(asked[2] or size - 1) + 1) if asked else (0, size)
        hi = min(hi, size)
        if lo >= size:
            self._send(handler, b"", {"Content-Range": f"bytes */{size}"}, True, 416)
            return
        said = size if fault.size is None else fault.size
        headers = {"ETag": fault.etag or f'"{self._tag(file)[:32]}"', **fault.headers}
        if asked and not fault.whole:
            lo, hi, status = lo + fault.shift, hi - min(fault.short, (hi - lo) // 2), 206
            headers["Content-Range"] = f"bytes {lo}-{hi - 1}/{said}"
        else:
            lo, hi, status = 0, size, 200
        part = Part(name, lo, hi, token=handler.headers.get("Authorization", ""))
        if body:
            self.fetched.append(name)
            self.parts.append(part)
        handler.send_response(status)
        for key, value in headers.items():
            handler.send_header(key, value)
        handler.send_header("Content-Length", str(hi - lo if status == 206 else said))
        handler.end_headers()
        if body:
            with self._lock:
                self.busy += 1
            try:
                self._body(handler, file, part, fault)
            finally:
                with self._lock:
                    self.busy -= 1

    def _body(self, handler: BaseHTTPRequestHandler, file: Path, part: Part, fault: Fault) -> None:
        if fault.hold is not None:
            fault.hold.wait(30)
        left = part.hi - part.lo
        if fault.cut is not None:
            left = min(left, fault.cut)
        with file.open("rb") as stream, contextlib.suppress(OSError):
            stream.seek(part.lo)
            while left:
                if fault.pause:
                    time.sleep(fault.pause)
                chunk = stream.read(min(CHUNK, left))
                handler.wfile.write(chunk)
                part.sent += len(chunk)
                left -= len(chunk)
        if fault.cut is not None:
            handler.close_connection = True
            with contextlib.suppress(OSError):
                handler.connection.shutdown(socket.SHUT_RDWR)

    def _fault(self, name: str, *, store: bool) -> Fault | None:
        with self._lock:
            for fault in self.faults.get(name, self.faults.get("*", [])):
                if fault.times and fault.store == store:
                    fault.times -= 1
                    return fault
        return None

    def _tag(self, file: Path) -> str:
        key = (file, file.stat().st_mtime_ns)
        if key not in self._tags:
            with file.open("rb") as stream:
                self._tags[key] = hashlib.file_digest(stream, "sha256").hexdigest()
        return self._tags[key]

    def _refused(self, handler: BaseHTTPRequestHandler, repo: str) -> bool:
        status, code = self.errors.get(repo, (404, "RepoNotFound") if repo not in self.repos else (0, ""))
        if status:
            self._send(handler, b"{}", {"X-Error-Code": code, "X-Error-Message": code}, True, status)
        return bool(status)

    def _info(self, repo: str) -> dict[str, Any]:
        siblings = []
        for file in sorted(self.repos[repo].iterdir()):
            size = file.stat().st_size
            fact: dict[str, Any] = {"rfilename": file.name, "size": size, "blobId": "0" * 40}
            if file.suffix in (".safetensors", ".gguf"):
                fact["lfs"] = {"sha256": self._tag(file), "size": size, "pointerSize": 134}
            siblings.append(fact)
        return {
            "id": repo,
            "modelId": repo,
            "sha": COMMIT,
            "private": self.private,
            "gated": self.gated,
            "siblings": siblings,
        }

    @staticmethod
    def _send(
        handler: BaseHTTPRequestHandler, data: bytes, headers: dict[str, str], body: bool, status: int = 200
    ) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        if body:
            handler.wfile.write(data)


@contextmanager
def serving() -> Iterator[Hub]:
    """Run a hub and its store for the length of a block."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            hub.connections += 1
            super().setup()

        def do_GET(self) -> None:
            hub.answer(self, body=True)

        def do_HEAD(self) -> None:
            hub.answer(self, body=False)

        def log_message(self, *args: object) -> None:
            pass

    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Handler) for _ in range(2)]
    hub.url, hub.store = (f"http://127.0.0.1:{server.server_address[1]}" for server in servers)
    threads = [
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}) for server in servers
    ]
    for server, thread in zip(servers, threads, strict=True):
        server.daemon_threads = True
        thread.start()
    try:
        yield hub
    finally:
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            thread.join()
            server.server_close()
