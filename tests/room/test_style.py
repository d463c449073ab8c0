"""How the room answers: settings, styles, wordings (PROTOCOL section 7, ``ai-style``)."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import numpy as np
import pytest

from pooled_nb.errors import BadOption, ModelTooBig, NotReady, RoomClosed
from pooled_nb.mesh.messages import chat, read, write
from pooled_nb.room.core import AskOptions, ChatSettings
from pooled_nb.room.sentences import EXACT_ROOM
from pooled_nb.room.style import (
    MAX_SYSTEM,
    WORDINGS,
    check_settings,
    heard_style,
    heard_visibility,
    sampling,
    style_message,
    system_of,
)
from pooled_nb.shard import Sampling
from tests.room.rooms import alone, ask, open_rooms
from tests.room.test_spoken import listen
from tests.sim.clock import simulate


def test_styles_are_numbers() -> None:
    """PROTOCOL section 7: "`exact` (greedy), `focused` (t 0.4, top-k 20) or `creative` (t 0.8, top-k 40)"."""
    assert sampling(AskOptions(seed=7), "greedy") == Sampling()
    assert sampling(AskOptions(seed=7), "focused") == Sampling(temperature=0.4, top_k=20, seed=7)
    assert sampling(AskOptions(seed=7, style="creative"), "greedy") == Sampling(
        temperature=0.8, top_k=40, seed=7
    )
    assert sampling(AskOptions(style="greedy"), "creative") == Sampling()
    one, two = (sampling(AskOptions(), "creative").seed for _ in range(2))
    assert one != two


def test_a_number_goes_before_a_style() -> None:
    """PROTOCOL section 7, `ai-ask`: *(nb)* options of the question; what is absent is the room's style."""
    assert sampling(AskOptions(temperature=1.5, seed=1), "focused") == Sampling(
        temperature=1.5, top_k=20, seed=1
    )
    assert sampling(AskOptions(top_k=0, top_p=0.5, seed=1), "focused") == Sampling(
        temperature=0.4, top_k=0, top_p=0.5, seed=1
    )
    assert sampling(AskOptions(temperature=0, style="creative"), "creative") == Sampling()
    assert sampling(AskOptions(top_k=9, seed=1), "greedy") == Sampling()


def test_penalties_and_stops_count_for_greedy_answers_too() -> None:
    """PROTOCOL section 7, `ai-ask`: what is drawn from, and where it ends, whatever the style."""
    given = AskOptions(
        min_p=0.1, repetition_penalty=1.2, presence_penalty=0.5, logit_bias={3: -100.0}, stop=["\n"], seed=1
    )
    greedy = Sampling(repetition_penalty=1.2, presence_penalty=0.5, logit_bias={3: -100.0}, stop=("\n",))
    assert sampling(given, "greedy") == greedy
    assert sampling(given, "creative") == msgspec.structs.replace(
        greedy, temperature=0.8, top_k=40, min_p=0.1, seed=1
    )
    assert sampling(AskOptions(stop=[], logit_bias={}, presence_penalty=0.0), "greedy") == Sampling()


def test_what_the_model_is_told() -> None:
    """PROTOCOL section 7, `persona`: plain tells it nothing; a question's own text replaces the room's."""
    room = ChatSettings(system="Answer in French.", persona="expert")
    assert system_of(AskOptions(), ChatSettings()) == ""
    assert system_of(AskOptions(), ChatSettings(persona="kind")) == WORDINGS["kind"]
    assert system_of(AskOptions(), room) == f"Answer in French.\n\n{WORDINGS['expert']}"
    assert system_of(AskOptions(system="Be brief."), room) == "Be brief."
    assert system_of(AskOptions(system=""), room) == ""


BAD: list[tuple[dict[str, Any], str]] = [
    ({"style": "exact"}, "style is 'exact'. Use greedy, focused or creative"),
    ({"persona": "rude"}, "persona is 'rude'. Use plain, kind or expert"),
    ({"visibility": "me"}, "visibility is 'me'. Use all, host or asker"),
    ({"max_tokens": 0}, "max_tokens is 0. Use a whole number from 1"),
    ({"max_tokens": True}, "max_tokens is True"),
    ({"max_tokens": 2**24 + 1}, "max_tokens is"),
    ({"max_tokens": "long"}, "max_tokens is 'long'"),
    ({"max_tokens": np.array([1, 2])}, "max_tokens is array"),
    ({"thinking": "on"}, "thinking is 'on'. Use True, False, or None"),
    ({"system": "x" * (MAX_SYSTEM + 1)}, "8,001 characters, and a room takes 8,000"),
    ({"system": None}, "no text"),
    ({"system": "\ud800"}, "half of a character"),
    ({"style": ["greedy"]}, "style is"),
]


