"""What every panel is: a widget that speaks from one thread, hears little, and reads well without a kernel.

DESIGN section 7 says why: state in traits, one way; what a browser says is typed and bounded, and only
posted; the bundle always carries plain text and HTML.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from html import escape
from typing import Any

import anywidget

from pooled_nb.widgets import kernel
from pooled_nb.widgets.heard import Custom, heard
from pooled_nb.widgets.painter import painter

log = logging.getLogger("pooled_nb.widgets")

Fallback = Callable[[], dict[str, str]]
"""What stands where no widget can be shown: at least ``text/plain`` and ``text/html``, as it is now."""
WHOLE_S = 1.0
"""Between two sendings of everything, which a page that was reloaded asks for."""
KEPT = 32
"""Messages of a browser that wait to be done; more are dropped."""


class Panel(anywidget.AnyWidget):
    """The base of our widgets. Shown as often as wanted; every view shows the same.

    Parameters
    ----------
    fallback
        Called whenever it is displayed.
    **traits
        First values of its own traits; anything else is refused.

    Attributes
    ----------
    viewed
        Whether a view of it exists, or did.
    """

    _over = _closed = True  # until it is whole: also one whose making failed is collected

    def __init__(self, *, fallback: Fallback, **traits: Any) -> None:
        own = {name for name in self.class_own_traits() if not name.startswith("_")}
        if unknown := sorted(set(traits) - own):
            raise TypeError(f"{type(self).__name__} takes no {', '.join(unknown)}")
        self.viewed = False
        self._fallback = fallback
        self._traits_lock = threading.RLock()
        self._inbox: deque[Custom] = deque()
        self._sent = 0
        self._whole = False
        self._whole_at = 0.0
        self._unwatch: Callable[[], None] | None = None
        super().__init__(**traits)
        self._closed = False
        try:
            self._begin()
        except BaseException:
            self.close()  # else its comm would stay as long as the kernel
            raise

    def _begin(self) -> None:
        self._over = False
        kernel.guard(self)
        comm: Any = self.comm
        comm.on_close(lambda _: self._put_away())
        self._unwatch = self._listen()
        painter.add(self)

    def _listen(self) -> Callable[[], None]:
        """Hear of changes, by `wake`; what comes back ends it."""
        raise NotImplementedError

    # To the browser: from the painter's thread alone.

    def wake(self) -> None:
        """It has changed. From any thread; returns at once."""
        if not self._over:
            painter.add(self)

    def paint(self, now: float) -> tuple[int, float | None]:
        """See `painter.Painted`."""
        with self._traits_lock:
            if self._over:
                painter.remove(self)  # it was woken while it was closed
                return 0, None
            before = self._sent
            while self._inbox:
                said = self._inbox.popleft()
                try:
                    self._do(said, now)
                except Exception:
                    log.exception("what a button said could not be done")
            again = self._draw(now)
            if self._whole:
                if now >= self._whole_at:
                    self._whole, self._whole_at = False, now + WHOLE_S
                    self.send_state()
                else:
                    again = self._whole_at if again is None else min(again, self._whole_at)
            if again is None and self._rests():
                painter.rest(self)
            return self._sent - before, again

    def _draw(self, now: float) -> float | None:
        """Send what has changed; when to come again by itself."""
        raise NotImplementedError

    def _rests(self) -> bool:
        """Whether what it shows is over, so that the thread may end; a view may still ask for something."""
        raise NotImplementedError

    def _do(self, said: Custom, now: float) -> None:
        """Do what a view said."""
        raise NotImplementedError

    def get_state(self, *args: Any, **kwargs: Any) -> Any:
        """See `ipywidgets.Widget.get_state`: of one moment, also read on the kernel's thread."""
        with self._traits_lock:
            return super().get_state(*args, **kwargs)

    def set_state(self, sync_data: Any) -> None:
        """Traits go one way."""

    def _send(self, msg: Any, buffers: Any = None) -> None:
        if self.comm is None or self._over:
            return
        if not painter.here():  # a trait was set elsewhere, or a page asks for everything
            self._whole = True
            self.wake()
            return
        self._sent += 1
        super()._send(msg, buffers)

    # From the browser: on whatever thread it comes.

    def _handle_msg(self, msg: Any) -> None:
        match heard(msg):
            case Custom(cmd="here"):
                self.viewed = True
            case Custom() as said if len(self._inbox) < KEPT:
                self._inbox.append(said)
                self.wake()
            case "request_state":
                self._whole = True
                self.wake()

    # Shown and put away.

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        static = self._static()
        self._open_again()
        if self._over:
            return static, {}
        view, metadata = super()._repr_mimebundle_(**kwargs) or ({}, {})
        return {**view, **static}, metadata

    def _static(self) -> dict[str, Any]:
        try:
            return dict(self._fallback())
        except Exception:
            log.exception("a panel has no static form")
            words = f"<{type(self).__name__}>"  # its own repr has all of its traits, its script too
            return {"text/plain": words, "text/html": escape(words)}

    def close(self) -> None:
        """Take it down everywhere and free what the kernel keeps of it; shown again, it is static."""
        if self._closed:
            return
        painter.remove(self)
        with self._traits_lock:
            self._closed = True
            layout = self.layout
            self._put_away()
            layout.close()

    def _put_away(self) -> None:
        """Its comm is closed, here or by the page."""
        with self._traits_lock:
            self._let_go()
            super().close()
            self.__dict__.pop("_repr_mimebundle_", None)  # ipywidgets would show nothing of a closed one

    def _open_again(self) -> None:
        """A page may have closed its end; shown again, it gets another."""
        with self._traits_lock:
            if self._over and not self._closed:
                self.open()
                self._begin()

    def _let_go(self) -> None:
        """Hear of nothing and say nothing any more."""
        self._over = True
        painter.remove(self)
        unwatch, self._unwatch = self._unwatch, None
        if unwatch is not None:
            unwatch()

    def orphan(self) -> None:
        """See `painter.Painted`."""
        self._traits_lock = threading.RLock()
        self._over = self._closed = True
        self._unwatch = None
