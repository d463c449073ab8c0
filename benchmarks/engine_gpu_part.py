"""The parts of `benchmarks.engine_gpu`, run in a process of their own, one after the other.

``python -m benchmarks.engine_gpu_part HOME DEVICE full|quick PART …``, each ``SHAPE:WHAT``. Prints a JSON
line for each number as soon as it is there, and before and after each part; ends at the first that fails.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from benchmarks.engine_gpu_models import Made, write
from pooled_nb.shard import Columns, Control, LoadSpec, Sampling
from pooled_nb.shard.engine import Engine

LONG = 2000
"""Tokens of the long prompt that answers follow."""
PROMPT, COLS, CTX = 2048, 256, 2560
SEEDED = Sampling(temperature=0.8, top_p=0.95, seed=1)
QUESTION = "Write a long story about a lighthouse keeper and the sea."
_ALONE: dict[Path, tuple[float, list[int]]] = {}
"""What one device takes and says, by the model's folder."""


def say(**line: Any) -> None:
    """One line for the process that started this one."""
    print(json.dumps(line), flush=True)


def token_row(what: str, ms: float, goal: float | None = None) -> None:
    """Milliseconds a token, to be compared with the floor."""
    say(what=what, value=ms, unit="ms/token", to="floor", goal=goal)


def given(count: int) -> list[int]:
    """That many tokens; which ones does not matter."""
    return [100 + i % 200 for i in range(count)]


