"""A member added to the text of a JSON object and removed again: nothing else changes."""

from __future__ import annotations

import json

import pytest

from remuda.agents.json_text import add_member, parse, remove_member

PLACE = ("mcp", "remuda")
ENTRY = {"type": "local", "command": ["python", "-m"], "enabled": True}
TEXTS = [
    "{}",
    "{}\n",
    "{\n}\n",
    "{ }",
    '{"a": 1}',
    '{"a": [1, 2], "mcp": {"x": {"command": ["y"]}}}\n',
    '{\n  "a": 1\n}\n',
    '{\n\t"a": [1,\n\t\t2],\n\t"mcp": {\n\t\t"x": {"command": ["y"]}\n\t},\n\t"z": "}"\n}',
    '{\r\n  "a": 1\r\n}\r\n',
    '// mine\n{\n  "a": 1, // last\n}\n',
    '{\n  "mcp": {\n    "x": 1, /* y, { */\n  },\n  "b": "//"\n}\n',
    '\ufeff{\n    "a": "\\"}\\u00e9"\n}\n',
]


@pytest.mark.parametrize("text", TEXTS)
def test_member_added_and_removed_leaves_the_text_as_it_was(text: str) -> None:
    before = parse(text).value
    added = add_member(text, PLACE, ENTRY)
    assert parse(added).value == {**before, "mcp": {**before.get("mcp", {}), "remuda": ENTRY}}
    if before or text in ("{}", "{}\n"):
        assert remove_member(added, PLACE) == text
    assert parse(remove_member(added, PLACE)).value == before


@pytest.mark.parametrize("text", TEXTS)
def test_edits_of_the_user_after_it_was_added_stay(text: str) -> None:
    added = add_member(text, PLACE, ENTRY)
    edited = add_member(add_member(added, ("mcp", "later"), {"command": ["z"]}), ("other",), 1)
    left = remove_member(edited, PLACE)
    wanted = parse(text).value
    assert parse(left).value == {
        **wanted,
        "mcp": {**wanted.get("mcp", {}), "later": {"command": ["z"]}},
        "other": 1,
    }
    assert "remuda" not in left


def test_comment_before_our_member_stays() -> None:
    text = '{\n  "a": 1,\n  // about agents\n  "mcp": {"remuda": 1}\n}\n'
    assert parse(remove_member(text, PLACE)).value == {"a": 1}
    assert "// about agents" in remove_member(text, PLACE)


def test_member_between_others_is_removed_alone() -> None:
    text = '{"mcp": {"a": 1, "remuda": {}, "b": 2}}'
    assert remove_member(text, PLACE) == '{"mcp": {"a": 1, "b": 2}}'
    assert remove_member('{"mcp": {"remuda": {}, "b": 2}}', PLACE) == '{"mcp": {"b": 2}}'


def test_text_that_is_strict_json_stays_strict_json() -> None:
    for text in TEXTS[:8]:
        assert json.loads(add_member(text, PLACE, ENTRY))


@pytest.mark.parametrize(
    "text",
    ["", "[]", "1", "{", '{"a": 1} x', '{"a": 1, "a": 2}', "{a: 1}", '{"a" 1}', "[" * 5000, '{"a": nul}'],
)
def test_text_that_is_not_one_object_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(text)


def test_place_that_is_not_an_object_is_refused() -> None:
    with pytest.raises(ValueError, match="'mcp' is not an object"):
        add_member('{"mcp": []}', PLACE, ENTRY)
    with pytest.raises(KeyError):
        remove_member('{"mcp": {}}', PLACE)
