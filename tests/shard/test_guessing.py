"""Whole rooms over real shards that guess ahead, take back, save and load (PROTOCOL sections 5 and 7).

The model keeps running states, which only snapshots bring back; its few words come again and again, so that
lookup is right often, and wrong as often.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from transformers import AutoModelForCausalLM

from pooled_nb.mesh.clock import LoopClock
from pooled_nb.mesh.gatekeeper import Gatekeeper, GateSettings
from pooled_nb.room.core import Stats
from pooled_nb.room.dealer import Settings
from pooled_nb.room.deviceroom import DeviceRoom
from pooled_nb.room.hostroom import HostRoom
from pooled_nb.shard import compat
from tests.room.rooms import again, ask, meta_of
from tests.shard import tiny
from tests.shard.test_continue import OneByOne, Room
from tests.shard.tinychat import tokenizer
from tests.sim.clock import simulate
from tests.sim.network import SimNetwork

CODE = "4TKG9P"
WORDS = {ord(c): 30.0 for c in "abc"}
"""Tokens that are said, of a tokenizer of bytes."""
SYSTEM = "You say letters, and nothing else but letters."


def write(folder: Path, name: str) -> Path:
    """A random model of this architecture that reads and says bytes."""
    words, config = tokenizer(), tiny.config_of(name)
    config.vocab_size, config.eos_token_id = len(words), words.convert_tokens_to_ids("</s>")
    with compat.quiet(), torch.random.fork_rng():
        torch.manual_seed(1)
        made: Any = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        tiny.grow(made)
        made.eval().save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


async def open_room(model: Path, workers: int, **more: Any) -> Room:
    shard, net = OneByOne(), SimNetwork(latency=0.02)
    host = HostRoom(
        settings=Settings(code=CODE, split="memory", ctx=768, exact=True, lends_gb=1.0, **more),
        model=await shard.inspect(str(model)),
        shard=shard,
        new_shard=OneByOne,
        network=net,
        clock=LoopClock(),
        name="host",
        meta=_meta(),
        keeper=Gatekeeper(GateSettings(ask=False)),
    )
    await host.open(["sim"])
    room = Room(host, [])
    for i in range(workers):
        device = DeviceRoom(
            code=CODE,
            network=net,
            clock=LoopClock(),
            name=f"worker {i}",
            meta=_meta(),
            shard=OneByOne(),
            new_shard=OneByOne,
            lends_gb=1.0,
            folder=str(model),
        )
        await device.join(["sim"])
        room.workers.append(device)
    await host.start()
    assert len([d for d in host.status().devices if d.layers]) == workers + 1
    return room


def _meta() -> Any:
    meta = meta_of(1.0)
    assert meta.nb
    return msgspec.structs.replace(meta, nb=msgspec.structs.replace(meta.nb, dtypes=["float32"]))


async def converse(room: Room) -> tuple[list[list[int]], list[Stats]]:
    """A chat with everything that takes back, saves or loads."""
    how: dict[str, Any] = {"logit_bias": WORDS, "max_tokens": 30}
    seeded = {**how, "temperature": 1.5, "seed": 9}
    heard = [await ask(room.host, "abcabd", **seeded), await ask(room.host, "cabcab " * 8, **how)]
    heard.append(await again(room.host, "regen"))
    heard.append(await ask(room.host, "more", **{**seeded, "max_tokens": 9}))
    heard.append(await again(room.host, "continue", max_tokens=23))
    await room.host.reset()
    heard.append(await ask(room.host, "ab", system=SYSTEM, **how))
    await room.host.reset()
    heard.append(await ask(room.host, "ba", system=SYSTEM, **seeded))
    return [list(h.done.tokens or []) for h in heard], [h.done.stats for h in heard]


@pytest.mark.parametrize(("name", "workers"), [("lfm2", 0), ("qwen3_5_text", 2)])
def test_states_that_were_taken_back_or_loaded_are_the_right_ones(
    tmp_path: Path, name: str, workers: int
) -> None:
    """DESIGN section 5: token for token what one device says that guesses and keeps nothing.

    PROTOCOL section 5: `rb = k`: "put the recurrent state back to the snapshot after column `k`".
    """
    model = write(tmp_path / "talker", name)

    async def scenario() -> None:
        plain = await open_room(model, 0, speculate=False, checkpoints=0)
        want, _ = await converse(plain)
        await plain.close()
        room = await open_room(model, workers)
        tokens, stats = await converse(room)
        await room.close()
        assert tokens == want
        assert sum(s.drafted for s in stats) > sum(s.accepted for s in stats) > 5
        assert stats[2].reused == stats[1].reused > 0, "made anew from the state before it"
        assert stats[-1].reused > len(SYSTEM) // 2, "the system prompt outlived its chat"

    simulate(scenario)