class Parts:
    """What is measured of one shape on one device."""

    def __init__(self, made: Made, device: str, *, quick: bool) -> None:
        self.made, self.device = made, device
        self.layers = int(json.loads((made.folder / "config.json").read_text())["num_hidden_layers"])
        # As many tokens after 36 stay in the first bucket.
        self.tokens, self.repeats = (16, 2) if quick else (48, 3)

    # -- transformers --------------------------------------------------------------------------------

    def peer(self) -> None:
        """``generate``, and ``model.forward`` over a prompt."""
        from transformers import AutoModelForCausalLM

        model: Any = AutoModelForCausalLM.from_pretrained(
            self.made.folder, dtype=torch.bfloat16, device_map={"": self.device}
        )
        model.eval()
        ids = torch.tensor([given(PROMPT)], device=self.device)
        with torch.inference_mode():
            best = min(self._timed(lambda: model(ids, use_cache=False, logits_to_keep=1)) for _ in range(4))
            say(what="model.forward over 2,048 tokens", value=PROMPT / best, unit="tokens/s", is_peer=True)

            def run(n: int) -> float:
                short = ids[:, :36]
                return self._timed(
                    lambda: model.generate(
                        short,
                        attention_mask=torch.ones_like(short),
                        max_new_tokens=n,
                        min_new_tokens=n,
                        do_sample=False,
                        pad_token_id=0,
                        eos_token_id=None,
                    )
                )

            run(3)
            token_row("transformers generate, after 36 tokens", (run(17) - run(1)) / 16 * 1e3)

    def _timed(self, work: Callable[[], Any]) -> float:
        self._wait()
        began = time.perf_counter()
        work()
        self._wait()
        return time.perf_counter() - began

    def _wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    # -- ours ----------------------------------------------------------------------------------------

    def exact(self) -> None:
        """Exact mode, width 16: the prompt first, as it runs the first time."""
        with self._engine() as engine:
            self._prompts("engine, exact", [engine])
            for context in (36, LONG):
                what = f"engine, exact (width 16), after {context:,} tokens"
                token_row(what, self._tokens([engine], context, Sampling()), 1.9 if context == 36 else None)
            what = "engine, exact (width 16), states stay on the device, after 36 tokens"
            token_row(what, self._inside(engine))
            what = "engine, exact (width 16), drawn (0.8, top_p 0.95), after 36 tokens"
            token_row(what, self._tokens([engine], 36, SEEDED))
            self._verify(engine)

    def fast(self) -> None:
        """Fast mode, width 1."""
        with self._engine(exact=False, width=1) as engine:
            for context in (36, LONG):
                what = f"engine, fast (width 1), after {context:,} tokens"
                token_row(what, self._tokens([engine], context, Sampling()), 1.6 if context == 36 else None)

    def ungraphed(self) -> None:
        """Both modes without CUDA graphs."""
        self._without("POOLED_GRAPHS")

    def unfused(self) -> None:
        """Both modes without fused layers."""
        self._without("POOLED_FUSED")

    def plain(self) -> None:
        """Both modes without either."""
        self._without("POOLED_GRAPHS", "POOLED_FUSED")

    def _without(self, *names: str) -> None:
        for name in names:
            os.environ[name] = "0"
        words = " and ".join(f"{name}=0" for name in names)
        try:
            with self._engine() as engine:
                self._prompts(f"engine, exact, {words}", [engine], goal=None)
                ms = self._tokens([engine], 36, Sampling())
                token_row(f"engine, exact (width 16), {words}, after 36 tokens", ms)
            with self._engine(exact=False, width=1) as engine:
                ms = self._tokens([engine], 36, Sampling())
                token_row(f"engine, fast (width 1), {words}, after 36 tokens", ms)
        finally:
            for name in names:
                del os.environ[name]

    def chain(self) -> None:
        """Two engines with half of the layers each, in one process; and the peak of a load."""
        half = self.layers // 2
        with self._engine(hi=half) as host:
            self._clean()
            before = torch.cuda.memory_allocated() if self.device == "cuda" else 0
            with self._engine(lo=half) as worker:
                if self.device == "cuda":
                    own = self.loaded.weights + self.loaded.cache
                    peak = torch.cuda.max_memory_allocated() - before
                    say(
                        what="peak GPU memory of a load of half the layers",
                        value=peak / 1e9,
                        unit="GB",
                        peer=f"its weights and caches: {own / 1e9:.2f} GB",
                        ratio=peak / own,
                        goal_ratio=1.15,
                    )
                self._prompts("two engines in one process, exact", [host, worker], goal=None)
                ms = self._tokens([host, worker], 36, Sampling())
                token_row("two engines in one process, exact, after 36 tokens", ms)

    @contextmanager
    def _engine(self, *, lo: int = 0, hi: int = 0, exact: bool = True, width: int = 16) -> Iterator[Engine]:
        self._clean()
        engine = Engine()
        spec = LoadSpec(
            repo="bench/model",
            revision="1",
            folder=str(self.made.folder),
            config_sha256="",
            lo=lo,
            hi=hi or self.layers,
            ends=lo == 0,
            ctx=CTX,
            dtype="bfloat16",
            device=self.device,
            width=width,
            cols=COLS,
            exact=exact,
        )
        self.loaded = engine.load(spec, self.made.folder, lambda _pct, _words: None)
        runs = getattr(self.loaded, "runs", "")
        say(note=f"layers {lo + 1}–{hi or self.layers} in {self.loaded.seconds:.1f} s: {runs}")
        try:
            yield engine
        finally:
            engine.unload()

    def _clean(self) -> None:
        gc.collect()
        if self.device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def _prompts(self, what: str, engines: list[Engine], goal: float | None = 0.6) -> None:
        """A prompt, the first time and then; only the last column comes back from the last engine."""
        times = [self._timed(lambda: self._prefill(engines, PROMPT)) for _ in range(4)]
        how = f"{what}: a prompt of 2,048 tokens"
        say(what=f"{how}, the first time", value=PROMPT / times[0], unit="tokens/s", to="forward", goal=None)
        say(what=f"{how}, warm", value=PROMPT / min(times[1:]), unit="tokens/s", to="forward", goal=goal)

    def _prefill(self, engines: list[Engine], count: int) -> bytes:
        tokens, data = given(count), b""
        for pos in range(0, count, COLS):
            part = tokens[pos : pos + COLS]
            data = self._lap(engines, pos, part, Control(reset=pos == 0), wide=True)
        return data

    def _lap(
        self, engines: list[Engine], pos: int, tokens: list[int], control: Control, *, wide: bool = False
    ) -> bytes:
        columns, data = Columns(pos=pos, n=len(tokens), wide=wide), None
        for engine in engines:
            first, last = engine is engines[0], engine is engines[-1]
            ran = engine.forward(columns, control, tokens=tokens if first else None, data=data, last=last)
            data = ran.data
        return data or b""

    def _tokens(self, engines: list[Engine], context: int, sampling: Sampling) -> float:
        """Median milliseconds of a token: drawn, then run through all layers."""
        times = []
        for turn in range(self.repeats + 1):  # the first time graphs are recorded
            pos, data = context - 1, self._prefill(engines, context)
            began = time.perf_counter()
            for _ in range(self.tokens):
                token = engines[0].sample(data, pos=pos, n=1, sampling=sampling)[0]
                pos += 1
                data = self._lap(engines, pos, [token], Control())
            if turn:
                times.append((time.perf_counter() - began) / self.tokens * 1e3)
        return statistics.median(times)

    def _inside(self, engine: Engine) -> float:
        """The same where hidden states never leave the device: a few bytes come back, the token."""
        times = []
        for turn in range(self.repeats + 1):
            pos = 35
            token = engine.sample(self._prefill([engine], 36), pos=pos, n=1, sampling=Sampling())[0]
            began = time.perf_counter()
            for _ in range(self.tokens):
                pos += 1
                columns = Columns(pos=pos, n=1, wide=False)
                hidden = engine.run(columns, Control(), tokens=[token])
                token = engine.draw(hidden, pos=pos, sampling=Sampling())[0]
            if turn:
                times.append((time.perf_counter() - began) / self.tokens * 1e3)
        return statistics.median(times)

    def _verify(self, engine: Engine) -> None:
        """A frame with 15 drafts, of which all columns are drawn; then all drafts are taken back."""
        self._prefill([engine], 36)
        times = []
        for turn in range(12):
            began = time.perf_counter()
            tokens = given(16)
            columns = Columns(pos=36 + turn, n=16, wide=False)
            control = Control(spec=True, rb=0 if turn else None)
            data = engine.forward(columns, control, tokens=tokens, data=None, last=False).data
            engine.sample(data, pos=36 + turn, n=16, sampling=Sampling())
            times.append((time.perf_counter() - began) * 1e3)
        say(
            what="engine, exact: a frame with 15 drafts, all drawn",
            value=statistics.median(times[3:]),
            unit="ms",
            to="floor",
            goal=None,
        )

    # -- rooms ---------------------------------------------------------------------------------------

    def room(self) -> None:
        """One device, and two on this GPU over real aiortc."""
        self._rooms("aiortc")

    def wrtc(self) -> None:
        """The same over libwebrtc, where it is installed."""
        from pooled_nb.mesh import stacks

        if "wrtc" not in stacks.available():
            say(note="wrtc is not installed: not measured")
            return
        self._rooms("wrtc")

    def _rooms(self, transport: str) -> None:
        os.environ["POOLED_TRANSPORT"] = transport
        os.environ["POOLED_MODELS"] = str(self.made.folder.parent)
        if self.made.folder not in _ALONE:
            _ALONE[self.made.folder] = self._in_a_room(1)
            token_row("room, exact, 1 process", _ALONE[self.made.folder][0])
        alone, tokens = _ALONE[self.made.folder]
        both, same = self._in_a_room(2)
        token_row(f"room, exact, 2 processes over {transport}", both)
        extra = both - alone
        what = f"a second process over {transport} adds"
        say(what=what, value=extra, unit="ms/token", goal_words="<= 2 ms/token", ok=extra <= 2)
        is_same = tokens == same
        what = f"same tokens over 2 processes ({transport}) as over 1"
        say(what=what, value=float(is_same), unit="1 is yes", goal_words="1", ok=is_same)

    def _in_a_room(self, devices: int) -> tuple[float, list[int]]:
        import pooled_nb as pooled
        from benchmarks.rooms import Workers, wait_for

        lend = "1GB" if self.device == "cpu" else "40GB"
        with (
            pooled.host(
                str(self.made.folder), split="memory", lend=lend, ctx=1024, speculate=False, progress=False
            ) as room,
            Workers(room, devices - 1, lend=lend),
        ):
            wait_for(room, devices)
            room.ask(QUESTION, max_tokens=8)
            times, tokens = [], []
            for _ in range(self.repeats):
                room.reset()
                answer = room.ask(QUESTION, max_tokens=self.tokens)
                stats, tokens = answer.stats, list(answer.tokens or [])
                if stats is None or stats.tokens != self.tokens:
                    raise RuntimeError("the answer ended early")
                times.append((stats.ms - stats.first_ms) / (stats.tokens - 1))
            return statistics.median(times), tokens


