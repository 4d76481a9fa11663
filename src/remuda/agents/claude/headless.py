"""Claude Code without a human at its terminal. Implements `agents.headless.Headless`.

Every method loads only what it needs: a call of `remuda print` is short.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

TYPE_CHECKING = False  # as type checkers read it; importing `typing` takes 2 ms
if TYPE_CHECKING:
    from typing import Literal

    from remuda.agents.headless import Message, PrintFlags
    from remuda.agents.warm import WorkerProfile

    from .print.print_messages import TranscriptMessages
    from .screen import ClaudeDialogs
    from .stream.reader import PrintReader
    from .stream.workers import PrintWorker, StreamWorker


class ClaudeStream:
    kind: Literal["stream"] = "stream"

    def arguments(self, passed: Sequence[str], *, inherit_hooks: bool, partial: bool) -> list[str]:
        from .print.print_flags import stream_arguments

        return stream_arguments(passed, inherit_hooks=inherit_hooks, partial=partial)

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        from .launch import clean_environment

        return clean_environment(env)

    def message_reader(self) -> PrintReader:
        from .stream.reader import PrintReader

        return PrintReader()

    def worker(self, session_id: str, profile: WorkerProfile) -> StreamWorker:
        from .stream.workers import StreamWorker

        return StreamWorker(session_id, profile)

    def print_worker(self, session_id: str, profile: WorkerProfile) -> PrintWorker:
        from .stream.workers import PrintWorker

        return PrintWorker(session_id, profile)


class ClaudeHeadless:
    program = "claude"
    install_hint = "install Claude Code"

    @property
    def stream(self) -> ClaudeStream:
        return ClaudeStream()

    @property
    def print_flags(self) -> PrintFlags:
        from .print.print_flags import FLAGS

        return FLAGS

    def terminal_arguments(
        self, passed: Sequence[str], env: Mapping[str, str], cwd: Path, *, inherit_hooks: bool, asks: bool
    ) -> list[str]:
        from .print.print_flags import terminal_arguments

        return terminal_arguments(passed, env, cwd, inherit_hooks=inherit_hooks, asks=asks)

    def print_turn(self, emit: Callable[[Message], None] | None, *, partial: bool) -> TranscriptMessages:
        from .print.print_messages import TranscriptMessages

        return TranscriptMessages(emit, partial=partial)

    @property
    def dialogs(self) -> ClaudeDialogs:
        from .screen import ClaudeDialogs

        return ClaudeDialogs()

    def max_turns_reason(self, limit: int) -> str:
        from remuda.agents.unattended import max_turns_reason

        return max_turns_reason(limit)

    def check_typed(self, prompt: str) -> None:
        from .prompt import check

        check(prompt, command=False, literal=False)

    def find_control(self, prompt: str) -> tuple[int, str] | None:
        from .prompt import find_control

        return find_control(prompt)

    def pretrust(self, env: Mapping[str, str], cwd: str, warn: Callable[[str], None]) -> bool:
        from .trust import pretrust

        return pretrust(env, cwd, warn)

    def text_message(self, text: str, session_id: str | None) -> Message:
        from .print.print_messages import text_message

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
        from .print.print_messages import turn_messages

        return turn_messages(path, prompt_id, answer, failed=failed, model=model, seconds=seconds)
