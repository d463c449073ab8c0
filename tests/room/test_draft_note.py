"""What a start says of what drafts."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from pooled_nb.shard import Loaded, LoadSpec
from tests.room.rooms import open_rooms
from tests.sim.clock import simulate

WHY = "small has another tokenizer than the room's model. Choose a smaller model of the same family to draft."


def test_the_host_hears_why_nothing_drafts() -> None:
    """CASES: what drafts is no part of the model: the room is online without it, and its person is told."""

    async def scenario() -> None:
        rooms = await open_rooms()
        load = rooms.host_shard.load

        async def noted(spec: LoadSpec, progress: Callable[[int, str], None] | None = None) -> Loaded:
            return structs.replace(await load(spec, progress), note=WHY)

        rooms.host_shard.load = noted  # type: ignore[method-assign]
        await rooms.host.start()
        assert rooms.host.status().state == "online"
        assert rooms.host.status().drafts == ""
        assert rooms.notices == [WHY]
        await rooms.close()

    simulate(scenario)