def copy_speed(device: str) -> float:
    """GB/s of a copy within the device's memory, bytes read and bytes written both counted."""
    size = 2 << 30 if device == "cuda" else 64 << 20
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    best = float("inf")
    for _ in range(12):
        if device == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        target.copy_(source)
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - began)
    return 2 * size / best / 1e9


def main() -> None:
    """Run the parts, in order."""
    home, device, quick, *parts = sys.argv[1:]
    made: dict[str, Made] = {}
    for part in parts:
        name, _, what = part.partition(":")
        say(begin=part)
        try:
            if what == "copy":
                say(copy=copy_speed(device))
            elif what == "make":
                _make(Path(home), name, device)
            else:
                if name not in made:
                    facts = json.loads((Path(home) / f"{name}.json").read_text())
                    made[name] = Made(Path(home) / name, facts["nbytes"], facts["read"])
                getattr(Parts(made[name], device, quick=quick == "quick"), what)()
        except Exception as error:
            traceback.print_exc()
            say(failed=part, words=f"{type(error).__name__}: {error}"[:400])
            sys.stdout.flush()
            os._exit(1)  # after some errors a device answers nothing any more, and waiting would not end
        gc.collect()
        say(end=part)


def _make(home: Path, name: str, device: str) -> None:
    began = time.perf_counter()
    done = write(name, home / name, device)
    (home / f"{name}.json").write_text(json.dumps({"nbytes": done.nbytes, "read": done.read}))
    seconds = time.perf_counter() - began
    say(note=f"{done.nbytes / 1e9:.2f} GB of weights written in {seconds:.1f} s", read=done.read, shape=name)


if __name__ == "__main__":
    main()
