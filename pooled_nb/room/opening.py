"""Host a room, or join one: everything real is put together here, in one place."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import platform
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal
from urllib.parse import urlsplit

from pooled_nb.errors import BadOption, RoomError, RoomNotFound
from pooled_nb.mesh import codes, names, runtime, turn
from pooled_nb.mesh.addresses import own_addresses
from pooled_nb.mesh.clock import LoopClock
from pooled_nb.mesh.ice import IcePolicy, TurnServer
from pooled_nb.mesh.mesh import KEEPALIVE_MS
from pooled_nb.mesh.messages.link import DeviceMeta, NbMeta
from pooled_nb.mesh.rtcnetwork import RtcNetwork
from pooled_nb.mesh.signalserver import SignalServer
from pooled_nb.mesh.specs import parse as parse_server
from pooled_nb.room.core import RoomCore
from pooled_nb.room.dealer import Settings
from pooled_nb.room.dealing import COLS_CPU, COLS_GPU, WIDTH, Split
from pooled_nb.room.deviceroom import MAX_DOWNLOAD_GB, DeviceRoom
from pooled_nb.room.hostroom import HostRoom
from pooled_nb.room.sizing import Drafts
from pooled_nb.shard import KV_FORMS, DeviceFacts, ModelFacts, Shard, lend_gb, open_shard

OnProgress = Callable[[int, str], None]
LOCAL = "local"
DEFAULT_CTX = 4096
"""Tokens; caches are allocated for them at once, so the model's own maximum is not the default."""
NO_DRAFTS = "off"
ENCODINGS = {"float16": "f16", "bfloat16": "bf16", "float32": "f32"}


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
    draft: str | None = None,
    speculate: bool = True,
    progress: OnProgress | None = None,
) -> RoomCore:
    """Open a room for a model; nothing is loaded yet.

    Parameters
    ----------
    model
        Hub id, or a local folder.
    code
        The room's code; drawn when None.
    servers
        Signaling specs; ``("local",)`` embeds a server in this process, for this machine only, or with
        ``lan`` for the local network.
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
    draft
        What guesses tokens ahead, besides text that stands there already: the hub id or folder of a small
        model with the same tokenizer; None: the model's own draft layers, if any; ``off``: nothing.
    speculate
        Off: every lap computes one token, and none is guessed ahead.

    Raises
    ------
    ModelNotFound, ModelNotSupported, SignalingDown, BadOption, BadCode
    """
    say = progress or _silent
    if dtype is not None and dtype not in ENCODINGS:
        raise BadOption(f"{dtype!r} is no dtype of a room.", f"Choose one of {', '.join(ENCODINGS)}.")
    if kv not in KV_FORMS:
        raise BadOption(f"{kv!r} is no way to keep caches.", f"Choose one of {', '.join(KV_FORMS)}.")
    if draft not in (None, NO_DRAFTS) and not speculate:
        raise BadOption(
            "A draft model was named, and nothing is to be guessed ahead.", "Leave one of them out."
        )
    room_code = codes.parse(code).code if code else codes.draw()
    if runtime.find(room_code):
        raise RoomError(
            f"A room {codes.shown(room_code)} is open on this machine already.",
            "Choose another code, or close it.",
        )
    clock = LoopClock()
    shard = open_shard(process=process)
    async with contextlib.AsyncExitStack() as undo:
        undo.push_async_callback(shard.close)
        say(0, "looking at this device")
        facts = await shard.device()
        lends = lend_gb(facts, lend)
        say(20, f"looking for {model}")
        found = await shard.inspect(
            model, folder=folder, progress=lambda pct, words: say(20 + pct * 6 // 10, words)
        )
        drafts = await _drafts(shard, draft if speculate else NO_DRAFTS, found, say)
        say(90, "opening the room")
        tokens = _context(ctx, found.max_ctx)
        specs, server = await _servers(servers, lan=lan)
        if server is not None:  # not its truth: an empty server has no members
            undo.push_async_callback(server.close)
        room = HostRoom(
            settings=Settings(
                code=room_code,
                split=split,
                ctx=tokens,
                exact=exact,
                lends_gb=lends,
                dtype=dtype,
                kv=kv,
                drafts=drafts,
                speculate=speculate,
            ),
            model=found,
            shard=shard,
            new_shard=lambda: open_shard(process=process),
            network=RtcNetwork(clock, ice_for),
            keepalive_ms=_keepalive(specs),
            clock=clock,
            name=_name(name),
            meta=_meta(facts, lends),
        )
        undo.push_async_callback(room.leave)
        await room.open(specs)
        notes = [found.note] if found.note else []
        notes += _write_runtime_file(room, found)
        undo.pop_all()

    async def closed() -> None:
        runtime.remove(room_code)
        if server is not None:
            await server.close()

    room.on_close = closed
    for note in notes:  # once somebody listens: whoever awaits this sets the callback at once
        clock.call_later(0, partial(_note, room, note))
    say(100, "open")
    return room


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


def _note(room: HostRoom, text: str) -> None:
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

    Raises
    ------
    BadCode, RoomNotFound, RoomRefused, LinkFailed, SignalingDown, BadOption
    """
    say = progress or _silent
    invite = codes.parse(code)
    specs, model_folder = _where(invite, servers)
    clock = LoopClock()
    lends_layers = role == "worker" or (role == "auto" and not on_colab())
    shard = open_shard(process=process) if lends_layers else None
    async with contextlib.AsyncExitStack() as undo:
        meta = DeviceMeta(ua="Jupyter", contrib_gb=0.0)
        lends = 0.0
        if shard:
            undo.push_async_callback(shard.close)
            say(0, "looking at this device")
            facts = await shard.device()
            lends = lend_gb(facts, lend)
            meta = _meta(facts, lends)
        say(60, "finding the room")
        room = DeviceRoom(
            code=invite.code,
            network=RtcNetwork(clock, ice_for),
            keepalive_ms=_keepalive(specs),
            clock=clock,
            name=_name(name),
            meta=meta,
            shard=shard,
            new_shard=lambda: open_shard(process=process),
            lends_gb=lends,
            folder=folder or model_folder,
            max_download_gb=_max_download(),
        )
        undo.push_async_callback(room.leave)
        await room.join(specs)
        undo.pop_all()
    say(100, "joined")
    return room


def on_colab() -> bool:
    """Whether this is a Colab runtime: its rules forbid to compute for others (DESIGN section 7)."""
    return "COLAB_RELEASE_TAG" in os.environ or "COLAB_GPU" in os.environ


def _where(invite: codes.Invite, servers: Sequence[str] | None) -> tuple[list[str], str | None]:
    """Signaling servers to try for a code, this machine's own rooms first; and the model's folder there."""
    here = runtime.find(invite.code)
    if servers is None:
        servers = [s.strip() for s in os.environ.get("POOLED_SIGNAL", "").split(",") if s.strip()]
    listed = [invite.signal] if invite.signal else []
    specs = [*([here.server] if here else []), *listed, *(s for s in servers if s != LOCAL)]
    if not specs:
        raise RoomNotFound(
            f"No room {codes.shown(invite.code)} is open on this machine.",
            "Check the code; for a room on another machine add --signal (or POOLED_SIGNAL) with the "
            "server that its host shows.",
        )
    return list(dict.fromkeys(specs)), here.folder if here else None


async def _servers(servers: Sequence[str], *, lan: bool) -> tuple[list[str], SignalServer | None]:
    """The specs to register at; ``local`` becomes a server of our own."""
    specs = list(servers) or [LOCAL]
    if LOCAL not in specs:
        return specs, None
    server = await SignalServer.start(host="0.0.0.0" if lan else "127.0.0.1", port=0)
    url = f"ws://{_lan_address()}:{server.port}/" if lan else server.url
    return [url if s == LOCAL else s for s in specs], server


def _lan_address() -> str:
    """This machine's address on its network; loopback where it has none."""
    return next(iter(own_addresses()), "127.0.0.1")


def _keepalive(servers: Sequence[str]) -> float:
    """Loopback has no radio or router that naps between laps: there the bytes only cost time."""
    return 0.0 if all(ice_for(parse_server(s).base).local_only for s in servers) else KEEPALIVE_MS


def ice_for(base: str) -> IcePolicy:
    """How to look for paths, by the URL of the signaling server that answered.

    Loopback candidates for a room on one machine, no STUN on a local network, else the public list.
    """
    hostname = urlsplit(base).hostname or ""
    if hostname == "localhost":
        return IcePolicy.local()
    try:
        address = ipaddress.ip_address(hostname)
    except ValueError:
        return IcePolicy.public(_relay())
    return (
        IcePolicy.local()
        if address.is_loopback
        else IcePolicy()
        if address.is_private
        else IcePolicy.public(_relay())
    )


def _relay() -> TurnServer | None:
    """The relay of ``POOLED_TURN``, for devices that find no direct path (PROTOCOL section 2, ICE)."""
    return turn.parse(os.environ.get("POOLED_TURN", ""))


def _max_download() -> float:
    """GB that a room may make this device download: ``POOLED_MAX_DOWNLOAD`` (GB), else 20."""
    text = os.environ.get("POOLED_MAX_DOWNLOAD", "")
    try:
        return float(text) if text else MAX_DOWNLOAD_GB
    except ValueError:
        raise BadOption(f"POOLED_MAX_DOWNLOAD is {text!r}.", "Set it to a number of GB.") from None


def _context(wanted: int | None, most: int) -> int:
    if wanted is None:
        return min(most, DEFAULT_CTX)
    if not isinstance(wanted, int) or not 64 <= wanted <= most:
        raise BadOption(f"A context of {wanted} tokens is not possible here.", f"Choose 64 to {most:,}.")
    return wanted


def _name(wanted: str | None) -> str:
    return names.clean(wanted or platform.node().split(".")[0])


def _meta(facts: DeviceFacts, lends: float) -> DeviceMeta:
    return DeviceMeta(
        webgpu=lends > 0,
        contrib_gb=lends,
        pledge_max=facts.free_gb,
        gbps=facts.gbps,
        gpu=facts.name[:120],
        ua="Jupyter",
        nb=NbMeta(
            v=1,
            device=facts.kind,
            dtypes=facts.dtypes,
            enc=[ENCODINGS[d] for d in facts.dtypes if d in ENCODINGS],
            width=WIDTH,
            cols=COLS_CPU if facts.kind == "cpu" else COLS_GPU,
            lanes=1,
            sig=facts.sig,
        ),
    )


def _silent(pct: int, words: str) -> None:
    """Nobody asked for progress."""
