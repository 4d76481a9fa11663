"""What a shell command may run, beyond what is certain (`shell`). Pure.

For what is denied or to be asked: there, too much is better than too little. A command is read as a shell
reads it, with all that is inside of its substitutions, groups and loops, and with what programs such as
`sudo`, `xargs` or `bash -c` are given to run. What is known only when it runs may be anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from fnmatch import fnmatchcase

from .shell import ANY, ASSIGNMENT, KEYWORDS, Words, matches
from .shell_reader import DEEPEST, UNKNOWN, Reader

_SHELLS = frozenset({"ash", "bash", "dash", "fish", "ksh", "sh", "zsh"})
_FED = _SHELLS | {"parallel", "xargs"}
"""They may read from elsewhere what they run."""
_RUNNERS = _FED | frozenset(
    {"builtin", "busybox", "caffeinate", "chroot", "chrt", "command", "coproc", "doas", "env", "eval"}
    | {"exec", "find", "flock", "ionice", "nice", "nohup", "nsenter", "runuser", "script", "setsid"}
    | {"stdbuf", "strace", "su", "sudo", "systemd-run", "taskset", "time", "timeout", "trap", "unshare"}
    | {"watch"}
)
"""Programs that run what they are given."""
_BEFORE = frozenset({"!", "do", "elif", "else", "if", "then", "until", "while"})
"""A command follows them."""
_PASSED_OVER = re.compile(r"-|[0-9.]+[a-z]?$|[A-Za-z_][A-Za-z0-9_]*\+?=")
_LOOSE = re.compile(r"[;|&\n`(){}<>]|\$\(")
_MORE_WITHIN = re.compile(r"[\s;|&`$(]")
_LONGEST = 1 << 17


class Fit(IntEnum):
    NO = 0
    MAYBE = 1
    YES = 2


@dataclass(frozen=True, slots=True)
class Guess:
    """The simple commands that may be run."""

    read: tuple[Words, ...]
    loose: tuple[Words, ...] = ()
    """Whatever looks like one, in quotes and comments, too."""

    def fit(self, pattern: Sequence[str]) -> Fit:
        if any(matches(words, pattern) for words in self.loose):
            return Fit.YES
        return max((_fit(words, pattern) for words in self.read), default=Fit.NO)


def guess(text: str) -> Guess:
    loose = [_without(KEYWORDS, _bare_words(part)) for part in _LOOSE.split(text)]
    return Guess(tuple(_read(text, 0)), tuple(words for words in loose if words))


def guess_part(words: Words) -> Guess:
    """Of a simple command that was understood."""
    return Guess(tuple(_unfolded(words, 0)))


def _bare_words(text: str) -> Words:
    return tuple(re.sub(r"['\"\\]", "", text).split())


def _without(keywords: frozenset[str], words: Words) -> Words:
    """From the word that is run on."""
    at = 0
    while at < len(words) and (ASSIGNMENT.match(words[at]) or words[at] in keywords):
        at += 1
    return words[at:]


def _read(text: str, depth: int) -> Iterator[Words]:
    if depth > DEEPEST or len(text) > _LONGEST:
        yield (UNKNOWN,)
        return
    for words in Reader(text).commands():
        if found := _without(_BEFORE, words):
            yield from _unfolded(found, depth)


def _unfolded(words: Words, depth: int) -> Iterator[Words]:
    """With the commands that are one word of it, as behind `bash -c`."""
    yield words
    if _program(words[0]) in _RUNNERS or any(_program(word) in _SHELLS for word in words):
        for word in words[1:]:
            if _MORE_WITHIN.search(word):
                yield from _read(word, depth + 1)


def _program(word: str) -> str:
    return word.rpartition("/")[2].lower()


# ── comparing ──


def _fit(words: Words, pattern: Sequence[str]) -> Fit:
    """Of a simple command, and of what it is given to run. Where that begins is certain without options."""
    if _program(words[0]) not in _RUNNERS:
        return _compare(words, pattern)
    found, certain = _compare(words, pattern), True
    words = _given_to_run(words)
    first = True  # the next word that is neither option nor value is a program
    for at, word in enumerate(words[1:], 1):
        if _PASSED_OVER.match(word):
            certain = certain and not word.startswith("-")
        elif UNKNOWN in word:
            found = max(found, Fit.MAYBE) if first else found
            first = False
        else:
            inner = _compare(words, pattern, at)
            found = max(found, inner if first and certain else min(inner, Fit.MAYBE))
            first = _program(word) in _RUNNERS
    return found


def _given_to_run(words: Words) -> Words:
    if _program(words[0]) == "find":
        after = [at for at, word in enumerate(words) if word in ("-exec", "-execdir", "-ok", "-okdir")]
        return ("find", *words[after[0] + 1 :]) if after else ("find",)
    return (*words, UNKNOWN) if any(_program(word) in _FED for word in words) else words


def _compare(words: Words, pattern: Sequence[str], start: int = 0) -> Fit:
    more = pattern[-1] == ANY
    head = pattern[:-1] if more else pattern
    for at, one in enumerate(head, start):
        if at == len(words):
            return Fit.NO
        if UNKNOWN in words[at]:
            return Fit.MAYBE
        same = fnmatchcase(words[at], one) or (at == start and fnmatchcase(_program(words[at]), one.lower()))
        if not same:
            return Fit.NO
    end = start + len(head)
    if more or end == len(words):
        return Fit.YES
    return Fit.MAYBE if all(UNKNOWN in words[at] for at in range(end, len(words))) else Fit.NO
