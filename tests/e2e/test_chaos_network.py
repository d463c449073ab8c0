"""Networks that swallow datagrams and signaling that is gone, in the middle of an answer, over real links
(PROTOCOL sections 2, 3 and 8).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e import netns
from tests.e2e.chaos import FULL, POSIX
from tests.e2e.chaosroom import QUESTION, Question, Rooms, Signaling, Stage
from tests.e2e.routed import Router

pytestmark = pytest.mark.timeout(240)

Alone = Callable[[Question], str]
Tiny = tuple[Path, list[int]]
NAMES = ("host", "ana", "bo")


@pytest.fixture(scope="module")
def router() -> Iterator[Router]:
    netns.need_namespaces()
    made = Router(NAMES)
    yield made
    made.close()


@pytest.fixture(scope="module")
def routed(tmp_path_factory: pytest.TempPathFactory, tiny: Tiny, router: Router) -> Iterator[Rooms]:
    prefixes = {name: router.prefix(name) for name in NAMES}
    with Signaling(
        tmp_path_factory.mktemp("signaling"), router.address("host"), prefixes["host"]
    ) as signaling:
        env, servers = {"POOLED_STUN": ""}, [signaling.url]
        made = Rooms(
            lambda: Stage(
                tmp_path_factory.mktemp("routed"), *tiny, env=env, prefixes=prefixes, servers=servers
            )
        )
        yield made
        made.close()


@pytest.mark.parametrize(
    ("ends", "seconds"),
    [
        pytest.param(("ana",), 10, id="a worker, 10 s"),
        pytest.param(("ana",), 25, id="a worker, 25 s", marks=FULL),
        pytest.param(("host",), 10, id="the host, 10 s", marks=FULL),
        pytest.param(("host",), 25, id="the host, 25 s", marks=FULL),
        pytest.param(("ana", "bo"), 10, id="between workers, 10 s", marks=FULL),
        pytest.param(("ana", "bo"), 25, id="between workers, 25 s", marks=FULL),
    ],
)
def test_datagrams_are_swallowed(
    router: Router, routed: Rooms, alone: Alone, ends: tuple[str, ...], seconds: float
) -> None:
    """PROTOCOL section 3, dead links: held or redialed, and the answer goes on with what was shown."""
    stage = routed("ana", "bo")
    layers = stage.layers()
    asked = stage.ask(QUESTION)
    asked.until(10)
    with router.blackhole(*ends):
        time.sleep(seconds)
    assert asked.done()["reason"] == "max"
    assert asked.gap > 0.8 * seconds
    assert asked.text == alone(QUESTION)
    stage.shown(QUESTION, asked.text)
    assert stage.layers() == layers


@pytest.mark.parametrize("seconds", [5, pytest.param(30, marks=FULL)])
def test_signaling_is_gone(tmp_path: Path, tiny: Tiny, alone: Alone, seconds: float) -> None:
    """PROTOCOL section 2: the room goes on when it is down; as soon as it is back, a new device joins."""
    with Signaling(tmp_path) as signaling:
        stage = Stage(tmp_path, *tiny, servers=[signaling.url])
        try:
            stage.open("ana").host.call("start")
            asked = stage.ask(QUESTION)
            asked.until(10)
            with signaling.down():
                time.sleep(seconds)
            stage.until_signaling("host")
            stage.join("bo", role="guest")
            assert asked.done()["reason"] == "max"
            assert asked.text == alone(QUESTION)
            again = stage.ask(QUESTION, "bo")
            again.done()
            assert sorted(stage.layers()) == ["ana", "bo", "host"]
        finally:
            stage.close()


@POSIX
@FULL
def test_a_worker_is_frozen_while_signaling_is_gone(tmp_path: Path, tiny: Tiny, alone: Alone) -> None:
    """PROTOCOL section 3: it was dropped, knocks through the outage, and takes its seat when it is over."""
    with Signaling(tmp_path) as signaling:
        stage = Stage(tmp_path, *tiny, servers=[signaling.url])
        try:
            stage.open("ana").host.call("start")
            layers = stage.layers()
            asked = stage.ask(QUESTION)
            asked.until(10)
            with signaling.down():
                with stage["ana"].frozen():
                    time.sleep(20)
                time.sleep(10)
            assert asked.done()["reason"] == "max"
            assert asked.text == alone(QUESTION)
            assert stage.layers() == layers
        finally:
            stage.close()


@POSIX
@FULL
def test_a_worker_is_killed_while_signaling_is_gone(tmp_path: Path, tiny: Tiny, alone: Alone) -> None:
    """PROTOCOL section 6: dealt again over the links that exist, with signaling down."""
    with Signaling(tmp_path) as signaling:
        stage = Stage(tmp_path, *tiny, servers=[signaling.url])
        try:
            stage.open("ana", "bo").host.call("start")
            asked = stage.ask(QUESTION)
            asked.until(10)
            with signaling.down():
                stage["ana"].kill()
                stage.host.until_state("degraded")
                stage.host.call("start")
                assert asked.done()["reason"] == "max"
            assert asked.text == alone(QUESTION)
            held = {name: layers for name, layers in stage.layers().items() if layers}
            assert "ana" not in held
        finally:
            stage.close()
