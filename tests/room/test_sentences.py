"""What people read of numbers (DESIGN section 2)."""

from __future__ import annotations

import pytest

from pooled_nb.room import sentences


@pytest.mark.parametrize(
    ("n", "said"),
    [
        (0, "0 MB"),
        (12_000, "less than 0.1 MB"),
        (123_456, "0.123 MB"),
        (45e6, "45 MB"),
        (99.96e6, "100 MB"),
        (0.5e9, "0.5 GB"),
        (12.3456e9, "12.3 GB"),
        (999.4e9, "999 GB"),
        (999.6e9, "1 TB"),
        (1_840e9, "1.84 TB"),
        (2_345e12, "2,345 TB"),
    ],
)
def test_sizes(n: float, said: str) -> None:
    """DESIGN section 2: GB are 10⁹ bytes; no size is in powers of ten."""
    assert sentences.size(n) == said
