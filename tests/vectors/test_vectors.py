"""Every vector, byte for byte: PROTOCOL sections 2, 4, 5 and 8."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest

from pooled_nb.errors import BadCode
from pooled_nb.mesh import binarypack, codes, fingerprints, proofs, timing
from pooled_nb.mesh.frame import Frame
from pooled_nb.mesh.wire import Receiver, decode, encode, fallback
from pooled_nb.mesh.wire.slices import check_payload
from tests.vectors import load


def _packed(vector: dict[str, Any]) -> Any:
    if "bytes_b64" in vector:
        return base64.b64decode(vector["bytes_b64"])
    data = {"data": base64.b64decode(vector["data_b64"])} if "data_b64" in vector else {}
    return vector["json"] | data if data else vector["json"]


@pytest.mark.parametrize("vector", load("binarypack"), ids=lambda v: str(v.get("json", "bytes"))[:30])
def test_binarypack(vector: dict[str, Any]) -> None:
    """PROTOCOL section 2: "BinaryPack" as the npm package writes it, and read back."""
    value, packed = _packed(vector), base64.b64decode(vector["packed_b64"])
    assert binarypack.pack(value) == packed
    read = binarypack.unpack(packed)
    assert read == value
    assert type(read) is type(value)


def test_codes() -> None:
    """PROTOCOL section 2: "The code is 6 characters" and "Reading one"; links, and keys of the wrong form."""
    vectors = load("codes")
    for text, code, key in vectors["accepted"]:
        invite = codes.parse(text)
        assert (invite.code, invite.key) == (code, key), text
    for text in vectors["refused"]:
        with pytest.raises(BadCode):
            codes.parse(text)
    for code, shown in vectors["shown"]:
        assert codes.shown(code) == shown
        assert codes.parse(shown).code == code
    for key in vectors["bad_keys"]:
        assert not codes.good_key(key), key
        assert codes.parse(f"https://example.org/r/4TKG9P#k={key}").key is None, key


@pytest.mark.parametrize("v", load("proofs"), ids=lambda v: v["host"])
def test_proofs(v: dict[str, str]) -> None:
    """PROTOCOL section 4, binding, digit for digit: "SHA-256 as 64 lower-case hex digits";
    "pass secret `ps`"; "`role=join|host`, `cred=key|pass`"; "the same MAC with `role=host`"; "Six digits";
    "over `pooled-mesh-v1`"; "`pooled-room-CODE` in full".
    """
    sdp = [f"v=0\r\na=fingerprint:{line}\r\n" for line in v["sdp_fingerprints"]]
    binding = fingerprints.binding(*(fingerprints.one(text) for text in sdp))
    assert binding == v["binding"]
    assert proofs.commitment(v["jn"]) == v["jc"]
    assert proofs.pass_secret(v["pass"]) == v["ps"]
    assert proofs.pass_id(v["ps"]) == v["pid"]

    def gate(secret: str, role: proofs.GateRole, cred: proofs.Credential) -> str:
        text = proofs.gate_transcript(
            role, cred, binding=v["binding"], joiner=v["joiner"], creator=v["host"], jn=v["jn"], hn=v["hn"]
        )
        return proofs.mac(secret, text)

    assert gate(v["key"], "join", "key") == v["kp"]
    assert gate(v["ps"], "join", "pass") == v["pp"]
    assert gate(v["key"], "host", "key") == v["hp_key"]
    assert gate(v["ps"], "host", "pass") == v["hp_pass"]
    assert proofs.digits(binding, v["jn"], v["hn"]) == v["sas"]
    ends = {"binding": v["binding"], "dialer": v["joiner"], "acceptor": v["host"]}
    assert proofs.mesh_proof(v["mk"], "dial", **ends) == v["mesh_dial"]
    assert proofs.mesh_proof(v["mk"], "accept", **ends) == v["mesh_accept"]


def test_lap_timeout() -> None:
    """PROTOCOL section 8: "lap timeout until four decode laps were measured", and what holds then."""
    for v in load("timing")["lap_timeout"]:
        got = timing.lap_timeout(v["laps"], v["slowest_s"], v["rtt_s"], v["fallback_s"])
        assert got == pytest.approx(v["timeout_s"]), v


def test_stopped_responding() -> None:
    """PROTOCOL section 8: "stopped responding; waiting for it"."""
    for v in load("timing")["stopped_responding"]:
        assert timing.stopped_responding(v["rtt_s"]) == pytest.approx(v["limit_s"]), v


def _frame(vector: dict[str, Any]) -> Frame:
    frame = fallback.from_map(vector["message"] | {"data": base64.b64decode(vector["payload_b64"])})
    assert frame is not None
    return frame


_FRAMES = load("wire") + load("wire_nb")


@pytest.mark.parametrize("vector", _FRAMES, ids=lambda v: str(v["id"]))
def test_slices(vector: dict[str, Any]) -> None:
    """PROTOCOL section 5: "Slice: 32-byte header, big-endian", every byte of every slice."""
    frame = _frame(vector)
    assert check_payload(frame, vector["dim"]) == frame
    slices = encode(frame, vector["id"])
    assert len(slices) == len(vector["slices"])
    for data, want in zip(slices, vector["slices"], strict=True):
        assert data[:32].hex() == want["header_hex"]
        assert len(data) - 32 == want["payload_len"]
        assert hashlib.sha256(data).hexdigest() == want["sha256"]


@pytest.mark.parametrize("vector", _FRAMES, ids=lambda v: str(v["id"]))
def test_slices_read_back(vector: dict[str, Any]) -> None:
    """PROTOCOL section 5: the same slices, in any order, are that frame again."""
    frame = _frame(vector)
    receiver = Receiver()
    receiver.opened("a")
    got: list[Frame] = []
    for data in reversed(encode(frame, vector["id"])):
        assert decode(data) is not None
        got += receiver.slice("a", data, 0.0)
    assert got == [frame]


@pytest.mark.parametrize("vector", _FRAMES, ids=lambda v: str(v["id"]))
def test_fallback_messages(vector: dict[str, Any]) -> None:
    """PROTOCOL section 5: "A link falls back to control messages" with these very fields."""
    said = fallback.to_map(_frame(vector))
    assert said == vector["message"] | {"data": base64.b64decode(vector["payload_b64"])}
