"""One module out of plain ones, without a build step (DESIGN section 7)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pooled_nb.widgets import bundle
from pooled_nb.widgets.bundle import STATIC, script, style

NAMES = re.compile(r"^(?:export )?(?:const|let|class|function|async function) (\w+)", re.MULTILINE)


@pytest.mark.parametrize("panel", ["room.js", "answer.js"])
def test_every_part_is_there_once_before_its_users(panel: str) -> None:
    """A part that two others import comes once; no line that joins files is left."""
    whole = script(panel)
    assert not re.search(r"^import |^export (?!default)", whole, re.MULTILINE)
    assert whole.count("export default") == 1
    assert whole.count("function ownKeys(") == 1
    names = NAMES.findall(whole)
    assert len(names) == len(set(names))  # else a browser refuses the module


def test_nothing_lies_there_that_no_panel_uses() -> None:
    """Each file is a part of a panel, and none is long."""
    both = script("room.js") + script("answer.js")
    files = sorted(STATIC.glob("*.js"))
    assert len(files) > 10
    for file in files:
        text = file.read_text("utf-8")
        assert text.split("\n")[0] in both, file.name  # its first comment
        assert text.count("\n") < 300, file.name
    whole = style(*(file.name for file in STATIC.glob("*.css")))
    assert all(file.read_text("utf-8") in whole for file in STATIC.glob("*.css"))


def test_what_a_part_imports_it_names() -> None:
    """Imports are of the one form that is understood: names of neighbours, on one line."""
    for file in STATIC.glob("*.js"):
        for line in file.read_text("utf-8").split("\n"):
            if line.startswith("import"):
                assert re.fullmatch(r'import \{ \w+(?:, \w+)* \} from "\./[a-z]+\.js";', line), line


@pytest.mark.parametrize(
    "line", ['import * as dom from "./dom.js";', 'import {\n  h } from "./dom.mjs";', "export { a as b };"]
)
def test_a_form_that_is_not_understood_is_named(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN section 7: no build step checks the files, so what cannot be joined is said with its file."""
    (tmp_path / "part.js").write_text(f"{line}\nexport const a = 1;\n", encoding="utf-8")
    (tmp_path / "main.js").write_text('import { a } from "./part.js";\nexport default { a };\n', "utf-8")
    monkeypatch.setattr(bundle, "STATIC", tmp_path)
    with pytest.raises(ValueError, match=r"^part\.js: "):
        script.__wrapped__("main.js")
    (tmp_path / "part.js").write_text("export const a = 1;\n", encoding="utf-8")
    assert script.__wrapped__("main.js") == "const a = 1;\n\nexport default { a };\n"
