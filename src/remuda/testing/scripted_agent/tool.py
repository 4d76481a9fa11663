"""Running the tools: Bash, Read, Write and Edit for real and simply, all others with a made-up result."""

from __future__ import annotations

import fnmatch
import os
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    import subprocess


# ── whether a tool call runs, is refused, or must be asked about (pure) ──

Decision: TypeAlias = Literal["allow", "ask", "deny"]

# They are questions in themselves: no mode answers them.
QUESTIONS = frozenset({"AskUserQuestion", "ExitPlanMode"})
_EDITS = frozenset({"Write", "Edit", "MultiEdit", "NotebookEdit"})
_HARMLESS = frozenset(
    {"Read", "Glob", "Grep", "LS", "TodoWrite", "Agent", "Task", "ToolSearch", "ListAgents"}
)
_HARMLESS_COMMANDS = frozenset(
    (
        *(
            "basename",
            "cat",
            "cd",
            "cut",
            "date",
            "df",
            "diff",
            "dirname",
            "du",
            "echo",
            "expr",
            "false",
            "file",
        ),
        *("grep", "head", "hostname", "id", "ls", "nl", "printf", "pwd", "realpath", "seq", "sleep", "sort"),
        *("stat", "tail", "test", "tr", "true", "uname", "uniq", "wc", "which", "whoami"),
    )
)
# Claude Code 2.1.325 runs them without asking where edits are accepted.
_EDIT_COMMANDS = frozenset({"cp", "mkdir", "mv", "rm", "rmdir", "sed", "touch"})
_BETWEEN_COMMANDS = re.compile(r"&&|\|\||[;|\n]")


def decide(
    tool: str,
    given: Mapping[str, Any],
    mode: str,
    *,
    allow: Sequence[str],
    deny: Sequence[str],
    ask: Sequence[str],
) -> Decision:
    """Return what becomes of a call in that mode, under these rules. A ``deny`` rule wins, then ``ask``."""
    if any(_covers(rule, tool, given) for rule in deny):
        return "deny"
    if tool in QUESTIONS:
        return "ask"
    if mode == "bypassPermissions":
        return "allow"
    if any(_covers(rule, tool, given) for rule in ask):
        return "ask"
    if mode == "auto" or any(_covers(rule, tool, given) for rule in allow) or _is_harmless(tool, given):
        return "allow"
    if mode == "acceptEdits" and (tool in _EDITS or _is_harmless(tool, given, _EDIT_COMMANDS)):
        return "allow"
    return "deny" if mode == "dontAsk" else "ask"


def rule_for(tool: str, given: Mapping[str, Any]) -> str:
    """Return the rule that "don't ask again" adds for a call."""
    words = str(given.get("command", "")).split()
    return f"Bash({words[0]}:*)" if tool == "Bash" and words else tool


def suggestions(tool: str, cwd: str) -> list[dict[str, Any]] | None:
    """Return what the permission hook is offered as ways to ask less; None for a question."""
    if tool in QUESTIONS:
        return None
    accept = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}
    folders = {"type": "addDirectories", "directories": [cwd], "destination": "session"}
    return [folders, accept] if tool == "Bash" else [accept]


def _covers(rule: str, tool: str, given: Mapping[str, Any]) -> bool:
    """``Tool`` covers all its calls, ``Tool(pattern)`` those that fit; ``p:*`` is a beginning."""
    name, parenthesis, pattern = rule.partition("(")
    if name != tool:
        return False
    if not parenthesis:
        return True
    pattern = pattern.removesuffix(")")
    subject = str(given.get("command") or given.get("file_path") or given.get("url") or "")
    if pattern.endswith(":*"):
        return subject == pattern[:-2] or subject.startswith(f"{pattern[:-2]} ")
    return fnmatch.fnmatchcase(subject, pattern)


def _is_harmless(tool: str, given: Mapping[str, Any], more: frozenset[str] = frozenset()) -> bool:
    if tool != "Bash":
        return tool in _HARMLESS
    command = str(given.get("command", ""))
    if any(mark in command for mark in ("$(", "`", ">", "<", "&\n")):
        return False
    parts = [part.split() for part in _BETWEEN_COMMANDS.split(command)]
    return all(part[0] in _HARMLESS_COMMANDS | more for part in parts if part) and any(parts)


# ── running it ──

_NO_OUTPUT = "(Bash completed with no output)"
_MAX_OUTPUT = 30_000
_DEFAULT_TIMEOUT = 120.0
# Commands without expected output.
_SILENT_COMMANDS = frozenset(["touch", "mkdir", "rm", "mv", "cp", "chmod", "cd", "true"])


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """A tool's result: the text for the model, the object for hooks and transcript."""

    text: str
    response: object
    failed: bool = False


