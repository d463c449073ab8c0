"""A hub on loopback in a process of its own that sends so many bytes a second: what a network gives.

``python -m benchmarks.weights_server FOLDER MB_PER_S``: serves the folder as the model ``bench/model``,
writes its port, and ends with its standard input. ``/sent`` says how many bytes of weights it has sent.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

REPO = "bench/model"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
PIECE = 256 << 10
BURST_S = 0.02


class Bucket:
    """Bytes a second for all connections together."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._next = time.monotonic()
        self._lock = threading.Lock()
        self.sent = 0

    def take(self, size: int) -> None:
        """Wait until so many bytes may be sent."""
        with self._lock:
            now = time.monotonic()
            self._next = max(self._next, now - BURST_S) + size / self._rate
            wait = self._next - now
            self.sent += size
        if wait > 0:
            time.sleep(wait)


class Handler(BaseHTTPRequestHandler):
    """The answers of a hub that a download needs."""

    protocol_version = "HTTP/1.1"
    folder: Path
    bucket: Bucket

    def do_GET(self) -> None:
        """Send it."""
        self._answer(body=True)

    def do_HEAD(self) -> None:
        """Say what it is."""
        self._answer(body=False)

    def log_message(self, *args: object) -> None:
        """Nothing is logged."""

    def _answer(self, *, body: bool) -> None:
        path = self.path.split("?")[0].strip("/")
        if path == "sent":
            self._send(str(self.bucket.sent).encode(), {}, body)
            return
        if path.startswith("api/models/"):
            self._send(json.dumps(self._info()).encode(), {}, body)
            return
        file = self.folder / path.rsplit("/", 1)[-1]
        if not file.is_file():
            self._send(b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}, body, 404)
            return
        size = file.stat().st_size
        etag = hashlib.sha256(f"{file.name} {size}".encode()).hexdigest()
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{etag}"'}
        if file.suffix != ".safetensors":
            self._send(file.read_bytes(), headers, body)
            return
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        lo, hi = (int(asked[1]), min(size, int(asked[2] or size - 1) + 1)) if asked else (0, size)
        if asked:
            headers["Content-Range"] = f"bytes {lo}-{hi - 1}/{size}"
        self._head(206 if asked else 200, headers, hi - lo)
        if body:
            self._part(file, lo, hi)

    def _part(self, file: Path, lo: int, hi: int) -> None:
        if sys.platform == "win32":
            raise NotImplementedError("os.sendfile")
        self.wfile.flush()
        with file.open("rb") as stream:
            while lo < hi:
                self.bucket.take(min(PIECE, hi - lo))
                end = min(lo + PIECE, hi)
                while lo < end:  # the kernel copies: the server's own work is no part of what is measured
                    try:
                        lo += os.sendfile(self.connection.fileno(), stream.fileno(), lo, end - lo)
                    except OSError:
                        self.close_connection = True
                        return

    def _info(self) -> dict[str, Any]:
        siblings = [
            {"rfilename": file.name, "size": file.stat().st_size, "blobId": "0" * 40}
            for file in sorted(self.folder.iterdir())
        ]
        return {"id": REPO, "modelId": REPO, "sha": COMMIT, "private": False, "gated": False} | {
            "siblings": siblings
        }

    def _send(self, data: bytes, headers: dict[str, str], body: bool, status: int = 200) -> None:
        self._head(status, headers, len(data))
        if body:
            self.wfile.write(data)

    def _head(self, status: int, headers: dict[str, str], length: int) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()


class Quiet(ThreadingHTTPServer):
    """A server to which a connection that was cut is nothing to speak of: it is what is measured."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing."""


def main() -> None:
    """Serve until the standard input closes."""
    Handler.folder = Path(sys.argv[1])
    Handler.bucket = Bucket(float(sys.argv[2]) * 1e6)
    server = Quiet(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
