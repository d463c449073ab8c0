"""Take a room back whose host's process has died (PROTOCOL section 8, host resume)."""

from __future__ import annotations

import asyncio
import os

from pooled_nb.errors import ModelNotFound
from pooled_nb.room import opening, resumable
from pooled_nb.room.core import RoomCore


async def resume(
    code: str | None = None,
    *,
    name: str | None = None,
    lend: str | float | None = None,
    process: bool = True,
    progress: opening.OnProgress | None = None,
) -> RoomCore:
    """Take a room back whose host's process died here (PROTOCOL section 8, host resume).

    It has its code, its devices, its settings and its chat. Where it had been started, it deals again by
    itself once the devices that held layers are back, after 25 s at most.

    Parameters
    ----------
    code
        Which; None: the one that lived last.
    name, lend, process, progress
        See `opening.host`. None: as before.

    Raises
    ------
    NotReady
        There is none, it is over, or a living process has it.
    ModelNotFound
        Its model is not there any more; what is saved of it stays.
    SignalingDown, BadOption, BadCode
    """
    taken = await asyncio.to_thread(resumable.choose, code)
    room, gate = taken.room, taken.claim.saved
    memory = room.memory
    try:
        return await opening.host(
            memory.model,
            name=name or memory.name,
            servers=resumable.servers(gate, os.environ.get("POOLED_SIGNAL", "")),
            lend=lend,
            split=memory.split,
            ctx=memory.ctx,
            exact=memory.exact,
            process=process,
            folder=memory.folder,
            lan=room.opened.lan,
            dtype=memory.dtype,
            kv=memory.kv,
            quant=memory.quant,
            draft=room.opened.draft,
            speculate=memory.speculate,
            give=room.opened.give,
            gate=room.gate,
            network=room.ways.choice,
            taken=taken,
            progress=progress,
        )
    except ModelNotFound as error:
        raise resumable.no_model(room.code, error) from error
