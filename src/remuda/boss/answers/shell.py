"""A shell command taken apart, as far as that can be done for certain. Pure.

Whatever could make a shell do something else than the words say is not understood, and so never matches what
is allowed: expansions and substitutions, redirections, jobs in the background, groups and subshells, escapes,
patterns of file names, comments, variables set for a command, and characters that nobody sees.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

Words = tuple[str, ...]

ANY = "*"
"""As the last word of a pattern: any further words, or none."""

_SEPARATOR = re.compile(r"&&|\|\||[;|\n]")
# Inside of double quotes a shell still sees the first three; '!' for those who type it.
_IN_QUOTES = re.compile(r'[^"$`\\!]*')
_PLAIN = re.compile(r"[A-Za-z0-9_./:=,@%+~^-]+|[^\x00-\x7f]+")
ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
KEYWORDS = frozenset(
    {"!", "[[", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if"}
    | {"in", "select", "then", "time", "until", "while"}
)


def split_command(text: str) -> list[Words] | None:
    """The words of each simple command in it, in order; None for what is not understood for certain."""
    if not all(character.isprintable() or character in "\n\t" for character in text):
        return None
    parts: list[Words] = []
    words: list[str] = []
    position, separated = 0, ""
    while position < len(text):
        if text[position] in " \t":
            position += 1
        elif found := _SEPARATOR.match(text, position):
            if words:
                parts.append(tuple(words))
                words = []
            elif found[0] != "\n":
                return None
            separated = found[0] if found[0] != "\n" or not separated else separated
            position = found.end()
        else:
            if (read := _word(text, position)) is None:
                return None
            word, quoted, position = read
            if not words and not quoted and (ASSIGNMENT.match(word) or word in KEYWORDS):
                return None
            words.append(word)
            separated = ""
    if words:
        parts.append(tuple(words))
    unfinished = separated in ("&&", "||", "|")
    return None if unfinished or not parts or any(part[0] == "" for part in parts) else parts


def _word(text: str, position: int) -> tuple[str, bool, int] | None:
    """The word that begins there, whether any of it is quoted, and where it ends."""
    pieces: list[str] = []
    quoted = False
    while position < len(text) and text[position] not in " \t\n;|&":
        character = text[position]
        if character == "'":
            end = text.find("'", position + 1)
            if end < 0:
                return None
            pieces.append(text[position + 1 : end])
            quoted, position = True, end + 1
        elif character == '"':
            found = _IN_QUOTES.match(text, position + 1)
            assert found is not None
            if text[found.end() : found.end() + 1] != '"':
                return None
            pieces.append(found[0])
            quoted, position = True, found.end() + 1
        elif found := _PLAIN.match(text, position):
            pieces.append(found[0])
            position = found.end()
        else:
            return None
    if text[position : position + 1] == "&" and text[position : position + 2] != "&&":
        return None
    return "".join(pieces), quoted, position


def matches(words: Sequence[str], pattern: Sequence[str]) -> bool:
    """Word by word; `*` in a word is anything within it, alone at the end any further words."""
    if pattern and pattern[-1] == ANY:
        head = pattern[:-1]
        return len(words) >= len(head) and matches(words[: len(head)], head)
    return len(words) == len(pattern) and all(
        fnmatchcase(word, one) for word, one in zip(words, pattern, strict=True)
    )
