"""opencode's permission requests and questions, so that they can be decided elsewhere. Pure.

A request has the name of a permission (`bash`, `edit`, `external_directory`), which is mostly that of the
tool. Its input is the tool's, with what opencode says besides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from remuda.agents.permission import PermissionRequest, Refusals
from remuda.agents.sources import ReadFile, fields_like
from remuda.errors import InvalidOptions
from remuda.untrusted import as_object, as_objects, show_json

QUESTION = "question"
_PLAIN_FIELDS = frozenset({"description", "timeout"})
_PATH_FIELD = re.compile(r"path|file|dir|patterns|url", re.IGNORECASE)
_SHOWN_FIELDS = ("command", "filePath", "filepath", "url", "path", "pattern")
_DIFF_CHARACTERS = 1 << 20


class OpencodePermissions:
    command_fields: Mapping[str, str] = {"bash": "command"}
    quiet_tools: frozenset[str] = frozenset(
        {"edit", "external_directory", "glob", "grep", "list", "lsp", "question", "read", "skill", "task"}
        | {"todoread", "todowrite", "webfetch", "websearch", "write"}
    )

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
        diff = inputs.get("diff")
        if isinstance(diff, str) and 0 < len(diff) <= _DIFF_CHARACTERS:
            facts["diff"] = diff
        return facts

    def is_plain(self, given: Mapping[str, Any], field: str) -> bool:
        return given.keys() <= _PLAIN_FIELDS | {field}

    def path_fields(self, given: object) -> Iterator[object]:
        return fields_like(_PATH_FIELD, given)

    def search_pattern(self, tool: str, given: Mapping[str, Any]) -> object:
        return given.get("pattern") if tool in ("glob", "grep") else None

    def with_answers(self, given: Mapping[str, Any], answers: Mapping[str, Any]) -> dict[str, Any]:
        """Return the input with an answer to each question. Raises `InvalidOptions`."""
        questions = [str(one.get("question", "")) for one in as_objects(given.get("questions"))]
        if unknown := [name for name in answers if name not in questions]:
            raise InvalidOptions(f"the request does not have the question '{str(unknown[0])[:80]}'")
        if missing := [name for name in questions if not answers.get(name)]:
            raise InvalidOptions(f"no answer to '{missing[0][:80]}'")
        return {**given, "answers": dict(answers)}

    def refusals(self, request: PermissionRequest) -> Refusals:
        """opencode mostly offers a pattern (`git *`), which allows more than was asked."""
        rules = [one.get("always") for one in request.suggestions]
        found = Refusals()
        if not rules or any(rule != request.input.get("command") for rule in rules):
            found["always"] = "opencode would always allow more than this request: allow it once, or deny it"
        if request.reason == "question":
            found["message"] = "opencode passes on no message if a question is not answered: send none"
        else:
            found["edit"] = "opencode cannot run an edited input: allow it as it is, or deny it"
        return found


def answer_list(given: Mapping[str, Any]) -> list[list[str]]:
    """Return the chosen labels in the order of the questions, as opencode takes them."""
    answers = as_object(given.get("answers"))
    chosen = [answers.get(str(one.get("question", ""))) for one in as_objects(given.get("questions"))]
    return [
        [str(label) for label in one] if isinstance(one, list) else [] if one is None else [str(one)]
        for one in chosen
    ]
