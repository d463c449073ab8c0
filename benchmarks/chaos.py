"""How long a room takes to notice what befalls its devices, and to go on: real processes, loopback WebRTC.

``python -m benchmarks.chaos [--quick] [--json]``. A tiny real model over devices of this machine; faults fall
in the middle of an answer. Rows: until the room says that a device does not respond; until the next token is
shown after a freeze, a kill and a new start, a re-deal, a restart of the host; and how long a join takes that
begins when the creator is registered again. `tests.e2e` asserts that the text is the same each time.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.report import Row, report
from tests.e2e.chaos import Asked
from tests.e2e.chaosroom import QUESTION, Question, Signaling, Stage, talker

NOTICED_S, JOIN_S = 5.0, 0.5
"""Goals: a death is noticed; a join, begun after the creator's re-registration."""
FREEZE_S, QUICK_FREEZE_S = 20.0, 6.0
OUTAGE_S, QUICK_OUTAGE_S = 30.0, 5.0
LONG = Question(QUESTION.text, tokens=700)

Rooms = Callable[..., Stage]


@contextmanager
def rooms() -> Iterator[Rooms]:
    """Makes started rooms with these workers, one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        model, never = talker(Path(folder) / "talker")
        made: list[Stage] = []

        def stage(*workers: str, servers: tuple[str, ...] = ("local",)) -> Stage:
            for old in made:
                old.close()
            made[:] = [Stage(Path(folder) / f"room {time.monotonic_ns()}", model, never, servers=servers)]
            made[0].open(*workers).host.call("start")
            return made[0]

        try:
            yield stage
        finally:
            for one in made:
                one.close()


def asking(stage: Stage, of: str = "host") -> Asked:
    """An answer that is under way."""
    stage.host.call("reset")
    asked = stage.ask(LONG, of)
    asked.until(20)
    return asked


def next_piece(asked: Asked, since: float) -> float:
    """Seconds from a moment until the first token after it is shown."""
    device = asked.device
    device.until(lambda: asked.end is not None or asked.pieces[-1][0] > since, "the next token", 180)
    return next(at for at, _ in asked.pieces if at > since) - since


def stop(asked: Asked) -> None:
    """End it: what was to be measured is."""
    asked.device.call("stop")
    asked.done()


def noticed(stage: Stage, mark: int, since: float) -> float:
    """Seconds until the host's room is no more online."""
    said = stage.host.until_state("waiting", "degraded", since=mark)
    return float(said["at"]) - since


def frozen(stage: Stage, who: str, seconds: float) -> list[Row]:
    """A device freezes and wakes up."""
    asked, mark = asking(stage), len(stage.host.said)
    began = time.monotonic()
    with stage[who].frozen():
        time.sleep(seconds)
    woke = time.monotonic()
    row = Row(
        what=f"{who} frozen {seconds:.0f} s: until the next token", unit="s", value=next_piece(asked, woke)
    )
    stop(asked)
    if who == "host":
        return [row]
    value = noticed(stage, mark, began)
    ok = value <= NOTICED_S
    what = f"{who} frozen: noticed"
    return [Row(what=what, value=value, unit="s", goal=f"<= {NOTICED_S:.0f} s", ok=ok), row]


def killed(stage: Stage) -> list[Row]:
    """A worker is killed, and a new process of it joins with its pass."""
    asked, mark, spare = asking(stage), len(stage.host.said), stage.process("ana")
    spare.until(lambda: bool(spare.said), "its start")
    began = time.monotonic()
    stage["ana"].kill()
    value = noticed(stage, mark, began)
    stage.replace("ana", spare)
    joins = time.monotonic()
    number = stage.join("ana", by_pass=True, wait=False)
    back = next_piece(asked, joins)
    entered = float(spare.answer(number)["at"]) - joins
    stop(asked)
    goal = f"<= {NOTICED_S:.0f} s"
    return [
        Row(what="worker killed: noticed", value=value, unit="s", goal=goal, ok=value <= NOTICED_S),
        Row(what="its new process: in the room", value=entered, unit="s"),
        Row(what="its new process: until the next token", value=back, unit="s"),
    ]


def dealt_again(stage: Stage) -> Row:
    """A worker is killed for good, and the host's person deals again."""
    asked, mark = asking(stage), len(stage.host.said)
    stage["ana"].kill()
    stage.host.until_state("degraded", since=mark)
    pressed = time.monotonic()
    number = stage.host.tell("start")
    value = next_piece(asked, pressed)
    stage.host.answer(number)
    stop(asked)
    return Row(what="dealt again: from the press until the next token", value=value, unit="s")


def resumed(stage: Stage) -> list[Row]:
    """The host is killed, and a new process of it takes the room back; a worker had asked."""
    asked, spare = asking(stage, "ana"), stage.process("host")
    spare.until(lambda: bool(spare.said), "its start")
    stage.host.kill()
    stage.replace("host", spare)
    began = time.monotonic()
    spare.call("resume", code=stage.code)
    back = next_piece(asked, began)
    stop(asked)
    online = float(spare.until_state("online", "answering")["at"]) - began
    return [
        Row(what="host resumed: until it is online", value=online, unit="s"),
        Row(what="host resumed: until the asker's next token", value=back, unit="s"),
    ]


def joined(make: Rooms, outage: float) -> list[Row]:
    """Signaling is gone for a while, and a guest joins as soon as the creator is there again."""
    with tempfile.TemporaryDirectory() as folder, Signaling(Path(folder)) as signaling:
        stage = make("ana", servers=(signaling.url,))
        guest = stage.replace("bo", stage.process("bo"))
        guest.until(lambda: bool(guest.said), "its start")
        with signaling.down():
            time.sleep(outage)
        back = time.monotonic()
        registered = stage.until_signaling("host")
        said = guest.answer(stage.join("bo", role="guest", wait=False))
        value = float(said["at"]) - registered
        what = f"signaling gone {outage:.0f} s"
        goal = f"<= {JOIN_S} s"
        return [
            Row(what=f"{what}: the creator is registered again", value=registered - back, unit="s"),
            Row(what=f"{what}: a join after that", value=value, unit="s", goal=goal, ok=value <= JOIN_S),
        ]


def measure(*, quick: bool) -> list[Row]:
    """All rows, in one run."""
    with rooms() as make:
        stage = make("ana")
        rows = [*killed(stage), *frozen(stage, "ana", QUICK_FREEZE_S if quick else FREEZE_S)]
        if not quick:
            rows += [*frozen(stage, "host", FREEZE_S), *resumed(stage)]
            rows.append(dealt_again(make("ana", "bo")))
        return rows + joined(make, QUICK_OUTAGE_S if quick else OUTAGE_S)


def main() -> None:
    """Measure, then report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer faults: ends within 50 s on 2 cores")
    parser.add_argument("--json", action="store_true", help="only the line for programs")
    args = parser.parse_args()
    os.environ["POOLED_THREADS"] = "1"
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    report("chaos", measure(quick=args.quick), as_json=args.json)


if __name__ == "__main__":
    main()
