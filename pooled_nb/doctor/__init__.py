"""``pooled-nb doctor``: what this machine has and can reach, and what to do about what is missing.

Probes look (`versions.look`, `device.look`, `folders.look`, `udp.look`, `stun.look`, `relay.look`,
`signaling.look`, `channels.look`) and give facts; the ``judge`` beside each of them makes findings of the
facts, without I/O. No finding holds a secret.
"""

from __future__ import annotations

import argparse

__all__ = ["run"]


def run(args: argparse.Namespace) -> int:
    """Look, and print what was found; the exit status is 0 where nothing fails."""
    from pooled_nb.doctor.report import tell

    return tell(args.signal, as_json=args.json)
