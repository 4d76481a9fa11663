"""Options that an agent offers, and which of them a decision means."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.agents.acp.asking import (
    AcpPermissions,
    check_decision,
    choose,
    read_options,
    refusals,
    request_of,
)
from remuda.agents.acp.protocol import ToolBegan
from remuda.agents.permission import PermissionDecision, PermissionRequest
from remuda.errors import InvalidOptions

_ALL = ["allow_once", "allow_always", "reject_once", "reject_always"]


def _request(*kinds: str, tool: ToolBegan | None = None, **fields: Any) -> PermissionRequest:
    options = [{"optionId": f"o{n}", "name": f"Option {kind}", "kind": kind} for n, kind in enumerate(kinds)]
    tool = tool or ToolBegan("t", "execute", {"command": "ls"}, "Run ls")
    made = request_of(tool, read_options({"options": options}), fields)
    return PermissionRequest(made["tool"], made["input"], made["suggestions"], "t", made["reason"])


@pytest.mark.parametrize(
    ("decision", "option"),
    [
        (PermissionDecision(True), "o0"),
        (PermissionDecision(True, always=True), "o1"),
        (PermissionDecision(False), "o2"),
    ],
)
def test_decision_means_the_option_of_its_kind(decision: PermissionDecision, option: str) -> None:
    assert choose(_request(*_ALL), decision) == option


def test_request_has_the_input_and_the_names_of_all_options() -> None:
    request = _request(*_ALL)
    assert request.reason == "permission"
    assert request.input == {
        "title": "Run ls",
        "command": "ls",
        "offered": [f"Option {kind}" for kind in _ALL],
    }
    assert AcpPermissions().is_plain(request.input, "command")
    assert AcpPermissions().facts("execute", request.input)["message"] == "execute: ls"


def test_decision_that_is_not_offered_is_refused_and_a_denial_never() -> None:
    request = _request("allow_always", "reject_always")
    with pytest.raises(InvalidOptions, match="does not offer to allow this once"):
        check_decision(request, PermissionDecision(True))
    with pytest.raises(InvalidOptions, match="does not offer to allow this always"):
        check_decision(_request("allow_once"), PermissionDecision(True, always=True))
    assert refusals(request).keys() == {"allow", "edit", "message"}
    assert refusals(_request("allow_once")).keys() == {"always", "edit", "message"}
    check_decision(request, PermissionDecision(False))
    assert choose(request, PermissionDecision(False)) is None


def test_decision_with_an_edited_input_is_refused() -> None:
    with pytest.raises(InvalidOptions, match="edited input"):
        check_decision(_request(*_ALL), PermissionDecision(True, {"command": "rm"}))


@pytest.mark.parametrize("kinds", [["allow_once", "allow_once"], ["red", "blue"]])
def test_options_that_are_not_one_of_each_kind_are_a_question(kinds: list[str]) -> None:
    request = _request(*kinds)
    assert request.reason == "question"
    (question,) = request.input["questions"]
    labels = [one["label"] for one in question["options"]]
    assert len(set(labels)) == 2
    for label, option in zip(labels, ["o0", "o1"], strict=True):
        given = AcpPermissions().with_answers(request.input, {"1": label})
        assert choose(request, PermissionDecision(True, given)) == option
    with pytest.raises(InvalidOptions, match="does not offer"):
        check_decision(request, PermissionDecision(True, {"answers": {"1": "green"}}))
    with pytest.raises(InvalidOptions, match="does not have the question"):
        AcpPermissions().with_answers(request.input, {"what?": "x"})


def test_change_of_a_file_is_shown_as_a_diff() -> None:
    content = [{"type": "diff", "path": "a.txt", "oldText": "one\n", "newText": "two\n"}]
    request = _request(*_ALL, tool=ToolBegan("t", "edit", {"path": "a.txt"}), content=content)
    assert AcpPermissions().facts("edit", request.input)["diff"].splitlines()[-2:] == ["-one", "+two"]
    assert [*AcpPermissions().path_fields(request.input)] == ["a.txt"]


def test_options_of_a_hostile_agent_are_bounded() -> None:
    options: list[Any] = [{"optionId": "x", "name": "n\x1b[31m" * 999, "kind": "allow_once"}] * 999
    read = read_options({"options": [*options, "no", {"name": "no id"}, {"optionId": 5}]})
    assert len(read) == 64
    assert all(len(one["name"]) <= 200 and "\x1b" not in one["name"] for one in read)
    assert read_options({"options": "all"}) == []
