"""Count stilted phrases, and list them with the sentences that are too long.

    python scripts/lang.py                 phrases per 10,000 words: what users read, the code's own words
    python scripts/lang.py --list [PATH]   each place, `file:line: phrase: text`
    python scripts/lang.py --check         exit with 1 if there is any; `make lint` runs this

What users read: the Markdown files, help texts, error messages, log lines, and the docstrings of the public
Python API. The code's own words: all other docstrings and comments. Measured in the same way (whole trees):
uvicorn 8.3, h11 6.5, trio 5.6, procrastinate 5.5, structlog 2.3, httpx 1.4.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LONGEST_SENTENCE = 35
PHRASES = {
    "of which/whom/whose": r"\bof (?:which|whom|whose)\b",
    "whoever/whom": r"\b(?:[Ww]hoever|[Ww]hom|[Ww]homever)\b",
    "is no X": r"\b(?:is|are|was) no (?!longer|more)\w+",
    "behind": r"\bbehind\b(?! (?:a|the|your) (?:reverse |trusted )?(?:proxy|firewall|gateway))",
    "beside": r"\bbeside\b",
    "told/tells": r"\b(?:told|tells|telling)\b(?! to end$)",
    "for ever": r"\bfor ever\b",
    "so long/so many/so often": r"\bso (?:long|many|often|much)\b(?! as)",
    "ask leave": r"\b(?:asks?|asked|requests?) (?:leave|for leave)\b|\bfor leave\b",
    "nobody/somebody": r"\b(?:[Nn]obody|[Ss]omebody)\b",
    "is to be": r"\b(?:is|are) to be\b",
    "lies/stands": r"\b(?:lies|lie|stands?|stood)\b(?! for\b|-in )",
    "all that/all of it": r"\ball (?:that|of what|of it)\b",
    "anew/meanwhile/hence/whole": r"\b(?:anew|meanwhile|hence|whole)\b",
    "mend": r"\bmend\w*\b",
}
_PHRASE = re.compile(
    "|".join(f"(?P<p{n}>{pattern})" for n, pattern in enumerate(PHRASES.values())), re.IGNORECASE
)
_NAMES = list(PHRASES)
_WORD = re.compile(r"[A-Za-z']+")
_CLICK = {"command", "group", "option", "argument"}


@dataclass(frozen=True)
class Text:
    """A piece of prose, where it begins, and whether users read it."""

    path: Path
    line: int
    words: str
    for_users: bool


def texts(root: Path) -> Iterator[Text]:
    for path in sorted([*root.glob("*.md"), *root.glob("docs/**/*.md")]):
        yield from _markdown(path)
    public = _public_names(root)
    for path in sorted(root.glob("src/**/*.py")):
        yield from _python(path, public, for_users="testing" not in path.parts)


def _markdown(path: Path) -> Iterator[Text]:
    """By paragraph, without code."""
    paragraph: list[str] = []
    begun, fenced = 1, False
    for number, line in enumerate([*path.read_text(encoding="utf-8").splitlines(), ""], 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            line = ""
        breaks = fenced or not line.strip() or line.lstrip().startswith(("#", "|", "- ", "* ", "<", "1. "))
        if breaks and paragraph:
            yield Text(path, begun, re.sub(r"`[^`]*`", "X", "\n".join(paragraph)), for_users=True)
            paragraph = []
        if fenced or not line.strip():
            continue
        for cell in line.split(" | ") if line.lstrip().startswith("|") else [line]:
            if line.lstrip().startswith("|"):
                yield Text(path, number, re.sub(r"`[^`]*`", "X", cell), for_users=True)
            else:
                begun = begun if paragraph else number
                paragraph.append(cell)


def _public_names(root: Path) -> set[str]:
    """Return the names that `remuda` exports: those that type checkers import."""
    tree = ast.parse((root / "src/remuda/__init__.py").read_text())
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return {one.name for node in imports for one in node.names if one.asname == one.name}


def _python(path: Path, public: set[str], *, for_users: bool) -> Iterator[Text]:
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    private = _private_docstrings(tree, public)
    joined = _joined_strings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            words = "".join(str(one.value) if isinstance(one, ast.Constant) else "X" for one in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in joined:
            words = node.value
        else:
            continue
        if " " in words:
            yield Text(path, node.lineno, words, for_users and id(node) not in private)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Text(path, token.start[0], token.string, for_users=False)


def _private_docstrings(tree: ast.AST, public: set[str]) -> set[int]:
    """Docstrings that are neither the help of a command nor part of the public API."""
    docstrings: dict[int, bool] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            docstrings[id(node.value)] = False
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name in public:
            for part in [node, *node.body]:
                _mark_docstring(part, docstrings, public_part=True)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_command(node):
            _mark_docstring(node, docstrings, public_part=True)
    return {number for number, is_public in docstrings.items() if not is_public}


def _joined_strings(tree: ast.AST) -> set[int]:
    return {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}


def _mark_docstring(node: ast.AST, docstrings: dict[int, bool], *, public_part: bool) -> None:
    if getattr(node, "name", "").startswith("_"):
        return
    body = getattr(node, "body", None) or [node]
    first = body[0] if isinstance(body, list) else node
    if isinstance(first, ast.Expr) and id(first.value) in docstrings:
        docstrings[id(first.value)] = public_part


def _is_command(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Is its docstring the help of a command?"""
    for one in node.decorator_list:
        call = one.func if isinstance(one, ast.Call) else one
        if isinstance(call, ast.Attribute) and call.attr in _CLICK:
            return True
    return False


