"""Rooms that keep states: what goes on from one is what a fresh run says (PROTOCOL section 7)."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest

from pooled_nb.mesh.frame import Frame
from pooled_nb.mesh.messages import Message
from pooled_nb.mesh.messages import deal as wire
from pooled_nb.room.core import ChatSettings
from tests.room.rooms import Heard, Rooms, again, ask, open_rooms
from tests.room.wiretap import tap
from tests.sim.clock import simulate
from tests.sim.network import SimNetwork

SYSTEM = "You answer in very few words, and never repeat what was said."


async def room(workers: int = 2, **more: Any) -> Rooms:
    rooms = await open_rooms(
        workers=(1.0,) * workers,
        net=SimNetwork(latency=0.02),
        **{"copies": 0.8, "end_after": 30, "ctx": 2048, **more},
    )
    await rooms.host.start()
    return rooms


async def fresh(*questions: str, system: str = "") -> list[Heard]:
    """The same conversation on one device that keeps nothing and guesses nothing."""
    rooms = await room(0, checkpoints=0, speculate=False)
    if system:
        await rooms.host.configure(ChatSettings(system=system))
    heard = [await ask(rooms.host, q) for q in questions]
    await rooms.close()
    return heard


def controls(frames: list[Frame]) -> list[tuple[int, int, tuple[int, ...]]]:
    """Save, load and drop of those frames that have one."""
    return [(f.sv, f.ld, f.dp) for f in frames if f.sv or f.ld or f.dp]


def slots(rooms: Rooms) -> list[set[int]]:
    return [set(s.lane.slots) for s in (rooms.host_shard, *rooms.shards)]


def test_a_state_is_saved_after_each_answer_and_two_are_kept() -> None:
    """PROTOCOL section 7: "after each answer `sv` on the next frame; the last 2 (setting)"; section 5: every
    device applies control before the frame, and forwards it with the frame.
    """

    async def scenario() -> None:
        rooms = await room()
        frames, _ = tap(rooms)
        for i in range(5):
            await ask(rooms.host, f"question {i}")
        assert controls(frames) == [
            (0, 0, (0xFFFF,)),
            (1, 0, ()),
            (2, 0, ()),
            (3, 0, (1,)),
            (4, 0, (2,)),
        ]
        assert slots(rooms) == [{3, 4}] * 3
        await rooms.close()

    simulate(scenario)


def test_an_answer_made_anew_goes_on_from_the_state_before_it() -> None:
    """PROTOCOL section 7: "loads the longest checkpoint that is one", again and again; the text is right."""

    async def scenario() -> None:
        rooms = await room()
        want = await fresh("one", "two", "three")
        await ask(rooms.host, "one")
        second = await ask(rooms.host, "two")
        frames, _ = tap(rooms)
        for _ in range(3):
            frames.clear()
            anew = await again(rooms.host, "regen")
            assert anew.text == second.text == want[1].text
            assert anew.done.stats.reused == second.done.stats.reused > 0
            assert [c[:2] for c in controls(frames)] == [(0, 1)], "what gives way is not saved"
        assert (await ask(rooms.host, "three")).text == want[2].text
        await rooms.close()

    simulate(scenario)


def test_what_goes_on_is_one_answer() -> None:
    """PROTOCOL section 7, ``cont: 1``: no state between its parts takes the place of the one before it."""

    async def scenario() -> None:
        rooms = await room(checkpoints=1)
        want = await fresh("one", "two")
        await ask(rooms.host, "one")
        parts = [await ask(rooms.host, "two", max_tokens=4)]
        parts += [await again(rooms.host, "continue", max_tokens=4) for _ in range(2)]
        assert all(p.done.stats.reused == p.done.stats.prompt - 1 for p in parts[1:])
        assert "".join(p.text for p in parts) == want[1].text[:12]
        anew = await again(rooms.host, "regen")
        assert anew.done.stats.reused > 0
        assert anew.text == want[1].text[:4]
        await rooms.close()

    simulate(scenario)


def test_a_new_chat_begins_with_the_system_prompt() -> None:
    """PROTOCOL section 7: "plus a pinned system prompt": saved where it ends, loaded by the next chats."""

    async def scenario() -> None:
        rooms = await room()
        await rooms.host.configure(ChatSettings(system=SYSTEM))
        frames, _ = tap(rooms)
        want = [(await fresh(q, system=SYSTEM))[0].text for q in ("one", "two")]
        first = await ask(rooms.host, "one")
        pinned = [(f.pos, f.sv) for f in frames if f.sv]
        assert pinned == [(len(SYSTEM) + 1, 1)]
        frames.clear()
        await rooms.host.reset()
        second = await ask(rooms.host, "two")
        assert [first.text, second.text] == want
        assert second.done.stats.reused == len(SYSTEM) + 1
        assert (frames[0].pos, frames[0].ld, frames[0].reset) == (len(SYSTEM) + 1, 1, False)
        assert not any(f.reset for f in frames)
        # The first question made anew begins there, too; another text is pinned in its place.
        assert (await again(rooms.host, "regen")).done.stats.reused == len(SYSTEM) + 1
        await rooms.host.configure(ChatSettings(system="Else."))
        other = await ask(rooms.host, "three")
        assert other.done.stats.reused == 0
        assert any(f.sv and f.pos == len("Else.") + 1 for f in frames)
        await rooms.host.reset()
        assert (await ask(rooms.host, "four")).done.stats.reused == len("Else.") + 1
        assert 1 not in slots(rooms)[0]
        await rooms.close()

    simulate(scenario)


def test_a_question_with_its_own_system_text_does_not_cost_the_chat() -> None:
    """PROTOCOL section 5: "`reset`: clear the recurrent state and start from position 0. Slots stay." """

    async def scenario() -> None:
        rooms = await room()
        await ask(rooms.host, "one " * 20)
        await ask(rooms.host, "aside", system="Be brief.")
        back = await ask(rooms.host, "two")
        assert back.done.stats.reused > 80
        one = await room(0, checkpoints=0, speculate=False)
        await ask(one.host, "one " * 20)
        await ask(one.host, "aside", system="Be brief.")
        assert (await ask(one.host, "two")).text == back.text
        await one.close()
        await rooms.close()

    simulate(scenario)


def test_a_failed_lap_drops_all() -> None:
    """PROTOCOL section 7: "Any failed lap, fresh engine or re-deal drops all"."""

    async def scenario() -> None:
        rooms = await room()
        want = await fresh("one", "two")
        for q in ("one", "two"):
            await ask(rooms.host, q)
        assert rooms.host.answering.chain
        rooms.host.answering.chain.fail("made up")
        frames, _ = tap(rooms)
        anew = await again(rooms.host, "regen")
        assert anew.text == want[1].text
        assert anew.done.stats.reused == 0
        assert (frames[0].reset, frames[0].dp, frames[0].sv, frames[0].ld) == (True, (0xFFFF,), 0, 0)
        assert slots(rooms) == [set()] * 3
        await rooms.host.start()
        frames.clear()
        await again(rooms.host, "regen")
        assert (frames[0].reset, frames[0].dp) == (True, (0xFFFF,))
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("who", [0, 2])
def test_a_state_that_a_device_lost_costs_no_answer(who: int) -> None:
    """PROTOCOL section 5: "`ld` of a slot it lacks … `ai-error`, laps fail": then from the start, unseen."""

    async def scenario() -> None:
        rooms = await room()
        want = await fresh("one", "two")
        for q in ("one", "two"):
            await ask(rooms.host, q)
        (rooms.host_shard, *rooms.shards)[who].lane.slots.clear()
        anew = await again(rooms.host, "regen")
        assert anew.done.reason == "stop"
        assert anew.text == want[1].text
        assert anew.done.stats.reused == 0
        await rooms.close()

    simulate(scenario)


def test_an_older_device_in_the_chain_keeps_nothing() -> None:
    """PROTOCOL section 6, `ai-ready`: "`ckpt: 1` … used only when the whole chain does"."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0, 1.0))
        send = rooms.devices[1].mesh.send

        def older(to: str, message: Message) -> bool:
            if isinstance(message, wire.Ready):
                message = msgspec.structs.replace(message, ckpt=False)
            return send(to, message)

        rooms.devices[1].mesh.send = older  # type: ignore[method-assign]  # as one that knows no slots
        await rooms.host.configure(ChatSettings(system=SYSTEM))
        await rooms.host.start()
        frames, _ = tap(rooms)
        for q in ("one", "two"):
            await ask(rooms.host, q, max_tokens=9)
        await again(rooms.host, "regen")
        assert controls(frames) == []
        assert frames[0].reset
        await rooms.close()

    simulate(scenario)


