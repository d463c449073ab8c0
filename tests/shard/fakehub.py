"""A hub on loopback: the few answers of the real one that a download needs. Keeps what it was asked for."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """Serves the files of some folders as repositories."""

    def __init__(self) -> None:
        self.repos: dict[str, Path] = {}
        self.errors: dict[str, tuple[int, str]] = {}
        self.fetched: list[str] = []
        self.url = ""

    def answer(self, handler: BaseHTTPRequestHandler, *, body: bool) -> None:
        path = handler.path.split("?")[0].strip("/")
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
        data = file.read_bytes()
        etag = hashlib.sha256(data).hexdigest()
        if body:
            self.fetched.append(name)
        self._send(handler, data, {"X-Repo-Commit": COMMIT, "ETag": f'"{etag}"'}, body)

    def _refused(self, handler: BaseHTTPRequestHandler, repo: str) -> bool:
        status, code = self.errors.get(repo, (404, "RepoNotFound") if repo not in self.repos else (0, ""))
        if status:
            self._send(handler, b"{}", {"X-Error-Code": code, "X-Error-Message": code}, True, status)
        return bool(status)

    def _info(self, repo: str) -> dict[str, Any]:
        siblings = []
        for file in sorted(self.repos[repo].iterdir()):
            data = file.read_bytes()
            fact: dict[str, Any] = {"rfilename": file.name, "size": len(data), "blobId": "0" * 40}
            if file.suffix == ".safetensors":
                digest = hashlib.sha256(data).hexdigest()
                fact["lfs"] = {"sha256": digest, "size": len(data), "pointerSize": 134}
            siblings.append(fact)
        return {
            "id": repo,
            "modelId": repo,
            "sha": COMMIT,
            "private": False,
            "gated": False,
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
    """Run a hub for the length of a block."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            hub.answer(self, body=True)

        def do_HEAD(self) -> None:
            hub.answer(self, body=False)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
