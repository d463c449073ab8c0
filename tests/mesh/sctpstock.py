"""A plugin of pytest that puts the tuned association where aiortc's own tests look for theirs.

Those tests reach into the stock class: they replace its coroutines on one object and set its numbers. So the
class under test gives our values those names. It adds nothing that production has not, and the tests' files
are run as they come.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from aiortc import rtcpeerconnection, rtcsctptransport
from aiortc.rtcsctptransport import Chunk, DataChunk

from pooled_nb.mesh.sctp.association import Association
from pooled_nb.mesh.sctp.base import finish
from pooled_nb.mesh.sctp.chunks import Outbound
from pooled_nb.mesh.sctp.policy import STOCK, TUNED
from pooled_nb.mesh.sctp.reassembly import Inbound
from pooled_nb.mesh.sctp.received import Received
from pooled_nb.mesh.sctp.receiving import RECEIVE_WINDOW

BY_STOCK_NUMBERS = {
    "test_connect_broken_transport": "gives up after 8 INITs in 0.9 s; ours goes on for half a minute",
    "test_receive_sack_abandoned_fragments_flight_size": "4 packets leave at once, the fifth waits",
    "test_receive_sack_forward_tsn_lost": "losses are counted by SACKs alone, however slow the machine is",
    "test_receive_sack_gap_acked_after_retransmit": "after T3 what a gap block acknowledged is sent again",
    "test_reconfig_timer_expired": "the first timeout is 3 s",
    "test_send_data_congestion_control": "the window grows by a packet a SACK, and 4 packets leave at once",
    "test_send_data_slow_start": "the first window is 3 packets",
    "test_send_data_then_close": "a SACK lets the rest of one message leave, and no other",
    "test_send_data_with_gap": "the first window is 3 packets",
    "test_send_data_with_gap_1_retransmit": "the first window is 3 packets; losses are counted by SACKs",
    "test_send_data_with_gap_2_retransmit": "the first window is 3 packets; losses are counted by SACKs",
    "test_send_data_with_gap_3_retransmit": "the first window is 3 packets; losses are counted by SACKs",
    "test_t3_expired_abandoned_queued_fragments": "the first window is 3 packets",
    "test_t3_expired_gap_acked": "after T3 what a gap block acknowledged is sent again, one packet at first",
}
"""These run the same machinery with `policy.STOCK`; all others with ours."""

_policy = TUNED


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    global _policy
    _policy = STOCK if item.name in BY_STOCK_NUMBERS else TUNED


def _stock(chunk: Any) -> Chunk:
    """A chunk as a mock of ``_send_chunk`` expects it."""
    if not isinstance(chunk, Outbound):
        return chunk  # type: ignore[no-any-return]
    stock = DataChunk(flags=chunk.flags)
    message = chunk.message
    stock.tsn, stock.user_data = chunk.tsn, chunk.data
    stock.stream_id, stock.stream_seq, stock.protocol = (
        message.stream_id,
        message.stream_seq,
        message.protocol,
    )
    return stock


class Tested(Association):
    """The tuned association under the names of the stock one."""

    def __init__(self, transport: Any, port: int = 5000) -> None:
        self._is_in_mock = False
        super().__init__(transport, port, policy=_policy)

    # coroutines that a test replaced on the object

    def _mock(self, name: str) -> Any:
        return None if self._is_in_mock else self.__dict__.get(name)

    def _run(self, mock: Any, *args: Any) -> Any:
        self._is_in_mock = True
        try:
            return finish(mock(*args))
        finally:
            self._is_in_mock = False

    def _put(self, chunk: Any) -> None:
        mock = self._mock("_send_chunk")
        if mock is None:
            super()._put(chunk)
        else:
            self._run(mock, _stock(chunk))

    def _put_data(self, leaving: Sequence[Outbound]) -> None:
        if self._mock("_send_chunk") is None:
            super()._put_data(leaving)
        else:
            for chunk in leaving:
                self._put(chunk)

    def _deliver(self, stream_id: int, protocol: int, data: bytes) -> None:
        mock = self._mock("_receive")
        if mock is None:
            super()._deliver(stream_id, protocol, data)
        else:
            self._run(mock, stream_id, protocol, data)

    def _control(self, chunk: Any) -> None:
        mock = self._mock("_receive_chunk")
        if mock is None:
            super()._control(chunk)
        else:
            self._run(mock, chunk)

    def _transmit_now(self) -> None:
        if self._mock("_transmit") is None:
            super()._transmit_now()

    def _sack(self, cumulative: int, window: int, gaps: Any, duplicates: Any) -> None:
        # The tests' own SACKs leave the peer's window 0, which stock never reads.
        super()._sack(cumulative, window or RECEIVE_WINDOW, gaps, duplicates)

    # what has not come from a SACK but from a test

    def _mark_received(self, tsn: int) -> bool:
        assert self._received is not None
        return not self._received.add(tsn)

    @property
    def _sack_misordered(self) -> set[int]:
        return set() if self._received is None else set(self._received.beyond())

    @_sack_misordered.setter
    def _sack_misordered(self, tsns: set[int]) -> None:
        if self._received is not None:
            self._received = Received(self._received.cumulative)
            for tsn in tsns:
                self._received.add(tsn)

    @property
    def _t3_handle(self) -> float | None:
        return self._t3.due

    @_t3_handle.setter
    def _t3_handle(self, value: None) -> None:
        assert value is None


def _forward(name: str, owner: str, attribute: str) -> None:
    """The stock name is a value of one of our parts; before that part exists, stock's constructor sets it."""

    def get(self: Tested) -> Any:
        return getattr(getattr(self, owner), attribute)

    def put(self: Tested, value: Any) -> None:
        if owner in self.__dict__:
            setattr(getattr(self, owner), attribute, value)

    setattr(Tested, name, property(get, put))


_forward("_cwnd", "_window", "size")
_forward("_ssthresh", "_window", "threshold")
_forward("_partial_bytes_acked", "_window", "_towards_next")


def _flight(self: Tested) -> int:
    return self._member.flight


def _set_flight(self: Tested, value: int) -> None:
    if "_member" in self.__dict__:
        self._member.sent(value - self._member.flight)


Tested._flight_size = property(_flight, _set_flight)  # type: ignore[assignment, method-assign]
for _name in ("abandoned", "retransmit", "acked", "misses"):
    setattr(Outbound, f"_{_name}", property(lambda self, name=_name: getattr(self, name)))

for _module in (rtcsctptransport, rtcpeerconnection):
    _module.RTCSctpTransport = Tested  # type: ignore[attr-defined, misc]
rtcsctptransport.InboundStream = Inbound  # type: ignore[attr-defined, misc, assignment]
