"""ARCHITECTURE.md names files that exist, and leads to every module."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path, PurePath

from remuda.agents import agent_names, find_self_test
from remuda.cli.command_list import COMMANDS

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "remuda"
_TEXT = (ROOT / "ARCHITECTURE.md").read_text()
_QUOTED = re.findall(r"`([^`]+)`", re.sub(r"(?s)```.*?```", "", _TEXT))
WORDS = {word.strip("(),;") for quoted in _QUOTED for word in quoted.split()}
_FILE = re.compile(r"[\w.*/-]*\w\.(py|js|json|md|txt|toml)|[\w-]+(/[\w*-]+)+|[\w/-]+/")
_NOT_FILES = {"HOST/SESSION", "/v1"}
_FILES = [*SOURCE.rglob("*"), *ROOT.glob("docs/*/*"), *ROOT.glob("scripts/*")]
_TAILS = {"/".join(path.parts[at:]) for path in _FILES for at in range(len(ROOT.parts), len(path.parts))}
"""Every file and folder by every ending of its path."""


def is_there(name: str) -> bool:
    """Whether a file or folder has this path, or one that ends so. NAME stands for any name."""
    names = [name.rstrip("/") + ending for ending in ("", ".py", ".js")]
    if "NAME" in name:
        return any(fnmatch(tail, names[0].replace("NAME", "*")) for tail in _TAILS)
    return not _TAILS.isdisjoint(names)


def test_files_and_folders_that_it_names_exist() -> None:
    named = {word for word in WORDS if _FILE.fullmatch(word)} - _NOT_FILES
    assert len(named) > 50
    assert [name for name in sorted(named) if not is_there(name)] == []


def test_every_module_is_named_or_in_a_folder_that_is_named_as_a_whole() -> None:
    names = {PurePath(re.sub(r"\.(py|js)$", "", word)).name.partition(".")[0] for word in WORDS}
    names = {name for name in names if name.strip("*")}
    rooms = {
        word.rstrip("/") for row in _TEXT.splitlines() if row.startswith("| `") for word in _first_cell(row)
    }
    modules = [*SOURCE.rglob("*.py"), *SOURCE.glob("boss/web/*.js")]
    missing = [
        str(path.relative_to(SOURCE))
        for path in sorted(modules)
        if not path.stem.startswith("_")
        and not any(fnmatch(path.stem, name) for name in names)
        and not (path.parent == SOURCE / "cli" and path.stem in COMMANDS)
        and not _is_covered(path.parent.relative_to(SOURCE), rooms, names)
    ]
    assert missing == []


def _first_cell(row: str) -> list[str]:
    return [word for quoted in re.findall(r"`([^`]+)`", row.split("|")[1]) for word in quoted.split()]


def _is_covered(folder: PurePath, rooms: set[str], names: set[str]) -> bool:
    """Whether the folder is a part of a room that is named there, and has no row of its own."""
    return str(folder) not in rooms and len(folder.parts) > 1 and folder.name in names


def test_no_room_may_import_the_folder_of_an_agent() -> None:
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (contract,) = [one for one in linter["contracts"] if one["name"].startswith("Everything of one agent")]
    rooms = {
        path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert {f"remuda.{room}" for room in rooms - {"__init__", "agents"}} == set(contract["source_modules"])
    agents = {path.parent.name for path in SOURCE.glob("agents/*/__init__.py")} | {"plain"}
    assert {f"remuda.agents.{name}" for name in agents} == set(contract["forbidden_modules"])


# ── what is true of one agent is in its folder, also what no import shows ──

_OF_ONE_AGENT = re.compile(
    r"\b(CLAUDE|ANTHROPIC|CODEX|OPENAI|COPILOT|OPENCODE)_[A-Z]|\.(claude|codex|copilot|opencode)\b|hook_event_name"
)
_MAY_NAME_AN_AGENT = {
    "__init__.py": "the names of our own classes",
    "boss/evidence/kept.py": "reads raw hooks of a keeper of 0.1",
    "boss/evidence/kept_events.py": "requests raw hooks from a keeper of 0.1",
    "boss/hook.py": "runs alone, for all agents",
    "inbox/stop_hook.py": "runs alone, as a Stop hook of Claude Code",
    "keeper/emit.py": "runs alone, also in sessions of a keeper of 0.1",
    "oneshot/keeper_probe.py": "a name that observers of all agents use",
}


def test_agents_details_stand_in_no_string_of_another_room() -> None:
    hooks = {hook for name in agent_names() if (plan := find_self_test(name)) for hook in plan.hooks}
    words = "|".join(name for name in hooks if len(re.findall("[A-Z]", name)) > 1)
    naming = re.compile(rf"{_OF_ONE_AGENT.pattern}|\b({words})\b")
    found = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if path.relative_to(SOURCE).parts[0] not in ("agents", "testing")
        for text in _strings(ast.parse(path.read_text()))
        if naming.search(text) or text in hooks
    }
    assert sorted(found) == sorted(_MAY_NAME_AN_AGENT)


def _strings(tree: ast.AST) -> Iterator[str]:
    """Yield all literals but docstrings, which may give examples."""
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in prose:
            if isinstance(node.value, bytes):
                yield node.value.decode("latin-1")
            elif isinstance(node.value, str):
                yield node.value


def test_each_folder_of_unit_tests_has_its_counterpart_in_the_source() -> None:
    unit = ROOT / "tests" / "unit"
    folders = {path.parent.relative_to(unit) for path in unit.rglob("test_*.py")}
    assert [str(folder) for folder in sorted(folders) if not (SOURCE / folder).is_dir()] == []
