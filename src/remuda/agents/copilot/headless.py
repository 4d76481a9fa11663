"""Copilot without a human at its terminal. Implements `agents.headless.Headless`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from remuda.agents.acp.worker import AcpPrintWorker
from remuda.agents.headless import Handling, Message, NoDialogs, PrintFlags, TurnEnd
from remuda.agents.unattended import max_turns_reason
from remuda.agents.warm import WorkerProfile

from .messages import CopilotTurn, PrintReader, text_message
from .prompting import check_typed, find_control
from .screen import open_dialog, read_trust_choice
from .warm import CopilotWorker, make_print_worker, make_worker

_MANY = """
    --add-dir --additional-mcp-config --add-github-mcp-tool --add-github-mcp-toolset --allow-tool --allow-url
    --available-tools --deny-tool --deny-url --disable-mcp-server --enable-mcp-server --excluded-tools
    --mcp-github-auth --plugin-dir --secret-env-vars
"""
_ONE = """
    --auto-tier --context --extension-sdk-path --log-dir --log-level --max-ai-credits
    --max-autopilot-continues --mode --model --name --reasoning-effort --resume --session-id
    --usage-output-file
"""
_BARE = """
    --allow-all --allow-all-mcp-server-instructions --allow-all-paths --allow-all-tools --allow-all-urls
    --autopilot --continue --disable-builtin-mcps --disable-client-telemetry --disallow-temp-dir
    --enable-all-github-mcp-tools --experimental --no-ask-user --no-auto-update --no-custom-instructions
    --no-experimental --no-remote --no-remote-export --plan --yolo
"""
_OURS = ["--output-format", "--verbose", "--help", "--version", "--include-partial-messages", "--print"]
_STREAM = ["--attachment", "--enable-memory", "--trust-folder"]
_REFUSED = """
    --acp --ahp-host --banner --connect --environment-host --interactive --prompt --remote --remote-export
    --screen-reader --share --share-gist --silent --stream -C
"""
_MANY_FLAGS, _ONE_FLAGS = frozenset(_MANY.split()), frozenset(_ONE.split())


def _takes(flag: str, have: int, _word: str) -> bool:
    return have == 0 and flag in (*_ONE_FLAGS, *_MANY_FLAGS, "--output-format", "--attachment")


FLAGS = PrintFlags(
    terminal={
        **dict.fromkeys([*_MANY.split(), *_ONE.split(), *_BARE.split()], Handling.PASSED),
        **dict.fromkeys(_OURS, Handling.OURS),
        **dict.fromkeys(_STREAM, Handling.STREAM),
        **dict.fromkeys(_REFUSED.split(), Handling.REFUSED),
    },
    aliases={"-r": "--resume", "-n": "--name", "-m": "--model", "-o": "--output-format", "-V": "--version"},
    ours=frozenset(_OURS),
    needs_value=_MANY_FLAGS | _ONE_FLAGS - {"--resume"} | {"--output-format", "--attachment"},
    takes=_takes,
)


class CopilotStream:
    kind: Literal["stream"] = "stream"

    def arguments(self, passed: Sequence[str], *, inherit_hooks: bool, partial: bool) -> list[str]:
        # Without a terminal copilot reads the prompt from its standard input, as plain text.
        return ["--output-format=json", "--no-auto-update", *passed]

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        return dict(env)

    def message_reader(self) -> PrintReader:
        return PrintReader()

    def worker(self, session_id: str, profile: WorkerProfile) -> CopilotWorker:
        return make_worker(session_id, profile)

    def print_worker(self, session_id: str, profile: WorkerProfile) -> AcpPrintWorker:
        return make_print_worker(session_id, profile)


class CopilotDialogs(NoDialogs):
    def open_dialog(self, lines: Sequence[str]) -> str | None:
        return open_dialog(lines)

    def asks_for_trust(self, lines: Sequence[str]) -> bool:
        return read_trust_choice(lines) is not None

    def refusal(self, lines: Sequence[str]) -> str | None:
        found = [line.strip() for line in lines if line.strip().lower().startswith("error:")]
        return found[0] if found else None

    def shown(self, lines: Sequence[str]) -> str:
        words = [line.strip(" │╭╮╰╯─┃") for line in lines]
        return " ".join(word for word in words if word)[-500:]


class CopilotHeadless:
    program = "copilot"
    install_hint = "install GitHub Copilot CLI (npm install -g @github/copilot)"
    print_flags = FLAGS
    dialogs = CopilotDialogs()
    max_turns_reason = staticmethod(max_turns_reason)
    find_control = staticmethod(find_control)
    text_message = staticmethod(text_message)

    @property
    def stream(self) -> CopilotStream:
        return CopilotStream()

    def terminal_arguments(
        self, passed: Sequence[str], env: Mapping[str, str], cwd: Path, *, inherit_hooks: bool, asks: bool
    ) -> list[str]:
        return [*passed, *([] if asks else ["--no-ask-user"])]

    def print_turn(self, emit: Callable[[Message], None] | None, *, partial: bool) -> CopilotTurn:
        return CopilotTurn(emit)

    def check_typed(self, prompt: str) -> None:
        check_typed(prompt)

    def pretrust(self, env: Mapping[str, str], cwd: str, warn: Callable[[str], None]) -> bool:
        """Change nothing: `--trust` answers the dialog for one session, and no more is ever saved."""
        warn("copilot's trust is not saved for you; use --trust, which answers its dialog for this session")
        return False

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
        found: list[Message] = []
        turn = CopilotTurn(found.append)
        turn.follow(path, prompt_id)
        turn.read()
        ended = TurnEnd("api_error" if failed else "completed", is_error=failed, text=answer)
        return [*found, turn.result(ended, round(seconds * 1000), "terminal")]