@pytest.mark.parametrize(("change", "match"), BAD)
def test_settings_that_are_none_are_refused_in_words(change: dict[str, Any], match: str) -> None:
    """PROTOCOL section 7, `ai-style`: bad input is one sentence, and nothing changes."""
    with pytest.raises(BadOption, match=match):
        check_settings(ChatSettings(**change))


def test_settings_travel_but_for_the_system_text() -> None:
    """PROTOCOL section 7, `ai-style {persona, sampling, thinking}`; *(nb)* the length of an answer."""
    for settings in (
        ChatSettings(),
        ChatSettings(style="creative", persona="kind", thinking=False, max_tokens=2048),
        ChatSettings(style="focused", persona="expert", thinking=True, max_tokens=1),
    ):
        sent = write(style_message(msgspec.structs.replace(settings, system="Secret.")))
        assert "Secret." not in str(sent)
        heard = read(sent)
        assert isinstance(heard, chat.Style)
        before = ChatSettings(style="focused", persona="kind", thinking=True, max_tokens=9)
        assert heard_style(heard, before) == settings
    assert write(style_message(ChatSettings()))["sampling"] == "exact"


@pytest.mark.parametrize("odd", [None, "exactly", 5, [], {}, "x" * 30])
def test_settings_that_are_not_known_here_change_nothing(odd: Any) -> None:
    """PROTOCOL section 3: "a field of the wrong type counts as absent"; so does a word that is not known."""
    before = ChatSettings(style="creative", persona="kind", visibility="asker")
    message = read(
        {"t": "ai-style", "persona": odd, "sampling": odd, "thinking": odd, "nb": {"max_tokens": odd}}
    )
    assert isinstance(message, chat.Style)
    heard = heard_style(message, before)
    if odd == 5:
        assert heard.max_tokens == 5
        heard = msgspec.structs.replace(heard, max_tokens=before.max_tokens)
    assert heard == before
    mode = read({"t": "ai-visibility", "mode": odd})
    if mode is not None:
        assert isinstance(mode, chat.Visibility)
        assert heard_visibility(mode, before) == before


