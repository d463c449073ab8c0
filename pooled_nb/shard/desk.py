"""The shard's desk: takes one job after the other and does it, in the child process or in a thread."""

from __future__ import annotations

from pooled_nb.errors import FrameRefused, ShardError
from pooled_nb.shard import protocol
from pooled_nb.shard.chat import Chat
from pooled_nb.shard.device import device_facts
from pooled_nb.shard.door import Loaded, LoadSpec, Progress, Prompt, Sampled
from pooled_nb.shard.engine import Engine
from pooled_nb.shard.facts import model_facts
from pooled_nb.shard.sources import fetch, find
from pooled_nb.shard.text import TextStream


class Desk:
    """What one device computes, behind typed jobs. Not safe for two threads at once."""

    def __init__(self) -> None:
        self._engine = Engine()
        self._chat: Chat | None = None
        self._text: TextStream | None = None

    def run(self, job: protocol.AnyJob, progress: Progress) -> object:
        """Do a job and return what its door method returns.

        Raises
        ------
        PooledError
            As the door says; anything else is a bug, or memory that ran out: see `pooled_nb.shard.faults`.
        """
        progress = _once(progress)
        match job:
            case protocol.Forward():
                _needs_columns(job.columns.n)
                return self._engine.forward(
                    job.columns, job.control, tokens=job.tokens, data=job.data, last=job.last
                )
            case protocol.Sample():
                return self._sample(job)
            case protocol.Flush():
                return self._text.flush() if self._text else ""
            case protocol.Render():
                return self._render(job)
            case protocol.Device():
                return device_facts()
            case protocol.Inspect():
                return model_facts(
                    find(job.model, revision=job.revision, folder=job.folder, progress=progress)
                )
            case protocol.Load():
                return self._load(job.spec, progress)
            case protocol.Unload():
                self._unload()
        return None

    def _load(self, spec: LoadSpec, progress: Progress) -> Loaded:
        self._unload()
        fetched = 0

        def fetching(pct: int, words: str) -> None:
            nonlocal fetched
            fetched = max(fetched, pct * 4 // 5)
            progress(fetched, words)

        folder = fetch(spec, progress=fetching)
        # Tokenizer first: a host cannot do without it, and it costs little.
        chat = Chat.load(folder) if spec.ends else None
        loaded = self._engine.load(
            spec, folder, lambda pct, words: progress(fetched + pct * (100 - fetched) // 100, words)
        )
        self._chat = chat
        return loaded

    def _unload(self) -> None:
        self._engine.unload()
        self._chat = self._text = None

    def _needs_ends(self) -> Chat:
        if self._chat is None:
            raise ShardError(
                "This shard holds no tokenizer and no head.", "Load with the ends of the model first."
            )
        return self._chat

    def _sample(self, job: protocol.Sample) -> Sampled:
        chat = self._needs_ends()
        _needs_columns(job.n)
        if job.first or self._text is None:
            self._text = TextStream(chat.tokenizer)
            for token in job.after or ():
                self._text.push([token])
        drawn = self._engine.sample(job.data, pos=job.pos, n=job.n, sampling=job.sampling)
        tokens: list[int] = []
        for token, draft in zip(drawn, [*(job.drafts or drawn[:-1]), -1], strict=True):
            tokens.append(token)
            if token in chat.eos or token != draft:
                break
        end = tokens[-1] in chat.eos
        # What follows an end token in the same frame is no part of the answer.
        texts = [self._text.push([token]) for token in (tokens[:-1] if end else tokens)]
        return Sampled(tokens=tokens, texts=[*texts, ""] if end else texts, end=end)

    def _render(self, job: protocol.Render) -> Prompt:
        return self._needs_ends().render(job.turns, thinking=job.thinking)


def _needs_columns(n: int) -> None:
    if n < 1:
        raise FrameRefused("The frame has no column.", "Send it again.")


def _once(progress: Progress) -> Progress:
    """Pass on only what changed: a file of a thousand tensors is not a thousand messages."""
    last = (-1, "")

    def report(pct: int, words: str) -> None:
        nonlocal last
        if (pct, words) != last:
            last = (pct, words)
            progress(pct, words)

    return report
