"""Models kept here: `pooled-nb models`, `%pooled models`, `pooled_nb.models()`, and a hub on loopback."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

import pooled_nb
from pooled_nb import library
from pooled_nb import library_orders as orders
from pooled_nb.cli import main
from pooled_nb.errors import BadOption, ModelNotFound
from pooled_nb.progress import Waiting
from pooled_nb.shard import KeptModel
from pooled_nb.shard.ranges import Ranges
from tests.front.test_magic_complete import tab
from tests.front.test_magics import fails, works
from tests.shard.fakehub import COMMIT, Fault, Hub
from tests.shard.hubbed import HUB_ID, alone, with_hub, write_layers

GB = 10**9


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_layers(tmp_path_factory.mktemp("models") / "layers")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    alone(monkeypatch, tmp_path)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, _alone: None, model: Path) -> Iterator[Hub]:
    with with_hub(monkeypatch) as hub:
        hub.repos[HUB_ID] = model
        yield hub


@pytest.mark.parametrize(
    ("words", "options", "order"),
    [
        ([], {}, orders.Order()),
        (["list"], {}, orders.Order()),
        (["pull", "a/b"], {}, orders.Order(what="pull", model="a/b")),
        (
            ["pull", "a/b"],
            {"layers": "1-12", "revision": "main"},
            orders.Order(what="pull", model="a/b", layers=(0, 12), revision="main"),
        ),
        (["pull", "a/b"], {"layers": "5–7"}, orders.Order(what="pull", model="a/b", layers=(4, 7))),
        (["pull", "a/b"], {"layers": "5"}, orders.Order(what="pull", model="a/b", layers=(4, 5))),
        (["delete", "a/b"], {"revision": "r"}, orders.Order(what="delete", model="a/b", revision="r")),
        (["prune"], {"keep": "20GB"}, orders.Order(what="prune", keep=20 * GB)),
        (["prune"], {"keep": "0"}, orders.Order(what="prune")),
        (["prune"], {"keep": "1,5 tb"}, orders.Order(what="prune", keep=1500 * GB)),
    ],
)
def test_what_a_line_means(words: list[str], options: dict[str, str], order: orders.Order) -> None:
    """DESIGN section 2: layers count from 1 in words, and from 0 in code."""
    assert orders.read(words, **options) == order


@pytest.mark.parametrize(
    ("words", "options", "says"),
    [
        (["frob"], {}, "knows no 'frob'"),
        (["pull"], {}, "takes one model"),
        (["delete", "a", "b"], {}, "takes one model"),
        (["list", "a"], {}, "takes no model"),
        (["prune"], {}, "needs to know what to keep"),
        (["prune"], {"keep": "much"}, "'much' is no size"),
        (["pull", "a"], {"keep": "1GB"}, "nothing else does"),
        (["pull", "a"], {"layers": "0-3"}, "The first is 1."),
        (["pull", "a"], {"layers": "9-3"}, "are no layers"),
        (["delete", "a"], {"layers": "1-3"}, "--layers says nothing to models delete"),
        ([], {"revision": "x"}, "--revision says nothing to models list"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(words: list[str], options: dict[str, str], says: str) -> None:
    """Bad input: refused before anything is done, with what to write."""
    with pytest.raises(BadOption) as refused:
        orders.read(words, **options)
    assert says.lower() in str(refused.value).lower()
    assert refused.value.next_step


def test_a_table_says_how_much_is_here_and_when_it_was_used() -> None:
    kept = KeptModel(
        repo="org/big", revision="ab" * 20, bytes=12 * GB // 10, total=34 * GB // 10, whole=False,
        used=1_000.0, where="range cache",
    )  # fmt: skip
    assert orders.rows([kept], 1_000 + 3 * 86_400) == [
        ("org/big", "abababababab", "1.2 GB of 3.4 GB", "3 days ago", "range cache")
    ]
    assert [orders.ago(s) for s in (-5, 30, 300, 7_200, 200_000)] == [
        "now", "now", "5 min ago", "2 h ago", "2 days ago",
    ]  # fmt: skip
    assert "Delete 1.2 GB of org/big at abababababab?" in orders.deletion([kept])


def test_nothing_is_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    assert capsys.readouterr().out.startswith("No model is kept on this device. ")
    assert main(["models", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"models": []}
    assert main(["models", "delete", "a/b"]) == 1
    assert "No model a/b is kept on this device." in capsys.readouterr().err


def test_pull_list_delete(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    """DESIGN section 6: ranges are kept on disk, resumed, and listed and deleted by the user."""
    assert main(["models", "pull", HUB_ID, "--layers", "1-6"]) == 0
    done = capsys.readouterr()
    assert f"{HUB_ID} is here, layers 1–6: " in done.out
    assert "fetching" in done.err
    half = hub.sent
    assert main(["models"]) == 0
    shown = capsys.readouterr().out
    assert f"{HUB_ID}  {COMMIT[:12]}" in shown
    assert "now" in shown
    assert "range cache" in shown
    assert main(["models", "pull", HUB_ID]) == 0
    assert "whole: " in capsys.readouterr().out
    assert half < hub.sent < 1.6 * half + 4e6, "the first half was not fetched again"
    assert main(["models", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["models"]
    assert (row["model"], row["revision"], row["whole"]) == (HUB_ID, COMMIT, True)
    assert row["bytes"] > 12 << 20

    assert main(["models", "delete", HUB_ID]) == 1
    assert "Add --yes." in capsys.readouterr().err, "nobody is here to be asked"
    assert main(["models", "delete", HUB_ID.upper(), "--revision", COMMIT[:7], "--yes"]) == 0
    assert "became free" in capsys.readouterr().out
    assert library.models() == []


def test_a_worker_that_pulls_its_layers_gets_no_ends(hub: Hub) -> None:
    """DESIGN section 6: only what a device computes is fetched."""
    pooled_nb.models().pull(HUB_ID, layers=(8, 10), progress=False)
    assert 2 << 20 <= hub.sent < (3 << 20)
    with pytest.raises(BadOption, match="are a range"):
        pooled_nb.models().pull(HUB_ID, layers=(10, 8))


def test_a_person_is_asked_before_something_is_deleted(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At a terminal; only a yes is a yes."""
    pooled_nb.models().pull(HUB_ID, progress=False)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    said = iter(["", "n", "yes"])
    monkeypatch.setattr("builtins.input", lambda: next(said))
    for _ in range(2):
        assert main(["models", "delete", HUB_ID]) == 1
        assert f"of {HUB_ID} at {COMMIT[:12]}? [y/N]" in capsys.readouterr().err
        assert len(library.models()) == 1
    assert main(["models", "delete", HUB_ID]) == 0
    assert library.models() == []


