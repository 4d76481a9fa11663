"""The options with which known programs run no others, and how words are compared with them. Pure.

Only what is listed here is known. An option that is missing, abbreviated or not certain makes the command
unknown, and the caller asks. The table is program_options.txt. A line is
`PROGRAMS SUBCOMMANDS [TRAITS] OPTIONS`, and an indented line continues the one before:

    -ab     letters without a value; they may be joined
    -n=     letters with a value, joined or as the next word
    --name  long names: `--name=` takes a value, `--name?` takes one only after `=`
    -X|--request=  names of the same option; needed only where the letter is not the first one of the name
    =REGEX  the value must match; without it, any value is harmless
    !       with this option the program writes a file
    $NAME   a group of options, or a value

`git`, `project`: what it runs. `keeps`, `writes`: it writes in git's own folder, or files. The other traits
are fields of `Form` and `Entry`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from functools import cache
from importlib.resources import files

from .reading import UNKNOWN, Words


class Runs(IntEnum):
    BUILTIN = 0
    """Part of the shell: no file can replace it."""
    BY_NAME = 1
    """The program of this name, and nothing else."""
    HOOKS = 2
    """Also what git's own folder says: hooks, filters."""
    PROJECT = 3
    """Also the project's own code."""


class Writes(IntEnum):
    NOTHING = 0
    """Nothing, or only its own output: `cargo build` writes to target/."""
    GIT = 1
    """In git's own folder, and nothing that git runs."""
    FILES = 2


class Takes(Enum):
    NOTHING = ""
    VALUE = "="
    ATTACHED = "?"


@dataclass(frozen=True, slots=True)
class Option:
    takes: Takes
    value: re.Pattern[str] | None = None
    writes: bool = False


@dataclass(frozen=True, slots=True)
class Form:
    """A program, or one of its subcommands, and all options it is known with."""

    options: Mapping[str, Option]
    runs: Runs = Runs.BY_NAME
    writes: Writes = Writes.NOTHING
    is_harmless: bool = False
    """No option of any version runs or writes more, so a file name that looks like one does no harm."""
    takes_number: bool = False
    """`-20` is an option."""
    is_exact: bool = False
    """Letters are not joined."""
    values_are_apart: bool = False
    """Letters are joined, but a value is always the next word."""
    has_word_options: bool = False
    """Options have one dash and a name, as in `find` and `go`."""
    passes_rest: bool = False
    """The words after `--` are for another program."""
    is_tool: bool = False
    """`npx` and `uv run` may run it."""
    same: tuple[frozenset[str], ...] = ()
    """Names of the same option."""
    is_on_npm: bool = False
    """The package of this name on npm, which `npx` fetches if there is none, is this tool."""


@dataclass(slots=True)
class Given:
    """What a program is given."""

    options: set[str] = field(default_factory=set)
    operands: list[str] = field(default_factory=list)
    """Each pattern of file names counts twice: it may be several words."""
    rest: list[str] = field(default_factory=list)
    """The words for another program."""
    values: list[str] = field(default_factory=list)
    begins_with_operand: bool = False
    writes: bool = False

    def has(self, *names: str) -> bool:
        return not self.options.isdisjoint(names)


class _Unknown(Exception):
    pass


def parse(form: Form, words: Words, *, stop: bool = False) -> Given | None:
    """Split words into options and operands; None if an option is unknown.

    `stop`: everything from the first operand on is an operand.
    """
    given, left = Given(begins_with_operand=not words[:1] or not words[0].startswith("-")), list(words)
    try:
        while left:
            word = left.pop(0)
            if stop and not word.startswith("-"):
                given.operands = [word, *left]
                break
            if word == "--":
                _after_dashes(form, left, given)
                break
            if word.startswith("-") and word != "-":
                _option(form, word, left, given)
            else:
                _operand(form, word, given)
    except _Unknown:
        return None
    return given


def _after_dashes(form: Form, left: list[str], given: Given) -> None:
    if form.passes_rest:
        given.rest = left
        return
    for word in left:
        if word.startswith("-") and not form.is_harmless:
            raise _Unknown
        _operand(form, word, given)


def _operand(form: Form, word: str, given: Given) -> None:
    if word.startswith(UNKNOWN) and not form.is_harmless:
        raise _Unknown  # a file may be called --output=x
    given.operands += [word] * (2 if UNKNOWN in word else 1)


def _option(form: Form, word: str, left: list[str], given: Given) -> None:
    if form.has_word_options or word.startswith("--"):
        name, has_value, value = word.partition("=")
        if form.has_word_options and name.startswith("--"):
            name = name[1:]
        _take(form, name, value if has_value else None, left, given)
    elif form.takes_number and word[1:].isdigit():
        return
    elif form.is_exact:
        _take(form, word, None, left, given)
    else:
        _letters(form, word[1:], left, given)


