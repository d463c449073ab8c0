"""What a device believes of its host (PROTOCOL section 4)."""

from __future__ import annotations

from typing import Any

import pytest

from pooled_nb.mesh import gatecreator, gatejoiner
from pooled_nb.mesh.gate import Pass, Refuse, Say
from pooled_nb.mesh.gatekeeper import Gatekeeper, GateSettings
from pooled_nb.mesh.messages.link import Admit, Auth, AuthProof, Hello, Lobby
from pooled_nb.mesh.newcomer import Credentials, Newcomer
from tests.mesh.gatetools import joiner, pair


def greeted(newcomer: Newcomer, *, auth: bool = True) -> Any:
    """A device's gate that was challenged and has answered (``auth``), or that met an older host."""
    gate = joiner(newcomer)
    gate.hello(Hello(v=4))
    gate.greeted(Hello(v=4, gate=True, auth=auth), 0.0)
    if auth:
        (said,) = gate.message(Auth(v=1, hn="h" * 22), 0.0)
        assert isinstance(said, Say)
        assert isinstance(said.message, AuthProof)
        assert gate.message(Auth(v=1, hn="i" * 22), 0.1) == []
    return gate


HELD = [Credentials(key="k" * 22), Credentials(pass_="p" * 22), Credentials("k" * 22, "p" * 22)]


@pytest.mark.parametrize("held", HELD, ids=["key", "pass", "both"])
@pytest.mark.parametrize("via", ["key", "pass", "other"])
@pytest.mark.parametrize("lobbied", [False, True])
def test_a_wrong_hp(held: Credentials, via: str, lobbied: bool) -> None:
    """PROTOCOL section 4, device: "a wrong `hp`: leave, say so loudly, never knock again"."""
    newcomer = Newcomer(held)
    gate = greeted(newcomer)
    if lobbied:
        gate.message(Lobby(), 0.1)
    (refused,) = gate.message(Admit(via=via, hp="0" * 64, mk="m" * 43), 0.2)
    assert refused == Refuse(gatejoiner.IMPOSTOR, gatejoiner.NEXT)
    assert (newcomer.mesh_key, newcomer.credentials, newcomer.trust) == (None, held, "")
    assert newcomer.waiting == ""
    assert joiner(newcomer).greeted(Hello(v=4, auth=True), 9.0) == [refused]


def test_via_of_what_it_does_not_hold() -> None:
    """PROTOCOL section 4, device: who holds nothing was proved nothing: `via` is a lie."""
    gate = greeted(Newcomer())
    assert gate.message(Admit(via="key", hp="0" * 64), 0.2) == [Refuse(gatejoiner.IMPOSTOR, gatejoiner.NEXT)]


@pytest.mark.parametrize("held", HELD, ids=["key", "pass", "both"])
@pytest.mark.parametrize("auth", [True, False])
def test_it_holds_something_and_the_host_proves_nothing(held: Credentials, auth: bool) -> None:
    """PROTOCOL section 4, device: "and `admit` has no `via`: only after a `lobby`"; whether or not it was
    asked for a proof; then its person confirms; "without `auth` there are no digits, and it says that this
    host cannot prove itself".
    """
    unasked = greeted(Newcomer(held), auth=auth)
    (refused,) = unasked.message(Admit(mk="m" * 43), 0.2)
    assert isinstance(refused, Refuse)
    assert "without recognising" in refused.reason
    assert "host for" in refused.next_step

    for same in (True, False):
        newcomer = Newcomer(held)
        gate = greeted(newcomer, auth=auth)
        (wait,) = gate.message(Lobby(), 0.1)
        assert (newcomer.digits != "") == auth
        assert newcomer.digits in wait.text
        (wait,) = gate.message(Admit(pass_="q" * 22, mk="m" * 43), 0.2)
        assert "did not recognise your link" in wait.text
        assert ("compare the six digits" in wait.text) == auth
        assert ("cannot prove itself" in wait.text) != auth
        assert newcomer.waiting == "confirm"
        assert newcomer.mesh_key is None
        assert newcomer.credentials == held  # nothing of it counts before the person said yes
        assert gate.tick(60.0) == []
        assert not newcomer.confirm(same=True, digits="000 00x")
        assert newcomer.confirm(same=same, digits=newcomer.digits)
        (end,) = gate.tick(60.5)
        if same:
            assert end == Pass()
            assert newcomer.trust == "confirmed"
            assert newcomer.credentials.pass_ == "q" * 22
        else:
            assert isinstance(end, Refuse)
            assert newcomer.distrusts == end.reason
            assert newcomer.credentials == held