def test_a_prompt_that_is_stopped_leaves_its_state_right() -> None:
    """PROTOCOL section 7, `ai-stop` before the first token: with a load, a save and a rollback under way."""

    async def scenario() -> None:
        rooms = await room(delay=0.02)
        want = await fresh("one", "two " * 80, "three")
        await ask(rooms.host, "one")
        for when in (0.03, 0.05, 0.2, 0.4):
            asked = again(rooms.host, "regen") if when > 0.03 else ask(rooms.host, "two " * 80)
            task = asyncio.create_task(asked)
            await asyncio.sleep(when)
            await rooms.host.stop()
            assert (await task).done.reason == "abort"
        assert (await again(rooms.host, "regen")).text == want[1].text
        assert (await ask(rooms.host, "three")).text == want[2].text
        await rooms.close()

    simulate(scenario)


@pytest.mark.parametrize("seed", range(6))
def test_any_conversation_is_the_fresh_one(seed: int) -> None:
    """DESIGN section 5: "reuse, resume … and a fresh run agree", whatever was asked, cut or failed."""

    async def scenario() -> None:
        rng = random.Random(seed)
        rooms = await room(drafter=0.7, checkpoints=rng.choice([1, 2, 3]))
        await rooms.host.configure(ChatSettings(system=rng.choice(["", SYSTEM])))
        for i in range(14):
            what = rng.choice(["ask", "ask", "ask", "regen", "continue", "reset", "fail", "aside"])
            length = rng.choice([1, 2, 9, 25, 40])
            chain, last = rooms.host.answering.chain, rooms.host.answering.conversation.last
            assert chain
            if what == "fail":
                chain.fail("made up")
            elif what == "reset":
                await rooms.host.reset()
            elif what == "aside":
                await ask(rooms.host, f"aside {i}", system="Else.", max_tokens=length)
            elif what == "ask" or last is None or (what == "continue" and last.reason == "stop"):
                await ask(rooms.host, f"question {i} " * rng.choice([1, 9]), max_tokens=length)
            else:
                await again(rooms.host, "regen" if what == "regen" else "continue", max_tokens=length)
        kept = rooms.host.answering.conversation
        one = await room(0, checkpoints=0, speculate=False)
        for at in range(0, len(kept.turns), 2):
            question, answer = kept.turns[at : at + 2]
            one.host.answering.conversation.turns = list(kept.turns[:at])
            chain = one.host.answering.chain
            assert chain
            chain.new_chat()
            system = "Else." if question.text.startswith("aside") else rooms.host.answering.settings.system
            said = await ask(one.host, question.text, system=system, max_tokens=len(answer.ids or ()))
            assert said.text == answer.text
        assert len({frozenset(s) for s in slots(rooms)}) == 1, "every device keeps the same"
        await one.close()
        await rooms.close()

    simulate(scenario)
