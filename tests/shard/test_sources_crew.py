"""Threads that fetch side by side: where they end, their connections are cut."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pooled_nb.shard.sources.crew import Crew
from tests.mesh import certificates


@contextlib.contextmanager
def secure_pair(folder: Path) -> Iterator[tuple[ssl.SSLSocket, ssl.SSLSocket]]:
    """A client and a server that speak TLS with each other."""
    certfile, keyfile = certificates.make(folder, "127.0.0.1")
    serves = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serves.load_cert_chain(certfile, keyfile)
    trusts = ssl.create_default_context(cafile=certfile)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        accepted, _ = listening.accept()
    for one in (client, accepted):
        one.settimeout(20)
    box: list[ssl.SSLSocket] = []
    thread = threading.Thread(target=lambda: box.append(serves.wrap_socket(accepted, server_side=True)))
    thread.start()
    with trusts.wrap_socket(client, server_hostname="127.0.0.1") as secured:
        thread.join()
        with box[0]:
            yield secured, box[0]


def answer(one: socket.socket) -> Any:
    """A response as the hub's client gives it, as far as a crew looks at it."""
    stream = SimpleNamespace(get_extra_info={"socket": one}.get)
    return SimpleNamespace(extensions={"network_stream": stream})


def test_a_cut_connection_gives_no_ciphertext(tmp_path: Path) -> None:
    """DESIGN section 6: what a hand reads after a cut is nothing, never what TLS carries."""
    with secure_pair(tmp_path) as (client, server):
        server.sendall(b"a" * 1000)
        reads, cut = threading.Event(), threading.Event()
        got: list[bytes] = []

        def read() -> None:
            with crew.reading(answer(client)):
                got.append(client.recv(1000))
                server.sendall(b"b" * 100_000)  # it has come, and is not read yet
                reads.set()
                assert cut.wait(20)
                with contextlib.suppress(OSError):
                    while data := client.recv(1 << 16):
                        got.append(data)

        def stop() -> None:
            if reads.is_set():
                raise KeyboardInterrupt

        crew = Crew(stop)
        ending, taken = threading.Event(), crew._end

        def end(threads: list[threading.Thread]) -> None:
            threading.Timer(0.1, cut.set).start()
            taken(threads)
            ending.set()

        crew._end = end  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            crew.run([read])
        assert ending.is_set()
        assert set(b"".join(got)) <= set(b"ab")
