"""The arithmetic of proofs: hashes, MACs, transcripts, digits (PROTOCOL section 4).

Pure functions over text, microseconds each. Which of them is asked for, and what a wrong one means, is the
gate's to decide.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable
from typing import Literal

GateRole = Literal["join", "host"]
MeshRole = Literal["dial", "accept"]
Credential = Literal["key", "pass"]
RandomBytes = Callable[[int], bytes]


def digest(text: str) -> str:
    """``H(x)``: SHA-256 of the UTF-8 text, 64 lower-case hex digits."""
    return hashlib.sha256(_utf8(text)).hexdigest()


def mac(key: str, text: str) -> str:
    """``MAC(k, x)``: HMAC-SHA256 keyed with the UTF-8 bytes of ``key``, in the same form."""
    return hmac.new(_utf8(key), _utf8(text), hashlib.sha256).hexdigest()


def same(a: str | None, b: str | None) -> bool:
    """Whether both are there and equal, in time that depends on their lengths alone."""
    return a is not None and b is not None and hmac.compare_digest(_utf8(a), _utf8(b))


def new_nonce(random_bytes: RandomBytes = secrets.token_bytes) -> str:
    """A nonce, invite key or pass: 16 random bytes, 22 characters of base64url."""
    return _base64url(random_bytes(16))


def new_mesh_key(random_bytes: RandomBytes = secrets.token_bytes) -> str:
    """A mesh key: 32 random bytes, 43 characters of base64url."""
    return _base64url(random_bytes(32))


def commitment(jn: str) -> str:
    """``jc``: what the device says of its nonce before it knows the creator's."""
    return digest(f"pooled-commit-v1\n{jn}")


def pass_secret(pass_: str) -> str:
    """``ps``: all that the creator keeps of a pass."""
    return digest(pass_)


def pass_id(ps: str) -> str:
    """``pid``: how the creator finds a pass, 32 hex digits."""
    return digest(f"pooled-pass-id-v1\n{ps}")[:32]


def gate_transcript(
    role: GateRole, cred: Credential, *, binding: str, joiner: str, creator: str, jn: str, hn: str
) -> str:
    """What ``kp``, ``pp`` and ``hp`` are MACs of.

    Parameters
    ----------
    joiner, creator
        PeerJS ids as registered, ``pooled-room-CODE`` in full.
    """
    lines = (
        "pooled-auth-v1",
        f"role={role}",
        f"cred={cred}",
        f"fp={binding}",
        f"ids={joiner},{creator}",
        f"jn={jn}",
        f"hn={hn}",
    )
    return "\n".join(lines)


def mesh_proof(mk: str, role: MeshRole, *, binding: str, dialer: str, acceptor: str) -> str:
    """``p`` of one end of a device-device link or stripe; the dialer is who made the OFFER."""
    lines = ("pooled-mesh-v1", f"role={role}", f"fp={binding}", f"ids={dialer},{acceptor}")
    return mac(mk, "\n".join(lines))


def digits(binding: str, jn: str, hn: str) -> str:
    """Six digits that two people compare: ``482 019``."""
    number = int(digest(f"pooled-sas-v1\n{binding}\n{jn}\n{hn}")[:8], 16) % 1_000_000
    return f"{number // 1000:03d} {number % 1000:03d}"


def _utf8(text: str) -> bytes:
    # Ids come from signaling: half a surrogate pair in one must not raise, it only proves nothing.
    return text.encode(errors="surrogatepass")


def _base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
