"""aiortc's DTLS with a short way through it, in both directions (DESIGN section 4).

Handshake, its timers, SRTP, shutdown and the end of the path are aiortc's: its task goes on reading what is
queued, and hears there that the connection is over. Records that come after the handshake are opened in the
socket's callback, and packets that leave are sealed and sent before the call returns.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, cast

from aiortc.rtcdtlstransport import RTCCertificate, RTCDtlsParameters, RTCDtlsTransport, State
from aiortc.rtcicetransport import RTCIceTransport
from OpenSSL import SSL

from pooled_nb.mesh.sctp import datagrams, records
from pooled_nb.mesh.sctp.flight import Flight

log = logging.getLogger(__name__)

MAX_QUEUED = 256
"""Datagrams that wait for the handshake; aioice's queue has no end."""
APPLICATION_DATA = 23
MAX_FLIGHT = 1_500
"""Bytes of the handshake that aiortc puts into one datagram."""


class Dtls(RTCDtlsTransport):
    """See `RTCDtlsTransport`. Its association has ``receive_now`` and ``batch_ended``."""

    _ssl: Any
    _ways: records.Ways

    def __init__(self, transport: RTCIceTransport, certificates: list[RTCCertificate]) -> None:
        super().__init__(transport, certificates)
        self._ice = cast(Any, transport._connection)
        self._is_quick = self._is_over = False
        self._is_heard = False
        """Whether data came: then nobody waits for the handshake's last flight any more."""
        self._has_ending = False
        """The end of a batch is to come, of the reader's or of its own."""
        self._pair: Any = None
        self._put: Any = None
        self._flight = Flight(self._repeat)
        # Of this one ICE connection: what comes that is not STUN, by whichever socket.
        self._ice.data_received = self._arrived

    async def start(self, remoteParameters: RTCDtlsParameters) -> None:
        """See `RTCDtlsTransport.start`."""
        try:
            await super().start(remoteParameters)
        finally:
            if self._state is State.CONNECTED and self._role == "server":
                self._flight.is_last()
            else:
                self._flight.arrived()
        if self._state is State.CONNECTED:
            self._ways = records.ways(self._ssl)
            self._is_quick = True
            for protocol in self._ice._protocols:
                datagrams.quicken(protocol, self._take, self._begun, self._ended)

    async def stop(self) -> None:
        """See `RTCDtlsTransport.stop`."""
        self._is_over = True
        self._flight.arrived()
        await super().stop()

    def send_now(self, packets: Sequence[bytes]) -> None:
        """Seal packets and send them by the nominated pair of now, before this returns.

        Raises
        ------
        ConnectionError
            There is no connection (any more). A packet that the system does not take is lost without a word.
        """
        if self._state is not State.CONNECTED:
            raise ConnectionError("not connected")
        pair = self._ice._nominated.get(1)
        if pair is None:
            raise ConnectionError("no path is nominated (any more)")
        try:
            sealed = self._ways.seal(packets)
        except SSL.Error as error:
            raise ConnectionError("DTLS sends no more") from error
        if pair is not self._pair:
            self._pair, self._put = pair, datagrams.way(pair)
        if len(packets) == 1:
            self._put(sealed, len(sealed))
        else:
            for run, step in records.runs(sealed):
                self._put(run, step)
        self._count_sent(len(sealed), len(packets))

    # the handshake

    async def _write_ssl(self) -> None:
        if self._state is not State.CONNECTING:
            await super()._write_ssl()
            return
        try:
            flight = self._ssl.bio_read(MAX_FLIGHT)
        except SSL.Error:
            return  # it has nothing to say
        if not self._is_over:
            self._flight.left(flight)
        await self.transport._send(flight)
        self._count_sent(len(flight), 1)

    def _repeat(self, flight: bytes) -> None:
        pair = self._ice._nominated.get(1)
        if pair is not None:
            datagrams.way(pair)(flight, len(flight))
            self._count_sent(len(flight), 1)

    # from the sockets

    def _arrived(self, data: bytes, component: int) -> None:
        """In place of `aioice.Connection.data_received`: by a socket that is not read the short way."""
        if data and self._is_quick and 19 < data[0] < 64:
            self._take(data)
        elif data:  # an empty one, which anybody can send, would end aiortc's task that reads the queue
            self._queue(data)

    def _take(self, data: bytes) -> None:
        if self._is_over:
            return
        if not self._ice._queue.empty():  # what came before is first
            self._queue(data)
            return
        size = len(data)
        me: Any = self
        me._RTCDtlsTransport__rx_bytes += size
        me._RTCDtlsTransport__rx_packets += 1
        is_one = (
            data[0] == APPLICATION_DATA
            and size > records.HEADER
            and size - records.HEADER == data[11] << 8 | data[12]  # `records.length`
        )
        try:
            packet = self._ways.open(data)
            if not self._is_heard:
                self._is_heard = True
                self._flight.arrived()  # it sends data, so it has all of the handshake
            while True:
                receiver: Any = self._data_receiver
                if receiver is not None and packet:
                    if not self._has_ending:
                        self._has_ending = True
                        asyncio.get_running_loop().call_soon(self._ended)
                    receiver.receive_now(packet)
                if is_one:
                    return
                packet = self._ways.open_next()  # a datagram may hold several records
        except SSL.Error as error:
            self._no_packet(error)
        except Exception:
            self._failed()

    def _queue(self, data: bytes) -> None:
        if self._ice._queue.qsize() < MAX_QUEUED:
            self._ice._queue.put_nowait((data, 1))

    def _no_packet(self, error: SSL.Error) -> None:
        """Nothing (more) in a datagram, or no record of this connection: ignored (RFC 6347, 4.1.2.7)."""
        try:
            self._flush()
        except Exception:
            self._failed()
        if isinstance(error, SSL.ZeroReturnError):
            self._end()  # close_notify

    def _failed(self) -> None:
        """As in aiortc, what goes wrong here ends the connection; called where it is handled."""
        log.warning("a connection ended", exc_info=True)
        self._end()

    def _begun(self) -> None:
        self._has_ending = True

    def _ended(self) -> None:
        self._has_ending = False
        receiver: Any = self._data_receiver
        if receiver is None:
            return
        try:
            receiver.batch_ended()
        except Exception:
            self._failed()

    def _flush(self) -> None:
        """Send what DTLS itself has to say: alerts, the last flight of the handshake again."""
        pair = self._ice._nominated.get(1)
        try:
            record = self._ssl.bio_read(records.MAX_OWN)
        except SSL.Error:
            return
        if pair is not None:
            datagrams.way(pair)(record, len(record))
            self._count_sent(len(record), 1)

    def _end(self) -> None:
        """Let aiortc's task end, as where the path is gone."""
        if not self._is_over:
            self._is_over = True
            self._ice._queue.put_nowait(None)

    def _count_sent(self, size: int, packets: int) -> None:
        me: Any = self
        me._RTCDtlsTransport__tx_bytes += size
        me._RTCDtlsTransport__tx_packets += packets
