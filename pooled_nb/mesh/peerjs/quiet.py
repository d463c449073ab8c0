"""Keeps tornado from printing tracebacks about others that misbehave: how a dial failed is said in words.

Tornado logs some failures (a broken certificate, an answer that is none) at levels that reach a person's
notebook when nobody set up logging, and again at each reconnection. Its loggers belong to the whole process,
Jupyter's kernel among it: so only what our own dials, and our own server's connections, log is taken out.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
from collections.abc import Iterator

_ours: contextvars.ContextVar[bool] = contextvars.ContextVar("pooled_nb_signaling", default=False)


class _Filter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not _ours.get()


_FILTER = _Filter()
_LOGGERS = ("tornado.general", "tornado.application")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Whatever is started inside, tasks and callbacks included, logs nothing through tornado."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)  # a second time does nothing
    token = _ours.set(True)
    try:
        yield
    finally:
        _ours.reset(token)
