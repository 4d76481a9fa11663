"""Permission requests and questions of codex: what they are about, and which decisions it can take. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from remuda.agents.permission import PermissionDecision, PermissionRequest, Refusals
from remuda.agents.sources import ReadFile
from remuda.errors import InvalidOptions
from remuda.untrusted import as_object, as_objects

from .notices import PATCH, QUESTION, SHELL

_PLAIN = frozenset({"command", "description"})


def answer_for(params: Mapping[str, Any], decision: PermissionDecision) -> dict[str, Any]:
    """Return the answer to a request of the server."""
    if "questions" in params:
        given = as_object(as_object(decision.input).get("answers")) if decision.allow else {}
        asked = as_objects(params.get("questions"))
        return {"answers": {str(one.get("id")): {"answers": _answers(one, given)} for one in asked}}
    if decision.allow:
        return {"decision": "acceptForSession" if decision.always else "accept"}
    return {"decision": "cancel" if decision.interrupt else "decline"}


def _answers(question: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    found = given.get(str(question.get("question")))
    if found is None:
        return []
    return [str(one) for one in found] if isinstance(found, list) else [str(found)]


def refusals(request: PermissionRequest) -> Refusals:
    """Return which decisions codex cannot take."""
    found = Refusals()
    if request.reason != "question":
        found["edit"] = "codex cannot run an edited input: allow it as it is, or deny it"
    if request.tool not in (SHELL, PATCH):
        found["always"] = "codex cannot allow this always: allow it once, or deny it"
    return found


class CodexPermissions:
    """Reads its requests for people and for the rules of the policy."""

    refusals = staticmethod(refusals)
    command_fields: Mapping[str, str] = {SHELL: "command"}
    quiet_tools = frozenset({PATCH, QUESTION, "web_search"})

    def reason(self, tool: str) -> str:
        return "question" if tool == QUESTION else "permission"

    def facts(self, tool: str, given: object, read: ReadFile | None = None) -> dict[str, Any]:
        inputs = as_object(given)
        found: dict[str, Any] = {"reason": self.reason(tool), "tool": tool, "input": given}
        if tool == QUESTION:
            asked = as_objects(inputs.get("questions"))
            found["message"] = "\n".join(str(one.get("question", "")) for one in asked)
            found["options"] = [
                str(option.get("label", "")) for one in asked[:1] for option in as_objects(one.get("options"))
            ]
        elif tool == PATCH:
            changes = as_objects(inputs.get("changes"))
            found["message"] = "edit " + ", ".join(str(one.get("path", "")) for one in changes)
            found["diff"] = "\n".join(_diff(one) for one in changes)
        else:
            found["message"] = str(inputs.get("command", tool))
        return found

    def is_plain(self, given: Mapping[str, Any], field: str) -> bool:
        return field in given and set(given) <= _PLAIN

    def path_fields(self, given: object) -> Iterator[object]:
        """Yield the paths that a patch changes, and the folder that it asks for."""
        inputs = as_object(given)
        if "grant_root" in inputs:
            yield inputs["grant_root"]
        for change in as_objects(inputs.get("changes")):
            yield change.get("path")
            if (moved := as_object(change.get("kind")).get("move_path")) is not None:
                yield moved

    def search_pattern(self, tool: str, given: Mapping[str, Any]) -> object:
        return None

    def with_answers(self, given: Mapping[str, Any], answers: Mapping[str, Any]) -> dict[str, Any]:
        questions = as_objects(given.get("questions"))
        found: dict[str, Any] = {}
        for name, answer in answers.items():
            names = [
                str(one.get("question", ""))
                for number, one in enumerate(questions, 1)
                if name in (one.get("question"), one.get("header"), one.get("id"), str(number))
            ]
            if len(names) != 1:
                asked = ", ".join(repr(str(one.get("question", ""))) for one in questions)
                raise InvalidOptions(f"no question {name[:40]!r}", hint=f"the questions: {asked}")
            found[names[0]] = answer
        if missing := [one for one in questions if str(one.get("question", "")) not in found]:
            raise InvalidOptions(f"missing answer to {str(missing[0].get('question', ''))!r}")
        return {**given, "answers": found}


def _diff(change: Mapping[str, Any]) -> str:
    """Return a change as a diff. A new file comes as its text."""
    path, text = str(change.get("path", "")), str(change.get("diff", ""))
    kind = as_object(change.get("kind")).get("type")
    if kind not in ("add", "delete"):
        return f"--- a{path}\n+++ b{path}\n{text}"
    lines = text.splitlines(keepends=True)
    before, after = ([], lines) if kind == "add" else (lines, [])
    return "".join(difflib.unified_diff(before, after, f"a{path}", f"b{path}"))
