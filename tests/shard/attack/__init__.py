"""Models that must never be loaded: files that lie, made by code. Each is refused by name, in words."""
