"""The invented agent behind the protocols of `remuda.agents`: `mustang` is called, `pinto` is pasted into."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from remuda.agents.attention import Event, attention_events
from remuda.agents.base import Companion, HookChannel, Launch, LaunchContext, SessionTransport
from remuda.agents.events import Report
from remuda.agents.headless import Headless
from remuda.agents.observer import EventObserver
from remuda.agents.permission import PermissionDecision, PermissionRequest, Refusals
from remuda.agents.plain import PlainAgent
from remuda.agents.prompting import CallAddress, Carried, Choice, Composer, ComposerKind, Past, PromptProtocol
from remuda.agents.sources import (
    AgentSources,
    NoSources,
    PermissionReader,
    ReadFile,
)
from remuda.agents.warm import WarmAgent, WorkerOptions
from remuda.errors import InputError

from .channel import StableChannel
from .headless import MustangHeadless
from .notes import read_note

PROGRAM = Path(__file__).with_name("program.py")
_COMPOSER = "saddle> "
_DIALOG = "?? may I kick: "
_ASIDE = "(kept aside) "


# ── how prompts are handed over ──


class StableTransport:
    kind: Literal["call"] = "call"
    start_timeout = 20.0

    def companion(self, context: LaunchContext) -> Companion:
        trail = context.conversation.get("session_id")
        argv = [*context.argv, "stable", "--at", _socket(context), *(["--trail", trail] if trail else [])]
        return Companion(argv, {**context.env, "MUSTANG_SECRET": context.call_secret})

    def find_address(self, context: LaunchContext, output: str) -> str | None:
        return _socket(context) if "stable open at " in output else None

    def may_start_again(self, output: str) -> bool:
        return "the gate is stuck" in output

    def channel(self, address: CallAddress) -> StableChannel:
        return StableChannel(address)


def _socket(context: LaunchContext) -> str:
    """Short: the path of a socket has at most 107 bytes, and that of a test's folder is long."""
    if context.call is not None:
        return context.call.url
    name = hashlib.sha256(str(context.scratch).encode()).hexdigest()[:16]
    return os.path.join(context.env["MUSTANG_HOME"], f"{name}.sock")


class SaddleTransport:
    kind: Literal["paste"] = "paste"
    stash = b"\x07"
    interrupt = b"\x18"
    wipe = b"\x15"

    def paste(self, prompt: str, *, command: bool) -> Carried:
        return Carried(b"\x1b[200~" + prompt.encode() + b"\x1b[201~\r", prompt)


class MustangPrompts:
    enter = b"\r"
    trust_settle = 0.0
    keeps_unanswered = True

    def __init__(self, transport: SessionTransport) -> None:
        self.transport = transport

    def check(self, prompt: str, *, command: bool, literal: bool) -> None:
        if command is not prompt.startswith("/"):
            raise InputError(f"{prompt[:20]!r} is {'not ' if command else ''}a command of mustang")

    def argument(self, prompt: str, *, command: bool) -> None:
        return None

    def same(self, reported: str, prompt: str) -> bool:
        return reported == prompt

    def holds(self, reported: str, prompt: str) -> bool:
        return reported != prompt and prompt in reported

    def composer(self, lines: Sequence[str], styled: Callable[[int], bytes]) -> Composer:
        shown = [line for line in lines if line.startswith(_COMPOSER.rstrip())]
        if not shown:
            return Composer(ComposerKind.ABSENT)
        text = shown[0][len(_COMPOSER) :].rstrip()
        aside = any(line.startswith(_ASIDE) for line in lines)
        return Composer(ComposerKind.DRAFT if text else ComposerKind.EMPTY, text, aside)

    def dialog(self, lines: Sequence[str]) -> str | None:
        return "kick" if lines and lines[0].startswith(_DIALOG) else None

    def trust_choice(self, lines: Sequence[str]) -> Choice | None:
        return None

    def past(self, records: Iterable[Mapping[str, Any]], prompt: str, since: float) -> Past:
        found = Past()
        for record in records:
            if record["kind"] == "ask":
                ours = record["words"] == prompt and record["at"] >= since
                found = Past(submitted=True, prompt_id=record["turn"]) if ours else found
            elif record["turn"] == found.prompt_id and record["kind"] == "say":
                return Past(True, True, record["words"], found.prompt_id)
        return found

    def limited_for(self, text: str, now: float) -> float | None:
        return None

    def account(self, env: Mapping[str, str]) -> str:
        return hashlib.sha256(env["MUSTANG_HOME"].encode()).hexdigest()[:24]


# ── permissions ──


