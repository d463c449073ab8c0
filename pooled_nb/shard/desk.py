"""The shard's desk: takes one job after the other and does it, in the child process or in a thread."""

from __future__ import annotations

import contextlib

from pooled_nb.errors import FrameRefused, PooledError, ShardError
from pooled_nb.shard import protocol
from pooled_nb.shard.arch import read_config
from pooled_nb.shard.chat import Chat
from pooled_nb.shard.device import device_facts
from pooled_nb.shard.door import Loaded, LoadSpec, ModelFacts, Progress, Prompt, Sampled
from pooled_nb.shard.draft_loading import load_drafter
from pooled_nb.shard.drafter import Drafts
from pooled_nb.shard.engine import Engine
from pooled_nb.shard.facts import model_facts
from pooled_nb.shard.faults import memory_ran_out, no_memory
from pooled_nb.shard.history import History
from pooled_nb.shard.penalties import check_bias
from pooled_nb.shard.sources import fetch, find, lacks
from pooled_nb.shard.stopping import Stop, Stopped, never
from pooled_nb.shard.stops import AnswerText, ends_of

_DOING = {protocol.Forward: "while it computed", protocol.Sample: "while it drew a token"}


class Desk:
    """What one device computes, behind typed jobs. Not safe for two threads at once."""

    def __init__(self) -> None:
        self._engine = Engine()
        self._chat: Chat | None = None
        self._text: AnswerText | None = None
        self._ends: frozenset[int] = frozenset()
        self._history = History()
        self._drafts = Drafts(None, 0)

    def run(self, job: protocol.AnyJob, progress: Progress, stop: Stop = never) -> object:
        """Do a job and return what its door method returns.

        Parameters
        ----------
        stop
            Looked at by the jobs that may be stopped (`protocol.STOPPABLE`), and whenever one tells progress.

        Raises
        ------
        PooledError
            As the door says; anything else is a bug, or memory that ran out: see `pooled_nb.shard.faults`.
        """
        words: PooledError
        try:
            return self._do(job, _once(progress, stop), stop)
        except Stopped as stopped:
            self._unload(keep=True)
            self._engine.relieve(stopped)
            words = ShardError("This was stopped before it was done.", "Start it again.")
        except Exception as error:
            if not no_memory(error):
                raise
            # In words, and without the trace: it holds what must be freed for the next job.
            words = (
                error if isinstance(error, PooledError) else memory_ran_out(error, _DOING.get(type(job), ""))
            )
            self._engine.relieve(error)
        raise words

    def _do(self, job: protocol.AnyJob, progress: Progress, stop: Stop) -> object:
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
                return self._inspect(job, progress, stop)
            case protocol.Lacks():
                return lacks(job.spec, progress=progress, stop=stop)
            case protocol.Load():
                return self._load(job.spec, progress, stop)
            case protocol.Unload():
                self._unload()
        return None

    def _inspect(self, job: protocol.Inspect, progress: Progress, stop: Stop) -> ModelFacts:
        found = find(job.model, revision=job.revision, folder=job.folder, progress=progress, stop=stop)
        stop()
        return model_facts(found)

    def _load(self, spec: LoadSpec, progress: Progress, stop: Stop) -> Loaded:
        self._unload(keep=True)
        stop()
        fetched = 0

        def fetching(pct: int, words: str) -> None:
            nonlocal fetched
            fetched = max(fetched, pct * 4 // 5)
            progress(fetched, words)

        drafting = spec.ends and (spec.draft is not None or spec.draft_layers > 0)
        end = 90 if drafting else 100
        with contextlib.closing(fetch(spec, progress=fetching, stop=stop)) as located:
            read_config(located.folder)  # or its tokenizer is blamed for what is wrong with it
            # Tokenizer first: a host cannot do without it, and it costs little.
            chat = Chat.load(located.folder) if spec.ends else None
            loaded = self._engine.load(
                spec,
                located.folder,
                lambda pct, words: progress(fetched + pct * (end - fetched) // 100, words),
                tensors=located.tensors,
                stop=stop,
            )
            drafter, alone = None, loaded
            if drafting and chat:
                drafter, loaded = load_drafter(
                    spec,
                    loaded,
                    self._engine,
                    located,
                    chat,
                    lambda pct, words: progress(90 + pct // 10, words),
                    stop,
                )
        self._engine.reserve(loaded.weights + loaded.cache - alone.weights - alone.cache)
        self._drafts = Drafts(drafter, self._engine.vocab)
        self._engine.on_spare = self._drafts.saw if loaded.drafts == "layers" else None
        self._chat = chat
        return loaded

    def _unload(self, *, keep: bool = False) -> None:
        self._drafts.close()
        self._engine.unload(keep=keep)
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
        text = self._begin(job, chat) if job.first else self._text
        if text is None:
            # After a load, say: without what was said before, penalties and stop texts would count anew.
            raise FrameRefused("No answer has begun here.", "Ask again.")
        texts: list[str] = []

        def ends(token: int) -> bool:
            # What follows an end token in the same frame is no part of the answer.
            end = token in self._ends
            texts.append("" if end else text.push(token))
            return end or text.stopped

        tokens = self._engine.sample(
            job.data,
            pos=job.pos,
            n=job.n,
            sampling=job.sampling,
            history=self._history,
            drafts=job.drafts,
            ends=ends,
        )
        end = tokens[-1] in self._ends
        want = None if end or text.stopped else job.want
        guessed, source = self._drafts.next(job.pos, len(tokens), job.data, want, job.sampling)
        return Sampled(
            tokens=tokens, texts=texts, end=end, stopped=text.stopped, drafts=guessed, source=source
        )

    def _begin(self, job: protocol.Sample, chat: Chat) -> AnswerText:
        """Begin an answer, or go on with one."""
        after = job.after or []
        seen = job.seen or after
        if (
            not all(0 <= token < self._engine.vocab for token in seen)
            or seen[len(seen) - len(after) :] != after
        ):
            raise FrameRefused("What was said before is not of this model.", "Send it again.")
        self._history = History(seen, len(after))
        stops = job.sampling.stop
        self._ends = chat.eos | ends_of(chat.tokenizer, stops)
        self._text = AnswerText(chat.tokenizer, stops=stops, tags=chat.tags, after=after)
        self._drafts.begin(self._history, self._ends)
        return self._text

    def _render(self, job: protocol.Render) -> Prompt:
        chat = self._needs_ends()
        if job.sampling:
            check_bias(job.sampling, self._engine.vocab)
        return chat.render(job.turns, thinking=job.thinking)


def _needs_columns(n: int) -> None:
    if n < 1:
        raise FrameRefused("The frame has no column.", "Send it again.")


def _once(progress: Progress, stop: Stop) -> Progress:
    """Pass on only what changed: a file of a thousand tensors is not a thousand messages."""
    last = (-1, "")

    def report(pct: int, words: str) -> None:
        nonlocal last
        stop()
        if (pct, words) != last:
            last = (pct, words)
            progress(pct, words)

    return report
