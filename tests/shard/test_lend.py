"""How much memory a device lends."""

from __future__ import annotations

import math

import pytest

from pooled_nb.errors import BadOption
from pooled_nb.shard import DeviceFacts, lend_gb


def facts(kind: str = "cpu", free: float = 10.0) -> DeviceFacts:
    return DeviceFacts(
        kind=kind, name="x", total_gb=16.0, free_gb=free, dtypes=["float32"], gbps=1.0, sig="s", threads=1,
        torch="2.13", transformers="5.24",
    )  # fmt: skip


@pytest.mark.parametrize(("kind", "gb"), [("cpu", 5.0), ("mps", 5.0), ("cuda", 8.0), ("xpu", 8.0)])
def test_default_share(kind, gb):
    """PROTOCOL section 6: what a device lends when nobody says how much."""
    assert lend_gb(facts(kind)) == gb


@pytest.mark.parametrize(
    ("wanted", "gb"),
    [
        ("6GB", 6.0), (" 6 gb ", 6.0), ("6", 6.0), (6, 6.0), (2.5, 2.5), ("512MB", 0.512), ("1,5GB", 1.5),
        ("1 GiB", 2**30 / 1e9), ("50%", 5.0), ("10GB", 10.0), ("2gib", 2**31 / 1e9), ("800000 kB", 0.8),
    ],
)  # fmt: skip
def test_amounts_as_people_write_them(wanted, gb):
    """DESIGN section 1: ``lend="6GB"``."""
    assert lend_gb(facts(), wanted) == pytest.approx(gb)


@pytest.mark.parametrize(
    "wanted",
    [
        "much",
        "",
        "-3GB",
        "0",
        0,
        -1,
        math.nan,
        math.inf,
        "6 potatoes",
        "GB",
        True,
        "1e3",
        "0%",
        "٣GB٪",
        "6ib",
        "6 iB",
        "6kmb",
    ],
)
def test_nonsense_is_refused_in_words(wanted):
    """PROTOCOL section 6: a cap that is not a positive number counts as nothing; a person is told."""
    with pytest.raises(BadOption, match="not an amount of memory") as caught:
        lend_gb(facts(), wanted)
    assert "6GB" in caught.value.next_step


def test_more_than_is_free_is_refused_with_what_is_free():
    """PROTOCOL section 6: a device never holds more than it lends, so it cannot lend what it lacks."""
    with pytest.raises(BadOption, match=r"12\.0 GB .* 10\.0 GB that are free"):
        lend_gb(facts(), "12GB")
