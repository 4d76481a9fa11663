"""Any agent that speaks ACP, as a session: how it is started, and how it takes prompts."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from remuda.agents.base import Companion, Launch, LaunchContext
from remuda.agents.plain import PlainAgent
from remuda.agents.prompting import CallAddress, Choice, Composer, ComposerKind, Past
from remuda.digest import sha256
from remuda.errors import CommandNotFound, InputError, InvalidOptions

from .line_editor import MARK

if TYPE_CHECKING:
    from remuda.agents.observer import EventObserver
    from remuda.agents.permission import PermissionDecision, PermissionRequest
    from remuda.agents.prompting import PromptProtocol
    from remuda.agents.sources import AgentSources

    from .channel import AcpChannel


class AcpTransport:
    """The terminal of the session serves the calls itself, without a companion."""

    kind: Literal["call"] = "call"
    start_timeout = 30.0

    def companion(self, context: LaunchContext) -> Companion | None:
        return None

    def find_address(self, context: LaunchContext, output: str) -> str:
        """Return where the terminal will listen."""
        return str(context.scratch / "s")

    def may_start_again(self, output: str) -> bool:
        return False

    def channel(self, address: CallAddress) -> AcpChannel:
        from .channel import AcpChannel

        return AcpChannel(address)

    def check_decision(self, request: PermissionRequest, decision: PermissionDecision) -> None:
        from .asking import check_decision

        check_decision(request, decision)


class AcpPrompts:
    enter = b"\r"
    trust_settle = 0.0
    keeps_unanswered = False  # not known

    def __init__(self) -> None:
        self.transport = AcpTransport()

    def check(self, prompt: str, *, command: bool, literal: bool) -> None:
        word = (prompt.split() or [""])[0]
        if not word:
            raise InputError("the prompt is empty")
        if command and not word.startswith("/"):
            raise InputError(f"{word[:40]!r} is not a command: it must begin with '/'")
        if not command and word.startswith("/") and "/" not in word[1:]:
            raise InputError(
                f"a prompt that begins with {word[:40]} would run the agent's own command",
                hint="pass --command to run it, or put a word before it",
            )

    def argument(self, prompt: str, *, command: bool) -> None:
        return None

    def same(self, reported: str, prompt: str) -> bool:
        return reported == prompt

    def holds(self, reported: str, prompt: str) -> bool:
        return False

    def composer(self, lines: Sequence[str], styled: Callable[[int], bytes]) -> Composer:
        """Return the user's line: the last row that is not empty. Nothing of the agent comes below it."""
        last = next((line for line in reversed(lines) if line.strip()), "")
        if not last.startswith(MARK.rstrip()):
            return Composer(ComposerKind.ABSENT)
        text = last[len(MARK) :].strip()
        return Composer(ComposerKind.DRAFT if text else ComposerKind.EMPTY, text)

    def dialog(self, lines: Sequence[str]) -> str | None:
        """Return None: every request is reported."""
        return None

    def trust_choice(self, lines: Sequence[str]) -> Choice | None:
        return None

    def past(self, records: Iterable[Mapping[str, Any]], prompt: str, since: float) -> Past:
        from .records import find_past

        return find_past(records, since, prompt=prompt)

    def limited_for(self, text: str, now: float) -> float | None:
        return None

    def account(self, env: Mapping[str, str]) -> str:
        """Return one name for all: ACP does not say which account an agent uses, nor that it is limited."""
        return sha256(f"acp {env.get('HOME', '')}".encode())[:24]


class AcpAgent(PlainAgent):
    def __init__(self) -> None:
        super().__init__("acp", classifier="simple")

    @property
    def prompts(self) -> PromptProtocol | None:  # type: ignore[override]
        return AcpPrompts()

    @property
    def sources(self) -> AgentSources | None:  # type: ignore[override]
        from .sources import AcpSources

        return AcpSources()

    def launch(self, context: LaunchContext) -> Launch:
        return make_launch(context)

    def last_word(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> Callable[[], bool]:
        """Return that every stop is final: it is the answer to the prompt's call."""
        return lambda: True

    def observer(self, pid: int, env: Mapping[str, str], *, has_screen: bool) -> EventObserver:  # type: ignore[override]
        from remuda.agents.observer import EventObserver

        return EventObserver(AcpPrompts())


def make_launch(context: LaunchContext) -> Launch:
    """Return how the terminal is started. Raises for what is known to fail."""
    from .notes import NO_LOAD, RESUMABLE, SECRET_VARIABLE

    assert context.call is not None
    if not context.argv:
        raise InvalidOptions("--agent acp needs a command", hint="for example: -- copilot --acp")
    program, path = context.argv[0], context.env.get("PATH", os.defpath)
    named = os.path.join(context.cwd, program) if os.sep in program else program
    if (found := shutil.which(named, path=path)) is None:
        raise CommandNotFound(f"cannot find the program {program}")
    resumed = context.conversation.get("session_id")
    if resumed and context.conversation.get(RESUMABLE) == "no":
        raise InvalidOptions(NO_LOAD, hint="start a new conversation: remuda start without --resume")
    # Not in the scratch folder, which is removed with the session: a message in flight is found here later.
    records = context.scratch.with_suffix(".acp")
    words = [sys.executable, "-P", "-m", "remuda.agents.acp.terminal"]
    words += ["--socket", context.call.url, "--records", str(records)]
    words += ["--resume", str(resumed)] if resumed else []
    return Launch(
        [*words, "--", found, *context.argv[1:]], {**context.env, SECRET_VARIABLE: context.call.secret}
    )