def _letters(form: Form, letters: str, left: list[str], given: Given) -> None:
    for at, letter in enumerate(letters):
        option = form.options.get(f"-{letter}")
        if option is None:
            raise _Unknown
        value = letters[at + 1 :]
        if option.takes is Takes.NOTHING:
            _take(form, f"-{letter}", None, left, given)
            continue
        if value.startswith(UNKNOWN) and not form.is_harmless:
            raise _Unknown  # -n{,x} is -n with the next word, and -nx
        if value and form.values_are_apart:
            raise _Unknown  # `tree -Io x y` is -I x -o y
        _take(form, f"-{letter}", value or None, left, given)
        return


def _take(form: Form, name: str, value: str | None, left: list[str], given: Given) -> None:
    option = form.options.get(name)
    if option is None or (option.takes is Takes.NOTHING and value is not None):
        raise _Unknown
    if option.takes is Takes.VALUE and value is None:
        value = _next(form, left)
    if value is not None:
        if option.value is not None and not option.value.fullmatch(value):
            raise _Unknown
        if value.startswith("-") and value != "-" and form.runs is Runs.PROJECT and not value[1:].isdigit():
            raise _Unknown  # it may be handed on: `jest --changedSince=--output=x` to git
        given.values.append(value)
    given.options.add(name)
    given.writes = given.writes or option.writes


def _next(form: Form, left: list[str]) -> str:
    """Refuses what may be an option: then we may be wrong about the option before."""
    if not left:
        raise _Unknown
    word = left.pop(0)
    is_option = word.startswith(("-", UNKNOWN)) and word != "-" and not re.fullmatch(r"-\d+[a-zA-Z]?", word)
    if (is_option or UNKNOWN in word) and not form.is_harmless:
        raise _Unknown
    return word


# ── the table ──

_LINE = re.compile(r"^([^\s#$]\S*)(?: ([^\s\[]\S*))? \[([^\]\n]*)\] ?(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ProgramEntry:
    form: Form
    most_operands: int | None = None
    only: re.Pattern[str] | None = None
    """What each operand must match."""


@cache
def entry(key: str) -> ProgramEntry | None:
    """By program, or by program and subcommand, as in `git log`."""
    return _entry(*_lines()[key]) if key in _lines() else None


@cache
def has_forms(program: str) -> bool:
    """Whether it is known only by its subcommands."""
    return any(key.startswith(f"{program} ") for key in _lines())


@cache
def _lines() -> dict[str, tuple[str, str]]:
    """Traits and options by program, or by program and subcommand. They are read when one is asked for."""
    return {
        f"{program} {subcommand}".strip(): (traits, options)
        for programs, subcommands, traits, options in _LINE.findall(_text())
        for program in programs.split(",")
        for subcommand in subcommands.split(",")
    }


@cache
def group(name: str) -> str:
    found = re.search(rf"^\${name} (.*)$", _text(), re.MULTILINE)
    if found is None:
        raise ValueError(f"no group {name!r} in program_options.txt")
    return found[1]


@cache
def _text() -> str:
    return (files(__package__) / "program_options.txt").read_text("utf-8").replace("\n    ", " ")


def _entry(traits: str, options: str) -> ProgramEntry:
    given = {name: value for name, _, value in (one.partition("=") for one in traits.split())}
    return ProgramEntry(
        Form(
            dict(_options(options, "words" in given)),
            Runs.PROJECT if "project" in given else Runs.HOOKS if "git" in given else Runs.BY_NAME,
            Writes.FILES if "writes" in given else Writes.GIT if "keeps" in given else Writes.NOTHING,
            is_harmless="harmless" in given,
            takes_number="number" in given,
            is_exact="exact" in given,
            values_are_apart="apart" in given,
            has_word_options="words" in given,
            passes_rest="passes" in given,
            is_tool="tool" in given,
            same=tuple(_same(options)),
            is_on_npm="npm" in given,
        ),
        int(given["operands"]) if "operands" in given else None,
        _value(given["only"]) if "only" in given else None,
    )


def _options(text: str, has_words: bool) -> Iterator[tuple[str, Option]]:
    for names, sign, value, mark in _tokens(text):
        option = Option(Takes(sign), _value(value) if value else None, bool(mark))
        is_name = has_words or "|" in names or names.startswith("--")
        for name in names.split("|") if is_name else [f"-{one}" for one in names[1:]]:
            yield name, option


def _same(text: str) -> Iterator[frozenset[str]]:
    return (frozenset(names.split("|")) for names, *_ in _tokens(text) if "|" in names)


def _tokens(text: str) -> Iterator[tuple[str, ...]]:
    for token in text.split():
        if token.startswith("$"):
            yield from _tokens(group(token[1:]))
        else:
            yield _TOKEN.fullmatch(token).groups()  # type: ignore[union-attr]


def _value(text: str) -> re.Pattern[str]:
    return re.compile(group(text[1:]) if text.startswith("$") else text)


_TOKEN = re.compile(r"(-[^=?!]+)([=?]?)=?(.*?)(!?)")
