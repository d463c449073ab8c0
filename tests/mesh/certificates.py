"""Certificates that tests make for themselves."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tornado.netutil import _client_ssl_defaults


def make(folder: Path, *names: str, password: bytes | None = None, days: int = 1) -> tuple[str, str]:
    """``(certfile, keyfile)`` of a certificate that vouches for itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "pooled test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=2))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([_name(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    locked = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    certfile, keyfile = folder / "cert.pem", folder / "key.pem"
    folder.mkdir(parents=True, exist_ok=True)
    certfile.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    keyfile.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
    )
    return str(certfile), str(keyfile)


def copy(file: str, to: Path, most: int = -1) -> str:
    """The first bytes of a file, or all of it, under another name."""
    with open(file, "rb") as opened:
        to.write_bytes(opened.read(most))
    return str(to)


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


@contextlib.contextmanager
def trusted(certfile: str) -> Iterator[None]:
    """This process takes it, as after ``SSL_CERT_FILE=…``. Tornado reads that once, and is made to again."""
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SSL_CERT_FILE", certfile)
            _client_ssl_defaults.cache_clear()
            yield
    finally:
        _client_ssl_defaults.cache_clear()
