"""Read a shell command by bash's grammar, into the simple commands in it. Pure.

A command is *understood* when its text alone shows what it runs. Two checks must agree. The tree of
tree-sitter must hold only simple commands, pipelines, lists, words and plain redirections. And its leaves,
laid end to end, must be the complete text: each is a token by bash's own lexical rules, with only blanks
between them. The second check does not trust the tree, so a place where tree-sitter and bash disagree is not
understood. Everything else is not understood either, and the caller asks.

Only this module imports tree-sitter, and only when a command is read: 80 ms and 5.5 MB, once a process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Language, Node

Words = tuple[str, ...]

UNKNOWN = "\0"
"""In a word: text that only the shell knows, such as file names for a `*`. Perhaps several words."""
OPERAND = "\2"
"""A word that only the program knows: the branch that a plain `git push` goes to."""
LONGEST = 1 << 12
"""Longer texts are not read: tree-sitter takes 0.14 s for 4 KiB of `a|a|…`, and four minutes for 64 KiB."""

_CONTAINERS = frozenset(
    {"program", "list", "pipeline", "redirected_statement", "command", "command_name", "concatenation"}
    | {"test_command", "unary_expression", "binary_expression"}
)
_SEPARATORS = frozenset({b"&&", b"||", b"|", b"|&", b";", b"&"})
_PIPES = (b"|", b"|&")
# `\` at the end of a line joins lines. Only after a blank: without one it would join two words, too.
_GAP = re.compile(rb"(?:[ \t\n]|(?<=[ \t])\\\n)*")
_WORD = re.compile(rb"(?:[\w./:=,@%+^~?*\[\]{}#!-]|[\x80-\xff]|\\[ -~])+")
_RAW = re.compile(rb"'[^']*'")
# A lone `$` is one. An interactive shell replaces `!x` in double quotes, too.
_QUOTED = re.compile(rb'"(?:[^"\\$`!]|!(?=[ \n="])|\$(?=[ "|])|\\[^!])*"')
_REDIRECTION = re.compile(rb"[0-9]*(?:[<>]&[ \t]*(?:[0-9]+|-)|(?:[<>]|>>|>\||&>|&>>|>&)[ \t]*/dev/null)")
_PIECE = re.compile(r"\\(.)|([\[\]{}])|([*?])|((?<![^=:])~)|[^\\*?\[\]{}~]+|~", re.DOTALL)
_CUT = "\1"
"""In the value of a piece: nothing is known of the word from here on."""
_ESCAPED = re.compile(r'\\(?:([$`"\\])|\n)')


@dataclass(frozen=True, slots=True)
class Part:
    """A simple command."""

    words: Words
    is_fed: bool = False
    """It reads what the part before it prints."""
    step: int = 0
    """Parts of one step run at the same time, and those of a later step after them."""


@dataclass(frozen=True, slots=True)
class Reading:
    parts: tuple[Part, ...] = ()
    """All, in order. Of a command that is not understood: those that can be seen in it."""
    doubt: str = ""
    """Why the command is not understood. Empty if it is."""

    @property
    def is_understood(self) -> bool:
        return not self.doubt


class _NotUnderstood(Exception):
    """The text says why."""


def read_command(text: str) -> Reading:
    """Never raises: what cannot be read is not understood."""
    if len(text) > LONGEST:
        return Reading(doubt=f"the command is longer than {LONGEST} characters")
    if not all(character.isprintable() or character in "\n\t" for character in text):
        return Reading(doubt="the command has invisible characters")
    if (language := _language()) is None:
        return Reading(doubt="the shell grammar is missing; install tree-sitter and tree-sitter-bash")
    from tree_sitter import Parser

    source = text.encode()
    root = Parser(language).parse(source).root_node
    if root.has_error:
        return Reading(doubt="the command is incomplete or not bash")
    try:
        parts = _Tokens(source).read(root)
    except _NotUnderstood as reason:
        return Reading(tuple(_visible_parts(root, source)), str(reason))
    return Reading(parts) if parts else Reading(doubt="the command is empty")


@cache
def _language() -> Language | None:
    try:
        import tree_sitter
        import tree_sitter_bash

        return tree_sitter.Language(tree_sitter_bash.language())
    except (ImportError, OSError, ValueError, TypeError, AttributeError):  # missing, or of another version
        return None


# ── what is understood ──


class _Tokens:
    """Joins the leaves of a tree to words and simple commands, and checks each against the text."""

    def __init__(self, source: bytes) -> None:
        self._source = source
        self._end = 0
        self._parts: list[Part] = []
        self._words: list[str] = []
        self._raw = b""
        self._word = ""
        self._is_fed = False
        self._step = 0
        self._has_background = False
        self._is_separated = False  # the token before was a separator, without a blank after it

    def read(self, root: Node) -> tuple[Part, ...]:
        for leaf in _leaves(root):
            self._gap(leaf.start_byte)
            self._end = leaf.end_byte
            self._token(self._source[leaf.start_byte : leaf.end_byte], leaf.type)
        self._gap(len(self._source))
        self._end_part(b";")
        return tuple(replace(one, step=0) if self._has_background else one for one in self._parts)

    def _gap(self, start: int) -> None:
        gap = self._source[self._end : start]
        if start < self._end or not _GAP.fullmatch(gap):
            raise _NotUnderstood(f"{_shown(gap)} is not understood")
        if gap:
            self._end_word()
            self._is_separated = False
        if b"\n" in gap.replace(b"\\\n", b""):
            self._end_part(b"\n")

    def _token(self, text: bytes, kind: str) -> None:
        if text in _SEPARATORS:
            if self._is_separated:
                raise _NotUnderstood("two separators are not understood")
            self._end_part(text)
            self._is_separated = True
        elif kind == "file_redirect":
            self._redirection(text)
        else:
            self._is_separated = False
            self._word += _piece(text, kind)
            self._raw += text

    def _next(self) -> bytes:
        """Return the character after the token."""
        return self._source[self._end : self._end + 1]

    def _redirection(self, text: bytes) -> None:
        if not _REDIRECTION.fullmatch(text):
            raise _NotUnderstood(f"the redirection {_shown(text)} may write or read a file")
        # A number or {name} directly before the sign belongs to it.
        joined = self._raw and (text[:1].isdigit() or self._raw.isdigit() or self._raw.endswith(b"}"))
        if joined or self._next() not in (b"", b" ", b"\t", b"\n", b";", b"|", b"&"):
            raise _NotUnderstood(f"the redirection {_shown(text)} is not understood")
        self._end_word()

    def _end_word(self) -> None:
        if self._raw:
            self._words.append(_whole_word(self._raw, self._word, is_program=not self._words))
        self._raw, self._word = b"", ""

    def _end_part(self, separator: bytes) -> None:
        self._end_word()
        if self._words:
            self._parts.append(Part(tuple(self._words), self._is_fed, self._step))
            self._words = []
            self._is_fed = False
            self._step += separator not in _PIPES
            self._has_background = self._has_background or separator == b"&"
        if separator != b"\n":  # a line may end after a pipe
            self._is_fed = separator in _PIPES


def _leaves(root: Node) -> Iterator[Node]:
    """Yield the smallest parts of a tree that are read as one token, in order."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.type in _CONTAINERS:
            waiting.extend(reversed(node.children))
        elif node.is_named and node.type not in _ATOMS:
            raise _NotUnderstood(f"{node.type.replace('_', ' ')} is not understood")
        else:
            yield node


