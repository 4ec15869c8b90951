"""The table of rooms holds, and the command line is light."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "eyas"
ORDER = [
    *("recipe", "store", "shape", "work", "corpus", "tokens", "model", "checkpoint", "plan"),
    *("train", "diagnose", "launch", "watch", "serve", "judge", "slack", "board", "cli"),
]
TORCH = {"tokens", "model", "checkpoint", "train", "serve", "judge"}


def _crossings(room: str) -> list[tuple[Path, str, str]]:
    """(file, other room, module path) of each import of another room."""
    found = []
    for path in (SOURCE / room).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.ImportFrom) and node.level != 1:
                # two dots lead out of the room, three out of a folder of it: both to `eyas`
                module = f"eyas.{node.module or ''}".rstrip(".") if node.level else node.module
                names = [module or ""]
                if module == "eyas":
                    names = [f"eyas.{alias.name}" for alias in node.names if alias.name in ORDER]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            for name in names:
                parts = name.split(".")
                if parts[0] == "eyas" and len(parts) > 1 and parts[1] != room:
                    found.append((path, parts[1], name))
    return found


def test_every_room_of_the_design_has_a_door() -> None:
    assert sorted(p.name for p in SOURCE.iterdir() if (p / "__init__.py").exists()) == sorted(ORDER)


@pytest.mark.parametrize("room", ORDER)
def test_a_room_imports_only_rooms_above_it_and_only_their_doors(room: str) -> None:
    for path, other, module in _crossings(room):
        assert ORDER.index(other) < ORDER.index(room), f"{path} imports {other}, a room below"
        assert module == f"eyas.{other}", f"{path} imports {module}, not the room's door"


@pytest.mark.parametrize("room", [r for r in ORDER if r not in TORCH | {"slack", "cli"}])
def test_a_torch_free_room_imports_only_torch_free_rooms(room: str) -> None:
    bad = [(p, other) for p, other, _ in _crossings(room) if other in TORCH]
    assert not bad


def _modules_after(code: str) -> set[str]:
    probe = f"import sys\n{code}\nprint('\\n'.join(sys.modules), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", probe], check=True, capture_output=True, text=True, timeout=120
    )
    return set(done.stderr.split())


def test_help_loads_no_room_and_no_torch() -> None:
    loaded = _modules_after("from eyas.cli import main\nmain(['--help'])")
    assert {m for m in loaded if m.startswith("eyas")} == {"eyas", "eyas.cli", "eyas.cli.main"}
    assert not {"torch", "numpy", "rich", "botocore", "pyarrow", "tokenizers"} & loaded


def test_import_eyas_is_light() -> None:
    loaded = _modules_after("import eyas")
    assert {m for m in loaded if m.startswith("eyas")} == {"eyas"}


@pytest.mark.parametrize("room", [r for r in ORDER if r not in TORCH])
def test_importing_a_torch_free_room_loads_no_torch(room: str) -> None:
    assert "torch" not in _modules_after(f"from eyas.{room} import *")


def test_a_worker_of_the_corpus_loads_nothing_that_fetches_plans_or_reports() -> None:
    loaded = _modules_after("import eyas.corpus.stages.write_stage")
    assert not {"eyas.corpus.curate", "eyas.corpus.plan", "urllib3", "warcio"} & loaded


def test_the_names_of_the_corpus_are_what_they_say_in_any_order() -> None:
    code = "from eyas.corpus import remove_documents, curate\ncurate.__code__"
    assert "eyas.corpus.curate" in _modules_after(code)


def test_parquet_is_read_without_threads_of_arrow() -> None:
    """They drop Python's buffers, and one that does so while the interpreter ends aborts it."""
    for path in SOURCE.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                assert ast.unparse(call.func) != "pq.read_table", f"{path}:{call.lineno}"
                if call.func.attr == "ParquetFile":
                    keys = {k.arg: ast.unparse(k.value) for k in call.keywords}
                    assert keys.get("pre_buffer") == "False", f"{path}:{call.lineno}"


def test_the_lock_pins_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    locked = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if "==" in line
    }
    wanted = project["dependencies"] + project["optional-dependencies"]["dev"]
    names = {w.split(";")[0].split(">")[0].split("=")[0].strip().lower() for w in wanted}
    assert {name.replace("_", "-") for name in names} <= locked
