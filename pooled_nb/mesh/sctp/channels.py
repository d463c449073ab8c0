"""Data channels over the association: their opening, messages and closing (RFC 8831, RFC 8832)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from struct import unpack_from
from typing import Any

from aiortc.rtcdatachannel import RTCDataChannel, RTCDataChannelParameters
from aiortc.rtcsctptransport import (
    DATA_CHANNEL_ACK,
    DATA_CHANNEL_OPEN,
    RECONFIG_RESULT_SUCCESS_PERFORMED,
    WEBRTC_BINARY,
    WEBRTC_BINARY_EMPTY,
    WEBRTC_DCEP,
    WEBRTC_STRING,
    WEBRTC_STRING_EMPTY,
    StreamResetResponseParam,
)
from aiortc.utils import uint32_gte

from pooled_nb.mesh.sctp.acking import Acking
from pooled_nb.mesh.sctp.base import finish, log
from pooled_nb.mesh.sctp.receiving import Receiving

MAX_OPENED = 64
"""Channels that a peer may have opened and not closed; ours opens one."""
_MESSAGES = (WEBRTC_STRING, WEBRTC_STRING_EMPTY, WEBRTC_BINARY, WEBRTC_BINARY_EMPTY)


class Channels(Acking, Receiving):
    """A part of `association.Association`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._opened_by_peer: set[int] = set()
        self._ears: dict[RTCDataChannel, Callable[[bytes | str], None]] = {}

    def _flush(self) -> None:
        if self._association_state != self.State.ESTABLISHED:
            return
        queue = self._data_channel_queue
        while queue and not self._outbound_queue and not self._is_over:
            channel, protocol, data = queue.popleft()
            stream_id = channel.id
            if stream_id is None:
                stream_id = self._data_channel_id or 0
                while stream_id in self._data_channels:
                    stream_id += 2
                self._data_channels[stream_id] = channel
                channel._setId(stream_id)
            if protocol == WEBRTC_DCEP:
                self._cut(stream_id, protocol, data)
            else:
                lifetime = channel.maxPacketLifeTime
                self._cut(
                    stream_id,
                    protocol,
                    data,
                    expiry=self._time() + lifetime / 1000 if lifetime else None,
                    max_retransmits=channel.maxRetransmits,
                    ordered=channel.ordered,
                    channel=channel,
                )
            self._transmit_now()
        if self._reconfig_queue and not self._is_over:
            finish(self._transmit_reconfig())  # it may have waited for these messages

    async def _data_channel_flush(self) -> None:
        self._pump()

    def _data_channel_send(self, channel: RTCDataChannel, data: bytes | str) -> None:
        if isinstance(data, str):
            protocol, payload = (WEBRTC_STRING, data.encode()) if data else (WEBRTC_STRING_EMPTY, b"\0")
        else:
            protocol, payload = (WEBRTC_BINARY, data) if data else (WEBRTC_BINARY_EMPTY, b"\0")
        most = self._remote_max_message_size
        if most and len(payload) > most:
            raise ValueError(
                f"Cannot send message of {len(payload)} bytes, the remote party "
                f"only supports messages up to {most} bytes"
            )
        channel._addBufferedAmount(len(payload))
        self._data_channel_queue.append((channel, protocol, payload))
        if not self._outbound_queue:  # else what was cut before waits for the window, and this behind it
            self._pump()

    def _data_channel_closed(self, stream_id: int) -> None:
        self._opened_by_peer.discard(stream_id)
        if stream_id in self._data_channels:
            self._ears.pop(self._data_channels[stream_id], None)
            self._tell(super()._data_channel_closed, stream_id)

    def _data_channel_close(self, channel: RTCDataChannel) -> None:
        self._tell(super()._data_channel_close, channel)

    def _reset_due(self) -> None:
        """The peer's reset of its streams, as soon as all that it sent before has come (RFC 6525)."""
        request = self._reconfig_deferred
        last = self._last_received_tsn
        if request is None or last is None or not uint32_gte(last, request.last_tsn):
            return
        for stream_id in request.streams:
            self._forget_stream(stream_id)
        finish(super()._reset_deferred_streams())

    async def _reset_deferred_streams(self) -> None:
        self._reset_due()

    def _deliver(self, stream_id: int, protocol: int, data: bytes) -> None:
        """A message is complete."""
        if protocol == WEBRTC_DCEP:
            self._opening(stream_id, data)
            return
        channel = self._data_channels.get(stream_id)
        if channel is None or protocol not in _MESSAGES:
            return
        message: bytes | str = data
        if protocol == WEBRTC_BINARY:
            pass
        elif protocol == WEBRTC_STRING:
            try:
                message = data.decode()
            except UnicodeDecodeError:
                return
        elif protocol == WEBRTC_STRING_EMPTY:
            message = ""
        elif protocol == WEBRTC_BINARY_EMPTY:
            message = b""
        ear = self._ears.get(channel)
        if ear is not None:
            try:  # as `_tell`
                ear(message)
            except Exception:
                log.exception("a handler of an association failed")
            if not channel.listeners("message"):
                return
        self._tell(channel.emit, "message", message)

    def listen(self, channel: RTCDataChannel, on_message: Callable[[bytes | str], None]) -> None:
        """Call this with each message of a channel: before who listens by its events, and for less."""
        self._ears[channel] = on_message

    async def _receive(self, stream_id: int, pp_id: int, data: bytes) -> None:
        self._deliver(stream_id, pp_id, data)

    def _opening(self, stream_id: int, data: bytes) -> None:
        """A message of the opening handshake (RFC 8832 section 5)."""
        if not data:
            return
        if data[0] == DATA_CHANNEL_ACK:
            channel = self._data_channels.get(stream_id)
            if channel is not None and channel.readyState == "connecting":
                self._tell(channel._setReadyState, "open")
            return
        if data[0] != DATA_CHANNEL_OPEN or len(data) < 12:
            return
        self._take_as_reset(stream_id)
        if stream_id in self._data_channels:
            return
        if len(self._opened_by_peer) >= MAX_OPENED:
            self._abort_for(f"it opened more than {MAX_OPENED} channels")
            return
        _, kind, _, reliability, label_size, protocol_size = unpack_from("!BBHLHH", data)
        try:
            label = data[12 : 12 + label_size].decode()
            protocol = data[12 + label_size : 12 + label_size + protocol_size].decode()
        except UnicodeDecodeError:
            return
        parameters = RTCDataChannelParameters(
            label=label,
            ordered=not kind & 0x80,
            maxPacketLifeTime=reliability if kind & 3 == 2 else None,
            maxRetransmits=reliability if kind & 3 == 1 else None,
            protocol=protocol,
            id=stream_id,
        )
        channel = RTCDataChannel(self, parameters, False)
        channel._setReadyState("open")
        self._data_channels[stream_id] = channel
        self._opened_by_peer.add(stream_id)
        self._data_channel_queue.append((channel, WEBRTC_DCEP, bytes([DATA_CHANNEL_ACK])))
        self._pump()
        if not self._is_over:
            self._tell(self.emit, "datachannel", channel)

    def _take_as_reset(self, stream_id: int) -> None:
        """The peer opens a stream whose channel closes here: it has done our reset, and the answer was lost.

        It reuses an identifier only when both ends' streams are reset (RFC 8831 section 6.7).
        """
        request = self._reconfig_request
        if request is None or stream_id not in request.streams:
            return
        if stream_id in self._data_channel_inbound_reset:
            answer = StreamResetResponseParam(request.request_sequence, RECONFIG_RESULT_SUCCESS_PERFORMED)
            finish(super()._receive_reconfig_param(answer))

    def _clear(self) -> None:
        """The association ended: nothing is kept of it."""
        self._ears.clear()
        self._data_channel_queue = deque()
        self._outbound_queue.clear()
        self._sent_queue.clear()
        self._marked = 0
        self._inbound_streams.clear()
        self._sack_duplicates = []
        self._sack_needed = False
