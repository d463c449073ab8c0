"""The models that this device keeps: looked at, fetched ahead, deleted. No room is needed, and no torch."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Self

from pooled_nb import library_orders as orders
from pooled_nb import shard
from pooled_nb._notebook import while_waiting
from pooled_nb.looked import columns, table
from pooled_nb.plain import visible
from pooled_nb.progress import Waiting, waiting
from pooled_nb.show import line_bundle


class Models(list[shard.KeptModel]):
    """The models kept on this device, by name; shown as a table.

    Each has ``repo``, ``revision``, ``bytes``, ``total``, ``whole``, ``used`` (seconds since the epoch) and
    ``where``. What `delete`, `pull` and `prune` give is how it is after that.
    """

    def delete(self, model: str, *, revision: str | None = None) -> Models:
        """Remove a model that this package keeps, all its revisions unless one is given.

        Raises
        ------
        ModelNotFound
            It is not here, is in use now, or lies in the hub's own cache, which other programs use, too.
        """
        shard.delete_model(model, revision)
        return models()

    def pull(
        self,
        model: str,
        *,
        layers: tuple[int, int] | None = None,
        revision: str | None = None,
        progress: bool = True,
    ) -> Models:
        """Fetch a model ahead, so that no room has to wait for it. An interrupt keeps what came.

        Parameters
        ----------
        model
            A Hugging Face id.
        layers
            ``(lo, hi)``, 0-based and without ``hi``: only those. Where they begin with the first, embedding,
            head and tokenizer come with them, which a host needs besides. None: all of it.
        revision
            A branch, a tag or a commit; None: the newest.
        progress
            False: show nothing meanwhile.

        Raises
        ------
        ModelNotFound, ModelNotSupported, BadOption
        """
        range_ = orders.check_layers(layers)
        order = orders.Order(what="pull", model=model, layers=range_, revision=revision)
        with waiting(f"looking for {model}", quiet=not progress) as view:
            fetch(order, view)
            found = models()
            view.finish(line_bundle(orders.pulled(order, found)))
        return found

    def prune(self, keep: float | str) -> Models:
        """Remove models of the range cache, the least recently used first, until no more than this is kept.

        Parameters
        ----------
        keep
            GB, or a text like ``"20GB"``.

        Raises
        ------
        BadOption, ModelNotFound
        """
        shard.prune_models(orders.size_of(keep))
        return models()

    def __await__(self) -> Generator[Any, None, Self]:
        return self._itself().__await__()

    async def _itself(self) -> Self:
        return self

    def __str__(self) -> str:
        if not self:
            return f"{orders.NONE} {orders.NONE_NEXT}"
        return visible(f"{columns([orders.HEAD, *self._rows()])}\n{orders.summary(self)}")

    __repr__ = __str__

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        if not self:
            return line_bundle(str(self))
        return table(orders.HEAD, self._rows(), orders.summary(self))

    def _rows(self) -> list[tuple[str, ...]]:
        return orders.rows(self, orders.clock())


def models() -> Models:
    """List the models that are kept on this device: what rooms fetched, and what is in the hub's own cache.

    Its methods fetch one ahead (``pull``), remove one (``delete``) and make room (``prune``).
    """
    return Models(shard.kept_models())


def fetch(order: orders.Order, view: Waiting, stop: Callable[[], None] = lambda: None) -> None:
    """Fetch what an order says; ``view`` shows how far it is.

    Raises
    ------
    ModelNotFound, ModelNotSupported
    """
    lo, hi = order.layers or (0, None)

    def so_far(percent: int, words: str) -> None:
        view.report(percent, words)
        view.tick()
        while_waiting()  # the panels of this kernel stay alive

    located = shard.pull_model(
        order.model,
        revision=order.revision,
        lo=lo,
        hi=hi,
        ends=lo == 0,
        progress=so_far,
        stop=stop,
    )
    located.close()
