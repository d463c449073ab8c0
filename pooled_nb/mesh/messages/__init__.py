"""Every control message, typed and bounded (PROTOCOL sections 3, 4, 6 and 7)."""

from pooled_nb.mesh.messages import chat, deal, link, weights
from pooled_nb.mesh.messages.base import Message, Part, known, read, write

__all__ = ["Message", "Part", "chat", "deal", "known", "link", "read", "weights", "write"]
