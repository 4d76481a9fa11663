"""Copilot's permission requests, for people and for the rules of the policy. Pure.

Its tools have three names (1.0.102): `Bash` in hooks, `bash` in a request and in the transcript, and the kind
`shell` there. Here each has one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from remuda.agents.events import DialogReported
from remuda.agents.permission import PermissionRequest, Refusals
from remuda.agents.sources import ReadFile
from remuda.errors import InvalidOptions
from remuda.untrusted import LONGEST_NAME, as_object

_NAMES = {"shell": "bash", "askuserquestion": "ask_user", "write": "edit"}
QUESTION = "ask_user"
_PATHS = ("path", "paths", "file_path", "fileName", "possiblePaths", "cwd", "directory")


def tool_name(name: object) -> str:
    """Return the one name of a tool."""
    lower = str(name or "")[:LONGEST_NAME].lower()
    return _NAMES.get(lower, lower)


def question_dialog(given: object) -> DialogReported:
    """Return the dialog of a question. Its notification comes later, and does not have the question."""
    asked = as_object(given)
    return DialogReported("question", str(asked.get("message") or asked.get("question") or ""), QUESTION)


def request_input(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a request of the transcript is about, as a hook has it."""
    if asked.get("kind") == "shell":
        return {"command": asked.get("fullCommandText")}
    return {key: value for key, value in asked.items() if key not in ("kind", "toolCallId")}


class CopilotPermissions:
    command_fields: Mapping[str, str] = {"bash": "command"}
    quiet_tools: frozenset[str] = frozenset({"view", "grep", "glob", "read"})
    dialog_after_hook = True
    """Its dialog opens when the hook of a request has ended without a decision."""

    def reason(self, tool: str) -> str:
        return "question" if tool == QUESTION else "permission"

    def facts(self, tool: str, given: object, read: ReadFile | None = None) -> dict[str, Any]:
        fields = as_object(given)
        about = next(
            (
                str(fields[key])
                for key in ("command", "message", "path", "fileName", "url")
                if fields.get(key)
            ),
            "",
        )
        return {
            "reason": self.reason(tool),
            "tool": tool,
            "input": given,
            "message": f"{tool}: {about}" if about else tool,
        }

    def is_plain(self, given: Mapping[str, Any], field: str) -> bool:
        return set(given) <= {field, "description"}

    def path_fields(self, given: object) -> Iterator[object]:
        if isinstance(given, dict):
            for key, value in given.items():
                if key in _PATHS:
                    yield from value if isinstance(value, list) else [value]
                yield from self.path_fields(value)
        elif isinstance(given, list):
            for value in given:
                yield from self.path_fields(value)

    def search_pattern(self, tool: str, given: Mapping[str, Any]) -> object:
        return given.get("pattern") if tool == "glob" else None

    def with_answers(self, given: Mapping[str, Any], answers: Mapping[str, Any]) -> dict[str, Any]:
        raise InvalidOptions(
            "a question of copilot can only be answered in its terminal", hint="attach and answer there"
        )

    def refusals(self, request: PermissionRequest) -> Refusals:
        """Its hook takes allow, and deny with a message."""
        found = Refusals(
            edit="copilot cannot run an edited input; allow the request as it is, or deny it",
            always="copilot's hook cannot allow a tool for good; allow it once, or answer in its terminal",
        )
        if request.reason == "question":
            found["allow"] = "a question of copilot can only be answered in its terminal"
        return found