def test_a_confirmation_that_never_comes() -> None:
    """PROTOCOL section 4, device: "waits for its person to confirm", not for ever: the room counts it in."""
    newcomer = Newcomer(HELD[0])
    gate = greeted(newcomer)
    gate.message(Lobby(), 0.0)
    gate.message(Admit(mk="m" * 43), 10.0)
    assert gate.tick(129.9) == []
    assert gate.tick(130.0) == [Refuse(gatejoiner.NOBODY_CONFIRMED, gatejoiner.NEXT_AGAIN)]
    assert newcomer.waiting == ""
    assert not newcomer.confirm(same=True)


def test_a_lobby_that_nobody_leaves() -> None:
    """PROTOCOL section 4, device: it waits a little longer than a host lets it, not for ever: a host says
    after ten minutes that nobody decided.
    """
    newcomer = Newcomer()
    gate = greeted(newcomer)
    gate.message(Lobby(), 5.0)
    assert gatejoiner.LOBBY_S > gatecreator.LOBBY_S
    assert gate.tick(5.0 + gatejoiner.LOBBY_S - 0.1) == []
    (refused,) = gate.tick(5.0 + gatejoiner.LOBBY_S)
    assert refused == Refuse(gatejoiner.NOBODY_DECIDED, gatejoiner.NEXT_ASK)
    assert newcomer.waiting == ""


def test_what_a_person_said_of_one_link_counts_for_no_other() -> None:
    """PROTOCOL section 4, six digits: they belong to one link; yes to a link that broke is no yes to the
    next.
    """
    newcomer = Newcomer(HELD[0])
    first = greeted(newcomer)
    first.message(Lobby(), 0.0)
    first.message(Admit(mk="m" * 43), 0.1)
    shown = newcomer.digits
    assert newcomer.confirm(same=True, digits=shown)
    second = greeted(newcomer)  # it broke before the yes was taken up
    second.message(Lobby(), 1.0)
    second.message(Admit(mk="n" * 43), 1.1)
    assert newcomer.digits != shown
    assert second.tick(1.5) == first.tick(1.5) == []
    assert not newcomer.confirm(same=True, digits=shown)
    newcomer.confirm(same=True, digits=newcomer.digits)
    assert first.tick(1.9) == []
    first.closed()
    assert newcomer.waiting == "confirm"  # the second still waits
    assert second.tick(2.0) == [Pass()]
    assert newcomer.mesh_key == "n" * 43


def test_trust_on_first_use() -> None:
    """PROTOCOL section 4, device: "It holds nothing: trust on first use, said plainly"; a pass that came that
    way proves later that the host is the same one, and no more.
    """
    newcomer = Newcomer()
    gate = greeted(newcomer, auth=False)
    assert gate.message(Admit(pass_="q" * 22, mk="m" * 43), 0.2) == [Pass()]
    assert newcomer.trust == "first"
    keeper = Gatekeeper(GateSettings(ask=False))
    later = Newcomer()
    pair(keeper, later)
    assert later.trust == "first"
    back = pair(keeper, later)
    assert back.creator.passes[0].came_back
    assert later.trust == "first"
    link = Newcomer(Credentials(keeper.key))
    pair(keeper, link, id="device-b")
    pair(keeper, link, id="device-b")
    assert link.trust == "proved"


def test_a_pass_of_first_use_is_nothing_beside_a_link() -> None:
    """PROTOCOL section 4, device: who stood in the middle of a visit on first use gave the pass of it, and
    proves that one again; with a link in hand its host has to prove the key.
    """
    middle = Gatekeeper(GateSettings(ask=False))
    newcomer = Newcomer()
    pair(middle, newcomer).creator.gate.closed()
    assert newcomer.met == newcomer.trust == "first"
    newcomer.credentials = Credentials(key="k" * 22, pass_=newcomer.credentials.pass_)
    link = pair(middle, newcomer)
    hello = link.device.said[0]
    assert isinstance(hello, Hello)
    assert (hello.kc, hello.pid) == (True, None)
    assert "without recognising its invite link" in link.device.refusals[0].reason
    newcomer.met = "confirmed"
    assert pair(middle, newcomer, id="device-b").device.passes


def test_the_challenge_may_come_after_the_lobby() -> None:
    """PROTOCOL section 4: the device answers "always, once per link", and then shows the digits."""
    newcomer = Newcomer()
    gate = joiner(newcomer)
    gate.greeted(Hello(v=4), 0.0)
    gate.message(Lobby(), 0.1)
    assert (newcomer.waiting, newcomer.digits) == ("lobby", "")
    (said,) = gate.message(Auth(v=1, hn="h" * 22), 0.2)
    assert isinstance(said, Say)
    assert newcomer.digits != ""
    assert gate.message(Lobby(), 0.3) == []
    gate.closed()
    assert (newcomer.waiting, newcomer.digits) == ("", "")
