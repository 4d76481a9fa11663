"""What Claude Code asks leave for, whole and with a diff, so that a human can decide on it elsewhere."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from remuda.errors import InvalidOptions

Read = Callable[[str], str | None]
"""A file's text as it is now, or None: a write is shown as what it changes."""

COMMAND_TOOLS: Mapping[str, str] = {"Bash": "command", "Monitor": "command"}
"""Tools that run shell commands, and the field with the command. Monitor as in 2.1.325."""
QUIET_TOOLS = frozenset(
    {
        "Agent",
        "AskUserQuestion",
        "BashOutput",
        "CronDelete",
        "CronList",
        "Edit",
        "EnterPlanMode",
        "EnterWorktree",
    }
    | {"ExitPlanMode", "ExitWorktree", "Glob", "Grep", "KillBash", "KillShell", "ListAgents"}
    | {"ListMcpResourcesTool", "LS", "LSP", "MultiEdit", "NotebookEdit", "NotebookRead", "Read"}
    | {
        "ReadMcpResourceTool",
        "ReportFindings",
        "ScheduleWakeup",
        "SendMessage",
        "Task",
        "TaskCreate",
        "TaskGet",
    }
    | {"TaskList", "TaskOutput", "TaskStop", "TaskUpdate", "TodoRead", "TodoWrite", "ToolSearch", "WebFetch"}
    | {"WebSearch", "Write"}
)
"""Tools that run no commands. Agents that they start ask for permission themselves."""
_PLAIN_FIELDS = frozenset({"description", "timeout", "timeout_ms", "run_in_background", "persistent"})
_PATH_WORDS = frozenset(
    {"cwd", "dest", "destination", "dst", "root", "source", "src", "target", "uri", "uris"}
)
_PATH_WORD = re.compile(r"(?:file|path|folder|directory|directorie|dir)(?:name)?s?$")
"""Also at the end of a word: `filepath`, `outfile`, `workdir`."""
_FILE_ADDRESS = re.compile(r"file:\S.*", re.IGNORECASE)
_TEXT_WORDS = frozenset({"content", "contents", "mode", "size", "string", "text", "type"})
_REASONS = {"AskUserQuestion": "question", "ExitPlanMode": "plan"}
_DIFF_BYTES = 1 << 20


def asked(tool: str, given: object, read: Read | None = None) -> dict[str, Any]:
    """What there is to decide on, whole: for people as `message`, for programs as the rest."""
    inputs = given if isinstance(given, dict) else {}
    facts: dict[str, Any] = {"reason": reason_of(tool), "input": inputs, "tool": tool}
    if tool == "AskUserQuestion":
        facts["options"] = [one for one in _list(inputs.get("questions")) if isinstance(one, dict)]
        facts["message"] = "\n".join(str(one.get("question", "")) for one in facts["options"])
    elif tool == "ExitPlanMode":
        facts["message"] = str(inputs.get("plan") or "Exit plan mode?")
    elif not tool:
        facts["message"] = ""
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


def reason_of(tool: str) -> str:
    return _REASONS.get(tool, "permission")


def is_plain(given: Mapping[str, Any], field: str) -> bool:
    """Whether the command in `field` is all that is asked for: not a way around the sandbox as well, say."""
    return given.keys() <= _PLAIN_FIELDS | {field}


def path_fields(given: object) -> Iterator[object]:
    """The value of each field that holds a path or paths, at any depth. One of a wrong type is given, too."""
    waiting = [given]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, str) and _FILE_ADDRESS.fullmatch(value):
            yield value
        elif isinstance(value, dict):
            for key, one in value.items():
                if not _names_path(key):
                    waiting.append(one)
                elif one not in (None, ""):
                    yield from one if isinstance(one, list) else [one]


def _names_path(key: str) -> bool:
    """`file_path`, `filePath`, `FILEPATH`, `newPath`, `target_dir`; not `file_text`."""
    words = set(re.findall("[a-z]+", re.sub("([a-z])([A-Z])", r"\1_\2", key).lower()))
    return any(one in _PATH_WORDS or _PATH_WORD.search(one) for one in words) and not words & _TEXT_WORDS


def search_pattern(tool: str, given: Mapping[str, Any]) -> object:
    """What Glob and Grep look for below their `path`, as a pattern of paths; None for any other tool."""
    key = {"Glob": "pattern", "Grep": "glob"}.get(tool)
    return None if key is None else given.get(key) or ""


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
            raise InvalidOptions(f"no question {name[:40]!r}", hint=f"the questions: {asked_for}")
        found[texts[0]] = ", ".join(map(str, answer)) if isinstance(answer, list) else str(answer)
    if missing := [one for one in questions if str(one.get("question", "")) not in found]:
        raise InvalidOptions(f"missing answer to {str(missing[0].get('question', ''))!r}")
    return {**given, "answers": found}


def _diff(path: str, before: str, after: str) -> str:
    has_other_end = bool(before and after) and before.endswith("\n") != after.endswith("\n")

    def lines(text: str) -> list[str]:
        """Only a line feed ends a line. Other separators are shown: they would hide a change."""
        shown = _SEPARATOR.sub(lambda found: f"<U+{ord(found[0]):04X}>", text)
        found = [f"{line}\n" for line in shown.removesuffix("\n").split("\n")] if text else []
        if has_other_end and not text.endswith("\n"):
            found[-1] += "\\ No newline at end of file\n"
        return found

    name = _SEPARATOR.sub("?", path).replace("\n", "?")
    return "".join(difflib.unified_diff(lines(before), lines(after), f"a{name}", f"b{name}"))


_SEPARATOR = re.compile("[\\r\\v\\f\\x1c-\\x1e\\x85\\u2028\\u2029]")


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
