"""An aiortc connection with our DTLS and association below it. aiortc itself stays as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiortc import RTCConfiguration, RTCPeerConnection
from aiortc.rtcicetransport import RTCIceGatherer, RTCIceTransport

from pooled_nb.mesh.network import ConnectionStats
from pooled_nb.mesh.sctp.association import Association
from pooled_nb.mesh.sctp.dtls import Dtls

if TYPE_CHECKING:
    from aiortc import RTCDataChannel

    from pooled_nb.mesh.sctp.window import Window


class Peer(RTCPeerConnection):
    """See `RTCPeerConnection`. Made for data channels: where there are media, all of it is aiortc's.

    Parameters
    ----------
    window
        What it shares with the other connections to the same device.
    """

    def __init__(self, configuration: RTCConfiguration, window: Window | None = None) -> None:
        super().__init__(configuration)
        self._window = window

    def stats(self) -> ConnectionStats | None:
        """What its association counts; None before there is one."""
        return self.sctp.stats() if isinstance(self.sctp, Association) else None

    # The two makers of aiortc are private: these are the names that it calls them by.

    def _RTCPeerConnection__createSctpTransport(self) -> None:
        aiortc: Any = self
        if self.getTransceivers():
            stock: Any = super()
            stock._RTCPeerConnection__createSctpTransport()
            return
        association: Any = Association(self._dtls(), window=self._window)
        association._bundled = False
        association.mid = None
        aiortc._RTCPeerConnection__sctp = association

        @association.on("datachannel")  # type: ignore[untyped-decorator]
        def on_datachannel(channel: RTCDataChannel) -> None:
            self.emit("datachannel", channel)

    def _dtls(self) -> Dtls:
        """As ``__createDtlsTransport``, of the first transport."""
        aiortc: Any = self
        configuration: RTCConfiguration = aiortc._RTCPeerConnection__configuration
        gatherer = RTCIceGatherer(
            iceServers=configuration.iceServers, iceTransportPolicy=configuration.iceTransportPolicy
        )
        gatherer.on("statechange", aiortc._RTCPeerConnection__updateIceGatheringState)
        ice = RTCIceTransport(gatherer)
        ice.on("statechange", aiortc._RTCPeerConnection__updateIceConnectionState)
        ice.on("statechange", aiortc._RTCPeerConnection__updateConnectionState)
        aiortc._RTCPeerConnection__iceTransports.add(ice)
        dtls = Dtls(ice, aiortc._RTCPeerConnection__certificates)
        dtls.on("statechange", aiortc._RTCPeerConnection__updateConnectionState)
        aiortc._RTCPeerConnection__dtlsTransports.add(dtls)
        aiortc._RTCPeerConnection__updateIceGatheringState()
        aiortc._RTCPeerConnection__updateIceConnectionState()
        aiortc._RTCPeerConnection__updateConnectionState()
        return dtls
