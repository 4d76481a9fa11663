"""Claude Code's permission requests, complete and with a diff, so that they can be decided elsewhere."""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise, takewhile
from typing import Any

from remuda.errors import InvalidOptions
from remuda.untrusted import as_object, as_objects

Read = Callable[[str], str | None]
"""Returns the current text of a file, or None: a write is shown as a change of it."""

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
_DIFF_STEPS = 10_000_000


def asked(tool: str, given: object, read: Read | None = None) -> dict[str, Any]:
    """Return what a request is about: `message` for humans, the other facts for programs."""
    inputs = as_object(given)
    facts: dict[str, Any] = {"reason": reason_of(tool), "input": inputs, "tool": tool}
    if tool == "AskUserQuestion":
        facts["options"] = as_objects(inputs.get("questions"))
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
    """Return what an edit would change as a unified diff; None if it edits nothing, or too much."""
    path = str(given.get("file_path") or given.get("notebook_path") or "")
    if tool == "Edit":
        pairs = [(given.get("old_string"), given.get("new_string"))]
    elif tool == "MultiEdit":
        edits = as_objects(given.get("edits"))
        pairs = [(one.get("old_string"), one.get("new_string")) for one in edits]
    elif tool == "NotebookEdit":
        pairs = [("", given.get("new_source"))]
    elif tool == "Write":
        pairs = [((read(path) if read else None) or "", given.get("content"))]
    else:
        return None
    texts = [(str(before or ""), str(after or "")) for before, after in pairs]
    if tool == "Edit" and read is not None and (whole := _whole_file(given, read(path))) is not None:
        texts = [whole]
    if sum(len(before) + len(after) for before, after in texts) > _DIFF_BYTES:
        return None
    return "".join(_diff(path, before, after) for before, after in texts)


def _whole_file(given: Mapping[str, Any], text: str | None) -> tuple[str, str] | None:
    """Return the file before and after an edit, for a diff with line numbers. None if unknown."""
    old, new = given.get("old_string"), given.get("new_string")
    if (
        text is None
        or len(text) > _DIFF_BYTES // 2
        or not (isinstance(old, str) and isinstance(new, str) and old)
    ):
        return None
    count = text.count(old)
    if not count or (count > 1 and given.get("replace_all") is not True):  # the tool will refuse it
        return None
    if count * len(new) > _DIFF_BYTES:  # a small edit in many places can make a text of 100 GB
        return None
    return text, text.replace(old, new)


def shell_command(tool: str, given: Mapping[str, Any]) -> str | None:
    """Return the command for the shell; None for a tool that runs none."""
    return str(given.get("command", "")) if tool == "Bash" else None


def reason_of(tool: str) -> str:
    return _REASONS.get(tool, "permission")


def is_plain(given: Mapping[str, Any], field: str) -> bool:
    """Return whether the command in `field` is the complete request: not, say, one without the sandbox."""
    return given.keys() <= _PLAIN_FIELDS | {field}


def path_fields(given: object) -> Iterator[object]:
    """Yield the value of each field that holds a path or paths, at any depth, also one of a wrong type."""
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
    """Return whether a key names a path: `file_path`, `FILEPATH`, `newPath`; not `file_text`."""
    words = set(re.findall("[a-z]+", re.sub("([a-z])([A-Z])", r"\1_\2", key).lower()))
    return any(one in _PATH_WORDS or _PATH_WORD.search(one) for one in words) and not words & _TEXT_WORDS


def search_pattern(tool: str, given: Mapping[str, Any]) -> object:
    """Return what a search finds below its `path`, as a pattern of paths; None for other tools."""
    key = {"Glob": "pattern", "Grep": "glob", "LS": ""}.get(tool)
    return None if key is None else given.get(key) or ""


def with_answers(given: Mapping[str, Any], answers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the input of AskUserQuestion with a user's answers, by text, header or number of the question.

    Several answers to one question are a list. Raises `InvalidOptions` for an answer to no question, and for
    a question without an answer: the CLI would report to the model that the user gave none.
    """
    questions = as_objects(given.get("questions"))
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
        """Split at line feeds only. Other separators are shown as text: they could hide a change."""
        shown = _SEPARATOR.sub(lambda found: f"<U+{ord(found[0]):04X}>", text)
        found = [f"{line}\n" for line in shown.removesuffix("\n").split("\n")] if text else []
        if has_other_end and not text.endswith("\n"):
            found[-1] += "\\ No newline at end of file\n"
        return found

    name = _SEPARATOR.sub("?", path).replace("\n", "?")
    first, second = lines(before), lines(after)
    make = _whole_diff if _is_costly(first, second) else difflib.unified_diff
    return "".join(make(first, second, f"a{name}", f"b{name}"))


def _is_costly(before: list[str], after: list[str]) -> bool:
    """Whether difflib would take more than about a second: it took 3 s for every other of 8,000 lines.

    At each place where the texts differ it searches the rest again, and compares each line with every equal
    line. Lines that make up more than a hundredth of the text are left out.
    """
    neighbours = set(pairwise(after))
    breaks = sum(pair not in neighbours for pair in pairwise(before))
    often = Counter(after)
    most = len(after) // 100 + 1 if len(after) >= 200 else len(after)
    equal = sum(often[line] for line in before if often[line] <= most)
    return (breaks + 1) * (len(before) + equal) > _DIFF_STEPS


def _whole_diff(before: list[str], after: list[str], name: str, new_name: str) -> Iterator[str]:
    """Make a unified diff of one hunk: all lines between the first and the last that differ."""
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))
    ends = zip(reversed(before[shared:]), reversed(after[shared:]), strict=False)
    tail = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], ends))
    begin, rest = max(0, shared - 3), max(0, tail - 3)
    sizes = [f"{begin + 1},{len(text) - rest - begin}" for text in (before, after)]
    yield from (f"--- {name}\n", f"+++ {new_name}\n", f"@@ -{sizes[0]} +{sizes[1]} @@\n")
    yield from (f" {line}" for line in before[begin:shared])
    yield from (f"-{line}" for line in before[shared : len(before) - tail])
    yield from (f"+{line}" for line in after[shared : len(after) - tail])
    yield from (f" {line}" for line in before[len(before) - tail : len(before) - rest])


_SEPARATOR = re.compile("[\\r\\v\\f\\x1c-\\x1e\\x85\\u2028\\u2029]")
