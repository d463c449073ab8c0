"""``pooled-nb models``: what this device keeps of models, and how it becomes more or less."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec

from pooled_nb import library, shard
from pooled_nb import library_orders as orders
from pooled_nb.confirming import YES
from pooled_nb.errors import BadOption
from pooled_nb.plain import visible
from pooled_nb.terminal.loading import wait
from pooled_nb.terminal.screen import aside, say

if TYPE_CHECKING:
    import argparse

COMMAND = "pooled-nb"


def models(args: argparse.Namespace) -> int:
    """Do what the line says; the exit status."""
    order = read(args)
    match order.what:
        case "delete":
            return _delete(order, sure=args.yes)
        case "pull":
            return _pull(order)
        case "prune":
            freed = shard.prune_models(order.keep)
            say(f"{orders.gb(freed)} became free." if freed else "Nothing had to go.")
            return 0
    found = library.models()
    if args.json:
        print(msgspec.json.encode({"models": [orders.as_dict(one) for one in found]}).decode())
    else:
        _show(found)
    return 0


def read(args: argparse.Namespace) -> orders.Order:
    """What was typed. Raises `BadOption`."""
    order = orders.read(args.words, layers=args.layers, revision=args.revision, keep=args.keep)
    if args.yes and order.what != "delete":
        raise BadOption(f"--yes says nothing to models {order.what}.", "Leave it out.")
    if args.json and order.what != "list":
        raise BadOption(f"--json says nothing to models {order.what}.", "Leave it out.")
    return order


def _show(found: library.Models) -> None:
    rows, _, below = str(found).rpartition("\n")
    if rows:
        print(rows)  # as wide as they are
    say(below)


def _delete(order: orders.Order, *, sure: bool) -> int:
    found = shard.find_kept(order.model, order.revision)
    if not sure and not _agreed(orders.deletion(found)):
        aside("Nothing was deleted.")
        return 1
    freed = shard.delete_model(order.model, order.revision)
    say(f"Deleted {found[0].repo}: {orders.gb(freed)} became free.")
    return 0


def _agreed(question: str) -> bool:
    if sys.stdin is None or not sys.stdin.isatty():
        raise BadOption("Nobody is here to be asked before something is deleted.", "Add --yes.")
    print(visible(f"{question} [y/N] "), end="", file=sys.stderr, flush=True)
    try:
        return input().strip().lower() in YES
    except EOFError:
        return False


def _pull(order: orders.Order) -> int:
    try:
        with wait(f"looking for {order.model}") as view:
            library.fetch(order, view)
    except KeyboardInterrupt:
        aside(orders.stopped(order, COMMAND))
        return 130
    say(orders.pulled(order, library.models()))
    return 0
