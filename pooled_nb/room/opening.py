"""Host a room, or join one: everything real is put together here, in one place."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from pooled_nb.errors import BadOption, PooledError, RoomError
from pooled_nb.mesh import codes, runtime
from pooled_nb.mesh.clock import LoopClock
from pooled_nb.mesh.gatekeeper import Gatekeeper, GateSettings
from pooled_nb.mesh.messages.link import DeviceMeta
from pooled_nb.mesh.newcomer import Credentials, Newcomer
from pooled_nb.mesh.rtcnetwork import RtcNetwork
from pooled_nb.room import keeping, meeting, resumable
from pooled_nb.room.core import RoomCore
from pooled_nb.room.dealer import Settings
from pooled_nb.room.dealing import Split
from pooled_nb.room.deviceroom import DeviceRoom
from pooled_nb.room.doorfacts import Confirm, GateChoices, NetworkChoice
from pooled_nb.room.hostroom import HostRoom
from pooled_nb.room.meeting import LOCAL
from pooled_nb.room.roomfile import Opened, Taken
from pooled_nb.room.sizing import Drafts
from pooled_nb.room.thisdevice import (
    ENCODINGS,
    context,
    gives_weights,
    max_download,
    means_here,
    meta_of,
    name_of,
    on_colab,
    room_key,
)
from pooled_nb.room.ways import Ways
from pooled_nb.shard import KV_FORMS, QUANT_CLASSES, QUANT_FORMS, ModelFacts, Shard, lend_gb, open_shard

log = logging.getLogger(__name__)

OnProgress = Callable[[int, str], None]
NO_DRAFTS = "off"
RECLAIMED = "This room goes on under its code: links and passes that it gave out before still count."
MOVED = (
    "This room goes on under its code, at another server than before: passes still count, and invite links "
    "that were given out may lead nowhere. Give out the link of now."
)


async def host(
    model: str,
    *,
    code: str | None = None,
    name: str | None = None,
    servers: Sequence[str] = (LOCAL,),
    lend: str | float | None = None,
    split: Split = "speed",
    ctx: int | None = None,
    exact: bool = True,
    process: bool = True,
    folder: str | None = None,
    lan: bool = False,
    dtype: str | None = None,
    kv: str = "f16",
    quant: str | None = None,
    draft: str | None = None,
    speculate: bool = True,
    give: bool | None = None,
    gate: GateChoices | None = None,
    network: NetworkChoice | None = None,
    taken: Taken | None = None,
    progress: OnProgress | None = None,
) -> RoomCore:
    """Open a room for a model; nothing is loaded yet.

    Parameters
    ----------
    model
        Hub id, or a local folder.
    code
        The room's code; drawn when None. That of a room whose process was killed here takes it back, with
        its invite link and the passes of its devices (see `pooled_nb.room.keeping`).
    servers
        Signaling specs; ``("local",)`` embeds a server in this process, for this machine only, or with
        ``lan`` for the local network, where it is announced, too (extra ``lan``).
    lend
        Memory this device lends (``"6GB"``); None: a share of what is free.
    ctx
        Tokens of context; None: the model's, at most 4,096.
    exact
        Text equal to one device's, bit for bit, within one ``sig``. Off: faster, not promised.
    process
        False computes in a thread of this process: for scripts and debugging.
    dtype
        torch name; None: the model's own where every device has it.
    kv
        How caches are kept: ``f16`` (in the room's dtype), or ``q8`` (int8: about half the memory, and
        text of a class of its own, as exact within it).
    quant
        How the weights of linear layers are kept: ``int8``, ``int4`` (classes of their own, as exact within
        them), or None: as they are.
    draft
        What guesses tokens ahead, besides text that stands there already: the hub id or folder of a small
        model with the same tokenizer; None: the model's own draft layers, if any; ``off``: nothing.
    speculate
        Off: every lap computes one token, and none is guessed ahead.
    give
        Whether this device gives weights to others of the room; None: as ``POOLED_GIVE_WEIGHTS`` says.
    gate
        Who comes in; None: a person is asked about whoever proves nothing.
    network
        By which ways connections are looked for; None: this user's settings, then the environment.
    taken
        The room that this one goes on with (`resuming`); it is given back where this fails.

    Raises
    ------
    ModelNotFound, ModelNotSupported, SignalingDown, BadOption, BadCode
    """
    say = progress or _silent
    choices = gate or GateChoices()
    max_download()  # what is refused is refused before anything is opened
    gives_weights(give)
    room_code = taken.room.code if taken else codes.parse(code).code if code else codes.draw()
    clock = LoopClock()
    ways = Ways(clock, network)
    async with contextlib.AsyncExitStack() as undo:
        claim = taken.claim if taken else await asyncio.to_thread(keeping.claim_gate, room_code)
        undo.push_async_callback(_give_back, claim)
        _check(dtype=dtype, kv=kv, quant=quant, draft=draft, speculate=speculate)
        # Whose saved gate can be had is dead, though its process's number may be another's by now.
        if taken is None and claim.saved is None and runtime.find(room_code):
            raise RoomError(
                f"A room {codes.shown(room_code)} is open on this machine already.",
                "Choose another code, or close it.",
            )
        shard = open_shard(process=process)
        undo.push_async_callback(shard.close)
        say(0, "looking at this device")
        facts = await shard.device()
        lends = resumable.lent(taken.room.memory, facts, lend) if taken else lend_gb(facts, lend)
        say(20, f"looking for {model}")
        found = await shard.inspect(
            model,
            revision=taken.room.memory.revision or None if taken else None,  # the very files
            folder=folder,
            progress=lambda pct, words: say(20 + pct * 6 // 10, words),
        )
        drafts = await _drafts(shard, draft if speculate else NO_DRAFTS, found, say)
        say(90, "opening the room")
        tokens = context(ctx, found.max_ctx)
        closing = await undo.enter_async_context(contextlib.AsyncExitStack())
        place = await meeting.place_of(servers, to_lan=lan, saved=claim.saved)
        closing.push_async_callback(place.close)
        room = HostRoom(
            settings=Settings(
                code=room_code,
                split=split,
                ctx=tokens,
                exact=exact,
                lends_gb=lends,
                dtype=dtype,
                kv=kv,
                quant=quant or "",
                drafts=drafts,
                speculate=speculate,
                copies=room_key(room_code),
            ),
            model=found,
            shard=shard,
            new_shard=lambda: open_shard(process=process),
            network=RtcNetwork(clock, ways.policy, ways.ready, transport=ways.transport),
            wiring=meeting.wiring(place.specs, ways),
            clock=clock,
            name=name_of(name),
            meta=meta_of(facts, lends),
            keeper=Gatekeeper(
                GateSettings(ask=choices.ask, api=choices.api, older=choices.older),
                saved=claim.saved.secrets if claim.saved else None,
            ),
            starts=choices.starts,
            ways=ways,
            means=await asyncio.to_thread(means_here, found, give=give),
        )
        undo.push_async_callback(room.leave)
        if taken is not None:
            room.recall(taken.room.memory)
        back = await meeting.register(room, place, claim.saved)
        notes = [note for note in (facts.note, found.note, claim.why) if note]
        notes += [RECLAIMED if back else MOVED] if claim.saved else []
        if lan:
            announcement, why_not = await meeting.announce(room_code, place)
            if announcement is not None:
                closing.push_async_callback(announcement.aclose)
            notes += [why_not] if why_not else []
        notes += _write_runtime_file(room, found)
        closing.callback(runtime.remove, room_code)
        if taken is not None:
            notes += resumable.notes(taken.room, lends)
            if taken.room.memory.started:
                closing.callback(asyncio.ensure_future(_go_on(room)).cancel)
        elif code is None:
            notes += await asyncio.to_thread(resumable.offer)
        elif claim.saved:
            notes += await asyncio.to_thread(resumable.anew, room_code)
        room.on_close = closing.pop_all().aclose
        undo.pop_all()
    room.keep(
        claim.slot,
        embedded=room.mesh.server == place.url,
        opened=Opened(lan=lan, draft=_whole(draft), give=give),
    )
    for note in notes:  # once somebody listens: whoever awaits this sets the callback at once
        clock.call_later(0, partial(_note, room, note))
    say(100, "open")
    return room


def _check(*, dtype: str | None, kv: str, quant: str | None, draft: str | None, speculate: bool) -> None:
    """What no room can be is refused before anything is opened. Raises `BadOption`."""
    if dtype is not None and dtype not in ENCODINGS:
        raise BadOption(f"{dtype!r} is no dtype of a room.", f"Choose one of {', '.join(ENCODINGS)}.")
    if kv not in KV_FORMS:
        raise BadOption(f"{kv!r} is no way to keep caches.", f"Choose one of {', '.join(KV_FORMS)}.")
    if (quant or "") not in QUANT_FORMS:
        raise BadOption(f"{quant!r} is no way to keep weights.", f"Choose one of {', '.join(QUANT_CLASSES)}.")
    if draft not in (None, NO_DRAFTS) and not speculate:
        raise BadOption(
            "A draft model was named, and nothing is to be guessed ahead.", "Leave one of them out."
        )


def _whole(draft: str | None) -> str | None:
    """A folder by its whole path: the process that goes on may have another working directory."""
    is_folder = draft is not None and draft != NO_DRAFTS and os.path.isdir(draft)
    return os.path.abspath(draft) if draft and is_folder else draft


async def _give_back(claim: keeping.Claim[keeping.SavedGate]) -> None:
    """The room did not open: what is saved of it stays for the next try."""
    if claim.slot is not None:
        await asyncio.to_thread(claim.slot.release)


async def _go_on(room: HostRoom) -> None:
    """Deal again once those are back who held layers; why that failed is told."""
    try:
        await room.resume()
    except PooledError as error:
        room.say(str(error))
    except Exception:
        log.exception("going on failed")
        room.say("The layers could not be dealt again. Start the room.")


async def _drafts(shard: Shard, wanted: str | None, model: ModelFacts, say: OnProgress) -> Drafts:
    """What drafts in a room of this model; see `host`."""
    if wanted is None:
        return Drafts(layers=model.draft_layers)
    if wanted == NO_DRAFTS:
        return Drafts()
    say(80, f"looking for {wanted}")
    return Drafts(await shard.inspect(wanted, progress=lambda pct, words: say(80 + pct // 10, words)))


def _write_runtime_file(room: HostRoom, model: ModelFacts) -> list[str]:
    """Make the room findable on this machine by its code alone; what to tell the person where it is not."""
    server = room.mesh.server
    file = runtime.RoomFile(code=room.code, server=server, model=model.repo, folder=model.folder)
    try:
        runtime.write(file)
    except OSError as error:
        return [
            f"This room cannot be found by its code alone ({error.strerror or error}). "
            f"Others join with --signal {server}"
        ]
    return []


def _note(room: RoomCore, text: str) -> None:
    room.on_notice(text)


async def join(
    code: str,
    *,
    role: Literal["auto", "worker", "guest"] = "auto",
    name: str | None = None,
    servers: Sequence[str] | None = None,
    lend: str | float | None = None,
    process: bool = True,
    folder: str | None = None,
    lan: bool = False,
    give: bool | None = None,
    network: NetworkChoice | None = None,
    confirm: Confirm | None = None,
    progress: OnProgress | None = None,
) -> RoomCore:
    """Join a room.

    Parameters
    ----------
    code
        A code as typed, or an invite link.
    role
        ``worker`` lends memory, ``guest`` only asks, ``auto`` lends where this runtime may.
    servers
        Signaling specs, tried after this machine's own rooms; None: those of ``POOLED_SIGNAL``.
    folder
        Where this device finds the model's files; else its caches and the hub.
    lan
        Look for the room on the local network, too (extra ``lan``).
    give, network
        See `host`.
    confirm
        Asks this device's person to compare six digits where the host did not recognise its link; None: it
        leaves then.

    Raises
    ------
    BadCode, RoomNotFound, RoomRefused, LinkFailed, SignalingDown, BadOption
    """
    say = progress or _silent
    invite = codes.parse(code)
    clock = LoopClock()
    ways = Ways(clock, network)
    called, means = name_of(name), await asyncio.to_thread(means_here, give=give)
    lends_layers = role == "worker" or (role == "auto" and not on_colab())
    shard = open_shard(process=process) if lends_layers else None
    async with contextlib.AsyncExitStack() as undo:
        meta = DeviceMeta(ua="Jupyter", contrib_gb=0.0)
        lends, own_note = 0.0, ""
        if shard:
            undo.push_async_callback(shard.close)
            say(0, "looking at this device")
            facts = await shard.device()
            lends, own_note = lend_gb(facts, lend), facts.note
            meta = meta_of(facts, lends)
        say(60, "finding the room")
        specs, model_folder = await meeting.where(
            invite, servers, on_lan=lan, tell=lambda text: say(60, text)
        )
        claim = await asyncio.to_thread(keeping.claim_pass, invite.code, called)
        room = DeviceRoom(
            code=invite.code,
            network=RtcNetwork(clock, ways.policy, ways.ready, transport=ways.transport),
            wiring=meeting.wiring(specs, ways),
            clock=clock,
            name=called,
            meta=meta,
            shard=shard,
            new_shard=lambda: open_shard(process=process),
            lends_gb=lends,
            folder=folder or model_folder,
            means=means,
            newcomer=_newcomer(invite, claim.saved),
            confirm=confirm,
            ways=ways,
            copies=room_key(invite.code),
        )
        room.keep(claim.slot, called)
        undo.push_async_callback(room.leave)
        await room.join(specs, say)
        undo.pop_all()
    for note in filter(None, (own_note, claim.why)):
        clock.call_later(0, partial(_note, room, note))
    say(100, "joined")
    return room


def _newcomer(invite: codes.Invite, saved: keeping.SavedPass | None) -> Newcomer:
    """What this device knows of the room: the link's key, and its pass of an earlier visit."""
    newcomer = Newcomer(Credentials(key=invite.key, pass_=saved.pass_ if saved else None))
    if saved:
        newcomer.met = saved.met
    return newcomer


def _silent(pct: int, words: str) -> None:
    """Nobody asked for progress."""
