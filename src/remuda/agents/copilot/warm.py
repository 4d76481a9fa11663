"""Copilot as a worker of a pool: options as arguments, and which a pool refuses. One ACP process serves many.

Over ACP a prompt is plain text: `!`, `/word` and 40 KB arrive unchanged (1.0.102). A denied request would end
the turn. So where no one is asked a hook denies, which the model reads, and goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from remuda.agents.acp.worker import AcpPrintWorker, AcpTurn, AcpWorker
from remuda.agents.unattended import DENIED
from remuda.agents.warm import WorkerOptions, WorkerProfile
from remuda.errors import InvalidOptions

from .files import events_file
from .launch import allow_rules, allows_all, hook_command
from .prompting import check_text, check_typed
from .records import read_record

MAX_ARGUMENT_BYTES = 131_071
DENY_PLUGIN = Path(__file__).with_name("deny_plugin")
DENY_VARIABLE = "REMUDA_COPILOT_DENY"
"""The command that the hook of this plugin runs."""
_UNKNOWN = (
    "permission_mode",
    "settings",
    "setting_sources",
    "system_prompt",
    "append_system_prompt",
)
_MANY_VALUES = {
    "--allow-tool": "allowed_tools",
    "--deny-tool": "disallowed_tools",
    "--additional-mcp-config": "mcp_config",
    "--add-dir": "add_dirs",
}
_FRESH = "every conversation of a pool begins fresh"
_FORM = "the pool sets how it talks to the agent"
_ELSEWHERE = "the agent would not run in the requested folder"
_UNUSABLE = {
    **dict.fromkeys(["--resume", "--continue", "--session-id", "--name", "--connect"], _FRESH),
    **dict.fromkeys(["--prompt", "--interactive", "--acp", "--output-format", "--silent", "--stream"], _FORM),
    **dict.fromkeys(["--help", "--version", "--share", "--share-gist"], _FORM),
    **dict.fromkeys(["-C", "--remote", "--remote-export", "--environment-host"], _ELSEWHERE),
    "--enable-memory": _FRESH,
}
_SUSPECT = ("Error: ", "Info: ")
_RECORD_PATIENCE = 2.0
_RECORD_INTERVAL = 0.02


# ── arguments ──


def arguments(options: WorkerOptions) -> list[str]:
    """Return the words after the program's name. Raises `InvalidOptions` if one cannot be passed."""
    words = [f"{flag}={value}" for flag, value in _given(options)]
    words += options.extra_args
    for word in words:
        name = word.partition("=")[0]
        if "\0" in word:
            raise InvalidOptions(f"{name} has a NUL character, which an argument cannot have")
        if len(word.encode("utf-8", "surrogateescape")) > MAX_ARGUMENT_BYTES:
            raise InvalidOptions(f"{name} is longer than {MAX_ARGUMENT_BYTES} bytes, the maximum")
    return words


def _given(options: WorkerOptions) -> Iterator[tuple[str, str]]:
    if options.model is not None:
        yield "--model", options.model
    for flag, name in _MANY_VALUES.items():
        yield from ((flag, value) for value in getattr(options, name))


def _refusals(options: WorkerOptions) -> list[str]:
    """Return why a worker cannot honour these options, one reason each."""
    found = [f"copilot has no option {name}" for name in _UNKNOWN if getattr(options, name, None) is not None]
    for word in options.extra_args:
        flag = word.partition("=")[0]
        if not word.startswith("--"):
            found.append(f"extra_args has {word!r}; write --flag=value, in its long form")
        elif reason := _UNUSABLE.get(flag):
            found.append(f"{flag} cannot be used in a pool: {reason}")
        elif flag == "--model" and options.model is not None:
            found.append(f"{flag} cannot be used in a pool: the options set it too")
    return found


# ── workers ──


class CopilotWorker(AcpWorker):
    def command(self) -> Sequence[str]:
        profile = self.profile
        words = arguments(profile)
        if not profile.asks:
            words.append("--no-ask-user")
            if not allows_all(words, profile.env):
                words.append(f"--plugin-dir={DENY_PLUGIN}")
        return [*profile.program, "--acp", "--no-auto-update", *words]

    def environment(self) -> Mapping[str, str]:
        denying = hook_command("--deny", DENIED, *allow_rules(arguments(self.profile)))
        return {**self.profile.env, DENY_VARIABLE: denying}

    def check_prompt(self, prompt: str) -> None:
        check_text(prompt)

    def is_denial(self, content: object) -> bool:
        return DENIED in str(content)

    async def find_failure(self, conversation_id: str, turn: AcpTurn) -> str | None:
        """Return the error of a turn that ended as an answer: copilot writes it as text (1.0.102).

        A model may write the same words, so the transcript decides. It is written up to 0.15 s later.
        """
        if not turn.last_piece.startswith(_SUSPECT):
            return None
        path = events_file(self.profile.env, conversation_id)
        try:
            async with asyncio.timeout(_RECORD_PATIENCE):
                while True:
                    verdict = _verdict(path)
                    if verdict is not None:
                        return turn.last_piece.strip() if verdict else None
                    await asyncio.sleep(_RECORD_INTERVAL)
        except TimeoutError:
            return f"{turn.last_piece.strip()} (the transcript does not say whether it is an answer)"


def _verdict(path: Path | None) -> bool | None:
    """Return whether the last turn failed; None while the transcript does not say."""
    from remuda.agents.events import MessageRecorded, TurnFailed, TurnInterrupted
    from remuda.jsonl_tail import JsonlTail

    if path is None:
        return None
    verdict = None
    for record in JsonlTail(path).read():
        for event in read_record(record).events:
            if isinstance(event, TurnFailed | TurnInterrupted):
                return True
            if isinstance(event, MessageRecorded) and event.final:
                verdict = False
        if record.get("type") == "user.message":
            verdict = None
    return verdict


def make_worker(session_id: str, profile: WorkerProfile) -> CopilotWorker:
    return CopilotWorker(session_id, profile)


def make_print_worker(session_id: str, profile: WorkerProfile) -> AcpPrintWorker:
    return AcpPrintWorker(session_id, profile, lambda: CopilotWorker(session_id, profile))


class CopilotWarm:
    clear_command = "/clear"
    default_backend = "stream"
    arguments = staticmethod(arguments)

    def refusals(self, options: WorkerOptions, *, terminal: bool = False) -> list[str]:
        if terminal:
            return ["copilot does not confirm that a conversation was cleared; use the backend stream"]
        return _refusals(options)

    def check_prompt(self, prompt: str) -> None:
        check_typed(prompt)

    def terminal_arguments(
        self, options: WorkerOptions, env: Mapping[str, str], cwd: Path, *, asks: bool
    ) -> list[str]:
        return [*arguments(options), *([] if asks else ["--no-ask-user"])]

    def split_options(self, arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        options: dict[str, Any] = {}
        rest: list[str] = []
        for word in arguments:
            flag, equals, value = word.partition("=")
            if flag == "--model" and equals:
                options["model"] = value
            elif flag in _MANY_VALUES and equals:
                options.setdefault(_MANY_VALUES[flag], []).append(value)
            else:
                rest.append(word)
        return options, rest

    def is_denial(self, content: object) -> bool:
        return DENIED in str(content)

    def entrypoint(self, env: Mapping[str, str], pid: int) -> str | None:
        return None