class Shell:
    """A command in a process session of its own: a kill of our group alone leaves it."""

    def __init__(
        self, command: str, cwd: str, environ: Mapping[str, str], timeout: float | None = None
    ) -> None:
        self._command = command
        self._cwd = cwd
        self._environ = environ
        self._timeout = timeout
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> tuple[int, str]:
        """Exit code and output. Blocks: for a thread."""
        import subprocess

        process = subprocess.Popen(
            ["/bin/bash", "-c", self._command],
            cwd=self._cwd,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._process = process
        try:
            output, _ = process.communicate(timeout=self._timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            output, _ = process.communicate()
        return process.returncode, output.decode("utf-8", "replace")

    def kill(self) -> None:
        """End it and everything that it started in its session. From any thread."""
        if self._process is not None and self._process.returncode is None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


class Tools:
    """Runs one tool at a time; :meth:`kill` ends a running command."""

    def __init__(self, cwd: str, environ: Mapping[str, str]) -> None:
        self._cwd = cwd
        self._environ = environ
        self._shell: Shell | None = None
        self._table: dict[str, Callable[[Mapping[str, Any]], ToolOutcome]] = {
            "Bash": self._bash,
            "Read": self._read,
            "Write": self._write,
            "Edit": self._edit,
        }

    def run(self, tool: str, given: Mapping[str, Any]) -> ToolOutcome:
        """Return the outcome of a call. Blocks: for a thread."""
        try:
            return self._table.get(tool, _canned(tool))(given)
        except OSError as error:
            return _failure(f"{error.strerror}: {error.filename}")
        except (KeyError, ValueError) as error:
            return _failure(f"InputValidationError: {tool} failed: {error}")

    def shell(self, command: str, timeout: float | None = None) -> tuple[int, str]:
        """Run a command; exit code and output. Blocks: for a thread."""
        self._shell = Shell(command, self._cwd, self._environ, timeout)
        return self._shell.run()

    def kill(self) -> None:
        """End the command that runs, if one does."""
        if self._shell is not None:
            self._shell.kill()

    def _bash(self, given: Mapping[str, Any]) -> ToolOutcome:
        command = str(given["command"])
        milliseconds = given.get("timeout")
        timeout = milliseconds / 1000 if isinstance(milliseconds, (int, float)) else _DEFAULT_TIMEOUT
        code, output = self.shell(command, timeout)
        output = output.rstrip("\n")[:_MAX_OUTPUT]
        if code:
            return _failure(f"Exit code {code}" + (f"\n{output}" if output else ""))
        response = {
            "stdout": output,
            "stderr": "",
            "interrupted": False,
            "isImage": False,
            "noOutputExpected": _is_silent(command),
        }
        return ToolOutcome(output or _NO_OUTPUT, response)

    def _read(self, given: Mapping[str, Any]) -> ToolOutcome:
        path = self._path(given)
        content = path.read_text("utf-8", "replace")
        lines = content.split("\n")
        numbered = "\n".join(f"{number}\t{line}" for number, line in enumerate(lines, 1))
        shape = {"filePath": str(path), "content": content, "numLines": len(lines)}
        return ToolOutcome(
            numbered, {"type": "text", "file": {**shape, "startLine": 1, "totalLines": len(lines)}}
        )

    def _write(self, given: Mapping[str, Any]) -> ToolOutcome:
        path, content = self._path(given), str(given["content"])
        old = path.read_text("utf-8", "replace") if path.exists() else None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        done = "created" if old is None else "updated"
        return ToolOutcome(
            f"File {done} successfully at: {path}",
            {
                "type": "create" if old is None else "update",
                "filePath": str(path),
                "content": content,
                "structuredPatch": [],
                "originalFile": old,
                "userModified": False,
            },
        )

    def _edit(self, given: Mapping[str, Any]) -> ToolOutcome:
        path, old, new = self._path(given), str(given["old_string"]), str(given["new_string"])
        content = path.read_text("utf-8", "replace")
        if old not in content:
            return _failure(
                f"<tool_use_error>String to replace not found in file.\nString: {old}</tool_use_error>"
            )
        everywhere = given.get("replace_all") is True
        path.write_text(content.replace(old, new, -1 if everywhere else 1))
        return ToolOutcome(
            f"The file {path} has been updated successfully.",
            {
                "filePath": str(path),
                "oldString": old,
                "newString": new,
                "originalFile": content,
                "structuredPatch": [],
                "userModified": False,
                "replaceAll": everywhere,
            },
        )

    def _path(self, given: Mapping[str, Any]) -> Path:
        return Path(self._cwd, str(given["file_path"]))


def _is_silent(command: str) -> bool:
    words = command.split()
    return bool(words) and words[0] in _SILENT_COMMANDS and not set(command) & set(";|&")


def timed(work: Callable[[], ToolOutcome]) -> tuple[ToolOutcome, int]:
    """Return an outcome and the milliseconds it took."""
    started = time.monotonic()
    outcome = work()
    return outcome, round((time.monotonic() - started) * 1000)


def _canned(tool: str) -> Callable[[Mapping[str, Any]], ToolOutcome]:
    return lambda given: ToolOutcome(f"{tool} ran (made-up result)", {"made_up": True, "input": dict(given)})


def _failure(message: str) -> ToolOutcome:
    return ToolOutcome(message, f"Error: {message}", failed=True)
