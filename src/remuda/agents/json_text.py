"""Add a member to a JSON object and remove it again, as text: everything else stays as it is. Pure.

Comments and trailing commas are kept: some agents allow them in their settings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from remuda.untrusted import parse_json

_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/)|(?P<text>"(?:[^"\\\n]|\\.)*")|(?P<mark>[{}\[\],:])|(?P<word>[\w.+-]+)""",
    re.DOTALL,
)
_DEEPEST = 200


@dataclass(slots=True)
class Node:
    """A value and where it is in the text."""

    begin: int
    end: int = 0
    value: Any = None
    members: dict[str, tuple[int, Node]] = field(default_factory=dict)
    """Of an object: by name, where the name begins, and the value."""


def parse(text: str) -> Node:
    """Return the object that the text is. Raises `ValueError`, also for a name that appears twice."""
    tokens = _Tokens(text)
    node = _value(tokens, 0)
    if tokens.mark:
        raise ValueError(f"unexpected {tokens.mark!r} after the end")
    if not isinstance(node.value, dict):
        raise ValueError("it is not an object")
    return node


class _Tokens:
    """The tokens of a text, one at a time: `mark` is the present one, empty at the end."""

    def __init__(self, text: str) -> None:
        self._tokens = self._scan(text.removeprefix("\ufeff"), len(text) - len(text.removeprefix("\ufeff")))
        self.mark, self.begin, self.end = "", 0, 0
        self.next()

    @staticmethod
    def _scan(text: str, offset: int) -> Iterator[tuple[str, int]]:
        at = 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise ValueError(f"unexpected character at position {at + offset}")
            if found.lastgroup != "skip":
                yield found[0], at + offset
            at = found.end()

    def next(self) -> None:
        self.mark, self.begin = next(self._tokens, ("", self.end))
        self.end = self.begin + len(self.mark)

    def take(self, mark: str) -> None:
        if self.mark != mark:
            raise ValueError(f"{mark!r} is missing at position {self.begin}")
        self.next()


def _value(tokens: _Tokens, depth: int) -> Node:
    if depth > _DEEPEST:
        raise ValueError("it is nested too deeply")
    node = Node(tokens.begin, tokens.end)
    if tokens.mark == "{":
        _object(tokens, node, depth)
    elif tokens.mark == "[":
        tokens.next()
        node.value = []
        while tokens.mark != "]":
            node.value.append(_value(tokens, depth + 1).value)
            if tokens.mark != "]":
                tokens.take(",")
        node.end = tokens.end
        tokens.next()
    else:
        node.value = parse_json(tokens.mark)
        tokens.next()
    return node


def _object(tokens: _Tokens, node: Node, depth: int) -> None:
    tokens.next()
    node.value = {}
    while tokens.mark != "}":
        begin, name = tokens.begin, parse_json(tokens.mark) if tokens.mark.startswith('"') else None
        if not isinstance(name, str) or name in node.members:
            raise ValueError(f"a name is missing or appears twice at position {begin}")
        tokens.next()
        tokens.take(":")
        member = _value(tokens, depth + 1)
        node.members[name] = (begin, member)
        node.value[name] = member.value
        if tokens.mark != "}":
            tokens.take(",")
    node.end = tokens.end
    tokens.next()


def add_member(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text with `value` at `path`, where nothing may be. Objects on the way are made."""
    node, depth = parse(text), 0
    while depth < len(path) - 1 and path[depth] in node.members:
        node, depth = node.members[path[depth]][1], depth + 1
        if not isinstance(node.value, dict):
            raise ValueError(f"'{'.'.join(path[:depth])}' is not an object")
    for name in reversed(path[depth + 1 :]):
        value = {name: value}
    unit = _indent(text)
    if unit is None:
        member = json.dumps(path[depth]) + ": " + json.dumps(value, ensure_ascii=False)
        line, close = " " if node.members else "", ""
    else:
        line, close = "\n" + unit * (depth + 1), "\n" + unit * depth
        written = json.dumps(value, ensure_ascii=False, indent=unit).replace("\n", line)
        member = f"{json.dumps(path[depth])}: {written}"
    if not node.members:
        return text[: node.begin] + "{" + line + member + close + "}" + text[node.end :]
    last = list(node.members.values())[-1][1].end
    comma = _comma_after(text, last)
    if comma is not None:
        return text[: comma + 1] + line + member + "," + text[comma + 1 :]
    return text[:last] + "," + line + member + text[last:]


def remove_member(text: str, path: Sequence[str]) -> str:
    """Return the text without the member at `path`, and without the objects that are empty for that reason.

    Raises `KeyError` if it does not exist.
    """
    nodes = [parse(text)]
    for name in path:
        nodes.append(nodes[-1].members[name][1])
    depth = len(path) - 1
    while depth > 0 and len(nodes[depth].members) == 1:
        depth -= 1
    parent, (begin, member) = nodes[depth], nodes[depth].members[path[depth]]
    names = list(parent.members)
    at = names.index(path[depth])
    comma = _comma_after(text, member.end)
    if at == 0 and len(names) == 1:
        inner = text[parent.begin + 1 : begin] + text[(comma or member.end - 1) + 1 : parent.end - 1]
        return text[: parent.begin + 1] + ("" if not inner.strip() else inner) + text[parent.end - 1 :]
    if at == 0:
        assert comma is not None
        return text[:begin] + text[_skip_blank(text, comma + 1) :]
    before = parent.members[names[at - 1]][1].end
    first_comma = _comma_after(text, before)
    assert first_comma is not None
    if text[first_comma + 1 : begin].strip():  # a comment of the user
        line = text.rfind("\n", 0, begin)
        begin = line if not text[line:begin].strip() else begin
        kept = text[:begin] if comma is not None else text[:first_comma] + text[first_comma + 1 : begin]
        return kept + text[(comma or member.end - 1) + 1 :]
    return text[:before] + text[before:first_comma] + text[member.end :]


def _skip_blank(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _comma_after(text: str, at: int) -> int | None:
    """Return where the comma after a value is; None if there is none."""
    while found := _TOKEN.match(text, at):
        if found.lastgroup != "skip":
            return at if found[0] == "," else None
        at = found.end()
    return None


def _indent(text: str) -> str | None:
    """Return one step of the text's indentation; None for a text on one line."""
    inner = re.match(r"\ufeff?\s*\{[^\n]*\n([ \t]+)", text)
    if inner:
        return inner.group(1)
    return None if "\n" not in text.strip() and len(text.strip()) > 2 else "  "
