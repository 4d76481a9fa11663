"""ARCHITECTURE.md names files that exist, and leads to every module."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path, PurePath

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
