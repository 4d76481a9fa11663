"""codex without a human: `codex exec --json` for `print`, and an app-server on a stream for the pool.

Every method loads only what it needs: a call of `remuda print` is short.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Never

from remuda.agents.headless import Dialogs, Handling, Message, NoDialogs, PrintFlags
from remuda.agents.unattended import max_turns_reason
from remuda.errors import AgentRefused

if TYPE_CHECKING:
    from remuda.agents.headless import PrintedTurn
    from remuda.agents.warm import WorkerProfile

    from .exec_messages import ExecReader
    from .workers import AppServerWorker, ExecWorker

_NO_TERMINAL = "codex prints without a terminal: remove '--backend terminal'"
_OURS = ("--output-format", "--verbose", "--help", "--version", "--include-partial-messages")
_VALUED = (
    *("--config", "--enable", "--disable", "--image", "--model", "--local-provider", "--profile"),
    *("--sandbox", "--cd", "--add-dir", "--output-schema", "--thread-source"),
)
_FLAGS = (
    *("--oss", "--strict-config", "--approve-for-me", "--dangerously-bypass-approvals-and-sandbox"),
    *("--dangerously-bypass-hook-trust", "--worktree", "--skip-git-repo-check", "--ephemeral"),
    *("--ignore-user-config", "--ignore-rules"),
)
_ALIASES = {"-c": "--config", "-i": "--image", "-m": "--model", "-p": "--profile", "-s": "--sandbox"}
FLAGS = PrintFlags(
    terminal={**dict.fromkeys(_OURS, Handling.OURS), **dict.fromkeys([*_VALUED, *_FLAGS], Handling.PASSED)},
    aliases=_ALIASES | {"-C": "--cd"},
    ours=frozenset(_OURS),
    needs_value=frozenset(["--output-format", *_VALUED]),
    takes=lambda flag, have, _word: have == 0 and (flag in _VALUED or flag == "--output-format"),
)


class CodexStream:
    kind: Literal["stream"] = "stream"

    def arguments(self, passed: Sequence[str], *, inherit_hooks: bool, partial: bool) -> list[str]:
        hooks = [] if inherit_hooks else ["--disable", "hooks"]
        return ["exec", "--json", "--color", "never", *hooks, *passed, "-"]

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        return dict(env)

    def message_reader(self) -> ExecReader:
        from .exec_messages import ExecReader

        return ExecReader()

    def worker(self, session_id: str, profile: WorkerProfile) -> AppServerWorker:
        from .workers import AppServerWorker

        return AppServerWorker(session_id, profile)

    def print_worker(self, session_id: str, profile: WorkerProfile) -> ExecWorker:
        from .workers import ExecWorker

        return ExecWorker(session_id, profile)


class CodexHeadless:
    program = "codex"
    install_hint = "install codex: npm install -g @openai/codex"
    default_backend = "stream"
    stream = CodexStream()
    print_flags = FLAGS
    dialogs: Dialogs = NoDialogs()
    max_turns_reason = staticmethod(max_turns_reason)

    def terminal_arguments(
        self, passed: Sequence[str], env: Mapping[str, str], cwd: Path, *, inherit_hooks: bool, asks: bool
    ) -> Never:
        raise AgentRefused(_NO_TERMINAL)

    def print_turn(self, emit: Callable[[Message], None] | None, *, partial: bool) -> PrintedTurn:
        raise AgentRefused(_NO_TERMINAL)

    def check_typed(self, prompt: str) -> None:
        """Do nothing: no prompt is typed."""

    def find_control(self, prompt: str) -> tuple[int, str] | None:
        return None

    def pretrust(self, env: Mapping[str, str], cwd: str, warn: Callable[[str], None]) -> bool:
        raise AgentRefused("codex saves trust only when a user gives it at its terminal")

    def text_message(self, text: str, session_id: str | None) -> Message:
        from .exec_messages import text_message

        return text_message(text, session_id)

    def turn_messages(
        self,
        path: Path,
        prompt_id: str | None,
        answer: str,
        *,
        failed: bool,
        model: str | None,
        seconds: float,
    ) -> list[Message]:
        from .exec_messages import result_message

        return [result_message(answer, is_error=failed, session_id=None, usage={}, seconds=seconds)]
