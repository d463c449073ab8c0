"""Signaling as PeerJS speaks it (DESIGN section 4): shapes, the client's decider, and its socket."""
