"""What Claude Code asks leave for, whole and with a diff, so that a human can decide on it elsewhere."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from typing import Any

from remuda.errors import InvalidOptions

Read = Callable[[str], str | None]
"""A file's text as it is now, or None: a write is shown as what it changes."""

_SHELL_FIELDS = frozenset({"command", "description", "timeout", "run_in_background"})
_REASONS = {"AskUserQuestion": "question", "ExitPlanMode": "plan"}
_DIFF_BYTES = 1 << 20


def asked(tool: str, given: object, read: Read | None = None) -> dict[str, Any]:
    """What there is to decide on, whole: for people as `message`, for programs as the rest."""
    inputs = given if isinstance(given, dict) else {}
    facts: dict[str, Any] = {"reason": _REASONS.get(tool, "permission"), "input": inputs, "tool": tool}
    if tool == "AskUserQuestion":
        facts["options"] = [one for one in _list(inputs.get("questions")) if isinstance(one, dict)]
        facts["message"] = "\n".join(str(one.get("question", "")) for one in facts["options"])
    elif tool == "ExitPlanMode":
        facts["message"] = str(inputs.get("plan") or "Exit plan mode?")
    else:
        what = inputs.get("command") or inputs.get("file_path") or inputs.get("url")
        facts["message"] = (
            f"{tool}: {what if isinstance(what, str) else json.dumps(inputs, ensure_ascii=False)}"
        )
        if diff := edit_diff(tool, inputs, read):
            facts["diff"] = diff
    return facts


def edit_diff(tool: str, given: Mapping[str, Any], read: Read | None = None) -> str | None:
    """What an edit would change, as a unified diff; None for a call that edits nothing, or too much."""
    path = str(given.get("file_path") or given.get("notebook_path") or "")
    if tool == "Edit":
        pairs = [(given.get("old_string"), given.get("new_string"))]
    elif tool == "MultiEdit":
        edits = [one for one in _list(given.get("edits")) if isinstance(one, dict)]
        pairs = [(one.get("old_string"), one.get("new_string")) for one in edits]
    elif tool == "NotebookEdit":
        pairs = [("", given.get("new_source"))]
    elif tool == "Write":
        pairs = [((read(path) if read else None) or "", given.get("content"))]
    else:
        return None
    texts = [(str(before or ""), str(after or "")) for before, after in pairs]
    if sum(len(before) + len(after) for before, after in texts) > _DIFF_BYTES:
        return None
    return "".join(_diff(path, before, after) for before, after in texts)


def shell_command(tool: str, given: Mapping[str, Any]) -> str | None:
    """What a shell would be given; None for a tool that runs none."""
    return str(given.get("command", "")) if tool == "Bash" else None


def is_plain(tool: str, given: Mapping[str, Any]) -> bool:
    """Whether a command is all that is asked for: not a way around the sandbox as well, say."""
    return tool != "Bash" or given.keys() <= _SHELL_FIELDS


def file_path(given: Mapping[str, Any]) -> str | None:
    """The file or folder that a tool reads or changes."""
    found = next((given[key] for key in ("file_path", "notebook_path", "path") if given.get(key)), None)
    return found if isinstance(found, str) else None


def with_answers(given: Mapping[str, Any], answers: Mapping[str, Any]) -> dict[str, Any]:
    """The input of AskUserQuestion with a user's answers. A question is meant by its text, header or number.

    Several answers to one are a list. Raises `InvalidOptions` for an answer to nothing, or a question without
    one: the CLI would tell the model that nothing was said to it.
    """
    questions = [one for one in _list(given.get("questions")) if isinstance(one, dict)]
    found: dict[str, str] = {}
    for name, answer in answers.items():
        texts = [
            str(one.get("question", ""))
            for number, one in enumerate(questions, 1)
            if name in (one.get("question"), one.get("header"), str(number))
        ]
        if len(texts) != 1:
            asked_for = ", ".join(repr(str(one.get("question", ""))) for one in questions)
            raise InvalidOptions(f"nothing is asked as {name!r}", hint=f"asked is {asked_for}")
        found[texts[0]] = ", ".join(map(str, answer)) if isinstance(answer, list) else str(answer)
    if missing := [one for one in questions if str(one.get("question", "")) not in found]:
        raise InvalidOptions(f"there is no answer to {str(missing[0].get('question', ''))!r}")
    return {**given, "answers": found}


def _diff(path: str, before: str, after: str) -> str:
    def lines(text: str) -> list[str]:
        return [f"{line}\n" for line in text.splitlines()]

    return "".join(difflib.unified_diff(lines(before), lines(after), f"a{path}", f"b{path}"))


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