def places(text: Text) -> Iterator[tuple[int, str, str]]:
    """The line, the phrase's name and the words of each stilted phrase."""
    for match in _PHRASE.finditer(text.words):
        line = text.line + text.words.count("\n", 0, match.start())
        name = _NAMES[int(str(match.lastgroup)[1:])]
        around = text.words[max(0, match.start() - 30) : match.end() + 30]
        yield line, name, " ".join(around.split())


def long_sentences(text: Text) -> Iterator[tuple[int, int, str]]:
    """The line, the count of words and the beginning of each sentence that is too long."""
    if re.search(r"<\w[^>]*>", text.words) or not re.search(r"\b(?:the|is|a|to|of|and)\b", text.words):
        return  # markup, or a list of names
    for part in re.split(r"(?<=[.!?:;])\s|\n\s*\n|\n\s*[-*] |\x08", text.words):
        if (count := count_words(part)) > LONGEST_SENTENCE:
            line = text.line + text.words.count("\n", 0, text.words.find(part))
            yield line, count, " ".join(part.split())[:70]


def count_words(text: str) -> int:
    return len(_WORD.findall(text))


def main() -> int:
    parser = argparse.ArgumentParser(description="Count stilted phrases in this tree.")
    parser.add_argument("--list", action="store_true", help="print each place")
    parser.add_argument("--check", action="store_true", help="exit with 1 if there is any")
    parser.add_argument("--code", action="store_true", help="with --list: the code's own words too")
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree to read")
    parser.add_argument("path", nargs="*", type=Path, help="read only these files and folders")
    options = parser.parse_args()
    root = options.root.resolve()
    only = tuple(one.resolve() for one in options.path)
    words: Counter[bool] = Counter()
    counts: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    found = 0
    for text in texts(root):
        if only and not any(text.path == one or one in text.path.parents for one in only):
            continue
        words[text.for_users] += count_words(text.words)
        shown = options.check or (options.list and (text.for_users or options.code))
        where = text.path.relative_to(root)
        for line, name, around in places(text):
            counts[text.for_users][name] += 1
            if shown:
                found += 1
                print(f"{where}:{line}: {name}: {around}")
        for line, count, begin in long_sentences(text) if text.for_users else ():
            counts[True]["sentence over 35 words"] += 1
            if shown:
                found += 1
                print(f"{where}:{line}: {count} words in a sentence: {begin}")
    if options.check:
        if found:
            print(f"{found} places; CONTRIBUTING.md says how this project writes")
        return 1 if found else 0
    if not options.list:
        _print_table(words, counts)
    return 0


def _print_table(words: Counter[bool], counts: dict[bool, Counter[str]]) -> None:
    def row(title: str, users: float, code: float) -> None:
        print(f"{title:28}{users:12.1f}{code:12.1f}")

    print(f"{'per 10,000 words':28}{'users read':>12}{'code':>12}")
    rates = {kind: 10_000 / max(1, words[kind]) for kind in (True, False)}
    for name in _NAMES:
        row(name, counts[True][name] * rates[True], counts[False][name] * rates[False])
    sums = {kind: sum(counts[kind][name] for name in _NAMES) * rates[kind] for kind in (True, False)}
    row("all phrases", sums[True], sums[False])
    print(f"{'words':28}{words[True]:12,}{words[False]:12,}")
    print(f"{'sentences over 35 words':28}{counts[True]['sentence over 35 words']:12}")


if __name__ == "__main__":
    sys.exit(main())
