"""What importing the package brings along."""

from __future__ import annotations

import subprocess
import sys

import pytest

import pooled_nb

HEAVY = "('torch', 'aiortc', 'transformers', 'IPython', 'rich', 'msgspec', 'asyncio')"


def loaded(code: str) -> list[str]:
    """The heavy modules that a fresh Python has loaded after ``code``."""
    check = f"{code}\nimport sys\nprint(*(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_import_is_light() -> None:
    """DESIGN section 2: import pooled_nb imports neither torch nor aiortc, nor else what is slow."""
    assert loaded("import pooled_nb") == []


def test_the_command_line_is_light() -> None:
    """`pooled-nb --help` and `--version` need no model and no network."""
    got = loaded("import pooled_nb.cli; from pooled_nb.terminal import arguments; arguments.parser()")
    assert not {"torch", "aiortc"} & set(got)


def test_the_api_needs_no_torch() -> None:
    """CASES: import pooled_nb works without torch; the kernel itself never imports it (DESIGN section 3)."""
    assert "torch" not in loaded("import pooled_nb; pooled_nb.host, pooled_nb.join, pooled_nb.Answer")


def test_the_extension_is_light() -> None:
    """%load_ext pooled_nb brings in neither torch nor aiortc."""
    code = "import IPython.core.interactiveshell as i; s = i.InteractiveShell(); import pooled_nb; "
    got = loaded(code + "pooled_nb.load_ipython_extension(s)")
    assert "torch" not in got
    assert "aiortc" not in got


def test_public_names() -> None:
    for name in pooled_nb.__all__:
        assert getattr(pooled_nb, name) is not None
    assert set(pooled_nb.__all__) <= set(dir(pooled_nb))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        pooled_nb.nothing  # noqa: B018 - the lookup is the test
