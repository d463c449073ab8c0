"""What a type checker for another system does not see: calls and habits that work on one system alone.

``make types`` checks every name as on Linux, macOS and Windows. Here the rest: methods of a loop that raise
there, texts in whatever encoding a system has, what is set for the whole process.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted([*(ROOT / "pooled_nb").rglob("*.py"), *(ROOT / "tools").glob("*.py")])

NOT_EVERYWHERE = {
    "add_reader": "the proactor has none",
    "add_writer": "the proactor has none",
    "add_signal_handler": "Windows has none; signal.signal has",
    "connect_read_pipe": "a selector loop on Windows has none",
    "connect_write_pipe": "a selector loop on Windows has none",
    "open_unix_connection": "Windows has none",
    "start_unix_server": "Windows has none",
    "create_unix_connection": "Windows has none",
    "create_unix_server": "Windows has none",
}
FOR_THE_WHOLE_PROCESS = {
    "set_event_loop_policy": "the user's own loops would change",
    "set_start_method": "the user's own processes would change",
    "fork": "threads do not come along",
    "setlocale": "the user's own texts would change",
    "nest_asyncio": "the user's own loops would change",
}
OF_ONE_SYSTEM = ("/proc/", "/sys/", "/dev/", "/tmp/", "/etc/", "/usr/")
STARTS = {"run", "Popen", "check_output", "check_call", "call"}
OPENS = {"open", "read_text", "write_text", "fdopen", "NamedTemporaryFile"}


def named(call: ast.Call) -> str:
    """The last name of what is called."""
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def trouble(source: str) -> Iterator[tuple[int, str]]:
    """Lines, and what is wrong with them."""
    tree = ast.parse(source)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name, words = named(node), {keyword.arg: keyword.value for keyword in node.keywords}
            if (why := NOT_EVERYWHERE.get(name)) and not is_guarded(node, parents, "NotImplementedError"):
                yield node.lineno, f"{name}: {why}"
            if why := FOR_THE_WHOLE_PROCESS.get(name):
                yield node.lineno, f"{name}: {why}"
            if "preexec_fn" in words or (name != "Popen" and "shell" in words):
                yield node.lineno, f"{name}: no Windows has this shell, and no Windows preexec_fn"
            if name in STARTS and "text" in words and not words.keys() & {"encoding", "errors"}:
                yield node.lineno, f"{name}: its encoding is the system's; say encoding="
            if name in OPENS and "encoding" not in words and is_text(node):
                yield node.lineno, f"{name}: its encoding is the system's; say encoding="
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = {alias.name.split(".")[0] for alias in node.names} | {getattr(node, "module", None)}
            if names & {"nest_asyncio", "nest_asyncio2"}:
                yield node.lineno, "nest_asyncio: the user's own loops would change"
        elif is_path_of_one_system(node) and not is_guarded(node, parents, "OSError"):
            yield node.lineno, "not every system has this path; ask sys.platform, or expect OSError"


def is_path_of_one_system(node: ast.AST) -> TypeGuard[ast.Constant]:
    """Whether it is such a path, written out."""
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.startswith(OF_ONE_SYSTEM)
    )


def is_text(call: ast.Call) -> bool:
    """Whether it opens a file as text: the mode stands second, or after a path's ``open`` first."""
    name = named(call)
    if name in ("read_text", "write_text"):
        return len(call.args) <= ("read_text", "write_text").index(name)
    words = {keyword.arg: keyword.value for keyword in call.keywords}
    place = 1 if isinstance(call.func, ast.Name) or is_of(call, "os") or name == "fdopen" else 0
    if is_of(call, "os", "super()", "self") and name == "open":  # a number, or no file at all
        return False
    mode = words.get("mode") or (call.args[place] if len(call.args) > place else None)
    if mode is None:
        return name != "NamedTemporaryFile"
    return isinstance(mode, ast.Constant) and isinstance(mode.value, str) and set(mode.value) <= set("rwax+t")


def is_of(call: ast.Call, *owners: str) -> bool:
    """Whether it is a function of one of these."""
    return isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) in owners


def is_guarded(node: ast.AST, parents: dict[ast.AST, ast.AST], error: str) -> bool:
    """Whether a system without it is thought of: a question about the system, or an error that is caught."""
    while (parent := parents.get(node)) is not None:
        if isinstance(parent, ast.If | ast.IfExp) and "sys.platform" in ast.unparse(parent.test):
            return True
        if isinstance(parent, ast.Try) and any(
            handler.type is not None and error in ast.unparse(handler.type) for handler in parent.handlers
        ):
            return True
        node = parent
    return False


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_works_on_one_system_alone(path: Path) -> None:
    """No call that some system lacks, no text in its own encoding, nothing set for the whole process."""
    found = [f"{path.relative_to(ROOT)}:{line}: {what}" for line, what in trouble(path.read_text("utf-8"))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "loop.add_signal_handler(2, stop)",
        "asyncio.set_event_loop_policy(None)",
        "multiprocessing.set_start_method('fork')",
        "os.fork()",
        "import nest_asyncio",
        "subprocess.run('ls', shell=True)",
        "open(name)",
        "open(name, 'w')",
        "path.open()",
        "path.open('a')",
        "path.read_text()",
        "path.write_text(text)",
        "subprocess.run(['ls'], text=True)",
        "os.fdopen(handle, 'w')",
        "Path('/proc/cpuinfo')",
        "if kind == 'cpu':\n    Path('/proc/cpuinfo')",
    ],
)
def test_it_would_be_found(source: str) -> None:
    assert list(trouble(source))


@pytest.mark.parametrize(
    "source",
    [
        "open(name, 'rb')",
        "open(name, encoding='utf-8')",
        "path.open('rb')",
        "os.open(name, os.O_RDONLY)",
        "super().open()",
        "try:\n    loop.add_signal_handler(2, stop)\nexcept NotImplementedError:\n    pass",
        "os.fdopen(handle, 'wb')",
        "path.read_text(encoding='utf-8')",
        "path.write_text(text, 'utf-8')",
        "subprocess.run(['ls'], text=True, encoding='utf-8')",
        "archive.open(name)",
        "if sys.platform == 'linux':\n    Path('/proc/cpuinfo')",
        "try:\n    Path('/proc/cpuinfo')\nexcept OSError:\n    pass",
        "subprocess.Popen(['ls'])",
    ],
)
def test_what_is_right_is_left_alone(source: str) -> None:
    assert not list(trouble(source))
