"""PROTOCOL section 2: the signaling server's certificate, from files (``pooled-nb signal --certfile``)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pooled_nb.errors import BadOption
from pooled_nb.mesh.signalserver import SignalServer
from pooled_nb.mesh.switchboard import Limits
from pooled_nb.mesh.tls import Certificate
from tests.mesh import certificates
from tests.mesh.rawsocket import TEXT, frame, handshake, wire
from tests.mesh.rtctools import nothing_left, until


@contextlib.asynccontextmanager
async def secure(certificate: Certificate, limits: Limits | None = None) -> AsyncIterator[SignalServer]:
    server = await SignalServer.start(tls=certificate.context, limits=limits)
    try:
        yield server
    finally:
        await server.close()


async def serial(server: SignalServer, certfile: str) -> int:
    """Which certificate it shows now, to a client that trusts this one."""
    context = ssl.create_default_context(cafile=certfile)
    async with wire(server, tls=context) as one:
        shown = one.writer.get_extra_info("peercert")
    return int(shown["serialNumber"], 16)


async def test_a_renewed_certificate_is_taken(tmp_path: Path) -> None:
    """PROTOCOL section 2: a certificate lives for weeks, a server for longer: its files are read again."""
    files = certificates.make(tmp_path, "127.0.0.1", "rooms.example", "*.example")
    trust = certificates.copy(files[0], tmp_path / "trust.pem")
    certificate = Certificate(*files)
    assert certificate.names() == ["rooms.example", "127.0.0.1"]
    async with nothing_left(), secure(certificate) as server:
        before = await serial(server, files[0])
        assert not certificate.renewed()
        certificates.make(tmp_path, "127.0.0.1")
        async with wire(server, handshake("a"), tls=ssl.create_default_context(cafile=trust)) as a:
            assert await a.reader.readuntil(b'{"type":"OPEN"}')
            assert certificate.renewed()
            server.renew(certificate.context)
            assert not certificate.renewed()
            assert await serial(server, files[0]) != before
            a.writer.write(frame(TEXT, b'{"type":"OFFER","dst":"a"}'))
            assert await a.reader.readuntil(b'"src":"a"')  # who was there goes on


async def test_a_broken_renewal_changes_nothing(tmp_path: Path) -> None:
    """PROTOCOL section 2: half-written files, or a key of another certificate: the one before stays."""
    files = certificates.make(tmp_path / "a", "127.0.0.1")
    trust = certificates.copy(files[0], tmp_path / "trust.pem")
    other, _ = certificates.make(tmp_path / "other", "127.0.0.1")
    half = certificates.copy(files[0], tmp_path / "half.pem", most=60)
    certificate = Certificate(*files)
    async with nothing_left(), secure(certificate) as server:
        before = await serial(server, trust)
        for broken in (os.devnull, half, other):
            certificates.copy(broken, tmp_path / "a" / "cert.pem")
            with pytest.raises(BadOption):
                certificate.renewed()
            assert not certificate.renewed()  # said once
            server.renew(certificate.context)
            assert await serial(server, trust) == before
        # the last one was half of a pair, as between the two files of a renewal: its other half comes
        certificates.copy(str(tmp_path / "other" / "key.pem"), tmp_path / "a" / "key.pem")
        assert certificate.renewed()
        server.renew(certificate.context)
        assert await serial(server, other) != before
        os.unlink(files[0])
        with pytest.raises(BadOption, match="cannot be read"):
            certificate.renewed()


def test_files_that_are_no_good(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """PROTOCOL section 2: each kind of wrong file has its own sentence; nothing asks at the terminal."""
    cert, key = certificates.make(tmp_path / "a", "127.0.0.1")
    other, _ = certificates.make(tmp_path / "b", "127.0.0.1")
    locked_cert, locked = certificates.make(tmp_path / "c", "127.0.0.1", password=b"sesame")
    nonsense = tmp_path / "nonsense"
    nonsense.write_bytes(os.urandom(300))
    both = tmp_path / "both.pem"
    both.write_bytes(Path(cert).read_bytes() + Path(key).read_bytes())
    assert Certificate(str(both)).names() == ["127.0.0.1"]
    for certfile, keyfile, why in (
        (str(tmp_path / "none"), None, "cannot be read (No such file"),
        (cert, str(tmp_path), "cannot be read (Is a directory"),
        (cert, None, "does not hold a certificate and its key"),
        (str(nonsense), None, "does not hold a certificate and its key"),
        (cert, str(nonsense), "are no certificate and key in PEM form"),
        (other, key, "is not that of the certificate"),
        (locked_cert, locked, "is locked with a password"),
    ):
        with pytest.raises(BadOption) as caught:
            Certificate(certfile, keyfile)
        if sys.platform != "win32" or "cannot be read" not in why:
            assert why in caught.value.what
        assert caught.value.next_step
    assert capfd.readouterr().out == ""


async def test_half_a_tls_handshake_is_cut_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """PROTOCOL section 2: who speaks no TLS, or half of it, is not kept and disturbs nobody; no log fills."""
    certificate = Certificate(*certificates.make(tmp_path, "127.0.0.1"))
    trusts = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
    async with nothing_left(), secure(certificate, Limits(handshake_s=0.6)) as server:
        async with wire(server, handshake("a"), tls=trusts) as a:
            assert await a.reader.readuntil(b'{"type":"OPEN"}')
            for first in (b"", b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 500):
                async with wire(server, first) as bad:
                    await bad.ended()
            with contextlib.suppress(ssl.SSLError, ConnectionError):
                await asyncio.open_connection("127.0.0.1", server.port, ssl=ssl.create_default_context())
            await until(lambda: server.held["streams"] == 1)
            assert len(server) == 1
        await until(lambda: server.held["streams"] == 0)
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]