def test_the_host_sets_and_everyone_knows() -> None:
    """PROTOCOL section 7, `ai-style` and `ai-visibility`: from the host to all, only what changed."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), end_after=10_000)
        guest = await rooms.add(gb=0.0)
        await asyncio.sleep(1)
        heard = listen(guest)
        wanted = ChatSettings(style="creative", max_tokens=7, persona="kind", thinking=False, system="Hush.")
        await rooms.host.configure(wanted)
        await rooms.host.configure(wanted)
        await rooms.host.configure(msgspec.structs.replace(wanted, visibility="asker"))
        await asyncio.sleep(1)
        assert [m.t for m in heard] == ["ai-style", "ai-visibility"]
        assert rooms.host.status().settings.system == "Hush."
        for device in rooms.devices:
            assert device.status().settings == ChatSettings(
                style="creative", max_tokens=7, persona="kind", thinking=False, visibility="asker"
            )
            assert "set" not in device.status().can
            with pytest.raises(NotReady, match="Only the host sets"):
                await device.configure(ChatSettings())
        for change, _ in BAD:
            with pytest.raises(BadOption):
                await rooms.host.configure(msgspec.structs.replace(wanted, **change))
        assert rooms.host.status().settings.style == "creative"
        # What a device says is nobody's setting.
        rooms.host.on_message(guest.mesh.id, chat.Style(sampling="exact", persona="plain"))
        rooms.host.on_message(guest.mesh.id, chat.Visibility(mode="all"))
        assert rooms.host.status().settings.visibility == "asker"
        await rooms.host.leave()
        with pytest.raises(RoomClosed):
            await rooms.host.configure(ChatSettings())
        with pytest.raises(RoomClosed):
            await ask(rooms.host, "q")
        await rooms.close()

    simulate(scenario)


def test_questions_are_answered_by_the_settings() -> None:
    """PROTOCOL section 7, `ai-style`: "style from the next question"; a question's own options go first."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,), end_after=10_000, delay=0.01)
        await rooms.host.start()
        settings = ChatSettings(style="creative", max_tokens=7, persona="kind", thinking=True, system="Hush.")
        running = asyncio.create_task(ask(rooms.devices[0], "first", max_tokens=20))
        await asyncio.sleep(0.1)
        await rooms.host.configure(settings)
        assert (await running).text == (await alone(["first"], max_tokens=20))[0].text
        heard = await ask(rooms.devices[0], "second")
        assert heard.done.stats.tokens == 7
        last = rooms.host.answering.conversation.last
        assert last is not None
        assert (last.how.temperature, last.how.top_k) == (0.8, 40)
        turns, thinking = rooms.host_shard.asked[-1]
        assert (turns[0].role, turns[0].text) == ("system", f"Hush.\n\n{WORDINGS['kind']}")
        assert thinking is True
        await ask(rooms.devices[0], "third", system="Mine.", thinking=False, style="greedy", max_tokens=3)
        turns, thinking = rooms.host_shard.asked[-1]
        assert [t.text for t in turns if t.role == "system"] == ["Mine."]
        assert thinking is False
        assert [t.thinking for t in turns if t.role == "assistant"] == [None, True]
        assert rooms.host.answering.conversation.last
        assert rooms.host.answering.conversation.last.how == Sampling()
        await ask(rooms.devices[0], "fourth")
        turns, _ = rooms.host_shard.asked[-1]
        assert turns[0].text.startswith("Hush."), "that question's only"
        await rooms.close()

    simulate(scenario)


def test_a_room_is_fast_from_its_first_start_or_never() -> None:
    """PROTOCOL section 5: "`width` and `cols` (a divisor of 256) are fixed at the room's first start"."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        assert rooms.host.status().exact
        await rooms.host.start(fast=True)
        deal = rooms.host._dealer.deal
        assert deal is not None
        assert deal.width == 1
        assert rooms.shards[0].spec is not None
        assert not rooms.shards[0].spec.exact
        assert not rooms.host.status().exact
        assert "Fast mode" in rooms.host.status().sentence
        await asyncio.sleep(1)
        assert not rooms.devices[0].status().exact
        quick = await ask(rooms.host, "q", max_tokens=3, fast=True)
        assert len(quick.events) == 5, "no sentence: it is as it was wished"
        await rooms.host.start()
        assert not rooms.host.status().exact
        assert not rooms.notices
        await rooms.close()

        exact = await open_rooms(workers=(1.0,))
        await exact.host.start()
        await exact.host.start(fast=True)
        assert exact.host.status().exact
        assert exact.notices == [EXACT_ROOM]
        await exact.close()

    simulate(scenario)


def test_a_question_does_not_change_a_start_that_is_under_way() -> None:
    """PROTOCOL section 5: fixed by the first start, as its person wished it, whoever asks at that moment."""

    async def scenario() -> None:
        rooms = await open_rooms(workers=(1.0,))
        starting = asyncio.create_task(rooms.host.start(fast=True))
        await asyncio.sleep(0)
        assert rooms.host.state == "open"
        rooms.host.on_message(rooms.devices[0].mesh.id, chat.Ask(text="q", nb=chat.NbParams(max_tokens=2)))
        await starting
        await asyncio.sleep(1)
        assert not rooms.host.status().exact
        assert [i.text for i in rooms.devices[0].transcript.items] == ["q"]
        await rooms.close()

    simulate(scenario)


def test_a_fast_start_that_failed_fixes_nothing() -> None:
    """PROTOCOL section 5: what never was online has fixed no `width`; the next start is as it is wished."""

    async def scenario() -> None:
        rooms = await open_rooms(host_gb=0.022)
        with pytest.raises(ModelTooBig):
            await rooms.host.start(fast=True)
        guest = await rooms.add(gb=1.0)
        assert len((await ask(guest, "q", max_tokens=3)).text) == 3
        assert rooms.host.status().exact
        await rooms.close()

    simulate(scenario)
