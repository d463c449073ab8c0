"""``pooled-nb doctor``: facts in, findings out; each failure says what to do."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from pooled_nb import places
from pooled_nb.doctor import channels, device, folders, place, relay, report, signaling, stun, udp, versions
from pooled_nb.doctor.channels import Channels
from pooled_nb.doctor.device import Device
from pooled_nb.doctor.examination import is_near
from pooled_nb.doctor.findings import Finding, fails, hide, lines, summary
from pooled_nb.doctor.folders import Disk, RuntimeFolder
from pooled_nb.doctor.relay import Relay
from pooled_nb.doctor.signaling import EMBEDDED, Signaling
from pooled_nb.doctor.stun import Stun
from pooled_nb.doctor.udp import Udp
from pooled_nb.doctor.versions import Package, Versions
from pooled_nb.shard import DeviceFacts
from pooled_nb.shard.compat import TORCH

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


def one(findings: list[Finding], what: str) -> Finding:
    [found] = [finding for finding in findings if finding.what == what]
    return found


# Versions.


def seen(**packages: str | None) -> Versions:
    wants = {"torch": ">=2.9,<3.0", "aiortc": ">=1.13,<2", "jupyterlab": ">=4.4", "msgspec": ">=0.19"}
    return Versions(
        python="3.11.7",
        python_wants=">=3.11",
        packages=[
            Package(name=name, have=have, wants=wants[name], extra=name == "jupyterlab")
            for name, have in packages.items()
        ],
    )


@pytest.mark.parametrize(
    ("name", "have", "mark", "result"),
    [
        ("torch", "2.13.0+cpu", "ok", "2.13.0+cpu"),
        ("torch", "2.10.0a0+git1", "ok", "2.10.0a0+git1"),
        ("torch", "2.8.1", "fail", "2.8.1, where >=2.9, <3.0 is supported"),
        ("torch", "3.0.0", "fail", "3.0.0, where >=2.9, <3.0 is supported"),
        ("torch", None, "fail", "not installed"),
        ("torch", "unknown", "warn", "unknown, a version that cannot be compared with >=2.9,<3.0"),
        ("aiortc", "2.0", "fail", "2.0, where >=1.13, <2 is supported"),
        ("jupyterlab", "3.6", "warn", "3.6, where >=4.4 is supported"),
        ("msgspec", "0.1", "fail", "0.1, where >=0.19 is supported"),
    ],
)
def test_a_version(name: str, have: str | None, mark: str, result: str) -> None:
    """CASES, models: outside the supported range → one line naming both versions."""
    found = one(versions.judge(seen(**{name: have})), name)
    assert (found.mark, found.result) == (mark, result)
    if mark == "fail":
        assert found.todo.startswith(f'Run: pip install -U "{name}>=')


def test_what_is_fine_and_not_asked_for_is_not_told() -> None:
    """A list of thirty packages would hide the one that is wrong."""
    assert [f.what for f in versions.judge(seen(msgspec="0.20", jupyterlab=None))] == ["python", "pooled_nb"]


def test_an_old_python() -> None:
    old = Versions(python="3.10.1", python_wants=">=3.11", packages=[])
    found = one(versions.judge(old), "python")
    assert (found.mark, found.result) == ("fail", "3.10.1, where >=3.11 is supported")


def test_run_from_a_folder() -> None:
    found = one(versions.judge(Versions(python="3.12.0", python_wants="", packages=[])), "pooled_nb")
    assert found.mark == "warn"
    assert "pip install" in found.todo


def test_ranges_are_those_of_pyproject() -> None:
    """The metadata of what is installed; torch and transformers end where `shard.compat` refuses them."""
    found = dict(versions.required(PROJECT["dependencies"]))
    assert set(found) == {Requirement(line).name for line in PROJECT["dependencies"]}
    assert found["aiortc"] == ">=1.13,<2"
    low, high = (".".join(map(str, version)) for version in TORCH)
    assert found["torch"] == f">={low},<{high}"
    extra = ['x>=1; extra == "lan"', 'y>=2; python_version < "3"', "not a requirement !", "z"]
    assert versions.required(extra) == [("z", "")]
    looked_at = [Requirement(x) for name in ("lab", "wrtc") for x in PROJECT["optional-dependencies"][name]]
    assert {one.name: one.specifier for one in looked_at} == {
        name: SpecifierSet(wants) for name, wants in versions.EXTRAS.items()
    }


def test_a_look_at_what_is_here() -> None:
    here = versions.look()
    assert here.python == ".".join(map(str, sys.version_info[:3]))
    assert {"torch", "aiortc", "ipykernel", "anywidget"} <= {p.name for p in here.packages}


# Device.


def facts(**more: object) -> DeviceFacts:
    given: dict[str, object] = {
        "kind": "cpu",
        "name": "Some CPU",
        "total_gb": 16.0,
        "free_gb": 8.0,
        "dtypes": ["float32", "bfloat16"],
        "gbps": 9.0,
        "sig": "x",
        "threads": 4,
        "torch": "2.13.0+cpu",
        "transformers": "5.24.0",
    }
    return DeviceFacts(**(given | more))  # type: ignore[arg-type]


def test_a_device() -> None:
    found = device.judge(Device(facts=facts()))
    assert [(f.what, f.mark) for f in found] == [("device", "ok"), ("memory", "ok"), ("dtypes", "ok")]
    assert found[0].result == "cpu: Some CPU, 4 threads"
    assert found[1].result == "8.0 of 16.0 GB free; lends 4.0 GB unless told otherwise"
    assert found[2].result == "float32, bfloat16"


def test_little_memory() -> None:
    found = one(device.judge(Device(facts=facts(free_gb=0.4))), "memory")
    assert (found.mark, found.todo) == ("warn", "Close other programs before lending memory.")


def test_no_bfloat16() -> None:
    """DESIGN section 5: T4-class GPUs have no native bf16."""
    found = one(device.judge(Device(facts=facts(kind="cuda", dtypes=["float32", "float16"]))), "dtypes")
    assert found.mark == "warn"
    assert "no bfloat16" in found.result


def test_a_gpu_that_torch_does_not_see() -> None:
    found = one(device.judge(Device(facts=facts(), nvidia=True)), "device")
    assert found.mark == "warn"
    assert "torch 2.13.0+cpu does not see its NVIDIA GPU" in found.result
    assert "Install torch's build" in found.todo
    assert one(device.judge(Device(facts=facts(kind="cuda"), nvidia=True)), "device").mark == "ok"


def test_an_accelerator_that_failed_its_trial() -> None:
    """DESIGN section 5: the engine falls back to the CPU by itself, and says so."""
    note = "mps is not used, since a small trial on it failed (ArithmeticError: wrong numbers)."
    found = one(device.judge(Device(facts=facts(note=note), nvidia=True)), "device")
    assert found.mark == "warn"
    assert found.result == f"cpu: Some CPU; {note[:-1]}"
    assert "POOLED_DEVICE=cpu" in found.todo


def test_a_shard_that_fails() -> None:
    [found] = device.judge(Device(problem="A library cannot be imported here: x.", step="Run: pip install x"))
    assert (found.mark, found.todo) == ("fail", "Run: pip install x")
    [found] = device.judge(Device(problem="It died.", step=""))
    assert found.todo


# Folders.


@pytest.mark.parametrize(
    ("free", "writable", "mark"),
    [
        (500.0, True, "ok"),
        (5.0, True, "warn"),
        (0.5, True, "fail"),
        (500.0, False, "fail"),
        (None, True, "skip"),
    ],
)
def test_disk(free: float | None, writable: bool, mark: str) -> None:
    [found] = folders.judge_disk(Disk(folder="/cache", free_gb=free, writable=writable))
    assert found.mark == mark
    assert ("POOLED_CACHE" in found.todo) == (mark in ("warn", "fail"))


def folder(**more: object) -> RuntimeFolder:
    given: dict[str, object] = {
        "folder": "/run/rooms",
        "kind": "folder",
        "own": True,
        "private": True,
        "writable": True,
    }
    return RuntimeFolder(**(given | more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "result", "todo"),
    [
        (folder(kind="other"), "/run/rooms is no folder", "Move it away"),
        (folder(own=False), "belongs to another user", "Remove it"),
        (folder(private=False), "others may write to", "chmod 700 /run/rooms"),
        (folder(writable=False), "cannot be written to", "chmod 700 /run/rooms"),
        (folder(kind="none", writable=False), "cannot be made", "Let this user write"),
        (folder(folder="", problem="it is somebody else's"), "it is somebody else's", "XDG_RUNTIME_DIR"),
    ],
)
def test_a_runtime_folder_that_does_not_serve(seen: RuntimeFolder, result: str, todo: str) -> None:
    """PROTOCOL section 2: a folder of this user alone."""
    [found] = folders.judge_runtime(seen)
    assert found.mark == "fail"
    assert result in found.result
    assert "not found by its code alone" in found.result
    assert todo in found.todo
    assert "POOLED_RUNTIME_DIR" in found.todo


def test_a_runtime_folder_that_serves() -> None:
    assert folders.judge_runtime(folder())[0].mark == "ok"
    assert folders.judge_runtime(folder(kind="none"))[0].result == "/run/rooms, made with the first room"


@pytest.mark.skipif(sys.platform == "win32", reason="rights of POSIX")
def test_a_look_at_a_real_runtime_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = tmp_path / "rooms"
    monkeypatch.setenv("POOLED_RUNTIME_DIR", str(where))
    assert folders.look_at_runtime().kind == "none"
    assert not where.exists()  # looking makes nothing
    where.mkdir(mode=0o700)
    assert folders.look_at_runtime() == folder(folder=str(where))
    where.chmod(0o777)
    assert not folders.look_at_runtime().private
    where.rmdir()
    where.write_text("")
    assert folders.look_at_runtime().kind == "other"


# Network.


def test_udp() -> None:
    fine = udp.judge([Udp(address="127.0.0.2", loopback=True), Udp(address="10.0.0.4", loopback=False)])
    assert [f.mark for f in fine] == ["ok", "ok"]
    shut = [
        Udp(address=a, loopback=a[0] == "1", problem="no datagram arrives") for a in ("127.0.0.1", "9.9.9.9")
    ]
    here, network = udp.judge(shut)
    assert (here.mark, network.mark) == ("fail", "warn")
    assert "Allow UDP" in here.todo
    assert "allow UDP" in network.todo
    [_, alone] = udp.judge([Udp(address="127.0.0.2", loopback=True)])
    assert (alone.mark, alone.result) == ("warn", "this machine has no network address")
    [_, half] = udp.judge(
        [Udp(address="10.0.0.4", loopback=False), Udp(address="9.9.9.9", loopback=False, problem="x")]
    )
    assert (half.mark, half.result) == ("ok", "datagrams arrive at 10.0.0.4, not at 9.9.9.9")


SILENT = [Stun(server="a", problem="no answer"), Stun(server="b", problem="no answer")]


def test_no_stun_server_answers() -> None:
    """A failure where rooms with devices elsewhere are configured; TURN is one setting (DESIGN section 7)."""
    found = stun.judge(SILENT, needed=True, relay=False)
    assert [f.mark for f in found] == ["fail", "fail"]
    assert all("set POOLED_TURN to a relay: turn:USER:PASSWORD@HOST:PORT" in f.todo for f in found)
    found = stun.judge(SILENT, needed=False, relay=False)
    assert [(f.mark, bool(f.todo)) for f in found] == [("warn", False), ("warn", True)]
    assert [f.mark for f in stun.judge(SILENT, needed=True, relay=True)] == ["warn", "warn"]


def test_one_of_the_stun_servers_is_enough() -> None:
    found = stun.judge(
        [*SILENT[:1], Stun(server="c", ms=20, mapped=("1.2.3.4", 5))], needed=True, relay=False
    )
    assert [(f.what, f.mark, f.result) for f in found] == [
        ("STUN a", "warn", "no answer"),
        ("STUN c", "ok", "answers in 20 ms"),
    ]


def test_a_nat_that_changes_its_ports() -> None:
    two = [Stun(server=s, ms=9, mapped=("203.0.113.9", p)) for s, p in (("a", 1000), ("b", 1001))]
    found = one(stun.judge(two, needed=True, relay=False), "NAT")
    assert found.mark == "warn"
    assert "POOLED_TURN" in found.todo
    assert "203.0.113.9" not in "".join(f.result for f in stun.judge(two, needed=True, relay=False))
    assert one(stun.judge(two, needed=True, relay=True), "NAT").todo == ""


def test_relay() -> None:
    """PROTOCOL section 2, ICE: whence it is known tells who has to mend it."""
    assert relay.judge([]) == []
    [found] = relay.judge([Relay(problem="POOLED_TURN names no relay that can be read.", step="Write it.")])
    assert (found.mark, found.todo) == ("fail", "Write it.")
    bad = Relay(place="x:3478", source="POOLED_TURN", problem="it refuses this user or password")
    [found] = relay.judge([bad])
    assert (found.what, found.mark) == ("relay x:3478", "fail")
    assert "POOLED_TURN" in found.todo
    [found] = relay.judge([Relay(place="x:3478", source="ws://a/", given=True, problem="no answer")])
    assert (found.mark, "whoever runs ws://a/" in found.todo) == ("warn", True)
    assert relay.judge([Relay(place="x:3478", ms=12.0)])[0].mark == "ok"
    given = [Relay(place=f"x:{port}", source="ws://a/", given=True, ms=1) for port in (1, 2)]
    assert all("of 2 ways to a relay the first" in found.result for found in relay.judge(given))


def test_relay_only_without_a_relay() -> None:
    """Nothing could be reached: said before a room is tried."""
    assert relay.judge([], relay_only=True)[-1].mark == "fail"
    bad = Relay(place="x:3478", source="POOLED_TURN", problem="no answer")
    assert [found.what for found in relay.judge([bad], relay_only=True)] == ["relay x:3478", "relay only"]
    assert len(relay.judge([Relay(place="x:3478", ms=12.0)], relay_only=True)) == 1


def test_signaling() -> None:
    """Devices meet at the first server that answers: one of several may fail."""
    down, up = Signaling(shown="ws://a/", problem="no answer"), Signaling(shown="ws://b/", ms=8)
    embedded = Signaling(shown=EMBEDDED, ms=3)
    assert [f.mark for f in signaling.judge([embedded, down, up])] == ["ok", "warn", "ok"]
    assert [f.mark for f in signaling.judge([embedded, down])] == ["ok", "fail"]
    assert "--signal" in signaling.judge([down])[0].todo
    [found] = signaling.judge([Signaling(shown=EMBEDDED, problem="It cannot be started.", step="Do this.")])
    assert (found.mark, found.result, found.todo) == ("fail", "It cannot be started", "Do this.")


def test_why_a_server_did_not_answer() -> None:
    said = "No signaling server answers: ws://a:9/ (network: connection refused)."
    assert signaling.why(said, "ws://a:9/") == "network: connection refused"
    assert signaling.why("Something else.", "ws://a:9/") == "Something else"


def test_channels() -> None:
    [found] = channels.judge(Channels(ms=50, tuned="aiortc 1.16"))
    assert (found.mark, found.result, found.todo) == (
        "ok",
        "open on this machine, 50 ms; tuned for aiortc 1.16",
        "",
    )
    [found] = channels.judge(Channels(ms=50, stock="aiortc 1.17.0 is another", step="Do this."))
    assert (found.mark, found.result, found.todo) == (
        "warn",
        "open on this machine, 50 ms; stock aiortc (aiortc 1.17.0 is another): links are slower",
        "Do this.",
    )
    [found] = channels.judge(Channels(problem="no data channel opens"))
    assert found.mark == "fail"
    assert "firewall" in found.todo


@pytest.mark.parametrize(
    ("spec", "near"),
    [
        ("ws://127.0.0.1:9/", True),
        ("ws://localhost:9/", True),
        ("192.168.1.5:9000", True),
        ("cloud", False),
        ("wss://rooms.example.org", False),
        ("no server at all", True),
    ],
)
def test_who_needs_stun(spec: str, near: bool) -> None:
    """PROTOCOL section 2: no STUN for a room on one machine or one local network."""
    assert is_near(spec) is near


# Place.


def test_colab() -> None:
    """DESIGN section 7: its rules, what the defaults are then, and TURN as one setting."""
    rules, network = place.judge(places.COLAB, relay=False)
    assert "distributed computation" in rules.result
    assert "join is a guest and host keeps the model on this device" in rules.result
    assert "--role worker, --split speed" in rules.todo
    assert "POOLED_TURN" in network.todo
    assert place.judge(places.COLAB, relay=True)[1].todo == ""


def test_kaggle_and_elsewhere() -> None:
    [found] = place.judge(places.KAGGLE, relay=False)
    assert "internet" in found.result
    assert "settings" in found.todo
    assert place.judge(places.ELSEWHERE, relay=False) == []


# The report.


def some(*marks: str) -> list[Finding]:
    return [
        Finding(what=f"t{n}", mark=m, result="so", todo="do" if m == "fail" else "")
        for n, m in enumerate(marks)
    ]  # type: ignore[arg-type]


def test_the_last_line_and_the_status() -> None:
    assert (fails(some("ok", "warn", "skip")), fails(some("ok", "fail"))) == (False, True)
    assert summary(some("ok")) == "Everything that was looked at works."
    assert "marked with !" in summary(some("ok", "warn"))
    assert summary(some("fail")).startswith("1 thing does not work")
    assert summary(some("fail", "fail")).startswith("2 things do not work")


def test_lines_fit_the_terminal() -> None:
    """Nothing is cut: long results are wrapped beside their names, or below them where it is too narrow."""
    long = [Finding(what="a thing", mark="fail", result="word " * 40, todo="do " * 40)]
    for columns in (120, 80, 40, 24):
        told = lines(long, columns=columns, encoding="utf-8")
        assert max(map(len, told[:-2])) <= columns
        assert " ".join(told).count("word") == 40
    assert len(lines(long, columns=None, encoding="utf-8")) == 4
    assert lines(some("ok", "warn", "fail", "skip"), columns=None, encoding="utf-8")[0].startswith("✓ t0")


def test_marks_that_a_terminal_can_draw() -> None:
    told = lines(some("ok", "warn", "fail", "skip"), columns=None, encoding="cp1252")
    assert [line[0] for line in told if re.match(r"\S t\d", line)] == ["+", "!", "x", "-"]


def test_findings_are_text() -> None:
    [found] = hide([Finding(what="a\x1b[2J", mark="ok", result="\x07b")], [])
    assert (found.what, found.result) == ("a[2J", "b")


def test_no_secret_is_shown() -> None:
    """DESIGN section 7: TURN password, link and tokens, whole and in parts, wherever a text repeats them."""
    env = {
        "POOLED_TURN": "turn:alice:hunter2%21secret@turn.example.org",
        "POOLED_LINK": "https://x/r/4TK-G9P#k=abcdefghijklmnopqrstuv",
        "HF_TOKEN": "hf_tokentoken",
    }
    hidden = report.secrets(env)
    assert {"hunter2!secret", "alice", *env.values()} <= set(hidden)
    told = " ".join([*env.values(), "hunter2!secret", "alice"])
    [found] = hide([Finding(what=told, mark="fail", result=told, todo=told)], hidden)
    shown = json.dumps([found.what, found.result, found.todo])
    for secret in ("hunter2", "alice", "abcdefghij", "hf_tokentoken"):
        assert secret not in shown


def test_a_setting_that_cannot_be_read_is_hidden_whole() -> None:
    assert report.secrets({"POOLED_TURN": "nonsense with a password"}) == ["nonsense with a password"]


def test_which_servers_are_meant() -> None:
    env = {"POOLED_SIGNAL": "local, ws://a/ ,cloud"}
    assert report.servers(None, env) == ["ws://a/", "cloud"]
    assert report.servers(["b", "c,local", "b"], env) == ["b", "c"]
    assert report.servers(None, {}) == []
