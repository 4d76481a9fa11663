"""Measure a source tree: size, names, imports, language, dead code, tests without an assertion.

    python scripts/measure.py [PATH ...]    one column for each tree; this one without a PATH
    python scripts/measure.py --list [PATH] also every place that was counted
    python scripts/measure.py --check       exit with 1 if one that must be 0 is not; `make lint` runs this
    python scripts/measure.py --without fleet --without agents/codex    without these folders of the package

To compare with an older commit: `git archive COMMIT | tar x -C /tmp/old`, then `measure.py /tmp/old .`.
A name counts as used if any other place in `src` has it as a word: a method that is called through a protocol
is used, and so is a name in a string.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import statistics
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeGuard

import lang

ROOT = Path(__file__).resolve().parent.parent
SMALL_MODULE = 60
PACKAGE = "remuda"
AGENT = f"{PACKAGE}.agents.claude"
_ENTRY_POINTS = ("__init__", "__main__")
_FOR_TESTS = f"{PACKAGE}.testing."
_LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_WORD = re.compile(r"[A-Za-z_]\w+")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One Python file, parsed. `place` is its path in the tree, `name` its dotted name."""

    place: str
    name: str
    source: str
    tree: ast.Module = field(repr=False)

    @property
    def stem(self) -> str:
        return Path(self.place).stem

    @property
    def line_count(self) -> int:
        return len(self.source.splitlines())

    @cached_property
    def functions(self) -> list[Function]:
        return [node for node in ast.walk(self.tree) if isinstance(node, Function)]

    @cached_property
    def classes(self) -> list[ast.ClassDef]:
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef)]

    def code_lines(self) -> int:
        """Count lines without blank ones, comments and docstrings."""
        lines: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(self.source).readline):
            if token.type != tokenize.COMMENT and token.type not in _LAYOUT:
                lines.update(range(token.start[0], token.end[0] + 1))
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Expr) and _is_string(node.value):
                lines.difference_update(range(node.lineno, (node.end_lineno or 0) + 1))
        return len(lines)

    def imports(self, *, for_types: bool = True) -> Iterator[tuple[int, str]]:
        """Yield the line and the absolute name of all imports; perhaps not those for type checkers only."""
        package = self.name.split(".") if self.stem == "__init__" else self.name.split(".")[:-1]
        left_out = set() if for_types else self._imports_for_types()
        for node in ast.walk(self.tree):
            if node in left_out:
                continue
            if isinstance(node, ast.Import):
                yield from ((node.lineno, one.name) for one in node.names)
            elif isinstance(node, ast.ImportFrom):
                above = package[: len(package) - node.level + 1] if node.level else []
                base = ".".join([*above, *([node.module] if node.module else [])])
                yield node.lineno, base
                yield from ((node.lineno, f"{base}.{one.name}") for one in node.names)

    def _imports_for_types(self) -> set[ast.AST]:
        tests = [one for one in ast.walk(self.tree) if isinstance(one, ast.If)]
        typing_only = [one for one in tests if ast.unparse(one.test).endswith("TYPE_CHECKING")]
        return {node for one in typing_only for part in one.body for node in ast.walk(part)}


@dataclass(frozen=True)
class Tree:
    """The code and the tests of one source tree, without some folders of the package."""

    root: Path
    without: tuple[str, ...] = ()

    @cached_property
    def code(self) -> list[Module]:
        left_out = tuple(f"src/{PACKAGE}/{folder}/" for folder in self.without)
        return [one for one in self._read("src") if not one.place.startswith(left_out)]

    @cached_property
    def tests(self) -> list[Module]:
        return list(self._read("tests"))

    def _read(self, folder: str) -> Iterator[Module]:
        for path in sorted((self.root / folder).rglob("*.py")):
            inside = path.relative_to(self.root / folder)
            parts = [*inside.parts[:-1], *([] if inside.stem == "__init__" else [inside.stem])]
            source = path.read_text(encoding="utf-8")
            place = path.relative_to(self.root).as_posix()
            yield Module(place, ".".join(parts), source, ast.parse(source))

    def build_files(self) -> str:
        """Return the text of the files that start modules by name."""
        paths = (self.root / name for name in ("pyproject.toml", "Makefile"))
        return "\n".join(path.read_text() for path in paths if path.exists())


# ── what is counted: each returns the places ──