class Whinnies:
    """The hooks of `pinto`: other names, other fields, other answers."""

    def read(self, payload: Mapping[str, Any], at: float) -> Report:
        return read_note(payload)

    def read_emitted(self, arguments: Mapping[str, Any]) -> Report | None:
        return None

    def decide(self, request: PermissionRequest, decision: PermissionDecision) -> dict[str, Any]:
        return {"rein": "loose" if decision.allow else "tight", "words": decision.message}

    def refuse_prompt(self, reason: str) -> dict[str, Any]:
        return {}

    def halt(self, reason: str) -> dict[str, Any]:
        return {}


class MustangPermissions:
    command_fields: Mapping[str, str] = {"hoof": "line"}
    quiet_tools: frozenset[str] = frozenset()

    def reason(self, tool: str) -> str:
        return "permission"

    def facts(self, tool: str, given: object, read: ReadFile | None = None) -> dict[str, Any]:
        wanted = given if isinstance(given, dict) else {}
        line = wanted.get("line")
        before = read(wanted["fence"]) if read is not None and "fence" in wanted else None
        diff = {} if before is None else {"diff": f"-{before}\n+{line}\n"}
        return {"reason": "permission", "tool": tool, "input": given, "message": f"kick: {line}", **diff}

    def is_plain(self, given: Mapping[str, Any], field: str) -> bool:
        return set(given) == {field}

    def path_fields(self, given: object) -> Iterator[object]:
        return iter(())

    def search_pattern(self, tool: str, given: Mapping[str, Any]) -> object:
        return None

    def with_answers(self, given: Mapping[str, Any], answers: Mapping[str, Any]) -> dict[str, Any]:
        return dict(given)

    def refusals(self, request: PermissionRequest) -> Refusals:
        return Refusals(always="a mustang is asked each time")


class MustangSources(NoSources):
    """A mustang has no registry. Its hooks are its notes."""

    permissions: PermissionReader = MustangPermissions()

    def __init__(self, agent: str) -> None:
        self.agent = agent

    def hook_events(
        self,
        payload: Mapping[str, Any],
        at: float,
        *,
        id: str = "",  # noqa: A002  # the id of the event
        env: Mapping[str, str] | None = None,
        read: ReadFile | None = None,
    ) -> list[Event]:
        describe = partial(self.permissions.facts, read=read)
        return attention_events(read_note(payload), at, agent=self.agent, describe=describe, id=id)

    def attach_command(self, session_id: str) -> str:
        return f"mustang {session_id}"


# ── the pool ──


class MustangWarm:
    clear_command = "/graze"

    def check_prompt(self, prompt: str) -> None:
        MustangPrompts(StableTransport()).check(prompt, command=False, literal=False)

    def refusals(self, options: WorkerOptions, *, terminal: bool = False) -> list[str]:
        return [f"mustang has no flag {word}" for word in options.extra_args]

    def arguments(self, options: WorkerOptions) -> list[str]:
        return []

    def terminal_arguments(
        self, options: WorkerOptions, env: Mapping[str, str], cwd: Path, *, asks: bool
    ) -> list[str]:
        return []

    def split_options(self, arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        return {}, list(arguments)

    def is_denial(self, content: object) -> bool:
        return False

    def entrypoint(self, env: Mapping[str, str], pid: int) -> str | None:
        return None


# ── the agents ──


class _Horse(PlainAgent):
    default_argv: tuple[str, ...] = (sys.executable, "-S", "-E", str(PROGRAM))
    transport: SessionTransport

    def __init__(self, name: str) -> None:
        super().__init__(name, classifier="simple")
        self.sources: AgentSources | None = MustangSources(name)

    @property
    def prompts(self) -> PromptProtocol | None:  # type: ignore[override]
        return MustangPrompts(self.transport)

    @property
    def headless(self) -> Headless | None:  # type: ignore[override]
        return MustangHeadless()

    @property
    def warm(self) -> WarmAgent | None:  # type: ignore[override]
        return MustangWarm()

    def last_word(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> Callable[[], bool]:
        return lambda: True

    def observer(self, pid: int, env: Mapping[str, str], *, has_screen: bool) -> EventObserver:  # type: ignore[override]
        return EventObserver(MustangPrompts(self.transport))


class MustangAgent(_Horse):
    transport: SessionTransport = StableTransport()

    def __init__(self) -> None:
        super().__init__("mustang")

    def launch(self, context: LaunchContext) -> Launch:
        assert context.call is not None
        env = {**context.env, "MUSTANG_SECRET": context.call.secret}
        return Launch([*context.argv, "ride", "--at", context.call.url], env)


class PintoAgent(_Horse):
    transport: SessionTransport = SaddleTransport()
    hooks: HookChannel | None = Whinnies()

    def __init__(self) -> None:
        super().__init__("pinto")

    def launch(self, context: LaunchContext) -> Launch:
        words = ["trot", "--whinny", context.hook_url, "--token", context.hook_token]
        trail = context.conversation.get("session_id")
        return Launch([*context.argv, *words, *(["--trail", trail] if trail else [])], dict(context.env))
