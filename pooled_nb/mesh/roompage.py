"""The page behind an invite link: plain, without a script (PROTOCOL section 2, links).

A link's key is in its fragment, which no browser sends. So this page never knows it, and it must not find it
either: no script, nothing from elsewhere, nothing to send.
"""

from __future__ import annotations

import base64
import hashlib
import html

from pooled_nb.mesh import codes

_STYLE = """
:root { color-scheme: light dark; --ink: #1c1e26; --soft: #5b6070; --paper: #f5f6f9; --card: #ffffff;
  --line: #dfe2ea; --mark: #2f5fd0; --code: #eef1f7; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaf0; --soft: #a3a9b8; --paper: #14161c; --card: #1d2028; --line: #323743;
    --mark: #8fb0ff; --code: #262a34; }
}
* { box-sizing: border-box; }
body { margin: 0; padding: 2rem 1rem; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 36rem; margin: 4vh auto; padding: 2rem; background: var(--card);
  border: 1px solid var(--line); border-radius: 14px; }
h1 { margin: 0; font-size: 1.3rem; }
h2 { margin: 1.8rem 0 .4rem; font-size: 1rem; }
p { margin: .5rem 0; }
.room { margin: 1.2rem 0; font: 600 2.4rem/1.2 ui-monospace, monospace; letter-spacing: .06em;
  color: var(--mark); }
pre { margin: .5rem 0; padding: .7rem .9rem; overflow-x: auto; background: var(--code);
  border: 1px solid var(--line); border-radius: 8px; font: 14px/1.5 ui-monospace, monospace; }
pre + p { margin-top: 1rem; }
.soft { margin-top: 1.4rem; color: var(--soft); font-size: .9rem; }
"""
_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Of both pages: their own style and nothing else."""


def page(code: str) -> str:
    """The page of a room.

    Parameters
    ----------
    code
        As `codes.parse` gives it. Whether the room is open is not said: that would tell who guesses codes.
    """
    shown = html.escape(codes.shown(code))
    return _whole(
        f"Pooled room {shown}",
        f"""
<h1>This is a Pooled room</h1>
<p class="room">{shown}</p>
<p>In it, devices run one open language model together. To join, copy the whole address of this page first:
what stands after the # lets you in.</p>
<h2>From a notebook</h2>
<pre>%load_ext pooled_nb
%pooled join</pre>
<h2>From a terminal</h2>
<pre>pooled-nb join</pre>
<p>Paste the address when it asks. It is not shown, and no history keeps it. Both ways need the Python package
pooled_nb.</p>
<p class="soft">Without that part the address still finds the room, and its host is asked about you.
The part after the # never leaves your browser: this server does not know it. Treat the whole address like
a key, and send it only to whom you want in the room.</p>""",
    )


def _whole(title: str, body: str) -> str:
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>{title}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>{body}
</main>
</body>
</html>
"""


NO_ROOM = _whole(
    "No room",
    """
<h1>This address names no room</h1>
<p>A room code has six letters and digits, like 4TK-G9P. Ask the room's host for the link again.</p>""",
)
"""For a code that cannot be one."""