def small_modules(tree: Tree) -> list[str]:
    modules = [one for one in tree.code if one.stem not in _ENTRY_POINTS]
    return [one.place for one in modules if one.line_count < SMALL_MODULE]


def _shared(names: Iterable[tuple[str, str]]) -> list[str]:
    places = defaultdict(list)
    for name, place in names:
        places[name].append(place)
    return [f"{name}: {', '.join(where)}" for name, where in sorted(places.items()) if len(where) > 1]


def shared_classes(tree: Tree) -> list[str]:
    return _shared(
        (node.name, f"{one.place}:{node.lineno}")
        for one in tree.code
        for node in one.tree.body
        if isinstance(node, ast.ClassDef)
    )


def shared_modules(tree: Tree) -> list[str]:
    return _shared((one.stem, one.place) for one in tree.code if one.stem not in _ENTRY_POINTS)


def agent_imports(tree: Tree) -> list[str]:
    """Import statements of one agent's folder in other rooms."""
    inside = f"src/{PACKAGE}/agents/"
    found = {
        f"{one.place}:{line}"
        for one in tree.code
        if not one.place.startswith(inside)
        for line, name in one.imports()
        if name == AGENT or name.startswith(f"{AGENT}.")
    }
    return sorted(found)


def unused_modules(tree: Tree) -> list[str]:
    """Modules that are not reached from those that start by name: commands, scripts, `python -m`.

    What `remuda.testing` has for tests is reached if a test imports it.
    """
    modules = {one.name: one for one in tree.code}
    strings = defaultdict(set)
    for one in tree.code:
        package = one.name.rpartition(".")[0]
        strings[package] |= {part.value for part in ast.walk(one.tree) if _is_string(part)}
    text = "\n".join([*(each for some in strings.values() for each in some), tree.build_files()])

    def is_start(one: Module) -> bool:
        by_name = one.stem in _ENTRY_POINTS or one.name in text or f"{one.stem}.py" in text
        lazy = {one.stem, f".{one.stem}", one.stem.rstrip("_"), one.stem.replace("_", "-")}
        return by_name or bool(lazy & strings[one.name.rpartition(".")[0]])

    reached: set[str] = set()
    waiting = [name for name, one in modules.items() if is_start(one)]
    in_tests = {name for one in tree.tests for _, name in one.imports()}
    waiting += [name for name in in_tests if name.startswith(_FOR_TESTS)]
    while waiting:
        if (name := waiting.pop()) in modules and name not in reached:
            reached.add(name)
            waiting += [imported for _, imported in modules[name].imports(for_types=False)]
    return [one.place for name, one in modules.items() if name not in reached]


def _is_string(node: ast.AST) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def unused_names(tree: Tree) -> list[str]:
    """Functions and classes whose name occurs nowhere else in the code.

    Left out: what a decorator registers, what may override a method of a library, what a string calls without
    its underscore, commands of `pyproject.toml`, and what `remuda.testing` has for tests.
    """
    words = Counter(word for one in tree.code for word in _WORD.findall(one.source))
    in_tests = {word for one in tree.tests for word in _WORD.findall(one.source)}
    commands = set(_WORD.findall(tree.build_files()))
    bases = {
        node.name: [_WORD.findall(ast.unparse(base).partition("[")[0])[-1] for base in node.bases]
        for one in tree.code
        for node in one.classes
    }

    def is_foreign(name: str) -> bool:
        return name not in bases or any(is_foreign(base) for base in bases[name] if base != name)

    found = []
    for one in tree.code:
        overriding = {id(method) for node in one.classes if is_foreign(node.name) for method in node.body}
        for node in ast.walk(one.tree):
            if not isinstance(node, Function | ast.ClassDef) or words[node.name] > 1 or node.name[:2] == "__":
                continue
            called = words[node.name.lstrip("_")] > (0 if node.name[0] == "_" else 1) or node.name in commands
            for_tests = node.name in in_tests and one.name.startswith(_FOR_TESTS)
            if not (node.decorator_list or id(node) in overriding or called or for_tests):
                where = " (tests use it)" if node.name in in_tests else ""
                found.append(f"{one.place}:{node.lineno} {node.name}{where}")
    return found


