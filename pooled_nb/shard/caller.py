"""The door's methods, each turned into one job: shared by the child process and the thread."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import TypeVar

from pooled_nb.errors import BadQuestion
from pooled_nb.shard import protocol
from pooled_nb.shard.door import (
    Columns,
    Control,
    DeviceFacts,
    Forwarded,
    Loaded,
    LoadSpec,
    ModelFacts,
    Progress,
    Prompt,
    Sampled,
    Sampling,
    Turn,
    Want,
)
from pooled_nb.shard.pieces import Missing

T = TypeVar("T")


class Caller(abc.ABC):
    """A `pooled_nb.shard.door.Shard` whose jobs run elsewhere, one at a time, in the order asked."""

    def __init__(self) -> None:
        self.on_died: Callable[[str], None] | None = None

    @abc.abstractmethod
    async def _run(self, job: protocol.AnyJob, result: type[T], progress: Progress | None = None) -> T:
        """Do a job. It keeps its place in the order from the moment this is first awaited."""

    async def device(self) -> DeviceFacts:
        """See `Shard.device`."""
        return await self._run(protocol.Device(), DeviceFacts)

    async def inspect(
        self,
        model: str,
        *,
        revision: str | None = None,
        folder: str | None = None,
        progress: Progress | None = None,
    ) -> ModelFacts:
        """See `Shard.inspect`."""
        job = protocol.Inspect(model=model, revision=revision, folder=folder)
        return await self._run(job, ModelFacts, progress)

    async def missing(self, spec: LoadSpec, progress: Progress | None = None) -> Missing:
        """See `Shard.missing`."""
        return await self._run(protocol.Lacks(spec=spec), Missing, progress)

    async def load(self, spec: LoadSpec, progress: Progress | None = None) -> Loaded:
        """See `Shard.load`."""
        return await self._run(protocol.Load(spec=spec), Loaded, progress)

    async def forward(
        self,
        columns: Columns,
        control: Control,
        *,
        tokens: list[int] | None = None,
        data: bytes | None = None,
        last: bool = False,
    ) -> Forwarded:
        """See `Shard.forward`."""
        job = protocol.Forward(columns=columns, control=control, tokens=tokens, data=data, last=last)
        return await self._run(job, Forwarded)

    async def sample(
        self,
        data: bytes,
        *,
        pos: int,
        n: int,
        sampling: Sampling,
        first: bool = False,
        after: list[int] | None = None,
        seen: list[int] | None = None,
        drafts: list[int] | None = None,
        want: Want | None = None,
    ) -> Sampled:
        """See `Shard.sample`."""
        job = protocol.Sample(
            data=data,
            pos=pos,
            n=n,
            sampling=sampling,
            first=first,
            after=after,
            seen=seen,
            drafts=drafts,
            want=want,
        )
        return await self._run(job, Sampled)

    async def flush(self) -> str:
        """See `Shard.flush`."""
        return await self._run(protocol.Flush(), str)

    async def render(
        self, turns: list[Turn], *, thinking: bool | None = None, sampling: Sampling | None = None
    ) -> Prompt:
        """See `Shard.render`."""
        for turn in turns:
            try:
                turn.text.encode()
            except UnicodeEncodeError as error:
                raise BadQuestion(
                    f"The text holds half a character (at letter {error.start + 1}), which is no text.",
                    "Write that character again.",
                ) from error
        job = protocol.Render(turns=turns, thinking=thinking, sampling=sampling)
        return await self._run(job, Prompt)

    async def unload(self) -> None:
        """See `Shard.unload`."""
        await self._run(protocol.Unload(), type(None))

    @abc.abstractmethod
    async def close(self) -> None:
        """See `Shard.close`."""
