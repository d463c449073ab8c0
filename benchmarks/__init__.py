"""Benchmarks: ``python -m benchmarks.NAME [--quick] [--json]`` (DESIGN section 9)."""
