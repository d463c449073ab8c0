"""Weights by ranges: from a server of 100 MB/s beside curl, from the cache beside safetensors, after SIGKILL,
and from another device of this machine beside stock aiortc.

``python -m benchmarks.weights [--quick] [--json]``. The server is a process of its own; the model is made for
this: numbers in bf16, half of its layers are fetched. Runs of ours and of the peer take turns.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from benchmarks.report import Row, report
from benchmarks.weights_pair import from_a_peer
from benchmarks.weights_server import REPO

MB_S = 100
FILES = 2
_PULL = """
import os, sys, time
from pooled_nb.shard.sources import pull
began = time.perf_counter(), time.process_time()
at = [began]
def progress(pct, words):
    if words.startswith("reading the headers"):
        at[0] = time.perf_counter(), time.process_time()
located = pull(sys.argv[1], lo=0, hi=int(sys.argv[2]), ends=False, progress=progress)
print(time.perf_counter() - at[0][0], time.process_time() - at[0][1])
"""


def write_model(folder: Path, layers: int, tensor: int) -> Path:
    """Write a model of layers of 7 tensors of so many bytes, bf16, in two files with an index."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "num_hidden_layers": layers}))
    where: dict[str, str] = {}
    for number in range(FILES):
        name = f"model-{number + 1:05}-of-{FILES:05}.safetensors"
        own = range(number * layers // FILES, (number + 1) * layers // FILES)
        names = [f"model.layers.{layer}.w{part}.weight" for layer in own for part in range(7)]
        header = {
            n: {
                "dtype": "BF16",
                "shape": [tensor // 2048, 1024],
                "data_offsets": [i * tensor, (i + 1) * tensor],
            }
            for i, n in enumerate(names)
        }
        text = json.dumps(header).encode()
        with (folder / name).open("wb") as stream:
            stream.write(len(text).to_bytes(8, "little") + text)
            for _ in names:
                stream.write(os.urandom(1 << 20) * (tensor >> 20))
        where |= dict.fromkeys(names, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    return folder


class Server:
    """The server's process."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.weights_server", str(folder), str(MB_S)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    def sent(self) -> int:
        """Bytes of weights sent so far."""
        with urllib.request.urlopen(f"{self.url}/sent") as answer:
            return int(answer.read())

    def close(self) -> None:
        """End it."""
        self._process.communicate("")


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """Serve a model for the length of a block."""
    server = Server(folder)
    try:
        yield server
    finally:
        server.close()


def environment(server: Server, home: Path) -> dict[str, str]:
    """What a process is told, so that it has that hub and an empty cache."""
    return os.environ | {
        "HF_ENDPOINT": server.url,
        "HF_HUB_OFFLINE": "0",
        "HF_HOME": str(home / "hf"),
        "HF_HUB_CACHE": str(home / "hub"),
        "POOLED_CACHE": str(home / "cache"),
    }


def pulling(server: Server, home: Path, layers: int) -> subprocess.Popen[str]:
    """Begin to pull the first layers, in a process of its own."""
    command = [sys.executable, "-c", _PULL, REPO, str(layers)]
    return subprocess.Popen(command, env=environment(server, home), stdout=subprocess.PIPE, text=True)


def pulled(server: Server, home: Path, layers: int) -> tuple[float, float]:
    """Pull the first layers; seconds and CPU seconds from the headers on."""
    process = pulling(server, home, layers)
    said = process.communicate()[0]
    if process.returncode:
        raise RuntimeError("pull failed")
    seconds, cpu = said.split()
    return float(seconds), float(cpu)


def curled(server: Server, home: Path, ranges: list[tuple[str, int, int]]) -> tuple[float, float]:
    """Fetch the same ranges by one curl, 4 at once; seconds and CPU seconds."""
    home.mkdir(parents=True)
    command = ["curl", "--fail", "--no-progress-meter", "--parallel", "--parallel-max", "4"]
    for i, (name, lo, hi) in enumerate(ranges):
        command += ["--next"] if i else []
        command += ["-r", f"{lo}-{hi - 1}", "-o", str(home / str(i)), f"{server.url}/r/{name}"]
    before = psutil.Process().cpu_times()
    began = time.perf_counter()
    subprocess.run(command, check=True)
    seconds = time.perf_counter() - began
    after = psutil.Process().cpu_times()
    cpu = after.children_user - before.children_user + after.children_system - before.children_system
    return seconds, cpu


def ranges_of(folder: Path, layers: int) -> list[tuple[str, int, int]]:
    """The requests that the first layers take: of each file, cut as ours are."""
    from pooled_nb.shard.headers import read_layout
    from pooled_nb.shard.sources.needs import requests, wanted
    from pooled_nb.shard.tensors import in_range

    found: dict[str, list[tuple[int, int]]] = {}
    for file in sorted(folder.glob("*.safetensors")):
        blocks = wanted(read_layout(file), lambda name: in_range(name, 0, layers, False))
        found[file.name] = [(block.lo, block.hi) for block in blocks]
    total = sum(hi - lo for blocks in found.values() for lo, hi in blocks)
    return [
        (name, ask.pieces[0][0], ask.pieces[-1][1])
        for name, blocks in found.items()
        for ask in requests(name, blocks, total)
    ]


def from_cache(home: Path, server: Server, model: Path, layers: int, repeats: int) -> tuple[float, float]:
    """MB/s of a second load (found and read as a load does), and of safetensors reading the same tensors.

    The best of several: both only copy memory here, and whatever else runs slows them.
    """
    command = [sys.executable, "-c", _READ, REPO, str(layers), str(model), str(repeats)]
    env = environment(server, home) | {"OMP_NUM_THREADS": "1"}
    ours, theirs = json.loads(subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True).stdout)
    return float(ours), float(theirs)


_READ = """
import json, sys, time
from safetensors import safe_open
from pooled_nb.shard.door import LoadSpec
from pooled_nb.shard.lazy import LazyTensor
from pooled_nb.shard.sources import fetch, find
repo, layers, model, repeats = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
found = find(repo, revision=None, folder=None, progress=lambda *_: None)
spec = LoadSpec(repo=found.repo, revision=found.revision, folder=None, config_sha256="", lo=0, hi=layers,
                ends=False, ctx=1, dtype="bfloat16", files=found.files)
def ours():
    began = time.perf_counter()
    located = fetch(spec, progress=lambda *_: None)
    size = 0
    for name, entry in located.tensors.entries.items():
        size += LazyTensor(name, entry, lambda n: None)[...].nbytes
    return size / (time.perf_counter() - began) / 1e6
index = json.load(open(f"{model}/model.safetensors.index.json"))["weight_map"]
wanted = [n for n in index if int(n.split(".")[2]) < layers]
def theirs():
    began = time.perf_counter()
    size = 0
    for file in sorted({index[n] for n in wanted}):
        with safe_open(f"{model}/{file}", "pt") as opened:
            for n in wanted:
                if index[n] == file:
                    size += opened.get_tensor(n).clone().nbytes  # get_tensor alone only maps the file
    return size / (time.perf_counter() - began) / 1e6
ours(), theirs()
both = [(ours(), theirs()) for _ in range(repeats)]
print(json.dumps([max(column) for column in zip(*both)]))
"""


def killed(server: Server, home: Path, layers: int, need: int) -> tuple[int, int]:
    """Pull, SIGKILL in the middle, pull again; bytes that came before it, and in all."""
    began = server.sent()
    process = pulling(server, home, layers)
    while server.sent() - began < need // 2:
        if process.poll() is not None:
            raise RuntimeError("it ended before it was killed")
        time.sleep(0.01)
    process.kill()  # SIGKILL
    process.communicate()
    time.sleep(0.2)
    before = server.sent() - began
    pulled(server, home, layers)
    return before, server.sent() - began


def together(server: Server, home: Path, layers: int) -> int:
    """Two processes that pull the same at once: bytes in all."""
    began = server.sent()
    both = [pulling(server, home, layers) for _ in range(2)]
    for process in both:
        process.communicate()
        if process.returncode:
            raise RuntimeError("pull failed")
    return server.sent() - began


def measure(folder: Path, *, quick: bool) -> list[Row]:
    """All rows."""
    layers, tensor, runs = (16, 4 << 20, 2) if quick else (32, 4 << 20, 5)
    model = write_model(folder / "model", layers, tensor)
    half = layers // 2
    need = half * 7 * tensor
    ranges = ranges_of(model, half)
    ours: list[tuple[float, float]] = []
    curl: list[tuple[float, float]] = []
    with serving(model) as server:
        for run in range(runs):
            home = folder / f"ours{run}"
            before = server.sent()
            ours.append(pulled(server, home, half))
            came = server.sent() - before
            curl.append(curled(server, folder / f"curl{run}", ranges))
            shutil.rmtree(folder / f"curl{run}")
            if run < runs - 1:
                shutil.rmtree(home)
        cached, safetensors = from_cache(home, server, model, half, 5 if quick else 9)
        shutil.rmtree(home)
        before_kill, in_all = killed(server, folder / "killed", half, need)
        shutil.rmtree(folder / "killed")
        twice = together(server, folder / "both", half)
    shutil.rmtree(folder / "both")
    peer = from_a_peer(model, folder / "peer", 1 if quick else 4, 1 if quick else 5)
    return [*_rows(need, came, ours, curl, cached, safetensors, before_kill, in_all, twice), *peer]


def _rows(
    need: int,
    came: int,
    ours: list[tuple[float, float]],
    curl: list[tuple[float, float]],
    cached: float,
    safetensors: float,
    before_kill: int,
    in_all: int,
    twice: int,
) -> list[Row]:
    rates = [[need / seconds / 1e6 for seconds, _ in one] for one in (ours, curl)]
    mine, theirs = (statistics.median(one) for one in rates)
    cpu, curl_cpu = (statistics.median(c / need * 1e9 for _, c in one) for one in (ours, curl))
    again = (in_all - came) / need
    ratios: list[dict[str, Any]] = [
        {
            "what": "bytes fetched for a range, of those of its tensors",
            "value": came / need,
            "unit": "×",
            "goal": "≤ 1.005",
            "ok": came / need <= 1.005,
        },
        {
            "what": f"pull from a server of {MB_S} MB/s, hashed, {need / 1e6:.0f} MB",
            "value": mine,
            "unit": "MB/s",
            "peer": f"curl, same ranges: {theirs:.1f} MB/s",
            "ratio": mine / theirs,
            "goal": "≥ 0.9 ×",
            "ok": mine / theirs >= 0.9,
        },
        {
            "what": "its CPU for each GB",
            "value": cpu,
            "unit": "s",
            "peer": f"curl: {curl_cpu:.2f} s",
            "ratio": cpu / curl_cpu,
        },
        {
            "what": "second load, from the cache, best of several",
            "value": cached,
            "unit": "MB/s",
            "peer": f"safetensors: {safetensors:.0f} MB/s",
            "ratio": cached / safetensors,
            "goal": "≥ 0.8 ×",
            "ok": cached / safetensors >= 0.8,
        },
        {
            "what": f"fetched again after SIGKILL at {before_kill / need:.0%}",
            "value": again * 100,
            "unit": "%",
            "goal": "< 1 %",
            "ok": again < 0.01,
        },
        {
            "what": "bytes that two kernels at once fetch, of those of the tensors",
            "value": twice / need,
            "unit": "×",
            "goal": "≤ 1.005",
            "ok": twice / need <= 1.005,
        },
    ]
    return [Row(**row) for row in ratios]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smaller model: ends within 50 s on 2 cores")
    parser.add_argument("--json", action="store_true", help="only the line for programs")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report("weights", measure(Path(folder), quick=args.quick), as_json=args.json)


if __name__ == "__main__":
    main()
