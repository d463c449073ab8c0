"""docs/attacks.md: each test that it names is there, in the file that it names."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parent
PAGE = TESTS.parent / "docs" / "attacks.md"
FOLDERS = r"(?:mesh|e2e|room/weights|shard(?:/ranges|/attack)?)"
NAMED = re.compile(rf"`({FOLDERS}/test_\w+\.py)`(?:: ((?:`test_\w+`(?:, )?)+))?")


def test_every_test_that_is_named_is_there() -> None:
    named = NAMED.findall(PAGE.read_text(encoding="utf-8"))
    assert len(named) > 60
    for file, tests in named:
        text = (TESTS / file).read_text(encoding="utf-8")
        for test in re.findall(r"`(test_\w+)`", tests):
            assert f"def {test}(" in text, f"{file}: {test}"


def test_every_attack_names_a_test_or_says_that_nothing_prevents_it() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    attacks = [row for row in rows if not row.startswith("| it ")]
    assert len(attacks) > 45
    for row in attacks:
        assert NAMED.search(row) or "`fuzz`" in row or "*Not prevented" in row, row
