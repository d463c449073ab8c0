"""The simulator: rooms on a virtual clock and a virtual network (DESIGN sections 2 and 9)."""