def test_an_interrupted_pull_goes_on(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C keeps what came, and says how to go on."""
    real, seen = Waiting.report, []

    def interrupt(self: Waiting, percent: int | None, words: str) -> None:
        seen.append(words)
        if hub.sent > 6 << 20 and "fetching" in words:
            raise KeyboardInterrupt
        real(self, percent, words)

    for name in ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"):
        hub.faults[name] = [Fault(times=-1, pause=0.01)]
    monkeypatch.setattr(Waiting, "report", interrupt)
    assert main(["models", "pull", HUB_ID, "--layers", "1-12", "--revision", COMMIT]) == 130
    line = f"models pull {HUB_ID} --layers 1-12 --revision {COMMIT}"
    assert f"Stopped; what came is kept. Go on with: pooled-nb {line}" in " ".join(
        capsys.readouterr().err.split()
    )
    monkeypatch.setattr(Waiting, "report", real)
    hub.faults.clear()
    assert main(line.split()) == 0
    assert hub.sent < 1.2 * (15 << 20), "what came is not fetched again"
    assert any("MB" in words for words in seen)


def test_prune(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    pooled_nb.models().pull(HUB_ID, progress=False)
    assert main(["models", "prune", "--keep", "1GB"]) == 0
    assert capsys.readouterr().out == "Nothing had to go.\n"
    assert pooled_nb.models().prune(0.001) == []


def test_what_is_in_use_stays(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    """DESIGN section 6: what some kernel loads is not taken away under it."""
    pooled_nb.models().pull(HUB_ID, progress=False)
    with Ranges().model(HUB_ID, COMMIT).use():
        assert main(["models", "delete", HUB_ID, "--yes"]) == 1
        assert "is loaded or fetched by a program of this machine now" in capsys.readouterr().err
        assert pooled_nb.models().prune(0) != []
    assert main(["models", "delete", HUB_ID, "--yes"]) == 0


def test_the_hubs_own_cache_is_listed_and_left_alone(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is shared with other programs: listed, and deleted by its own command."""
    home = tmp_path / "hub" / "models--org--small"
    snapshot = home / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text(COMMIT)
    for name in ("config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors"):
        (snapshot / name).write_bytes((model / name).read_bytes())
    (kept,) = library.models()
    assert (kept.repo, kept.where, kept.whole) == ("org/small", "hub cache", False)
    last = "model-00002-of-00002.safetensors"
    (snapshot / last).write_bytes((model / last).read_bytes())
    assert library.models()[0].whole
    assert main(["models", "delete", "org/small", "--yes"]) == 1
    assert "hf cache rm model/org/small" in " ".join(capsys.readouterr().err.split())
    assert (snapshot / last).exists()


def test_what_was_made_here_is_deleted(tmp_path: Path) -> None:
    """The offline copy of the example model, turned into safetensors once."""
    folder = tmp_path / "cache" / "models" / "Tiny--r1"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (kept,) = library.models()
    assert (kept.repo, kept.where, kept.whole) == ("Tiny", "made here", True)
    assert library.models().delete("tiny") == []
    assert not folder.exists()


def test_a_short_name_of_several_is_refused() -> None:
    """What is removed is never guessed: a label that several models have is answered with their names."""
    for repo in ("Org/Small", "Other/Small", "small/tiny"):
        model = Ranges().model(repo, "r1")
        model.put_small("config.json", b"{}")
        model.remember(label="Small" if repo != "small/tiny" else "Other/Small")
    with pytest.raises(ModelNotFound, match=r"small may be Org/Small, Other/Small\.") as caught:
        library.models().delete("small")
    assert caught.value.next_step == "Write its whole name."
    assert len(library.models()) == 3
    library.models().delete("other/small")  # a whole name, though another has it as its label
    assert {kept.repo for kept in library.models()} == {"Org/Small", "small/tiny"}
    library.models().delete("small")
    assert {kept.repo for kept in library.models()} == {"small/tiny"}


def test_a_name_of_another_is_text(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    """Bad input: what a room called a model is no command to a terminal, and no HTML."""
    model = Ranges().model("org/<b>x\u202e", "r1")
    model.put_small("config.json", b"{}")
    page = pooled_nb.models()._repr_mimebundle_()
    assert "<b>" not in page["text/html"]
    assert main(["models"]) == 0
    assert "\u202e\u2069" in capsys.readouterr().out, "it turns nothing around it"


def test_the_magic(hub: Hub, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    """DESIGN section 7: the same verbs in a notebook, without a room."""
    works(shell, "%pooled models")
    assert "No model is kept on this device." in capsys.readouterr().out
    works(shell, f"%pooled models pull {HUB_ID} --layers 1-2")
    assert "layers 1–2" in capsys.readouterr().out
    assert tab(shell, "%pooled models ") >= {"list", "pull", "delete", "prune", "--layers"}
    assert HUB_ID in tab(shell, "%pooled models delete lab")
    assert HUB_ID in tab(shell, "%pooled host lab")
    assert "models pull and its name" in fails(shell, "%pooled models pull")
    capsys.readouterr()
    works(shell, "%pooled models prune --keep 10GB")
    assert capsys.readouterr().out == "Nothing had to go.\n"
    works(shell, f"%pooled models delete {HUB_ID}")
    assert f"Deleted {HUB_ID}: " in capsys.readouterr().out


async def test_it_may_be_awaited() -> None:
    assert await pooled_nb.models() == []


def test_the_hub_says_no(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    """An error is a sentence, and what to do next."""
    hub.errors["org/none"] = (404, "RepoNotFound")
    assert main(["models", "pull", "org/none"]) == 1
    assert "The hub has no model org/none, or it is private." in " ".join(capsys.readouterr().err.split())
    with pytest.raises(ModelNotFound):
        pooled_nb.models().pull("org/none", progress=False)


def test_no_torch_is_imported(hub: Hub, tmp_path: Path) -> None:
    """Listing and fetching need neither a room nor torch."""
    from tests.shard.hubbed import environment

    code = (
        "import sys; from pooled_nb.cli import main\n"
        f"assert main(['models']) == 0 and main(['models', 'pull', {HUB_ID!r}, '--layers', '1']) == 0\n"
        "print(*(n for n in ('torch', 'transformers', 'aiortc', 'anywidget') if n in sys.modules), 'end')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        env=environment(hub, tmp_path),
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()[-1] == "end", done.stderr
