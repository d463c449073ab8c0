"""How a device says something to others: the part of `Mesh` that sends (PROTOCOL sections 3, 5, 6)."""

from __future__ import annotations

from pooled_nb.mesh.credit import Credit
from pooled_nb.mesh.frame import Frame
from pooled_nb.mesh.known import Known
from pooled_nb.mesh.linkbook import LinkBook
from pooled_nb.mesh.messages import Message
from pooled_nb.mesh.wire import Priority


class Sending(Known):
    """`Mesh` sets what is behind it."""

    def send(self, to: str, message: Message) -> bool:
        """Send to one device; False: there is no admitted link to it, or the message is too large for one."""
        links, link = self._links, self._book().used(to)
        if links is None or link is None or (data := links.packed(message)) is None:
            return False
        return link.send(message, data)

    def broadcast(self, message: Message, *, but: str | None = None) -> None:
        """Send over every admitted link to a device of the roster."""
        if self._links is not None and (data := self._links.packed(message)) is not None:
            self._links.broadcast(data, message, but=but)

    def send_frame(self, to: str, frame: Frame) -> bool:
        """Send a frame; False: there is no admitted link to carry it. Frames to one device keep their order.

        Raises
        ------
        ValueError
            The wire cannot carry it: a mistake of the caller.
        """
        link = self._book().used(to)
        return link is not None and link.send_frame(frame)

    async def send_bulk(
        self, to: str, message: Message, priority: Priority, *, credit: Credit | None = None
    ) -> bool:
        """Send a large message behind every frame and every ordinary message; return once it is queued.

        Waits until its class has room: 256 KiB of one class wait at a time, or one message that is larger. So
        whoever awaits it makes no more than the link carries. Messages of one class (and, where given, of one
        credit) keep their order. Cancelled while it waits, it sends nothing of the message; what was queued
        goes whole, or is lost with its link.

        Parameters
        ----------
        priority
            `Priority.CAPTURES` or `Priority.WEIGHTS`.
        credit
            What `credit` gave for the range that the message is a part of: its ``data`` counts, and waits for
            what the other end acknowledges. Without one it goes at the pace that the other end reads at.

        Returns
        -------
        False: there is no admitted link to the device, or it ended, or the range did.

        Raises
        ------
        ValueError
            It is a frame's priority, or ``data`` is larger than `Credit.part`.
        """
        links, link = self._links, self._book().used(to)
        if links is None or link is None or (data := links.packed(message)) is None:
            return False
        return await link.send_bulk(message, data, priority, credit)

    def credit(self, to: str, win: int | None) -> Credit | None:
        """What one range may have on its way to a device that asked for ``win`` bytes at most (section 6).

        Over the link that there is now: with a link its ranges end. None: there is none.
        """
        link = self._book().used(to)
        return None if link is None else Credit(win, of=link.wire.window)

    def _book(self) -> LinkBook:
        return self._links.book if self._links else LinkBook("")
