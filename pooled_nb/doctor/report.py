"""What was found, on the screen or as JSON. Holds no secret."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pooled_nb._version import __version__
from pooled_nb.doctor.findings import Finding, fails, hide, lines
from pooled_nb.errors import BadOption
from pooled_nb.mesh import turn
from pooled_nb.room import networkbox

SECRETS = ("POOLED_TURN", "POOLED_LINK", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")


def tell(signal: Sequence[str] | None, *, as_json: bool) -> int:
    """Examine this machine and print what was found; 0 where nothing fails, else 1."""
    with _meanwhile():
        found = hide(_found(servers(signal, os.environ)), secrets(os.environ))
    if as_json:
        print(as_text(found))
    else:
        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        print("\n".join(lines(found, columns=columns, encoding=sys.stdout.encoding)))
    return 1 if fails(found) else 0


def _found(signal: Sequence[str]) -> list[Finding]:
    try:
        from pooled_nb.doctor.examination import examined
    except ImportError as error:
        # Without this one nothing can be looked at: it is what has to be told first.
        name = (error.name or "a library").partition(".")[0]
        result = "not installed, or does not load"
        return [Finding(what=name, mark="fail", result=result, todo="Run: pip install -U pooled-nb")]
    return examined(signal, os.environ)


def as_text(found: Sequence[Finding]) -> str:
    """One JSON object."""
    whole = {"pooled_nb": __version__, "ok": not fails(found), "findings": list(found)}
    return msgspec.json.encode(whole).decode()


def servers(signal: Sequence[str] | None, env: Mapping[str, str]) -> list[str]:
    """Which signaling servers are meant, without ``local``, which is always looked at."""
    wanted = signal if signal else [env.get("POOLED_SIGNAL", "")]
    parts = [part.strip() for text in wanted for part in text.split(",")]
    return list(dict.fromkeys(part for part in parts if part and part != "local"))


def secrets(env: Mapping[str, str]) -> list[str]:
    """What must not be shown, whole and in its parts."""
    found = [env[name] for name in SECRETS if env.get(name)]
    saved = networkbox.read().turn or ""
    for setting in (env.get("POOLED_TURN", ""), saved):
        with contextlib.suppress(BadOption):
            if (relay := turn.parse(setting)) is not None:
                found += [relay.credential, relay.username]
    return [*found, saved] if saved else found


@contextlib.contextmanager
def _meanwhile() -> Iterator[None]:
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status("Looking at this machine and its network"):
        yield
