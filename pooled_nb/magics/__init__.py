"""``%pooled`` and ``%%ask``: a room in a notebook or an IPython terminal."""

from __future__ import annotations

from typing import Any


def load(shell: Any) -> None:
    """``%load_ext pooled_nb``: register the magics and their completion."""
    # Only here: who reads the table of words alone (the documentation) needs no shell.
    from pooled_nb.magics.cells import OurLine, alone
    from pooled_nb.magics.commands import PooledMagics
    from pooled_nb.magics.complete import complete

    shell.register_magics(PooledMagics(shell))
    shell.input_transformers_cleanup.append(alone)
    shell.input_transformer_manager.token_transformers.append(OurLine)
    shell.Completer.custom_matchers.append(complete)


def unload(shell: Any) -> None:
    """Take the magics away again; a room stays until it is left."""
    from pooled_nb.magics.cells import OurLine, alone
    from pooled_nb.magics.complete import complete

    for kind, names in (("line", ("pooled", "ask")), ("cell", ("ask",))):
        for name in names:
            shell.magics_manager.magics[kind].pop(name, None)
    shell.magics_manager.registry.pop("PooledMagics")
    shell.input_transformers_cleanup.remove(alone)
    shell.input_transformer_manager.token_transformers.remove(OurLine)
    shell.Completer.custom_matchers.remove(complete)
