"""Tab after `%pooled` and `%%ask`, in a real IPython: as a terminal asks, and as a kernel does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

from pooled_nb.mesh import runtime
from tests.front.notebook import scripted_kernel


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Models and a room's files of the test's own."""
    for folder in ("hub/models--org--small", "hub/models--gpt2", "hub/datasets--x--y", "own/models/Tiny--r1"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("POOLED_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("POOLED_RUNTIME_DIR", str(tmp_path / "rooms"))
    (tmp_path / "work" / "my-model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")


def tab(shell: InteractiveShell, cell: str) -> set[str]:
    """What both ways of asking offer."""
    line = cell.splitlines()[0]
    symbol = "" if line.endswith(" ") else line.split(" ")[-1].split("=")[-1]
    asked = set(shell.complete(symbol, line, len(line))[1])
    with provisionalcompleter():
        as_kernel = {each.text for each in shell.Completer.completions(cell, len(line))}
    assert asked == as_kernel
    return asked


def test_verbs_and_options(shell: InteractiveShell) -> None:
    """DESIGN section 7: verbs completed by tab, then the options of the verb that are not there yet."""
    assert tab(shell, "%pooled st") == {"start", "status", "stop"}
    assert {"host", "join", "set", "redeal"} <= tab(shell, "%pooled ")
    assert tab(shell, "%pooled host m --sp") == {"--split"}
    assert "--split" not in tab(shell, "%pooled join X --")
    assert "--role" in tab(shell, "%pooled join X --")
    assert "--devices" not in tab(shell, "%pooled start --devices 2 --")
    assert "set" in tab(shell, "%pooled help s")


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("%pooled host m --split ", {"speed", "memory", "alone"}),
        ("%pooled host m --kv ", {"f16", "q8"}),
        ("%pooled host m --quant ", {"int8", "int4"}),
        ("%pooled host m --draft o", {"off", "org/small"}),
        ("%pooled host m --split=", {"speed", "memory", "alone"}),
        ("%pooled join X --role w", {"worker"}),
        ("%pooled set --style ", {"greedy", "focused", "creative"}),
        ("%pooled set --persona ", {"plain", "kind", "expert"}),
        ("%pooled set --visibility a", {"all", "asker"}),
        ("%pooled set --length ", {"short", "medium", "long"}),
        ("%pooled set --style focused --thinking o", {"on", "off"}),
        ("%%ask --thinking ", {"on", "off", "auto"}),
        ("%ask --thinking o", {"on", "off"}),
    ],
)
def test_values(shell: InteractiveShell, line: str, values: set[str]) -> None:
    """DESIGN section 7: values of options."""
    assert tab(shell, line) == values


def test_options_of_a_question(shell: InteractiveShell) -> None:
    """DESIGN section 7: also for `%%ask`, on its first line and before the question."""
    assert tab(shell, "%%ask --f\nWhy?") == {"--fast", "--focused"}
    assert "--background" in tab(shell, "%%ask -o a --")
    assert tab(shell, "%%ask --stop x --st") == {"--stop"}, "it may be repeated"
    assert tab(shell, "%pooled regenerate --rep") == {"--repetition-penalty"}
    assert tab(shell, "%ask --max 3 --se") == {"--seed"}
    assert shell.complete("--f", "%ask why --f")[1] == []  # that is the question


def test_models_that_are_here(shell: InteractiveShell, tmp_path: Path) -> None:
    """Models of the hub's cache, of our own folder, and folders by path."""
    assert {"org/small", "gpt2", "Tiny"} <= tab(shell, "%pooled host ")
    assert tab(shell, "%pooled host or") == {"org/small"}
    assert tab(shell, "%pooled host ./my") == {"./my-model/"}
    assert tab(shell, "%pooled host org/small --folder my") == {"my-model/"}
    assert "org/small" not in tab(shell, "%pooled host gpt2 ")


def test_rooms_of_this_machine(shell: InteractiveShell) -> None:
    """PROTOCOL section 2: rooms on this machine are found by their runtime files."""
    runtime.write(runtime.RoomFile(code="4TKG9P", server="ws://127.0.0.1:1/"))
    assert tab(shell, "%pooled join 4") == {"4TK-G9P"}
    assert "4TK-G9P" in tab(shell, "%pooled join ")
    assert "4TK-G9P" not in tab(shell, "%pooled join 4TK-G9P ")


def test_nothing_heavy_is_imported() -> None:
    """Completion is quick: no torch, no hub, no network."""
    code = (
        "import sys; from pooled_nb.magics.complete import candidates\n"
        "for line in ('%pooled host ', '%pooled join ', '%%ask --'): candidates(line, '')\n"
        "print(*(n for n in ('torch', 'transformers', 'huggingface_hub', 'aiortc', 'anywidget', 'ssl')"
        " if n in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


async def test_a_kernel_completes_it(tmp_path: Path) -> None:
    """DESIGN section 7: what JupyterLab asks the kernel (`complete_request`)."""
    async with scripted_kernel(tmp_path) as kernel:
        client = kernel._client
        for code, want in (("%pooled st", "status"), ("%%ask --backg", "--background")):
            asked = client.complete(code, len(code))
            while (reply := await client.get_shell_msg(timeout=60))["parent_header"]["msg_id"] != asked:
                pass
            content = reply["content"]
            start, end = content["cursor_start"], content["cursor_end"]
            assert code[:start] + want + code[end:] in [
                code[:start] + match + code[end:] for match in content["matches"]
            ]
