"""Frames over any number of channels of one link (PROTOCOL section 5)."""

from pooled_nb.mesh.wire.priority import Priority, priority_of
from pooled_nb.mesh.wire.receiver import Receiver
from pooled_nb.mesh.wire.sender import Load, Sender
from pooled_nb.mesh.wire.slices import Slice, check_payload, decode, encode

__all__ = [
    "Load",
    "Priority",
    "Receiver",
    "Sender",
    "Slice",
    "check_payload",
    "decode",
    "encode",
    "priority_of",
]
