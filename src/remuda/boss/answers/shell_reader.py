"""A shell's text read as a shell reads it, as far as one can without running it. Pure.

Found are the simple commands in it, wherever they stand: in groups, loops, substitutions. What an expansion
will be is not known; what is redirected, commented out or a here-document is left away.
"""

from __future__ import annotations

import re

from .shell import Words

UNKNOWN = "\0"
"""In a word: what an expansion makes of it."""
DEEPEST = 30
"""What lies deeper than so many substitutions is not known either."""

_EXPANSION = re.compile(r"\$(?:[A-Za-z0-9_]+|[@*#?$!-])")
_REDIRECTION = re.compile(r"<<<|<<-?|[<>]{1,2}[&|]?")
_DOCUMENTS = 100


class Reader:
    """Gives up on nothing: what is not closed is taken to be closed at the end."""

    def __init__(self, text: str) -> None:
        self._text = text.replace("\\\n", "")
        self._at = 0
        self._depth = 0
        self._found: list[Words] = []
        self._seen = 0
        self._documents: list[str] = []  # by what they end, in the lines below

    def commands(self) -> list[Words]:
        while self._at < len(self._text):
            self._list("")
        return self._found

    def _next(self, offset: int = 0) -> str:
        return self._text[self._at + offset : self._at + offset + 1]

    def _list(self, closing: str) -> None:
        """Commands up to `closing`, which is taken, too."""
        words: list[str] = []
        while (char := self._next()) and char != closing:
            if char in " \t" or (char == "&" and self._next(1) == ">"):
                self._at += 1
            elif char in ";|&()\n" or self._is_group(char):
                self._end(words)
                self._at += 1
                if char == "\n":
                    self._skip_documents()
            else:
                self._piece(words, closing)
        self._end(words)
        self._at += 1

    def _end(self, words: list[str]) -> None:
        if words:
            self._found.append(tuple(words))
            words.clear()

    def _is_group(self, char: str) -> bool:
        return char == "}" or (char == "{" and self._next(1).isspace())

    def _piece(self, words: list[str], closing: str) -> None:
        if self._next() == "#":
            self._skip_to("\n")
        elif self._next() in "<>" and self._next(1) != "(":
            self._redirection(closing)
        else:
            word = self._word(closing)
            if not (word.isdigit() and self._next() in tuple("<>")):
                words.append(word)

    def _word(self, closing: str) -> str:
        pieces: list[str] = []
        while (char := self._next()) and char != closing:
            if char in "<>" and self._next(1) == "(" and not pieces:
                self._at += 2
                pieces.append(self._nested(")"))
            elif char in " \t\n;|&()<>":
                break
            elif char == "\\":
                pieces.append(self._next(1).replace("\n", ""))
                self._at += 2
            elif char == "'":
                self._at += 1
                pieces.append(self._skip_to("'"))
                self._at += 1
            elif char == '"':
                pieces.append(self._quoted())
            elif char in "$`":
                pieces.append(self._expansion())
            else:
                pieces.append(UNKNOWN if self._is_pattern(char, pieces) else char)
                self._at += 1
        return "".join(pieces)

    def _is_pattern(self, char: str, before: list[str]) -> bool:
        if char == "[" and before in ([], ["["]):  # `[` and `[[` are names
            return self._next(1) not in tuple(" \t[")
        return char in "*?[{}"

    def _quoted(self) -> str:
        pieces: list[str] = []
        self._at += 1
        while (char := self._next()) and char != '"':
            if char in "$`":
                pieces.append(self._expansion())
            else:
                self._at += char == "\\"
                pieces.append(self._next())
                self._at += 1
        self._at += 1
        return "".join(pieces)

    def _expansion(self) -> str:
        if self._next() == "`":
            self._at += 1
            return self._nested("`")
        if self._text.startswith("$((", self._at):
            self._skip_to("))")
            self._at += 2
            return UNKNOWN
        if self._next(1) == "(":
            self._at += 2
            return self._nested(")")
        if self._next(1) == "{":
            return self._parameter()
        found = _EXPANSION.match(self._text, self._at)
        self._at = found.end() if found else self._at + 1
        return UNKNOWN if found or self._next() in tuple("'\"") else "$"

    def _parameter(self) -> str:
        self._at += 2
        level = 1
        while level and (char := self._next()):
            if char == "`" or (char == "$" and self._next(1) == "("):
                self._expansion()
            else:
                level += (char == "{") - (char == "}")
                self._at += 1
        return UNKNOWN

    def _nested(self, closing: str) -> str:
        if self._depth >= DEEPEST:
            self._at = len(self._text)
            self._found.append((UNKNOWN,))
            return UNKNOWN
        self._depth += 1
        self._list(closing)
        self._depth -= 1
        return UNKNOWN

    def _redirection(self, closing: str) -> None:
        found = _REDIRECTION.match(self._text, self._at)
        assert found is not None
        self._at = found.end()
        while self._next() in tuple(" \t"):
            self._at += 1
        target = self._word(closing)
        self._seen += found[0] in ("<<", "<<-")
        if found[0] in ("<<", "<<-") and self._seen <= _DOCUMENTS:
            self._documents.append(target)

    def _skip_documents(self) -> None:
        """What is given to a program to read. One without an end is read as commands."""
        for name in self._documents:
            end = re.compile(rf"^\t*{re.escape(name)}$", re.MULTILINE).search(self._text, self._at)
            self._at = end.end() if end else self._at
        self._documents.clear()

    def _skip_to(self, mark: str) -> str:
        end = self._text.find(mark, self._at)
        start, self._at = self._at, end if end >= 0 else len(self._text)
        return self._text[start : self._at]
