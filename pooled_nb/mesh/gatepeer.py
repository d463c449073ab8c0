"""Decides whether a link between two devices, or a stripe, is proved: both ends hold ``mk`` (PROTOCOL 4)."""

from __future__ import annotations

from collections.abc import Callable

from pooled_nb.mesh import proofs
from pooled_nb.mesh.gate import BINDING_S, Doorway, GateAction, Pass, Refuse, Say
from pooled_nb.mesh.messages import Message
from pooled_nb.mesh.messages.link import Hello, MeshProof

UNPROVED = "it does not hold this room's key"
NO_CERTIFICATE = "its certificate could not be read"
NO_KEY = "this device has no key of the room"


class MeshExchange:
    """``mesh`` both ways over one link.

    Proofs carry no nonces: each RTCPeerConnection has a certificate of its own, so one that was overheard is
    worth nothing over another. They say "of this room", not which device: who knows ``mk`` is told from
    others of the room by its id alone, which signaling gives out.

    Parameters
    ----------
    mesh_key
        ``mk`` as it is known now; None: this device has none (yet), and nothing is proved. No device of ours
        has the owner's switch of section 4: ``none: 1``, from one without a key, is a wrong proof.
    """

    def __init__(self, mesh_key: Callable[[], str | None], doorway: Doorway) -> None:
        self._key, self._doorway = mesh_key, doorway
        self._theirs: MeshProof | None = None
        self._sent = self._over = False
        self._since: float | None = None

    def opened(self, now: float) -> list[GateAction]:
        """The link may carry ``mesh`` now."""
        self._since = now
        return self._go(now)

    def message(self, message: MeshProof, now: float) -> list[GateAction]:
        """The other end's proof; the first counts."""
        if self._theirs is not None:
            return []
        self._theirs = message
        return self._go(now)

    def tick(self, now: float) -> list[GateAction]:
        """Time passes."""
        return self._go(now)

    def closed(self) -> None:
        """The link ended."""
        self._over = True

    def _go(self, now: float) -> list[GateAction]:
        if self._over or self._since is None:
            return []
        binding, key = self._doorway.binding(), self._key()
        if binding is None or key is None:
            if now - self._since < BINDING_S:
                return []
            self._over = True
            return [Refuse(NO_CERTIFICATE if binding is None else NO_KEY)]
        actions: list[GateAction] = []
        if not self._sent:
            self._sent = True
            actions.append(Say(MeshProof(v=1, p=self._proof(key, binding, mine=True))))
        if self._theirs is not None:
            self._over = True
            good = proofs.same(self._theirs.p, self._proof(key, binding, mine=False))
            actions.append(Pass() if good else Refuse(UNPROVED))
        return actions

    def _proof(self, key: str, binding: str, *, mine: bool) -> str:
        way = self._doorway
        dialer, acceptor = (way.own, way.remote) if way.dialed else (way.remote, way.own)
        role: proofs.MeshRole = "dial" if mine == way.dialed else "accept"
        return proofs.mesh_proof(key, role, binding=binding, dialer=dialer, acceptor=acceptor)


class PeerGate:
    """The `Gate` of a link between devices."""

    def __init__(self, mesh_key: Callable[[], str | None], doorway: Doorway) -> None:
        self._exchange = MeshExchange(mesh_key, doorway)

    def hello(self, hello: Hello) -> Hello:
        """See `Gate.hello`."""
        return hello

    def greeted(self, hello: Hello, now: float) -> list[GateAction]:
        """See `Gate.greeted`."""
        return self._exchange.opened(now)

    def message(self, message: Message, now: float) -> list[GateAction]:
        """See `Gate.message`."""
        return self._exchange.message(message, now) if isinstance(message, MeshProof) else []

    def tick(self, now: float) -> list[GateAction]:
        """See `Gate.tick`."""
        return self._exchange.tick(now)

    def closed(self) -> None:
        """See `Gate.closed`."""
        self._exchange.closed()
