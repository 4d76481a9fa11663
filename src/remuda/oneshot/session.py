"""The session of one call: what its keeper is told, its start, and its end with us.

Little is loaded for it: the agent starts while everything else that a call needs is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from remuda.agents.claude.prompt import check
from remuda.errors import InputError
from remuda.keeper.environment import session_environment
from remuda.keeper.prefork import FAREWELL, Waiting, take_waiting
from remuda.paths import SessionPaths

from .arguments import for_terminal
from .request import Request

NEVER = 1e9


class CallSession:
    """`begin`, then `started`; in any case `close`: the keeper ends the agent then, as when we are gone.

    One that is to be kept is left running.
    """

    def __init__(
        self,
        request: Request,
        prompt: str,
        command: Sequence[str],
        *,
        agent: str = "claude",
        folder: Path | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        _check_prompt(prompt)
        # What is named so is swept when no process has its number and its record is ephemeral: see `remains`.
        name = f"{'kept' if request.keep else 'print'}-{os.getpid()}-{os.urandom(3).hex()}"
        self.paths = SessionPaths.of(name, folder)
        self.message_id = name
        self.is_kept = request.keep
        self._waiting: Waiting | None = None
        self._lifeline = -1
        self.news = -1
        """Once it has started: readable when there may be something to see, and when its keeper is gone."""
        self._specification = self._specify(
            request, prompt, command, agent, os.environ if env is None else env, cwd or Path.cwd()
        )

    def _specify(
        self,
        request: Request,
        prompt: str,
        command: Sequence[str],
        agent: str,
        env: Mapping[str, str],
        cwd: Path,
    ) -> dict[str, Any]:
        """The fields of a `SessionSpec` that are not as they mostly are."""
        flags = for_terminal(request.passed, env, cwd)
        if request.inherit_hooks is False:
            flags.append("--setting-sources=")
        if not request.ask:
            flags += ["--disallowedTools=AskUserQuestion"]  # `claude -p` does not have it either
        return {
            "name": self.name,
            "folder": str(self.paths.folder),
            "argv": [*command, *flags],
            "cwd": str(cwd),
            "env": session_environment(env, self.name, "REMUDA_SESSION", {}),
            "agent": agent,
            "classifier": "claude",
            "trust": True,
            "forget_trust": True,
            "once": True,
            "owned": not request.keep,
            "ephemeral": not request.keep,
            "deny_permissions": not request.ask,
            "asks": request.ask,
            "max_turns": request.max_turns or 0,
            "stop_timeout": request.stop_hook_timeout or NEVER,
            "prompt": prompt,
            "message_id": self.message_id,
        }

    @property
    def name(self) -> str:
        return self.paths.name

    def begin(self) -> None:
        """Tell a keeper that waits what to keep. Where none does, `started` begins one."""
        if not self.is_kept and (waiting := take_waiting()) is not None:
            self._waiting, self._lifeline = waiting, waiting.lifeline
            waiting.tell(self._specification)

    def started(self) -> None:
        """Returns when it runs. Raises what keeps it from that."""
        from remuda.keeper.start import hear_from, start_attended

        if self._waiting is not None:
            attended = hear_from(self._waiting, self.name)
        else:
            from remuda.keeper.spec import SessionSpec

            attended = start_attended(SessionSpec(**self._specification), owned=not self.is_kept)
        self._lifeline, self.news = attended.lifeline, attended.news

    def close(self, *, in_order: bool = False) -> None:
        """`in_order`: the agent may take its time for its end."""
        if self._lifeline >= 0:
            if in_order:
                _say(self._lifeline, FAREWELL)
            os.close(self._lifeline)
            self._lifeline = -1


def _say(fd: int, word: bytes) -> None:
    try:
        os.write(fd, word)
    except OSError:  # its keeper is gone
        pass


def _check_prompt(prompt: str) -> None:
    try:
        check(prompt, command=False, literal=False)
    except InputError as error:
        raise InputError(
            f"cannot type this prompt into a terminal: {error.message}", hint="add --backend stream"
        ) from None
