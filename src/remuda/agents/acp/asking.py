"""Permission requests over ACP: what the agent offers, and which offer a decision means. Pure.

ACP names four kinds of options. An agent that offers one of each kind, or fewer, asks for a permission. One
that offers several of a kind asks its user to choose: that is a question with exactly these answers.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from remuda.agents.permission import PermissionDecision, PermissionRequest, Refusals, check_refusals
from remuda.agents.sources import ReadFile, fields_like
from remuda.errors import InvalidOptions
from remuda.untrusted import as_object, as_objects, one_line, show_json, text_at

from .protocol import Params, ToolBegan

QUESTION = "choose"
"""The tool of a question."""
OFFERED = "offered"
"""The field of the input with the names of all options, as the agent offers them."""
EDITED = "an agent that speaks ACP cannot run an edited input; allow the request as it is, or deny it"
NO_MESSAGE = "ACP has no field for the reason of a denial: deny the request without one"
_KINDS = frozenset({"allow_once", "allow_always", "reject_once", "reject_always"})
_SHOWN_FIELDS = ("command", "path", "file_path", "filePath", "url", "pattern", "query", "title")
_PATH_FIELD = re.compile(r"path|file|dir|url|cwd|locations", re.IGNORECASE)
_PLAIN_FIELDS = frozenset({"title", "description", "timeout", OFFERED})
_MOST_OPTIONS = 64
_MOST_NAME = 200
_MOST_DIFF = 1 << 18


def read_options(params: Params) -> list[dict[str, str]]:
    """Return the options of a request: id, name and kind. One without an id cannot be chosen."""
    return [
        {
            "optionId": str(one["optionId"])[:4096],
            "name": one_line(str(one.get("name") or one["optionId"])[:_MOST_NAME]),
            "kind": str(one.get("kind"))[:40],
        }
        for one in as_objects(params.get("options"))[:_MOST_OPTIONS]
        if isinstance(one.get("optionId"), str)
    ]


def is_question(options: Sequence[Mapping[str, str]]) -> bool:
    kinds = [one["kind"] for one in options]
    return len(set(kinds)) < len(kinds) or not _KINDS.issuperset(kinds)


def request_of(tool: ToolBegan, options: Sequence[Mapping[str, str]], fields: Params) -> dict[str, Any]:
    """Return tool, input, reason and suggestions of a request, as the attention queue takes them."""
    names = [one["name"] for one in options]
    title = tool.title or tool.name or "the agent asks"
    if is_question(options):
        labels = [{"label": name, "description": ""} for name in _distinct(names)]
        asked = {"question": title, "options": labels, "multiSelect": False}
        given: dict[str, Any] = {"questions": [asked], **({"input": dict(tool.input)} if tool.input else {})}
        return {"tool": QUESTION, "input": given, "reason": "question", "suggestions": list(options)}
    given = {**({"title": tool.title} if tool.title else {}), **tool.input}
    if diff := _diff(fields):
        given["diff"] = diff
    given[OFFERED] = names
    return {"tool": tool.name, "input": given, "reason": "permission", "suggestions": list(options)}


def _distinct(names: Sequence[str]) -> list[str]:
    """Return the names, each with its number if two are the same."""
    alike = len(set(names)) < len(names)
    return [f"{number}. {name}" for number, name in enumerate(names, 1)] if alike else list(names)


def _diff(fields: Params) -> str:
    parts: list[str] = []
    for one in as_objects(fields.get("content")):
        new, old, path = text_at(one, "newText"), text_at(one, "oldText") or "", text_at(one, "path") or ""
        if one.get("type") == "diff" and new is not None and len(new) + len(old) <= _MOST_DIFF:
            lines = old.splitlines(), new.splitlines()
            parts += difflib.unified_diff(*lines, f"a/{path}", f"b/{path}", lineterm="")
    return "\n".join(parts)[:_MOST_DIFF]


def refusals(request: PermissionRequest) -> Refusals:
    """Return which decisions the agent does not offer. What "always" covers is up to the agent.

    So only people choose it, who have read its words.
    """
    found, offered = Refusals(message=NO_MESSAGE), {one.get("kind") for one in request.suggestions}
    if request.reason != "question":
        found["edit"] = EDITED
        if "allow_once" not in offered:
            found["allow"] = _not_offered(request, "once")
    if "allow_always" not in offered:
        found["always"] = _not_offered(request, "always")
    return found


def _not_offered(request: PermissionRequest, how: str) -> str:
    names = ", ".join(str(one.get("name")) for one in request.suggestions)
    more = f"; it offers: {names}; attach and type a number to choose one" if names else ""
    return f"the agent does not offer to allow this {how}{more}"


def check_decision(request: PermissionRequest, decision: PermissionDecision) -> None:
    """Raise `InvalidOptions` for a decision that the agent does not offer. A denial can always be given."""
    check_refusals(refusals, request, decision)
    if decision.allow:
        choose(request, decision)


def choose(request: PermissionRequest, decision: PermissionDecision) -> str | None:
    """Return the id of the option that a decision means; None if the agent offers no way to deny.

    Raises `InvalidOptions` for an approval that the agent does not offer.
    """
    options = [{key: str(value) for key, value in one.items()} for one in request.suggestions]
    by_kind = {one.get("kind"): one.get("optionId") for one in reversed(options)}
    if not decision.allow:
        return by_kind.get("reject_once")
    if request.reason == "question":
        return _answer(request, decision, options)
    kind = "allow_always" if decision.always else "allow_once"
    if kind not in by_kind:
        raise InvalidOptions(_not_offered(request, "always" if decision.always else "once"))
    return by_kind[kind]


def _answer(
    request: PermissionRequest, decision: PermissionDecision, options: Sequence[Mapping[str, str]]
) -> str | None:
    given = as_object(decision.input if decision.input is not None else request.input)
    answers = as_object(given.get("answers")).values()
    wanted = next(iter(answers), None)
    labels = _distinct([one.get("name", "") for one in options])
    for label, one in zip(labels, options, strict=True):
        if wanted in (label, one.get("name")) or wanted == [label]:
            return one.get("optionId")
    raise InvalidOptions(
        f"the agent does not offer {str(wanted)[:80]!r}", hint="answer with one of its options"
    )


class AcpPermissions:
    command_fields: Mapping[str, str] = {"execute": "command"}
    quiet_tools: frozenset[str] = frozenset(
        {"read", "edit", "delete", "move", "search", "think", "fetch", "switch_mode", QUESTION}
    )
    check_decision = staticmethod(check_decision)
    refusals = staticmethod(refusals)

    def reason(self, tool: str) -> str:
        return "question" if tool == QUESTION else "permission"

    def facts(self, tool: str, given: object, read: ReadFile | None = None) -> dict[str, Any]:
        inputs = as_object(given)
        facts: dict[str, Any] = {"reason": self.reason(tool), "tool": tool, "input": inputs}
        if tool == QUESTION:
            facts["options"] = as_objects(inputs.get("questions"))
            facts["message"] = "\n".join(str(one.get("question", "")) for one in facts["options"])
            return facts
        what = next((inputs[key] for key in _SHOWN_FIELDS if isinstance(inputs.get(key), str)), None)
        facts["message"] = f"{tool}: {show_json(inputs) if what is None else what}" if tool else ""
        if isinstance(inputs.get("diff"), str):
            facts["diff"] = inputs["diff"]
        return facts

    def is_plain(self, given: Mapping[str, Any], field: str) -> bool:
        return given.keys() <= _PLAIN_FIELDS | {field}

    def path_fields(self, given: object) -> Iterator[object]:
        return fields_like(_PATH_FIELD, given)

    def search_pattern(self, tool: str, given: Mapping[str, Any]) -> object:
        return given.get("pattern") if tool == "search" else None

    def with_answers(self, given: Mapping[str, Any], answers: Mapping[str, Any]) -> dict[str, Any]:
        """Return the input with an answer to its question. Raises `InvalidOptions`."""
        questions = [str(one.get("question", "")) for one in as_objects(given.get("questions"))]
        if unknown := [name for name in answers if name not in (*questions, "1")]:
            raise InvalidOptions(f"the request does not have the question '{str(unknown[0])[:80]}'")
        return {**given, "answers": dict(answers)}
