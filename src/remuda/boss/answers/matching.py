"""Compare simple commands with the patterns of rules. Pure.

A pattern is compared word by word: `*` in a word is anything within it, alone at the end any further words.
Rules that allow must match the words as they are. Rules that deny or ask also fit a command that only *may*
be meant: then it is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from fnmatch import fnmatchcase

from .program_options import Writes
from .programs import doubt_about, has_subcommands, written_by
from .reading import OPERAND, UNKNOWN, Part, Reading, Words
from .spellings import MOST_FORMS, every_form, program_name

ANY = "*"
"""As the last word of a pattern: any further words, or none."""


class Fit(IntEnum):
    NO = 0
    MAYBE = 1
    YES = 2


@dataclass(frozen=True, slots=True)
class Candidate:
    """A simple command as rules see it."""

    words: Words
    """Empty for a command that is not understood: no pattern of a rule that allows matches it."""
    readings: tuple[Words, ...]
    """What certainly runs, in every known spelling."""
    doubt: str = ""
    """Why it may run anything. Empty if it may not."""

    def allows(self, pattern: Words) -> bool:
        return bool(self.words) and _matches(self.words, pattern)

    def fit(self, pattern: Words) -> Fit:
        """Return how well a pattern of a rule that denies or asks matches."""
        if any(_matches(_by_name(words), (pattern[0].lower(), *pattern[1:])) for words in self.readings):
            return Fit.YES
        if any(_matches(words, pattern) for words in self.readings):
            return Fit.YES
        may_match = any(_may_match(words, pattern) for words in self.readings)
        return Fit.MAYBE if self.doubt or may_match else Fit.NO


def candidates(reading: Reading) -> Iterator[Candidate]:
    if not reading.is_understood:
        forms = (form for part in reading.parts if part.words for form in every_form(part.words))
        yield Candidate((), tuple(forms), reading.doubt)
        return
    for part in reading.parts:
        spellings = every_form(part.words)
        doubt = doubt_about(part, wrote=_written_before(part, reading))
        if len(spellings) >= MOST_FORMS:
            doubt = doubt or "there are too many ways to write it"
        yield Candidate(part.words, spellings, doubt)


def _written_before(part: Part, reading: Reading) -> Writes:
    """Return what the other parts may write before this one ends."""
    others = (one for one in reading.parts if one is not part and one.step <= part.step)
    return max((written_by(one.words) for one in others), default=Writes.NOTHING)


def _matches(words: Words, pattern: Words) -> bool:
    """Whether a pattern is certain to match."""
    more = pattern[-1] == ANY
    head = pattern[:-1] if more else pattern
    compared = words[: len(head)] if more else words
    return len(compared) == len(head) and all(
        UNKNOWN not in word and fnmatchcase(word, one) for word, one in zip(compared, head, strict=True)
    )


def _by_name(words: Words) -> Words:
    return (program_name(words[0]), *words[1:])


def _may_match(words: Words, pattern: Words) -> bool:
    """Whether it is the same program, with the pattern's words anywhere: `git push --tags --force`."""
    name = program_name(pattern[0])
    if not fnmatchcase(program_name(words[0]), name) and not fnmatchcase(words[0], pattern[0]):
        return False
    sub = pattern[1:2]
    if has_subcommands(words[0]) and sub and not sub[0].startswith("-") and words[1:2]:
        return fnmatchcase(words[1], sub[0]) and _occurs(words[2:], pattern[2:])
    return _occurs(words[1:], pattern[1:])


def _occurs(words: Words, pattern: Sequence[str]) -> bool:
    """Whether the words of a pattern occur in this order. Options may come in any order, joined or apart."""
    head = pattern[:-1] if tuple(pattern[-1:]) == (ANY,) else pattern
    options = [one for one in head if one.startswith("-")]
    left = iter(words)
    return all(_has_option(words, one) for one in options) and all(
        any(_may_be(piece, one) for word in left for piece in _pieces(word))
        for one in head
        if one not in options
    )


def _pieces(word: str) -> Iterator[str]:
    """Return the word, and the value that may be joined to its option: `-XPUT`, `--request=PUT`."""
    yield word
    if word.startswith("--"):
        yield word.partition("=")[2]
    elif word.startswith("-"):
        yield from (word[at:] for at in range(2, len(word)))


def _may_be(word: str, one: str) -> bool:
    if UNKNOWN not in word:
        return word == OPERAND or fnmatchcase(word.lower(), one.lower())
    known = ".*".join(re.escape(piece) for piece in word.split(UNKNOWN))
    return (
        any(wild in one for wild in "*?[") or re.fullmatch(known, one, re.IGNORECASE | re.DOTALL) is not None
    )


def _has_option(tokens: Sequence[str], option: str) -> bool:
    """A letter may be short for a name that begins with it: `-f` for `--force`, `-R` for `--recursive`."""
    options = [token for token in tokens if token.startswith(("-", UNKNOWN))]
    if any(token.startswith(UNKNOWN) or fnmatchcase(token, option) for token in options):
        return True
    names = [token.partition("=")[0] for token in options if token.startswith("--") and len(token) > 2]
    letters = {letter for token in options if not token.startswith("--") for letter in token[1:]}
    if option.startswith("--"):
        stem = option.partition("=")[0]
        if any(letter.lower() == stem[2:3].lower() for letter in letters):
            return True
        return any(stem.startswith(one) or fnmatchcase(one, stem) for one in names)
    initials = {one[2].lower() for one in names}
    return all(letter in letters or letter.lower() in initials for letter in option[1:])