_ATOMS = frozenset(
    {"word", "number", "string", "raw_string", "test_operator", "extglob_pattern", "file_redirect"}
)


def _piece(text: bytes, kind: str) -> str:
    """Return the value of a word, or of a quoted part of it."""
    decoded = text.decode()
    if kind == "raw_string" and _RAW.fullmatch(text):
        return decoded[1:-1]
    if kind == "string":
        if not _QUOTED.fullmatch(text):
            raise _NotUnderstood(f"{_shown(text)} has an expansion")
        return _ESCAPED.sub(lambda found: found[1] or "", decoded[1:-1])
    if kind == "raw_string" or not _WORD.fullmatch(text):
        raise _NotUnderstood(f"{_shown(text)} is not a plain word")
    return "".join(
        _CUT if found[2] else UNKNOWN if found[3] else "~" + UNKNOWN if found[4] else found[1] or found[0]
        for found in _PIECE.finditer(decoded)
    )


def _whole_word(raw: bytes, value: str, *, is_program: bool) -> str:
    """Refuse a word that a shell could take for more than a word."""
    value = raw.decode() if raw in (b"[", b"]", b"{}") else _cut(value)
    if raw[:1] in (b"#", b"=") and raw not in (b"=", b"=="):  # a comment; zsh: the path of a program
        raise _NotUnderstood(f"{_shown(raw)} is not a plain word")
    if b"!" in _RAW.sub(b"", _QUOTED.sub(b"", raw)) and (raw not in (b"!", b"!=") or is_program):
        raise _NotUnderstood("! is not understood")
    if not is_program:
        return value
    if UNKNOWN in value or not value.isascii() or not value:
        raise _NotUnderstood(f"the program {_shown(raw)} is not certain")
    if b"=" in raw or raw.startswith(b"^"):  # an interactive shell changes the command before by ^a^b
        raise _NotUnderstood(f"{_shown(raw)} may set a variable, or change a command")
    return value


def _cut(value: str) -> str:
    known, found, _ = value.partition(_CUT)
    return known + UNKNOWN if found else value


def _shown(text: bytes) -> str:
    decoded = text.decode(errors="replace")
    return repr(decoded if len(decoded) <= 40 else decoded[:39] + "…")


# ── what can be seen in the rest ──


def _visible_parts(root: Node, source: bytes) -> Iterator[Part]:
    """Simple commands wherever they are: in substitutions, groups, loops, after assignments."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        waiting.extend(reversed(node.children))
        if node.type == "command":
            words = [_visible_word(one, source) for one in node.children if one.type in _ARGUMENTS]
            yield Part(tuple(words))


_EXPANSIONS = frozenset({"simple_expansion", "expansion", "command_substitution", "arithmetic_expansion"})
_ARGUMENTS = _EXPANSIONS | {"command_name", "concatenation", "word", "number", "string", "raw_string"}
_ARGUMENTS |= {"ansi_c_string", "translated_string", "process_substitution", "brace_expression"}


def _visible_word(node: Node, source: bytes) -> str:
    if node.type in ("command_name", "concatenation"):
        return "".join(_visible_word(one, source) for one in node.children)
    try:
        return _cut(_piece(source[node.start_byte : node.end_byte], node.type))
    except _NotUnderstood:
        return UNKNOWN
