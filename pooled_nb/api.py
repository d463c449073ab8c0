"""Host a room or join one: the Python front door.

Every call blocks until it is done and returns something that may also be awaited, so that the same
line works in a cell, a script and a thread, and after ``await``. An async program that must not block
passes ``wait=False`` and awaits what comes back.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from getpass import getpass
from typing import TYPE_CHECKING, Any, Literal

from pooled_nb import places, restarts
from pooled_nb._notebook import in_notebook
from pooled_nb.confirming import Answers, Confirming
from pooled_nb.errors import AlreadyInRoom, BadCode
from pooled_nb.mesh import codes
from pooled_nb.progress import waiting
from pooled_nb.room.doorfacts import GateChoices, Starts
from pooled_nb.room_commands import gate_choices, network_choice
from pooled_nb.room_life import Opening
from pooled_nb.room_output import settle
from pooled_nb.room_view import Room
from pooled_nb.show import entered, line_bundle
from pooled_nb.typed import Unseen

if TYPE_CHECKING:
    from pooled_nb.room.core import RoomCore

EXIT_S = 1.0
"""A kernel that is asked to shut down is killed soon after: leaving takes no longer than this."""

_lock = threading.Lock()
_current: Room | None = None


def _forget() -> None:
    # A forked child is in no room, whatever its parent was doing at that moment.
    global _lock, _current
    _lock = threading.Lock()
    _current = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def current() -> Room | None:
    """The room this process is in, or is opening; None when there is none."""
    room = _current
    return room if room is not None and not room.left else None


def host(
    model: str,
    *,
    code: str | None = None,
    name: str | None = None,
    lend: str | float | None = None,
    split: Literal["speed", "memory", "alone"] | None = None,
    ctx: int | None = None,
    exact: bool = True,
    signal: str | Sequence[str] | None = None,
    lan: bool = False,
    folder: str | None = None,
    dtype: str | None = None,
    kv: Literal["f16", "q8"] = "f16",
    quant: Literal["int8", "int4"] | None = None,
    draft: str | None = None,
    speculate: bool = True,
    ask: bool = True,
    starts: Starts = "all",
    give: bool | None = None,
    turn: str | None = None,
    stun: str | Sequence[str] | None = None,
    relay_only: bool | None = None,
    transport: str | None = None,
    process: bool = True,
    progress: bool = True,
    wait: bool = True,
) -> Room:
    """Open a room around a model.

    Nothing is dealt yet: the first question, or `Room.start`, deals the layers over the devices that
    are here by then. You are asked before a device comes in (`Room.lobby`, `Room.allow`), unless it holds
    the invite link (`Room.invite`).

    Parameters
    ----------
    model
        A Hugging Face id, a folder with safetensors files, or a GGUF file: its path, ``user/repo:Q4_K_M`` or
        ``user/repo/file.gguf``.
    code
        Six characters to open it under; drawn when absent.
    name
        What others call this device.
    lend
        Memory for the model: GB, or text like ``"6GB"``. None: a share of what is free.
    split
        ``"speed"``: the fastest devices that hold the model, and as few as do. ``"memory"``: every device,
        by what it lends. ``"alone"``: this device only. None: speed, and alone where a place's rules ask for
        that (Colab's do), which is then said.
    ctx
        Tokens of context.
    exact
        The same question gives the same tokens on one device and on many. False is faster, and promises less.
    signal
        Signaling servers, tried in order; ``"local"`` is one machine. None: those of ``POOLED_SIGNAL``,
        else ``"local"``.
    lan
        Let other machines of the local network find the embedded signaling server.
    folder
        Where the model's files lie, when they are not in the hub's cache.
    dtype
        torch name of the room's numbers; None: what the model's files have.
    kv
        How caches are kept: ``"f16"`` in the room's dtype, ``"q8"`` in 8-bit integers. These take half the
        memory; the tokens are the same for any split of such a room, and other than with ``"f16"``.
    quant
        Keep the weights of the layers in 8 or 4 bits a number: ``"int8"`` takes about half the memory of
        16-bit weights, ``"int4"`` about 0.27 of it. The tokens are the same for any split of such a room, and
        other than with another ``quant`` or none. None: as they are.
    draft
        A small model with the same tokenizer (a Hugging Face id or a folder) that guesses tokens ahead, on
        this device. None: the model's own draft layers, where it has some; ``"off"``: neither. What is
        guessed only counts where the model itself says so: with ``exact`` text and tokens stay the same.
    speculate
        False: guess nothing ahead, not even from text that stands there already.
    ask
        You are asked before a new device comes in. False: whoever knows the code comes in.
    starts
        Whose question may start the room: ``"all"`` or ``"host"``.
    give
        Whether other devices of the room may have weights from this one, over direct links, where a model is
        public (or a folder of yours that you host). None: as ``POOLED_GIVE_WEIGHTS`` says, else yes; never
        where a place's rules forbid it (Colab's do).
    turn
        A relay for devices that find no direct path, ``turn:USER:PASSWORD@HOST:PORT``: a secret, so take it
        from `getpass.getpass` rather than from a cell. None: of your settings, else ``POOLED_TURN``.
    stun
        STUN servers, in order, like ``stun:HOST:PORT``; ``""``: none. None: public ones, where needed.
    relay_only
        Use nothing but the relay.
    transport
        What makes the connections: ``"aiortc"``, or ``"wrtc"``, which takes less CPU (extra ``wrtc``). None:
        of your settings, else ``POOLED_TRANSPORT``, else aiortc. The other devices choose for themselves.
    process
        Compute in a process of its own. False: in a thread, for debugging.
    progress
        False: show nothing while it opens and answers.
    wait
        False: return at once; await the room, or call `Room.result`.

    Raises
    ------
    AlreadyInRoom, ModelNotFound, ModelNotSupported, ModelTooBig, SignalingDown, BadCode, BadOption
    """
    from pooled_nb import room as rooms

    turn = Unseen(turn) if isinstance(turn, str) else turn  # a traceback shows what a variable holds
    gate = gate_choices(GateChoices(), {"ask": ask, "starts": starts})
    ways = network_choice({"turn": turn, "stun": stun, "relay_only": relay_only, "transport": transport})
    place = places.here(os.environ)
    dealt = split if split is not None else place.split
    gives = give if place.gives else False

    def opening(report: Callable[[int, str], None]) -> Coroutine[Any, Any, RoomCore]:
        return rooms.host(
            model,
            code=code,
            name=name,
            servers=_servers(signal if signal is not None else os.environ.get("POOLED_SIGNAL", ""))
            or ["local"],
            lend=lend,
            split=dealt,
            ctx=ctx,
            exact=exact,
            process=process,
            folder=folder,
            lan=lan,
            dtype=dtype,
            kv=kv,
            quant=quant,
            draft=draft,
            speculate=speculate,
            give=gives,
            gate=gate,
            network=ways,
            progress=report,
        )

    says = place.host_says if split is None else place.gives_says if dealt != "alone" else ""
    return _enter(opening, "opening a room", says, quiet=not progress, wait=wait)


def join(
    code: str | None = None,
    *,
    role: Literal["auto", "worker", "guest"] | None = None,
    name: str | None = None,
    lend: str | float | None = None,
    signal: str | Sequence[str] | None = None,
    lan: bool = False,
    folder: str | None = None,
    give: bool | None = None,
    turn: str | None = None,
    stun: str | Sequence[str] | None = None,
    relay_only: bool | None = None,
    transport: str | None = None,
    confirm: Answers | None = None,
    process: bool = True,
    progress: bool = True,
    wait: bool = True,
) -> Room:
    """Join a room.

    Without the invite link this waits until the host's person has let this device in, as long as that
    takes: both screens show the same six digits, to be compared. An interrupt gives up.

    Parameters
    ----------
    code
        Six characters, or an invite link. None: the environment's ``POOLED_LINK``, on Colab the secret of
        that name, else it is asked for without being shown, so that a link's secret never stands in a cell.
    role
        ``"worker"`` lends memory, ``"guest"`` only asks, ``"auto"`` lends where this device can. None: auto,
        and guest where a place's rules ask for that (Colab's do), which is then said.
    lan
        Look for the room on the local network, too (extra ``lan``).
    confirm
        Called with a `Doubt` when the host let this device in but did not recognise its link: whether the
        host's screen shows the same ``digits``. A function (called by the thread that waits here), or an
        async one. None: its person is asked, in a cell or at a terminal, or answers by `Room.confirm`.
    name, lend, signal, folder, give, turn, stun, relay_only, transport, process, progress, wait
        See `host`.

    Raises
    ------
    BadCode, RoomNotFound, RoomRefused, AlreadyInRoom, SignalingDown, LinkFailed, BadOption
    """
    from pooled_nb import room as rooms

    _only_one()
    turn = Unseen(turn) if isinstance(turn, str) else turn
    ways = network_choice({"turn": turn, "stun": stun, "relay_only": relay_only, "transport": transport})
    confirming = Confirming(confirm)
    if code is None:
        code = os.environ.get("POOLED_LINK") or places.secret("POOLED_LINK", os.environ) or _ask_for_link()
    where = code = Unseen(code)  # it may be a link
    place = places.here(os.environ)
    part = role if role is not None else place.role
    gives = give if place.gives else False

    def opening(report: Callable[[int, str], None]) -> Coroutine[Any, Any, RoomCore]:
        return rooms.join(
            where,
            role=part,
            name=name,
            servers=None if signal is None else _servers(signal),
            lend=lend,
            process=process,
            folder=folder,
            lan=lan,
            give=gives,
            network=ways,
            confirm=confirming,
            progress=report,
        )

    says = place.join_says if role is None else place.gives_says if role != "guest" else ""
    return _enter(opening, "joining the room", says, quiet=not progress, wait=wait, confirming=confirming)


def resume(
    code: str | None = None,
    *,
    name: str | None = None,
    lend: str | float | None = None,
    process: bool = True,
    progress: bool = True,
    wait: bool = True,
) -> Room:
    """Take back a room that this machine hosted: its kernel started again, or its process died.

    For 15 minutes after that it goes on with its code, its devices, its settings and its chat. Where it had
    been started it deals again by itself, once the devices that held layers are back, after 25 s at most. A
    question of yours that was not answered is asked again (`Room.asked_again`). A room that was closed on
    purpose is over.

    Parameters
    ----------
    code
        Which room; None: the one that lived last.
    name, lend
        See `host`; None: as before.
    process, progress, wait
        See `host`.

    Raises
    ------
    NotReady
        There is no such room, or it is over.
    RoomError
        Another process of this machine has it.
    AlreadyInRoom, ModelNotFound, SignalingDown, BadCode
    """
    from pooled_nb import room as rooms
    from pooled_nb.room import resumable

    here = current()
    if here is not None and not _gives_way(here, code):
        _only_one()
    resumable.look(code)  # what cannot go on closes nothing
    if here is not None:
        here.leave()

    def opening(report: Callable[[int, str], None]) -> Coroutine[Any, Any, RoomCore]:
        return rooms.resume(code, name=name, lend=lend, process=process, progress=report)

    return _enter(opening, "taking the room back", "", quiet=not progress, wait=wait)


def _enter(
    opening: Opening,
    words: str,
    says: str,
    *,
    quiet: bool,
    wait: bool,
    confirming: Confirming | None = None,
) -> Room:
    global _current
    with _lock:
        _only_one()
        restarts.at_end(_ends)
        room = _current = Room(opening, quiet=quiet, confirming=confirming)
    if says and not quiet:
        print(says, file=sys.stdout if in_notebook() else sys.stderr, flush=True)
    if wait:
        try:
            with waiting(words, quiet=quiet) as view:
                room.result(view=view)
                view.finish(line_bundle(entered(room.status())))
        except KeyboardInterrupt:
            room.leave()  # whoever gave up opening it has no room to leave
            raise
    return room


def _gives_way(room: Room, code: str | None) -> bool:
    """Whether it is another room, of this device's own, with nobody else in it and nothing asked."""
    if not room.done() or room.role != "host" or room.last is not None:
        return False
    if code is not None and codes.shown(codes.parse(code).code) == room.code:
        return False
    status = room.status()
    busy = status.answering or status.waiting or status.newest or status.lobby
    return len(status.devices) == 1 and not busy


def _only_one() -> None:
    if (here := current()) is not None:
        raise AlreadyInRoom(
            f"This process already {here.what}.", "Leave it first: room.leave(), or %pooled leave."
        )


def _servers(signal: str | Sequence[str]) -> list[str]:
    parts = signal.split(",") if isinstance(signal, str) else signal
    return [part.strip() for part in parts if part.strip()]


def _ask_for_link() -> str:
    try:
        return getpass("Invite link or code (not shown): ")
    except (EOFError, NotImplementedError) as error:
        raise BadCode(
            "There is no code to join.", "Pass one, or set POOLED_LINK to the invite link."
        ) from error


def _ends(again: bool) -> None:
    """This process ends, or this kernel, and perhaps starts ``again``."""
    if (room := current()) is not None:
        if again:
            room.abandon(timeout=EXIT_S)
        else:
            room.leave(timeout=EXIT_S)
        settle()
