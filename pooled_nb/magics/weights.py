"""The verbs of weights: what this device keeps of models, and what it may download."""

from __future__ import annotations

from typing import Any

from IPython.display import display

from pooled_nb import download_text, library, shard
from pooled_nb import library_orders as orders
from pooled_nb.errors import BadOption
from pooled_nb.magics.here import the_room
from pooled_nb.plain import visible
from pooled_nb.progress import waiting
from pooled_nb.show import line_bundle


class WeightVerbs:
    """What they do; mixed into the magics."""

    def _models(self, words: str | None, **options: Any) -> None:
        order = orders.read((words or "").split(), **options)
        match order.what:
            case "list":
                display(library.models())
            case "delete":
                repo = shard.find_kept(order.model, order.revision)[0].repo
                freed = shard.delete_model(order.model, order.revision)
                print(visible(f"Deleted {repo}: {orders.gb(freed)} became free."))
            case "prune":
                freed = shard.prune_models(order.keep)
                print(f"{orders.gb(freed)} became free." if freed else "Nothing had to go.")
            case "pull":
                _pull(order)

    def _download(self, answer: str | None) -> None:
        room = the_room()
        if answer is None:
            asked = room.status().asks
            print(visible(download_text.asks(asked)) if asked is not None else download_text.NOTHING)
            return
        if answer not in download_text.ANSWERS:
            raise BadOption(f"{answer[:40]!r} is no answer.", "Write %pooled download allow, or refuse.")
        room.allow_download(download_text.ANSWERS[answer])
        print(download_text.SAID[download_text.ANSWERS[answer]])


def _pull(order: orders.Order) -> None:
    try:
        with waiting(f"looking for {order.model}") as view:
            library.fetch(order, view)
            said = orders.pulled(order, library.models())
            if not view.finish(line_bundle(said)):
                print(visible(said))
    except KeyboardInterrupt as error:
        _say_instead(error, orders.stopped(order, "%pooled"))
        raise


def _say_instead(error: BaseException, text: str) -> None:
    error._render_traceback_ = lambda: [text]  # type: ignore[attr-defined] # IPython's own hook