def tests_without_assertion(tree: Tree) -> list[str]:
    """Tests in which neither they nor any helper that they call can fail."""
    helpers = [node for one in [*tree.tests, *tree.code] if _may_help(one) for node in one.functions]
    asserting = {node.name for node in helpers if _asserts(node)}
    calls = [(node.name, _called(node)) for node in helpers if node.name not in asserting]
    while more := {name for name, called in calls if called & asserting} - asserting:
        asserting |= more
    return [
        f"{one.place}:{node.lineno} {node.name}"
        for one in tree.tests
        for node in one.functions
        if node.name.startswith("test") and node.name not in asserting
    ]


def _may_help(one: Module) -> bool:
    return one.place.startswith("tests/") or "/testing/" in one.place


def _asserts(node: Function) -> bool:
    checks = {"raises", "warns", "fail", "assert_type", "assert_never"} & _called(node)
    return bool(checks) or any(isinstance(part, ast.Assert | ast.Raise) for part in ast.walk(node))


def _called(node: Function) -> set[str]:
    """Names of what it calls; a fixture that is called counts as its `__call__`."""
    arguments = {one.arg for one in [*node.args.args, *node.args.kwonlyargs]}
    names = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Call):
            function = part.func
            names |= {function.attr} if isinstance(function, ast.Attribute) else set()
            if isinstance(function, ast.Name):
                names.add("__call__" if function.id in arguments else function.id)
    return names


def phrase_rates(root: Path) -> tuple[float, float]:
    """Stilted phrases per 10,000 words: in what users read, and in the code's own words."""
    words: Counter[bool] = Counter()
    phrases: Counter[bool] = Counter()
    for text in lang.texts(root):
        words[text.for_users] += lang.count_words(text.words)
        phrases[text.for_users] += sum(1 for _ in lang.places(text))
    users, code = (10_000 * phrases[one] / max(1, words[one]) for one in (True, False))
    return users, code


AT_ZERO = {
    f"imports of {AGENT} outside agents": agent_imports,
    "modules that nothing imports": unused_modules,
    "tests that assert nothing": tests_without_assertion,
}
LISTS = {
    f"modules under {SMALL_MODULE} lines": small_modules,
    "class names used twice": shared_classes,
    "module names used twice": shared_modules,
    "names that nothing uses": unused_names,
    **AT_ZERO,
}


def check(tree: Tree) -> list[str]:
    """Return the places that must not be there, each with what it is."""
    return [f"{place}: {title}" for title, places in AT_ZERO.items() for place in places(tree)]


def measure(tree: Tree) -> dict[str, str]:
    lengths = sorted((node.end_lineno or 0) - node.lineno + 1 for one in tree.code for node in one.functions)
    users, own = phrase_rates(tree.root)
    tests = [node for one in tree.tests for node in one.functions if node.name.startswith("test")]
    return {
        "code lines in src": f"{sum(one.code_lines() for one in tree.code):,}",
        "files in src": str(len(tree.code)),
        "median lines of a module": f"{statistics.median(one.line_count for one in tree.code):.0f}",
        "function lines, median / p95": f"{lengths[len(lengths) // 2]} / {lengths[int(len(lengths) * 0.95)]}",
        **{title: str(len(places(tree))) for title, places in LISTS.items()},
        "stilted phrases per 10,000 words: users": f"{users:.1f}",
        "stilted phrases per 10,000 words: code": f"{own:.1f}",
        "test functions": f"{len(tests):,}",
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure source trees.")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a count that must be 0 is not")
    parser.add_argument("--list", action="store_true", help="also print every place")
    parser.add_argument("path", nargs="*", type=Path, default=[ROOT], help="the trees; this one by default")
    parser.add_argument("--without", action="append", default=[], metavar="FOLDER", help="leave this out")
    options = parser.parse_args()
    trees = [Tree(path.resolve(), tuple(options.without)) for path in options.path]
    if options.check:
        found = [place for tree in trees for place in check(tree)]
        print(*found, sep="\n", end="\n" if found else "")
        return 1 if found else 0
    columns = [measure(tree) for tree in trees]
    print(" " * 48 + "".join(f"{tree.root.name:>12}" for tree in trees))
    for title in columns[0]:
        print(f"{title:48}" + "".join(f"{column[title]:>12}" for column in columns))
    for tree in trees if options.list else []:
        for title, places in LISTS.items():
            print(f"\n{tree.root.name}: {title}")
            for place in places(tree):
                print(f"  {place}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
