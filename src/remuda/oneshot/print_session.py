"""The session of one call: what its keeper gets, its start, and its end with us.

It needs few modules: the agent starts while everything else that a call needs is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from remuda.agents import find_agent, find_headless
from remuda.agents.headless import Headless
from remuda.errors import InputError
from remuda.keeper.environment import session_environment
from remuda.keeper.prefork import FAREWELL, Waiting, take_waiting
from remuda.paths import SessionPaths

from .print_request import PrintRequest

NEVER = 1e9


class CallSession:
    """Call `begin`, then `started`, and `close` in any case. The keeper ends the agent then, and if we die.

    With `--keep` the session goes on.
    """

    def __init__(
        self,
        request: PrintRequest,
        prompt: str,
        command: Sequence[str],
        *,
        agent: str,
        folder: Path | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.headless = find_headless(agent)
        _check_prompt(prompt, self.headless)
        # `leftovers` removes a session of this name when no process has that pid and its record is ephemeral.
        name = f"{'kept' if request.keep else 'print'}-{os.getpid()}-{os.urandom(3).hex()}"
        self.paths = SessionPaths.of(name, folder)
        self.message_id = name
        self.is_kept = request.keep
        self._waiting: Waiting | None = None
        self._lifeline = -1
        self.notices = -1
        """After the start: readable when there may be something new, and when the keeper is gone."""
        self._specification = self._specify(
            request, prompt, command, agent, os.environ if env is None else env, cwd or Path.cwd()
        )

    def _specify(
        self,
        request: PrintRequest,
        prompt: str,
        command: Sequence[str],
        agent: str,
        env: Mapping[str, str],
        cwd: Path,
    ) -> dict[str, Any]:
        """Return the fields of a `SessionSpec` that differ from their defaults."""
        flags = self.headless.terminal_arguments(
            request.passed, env, cwd, inherit_hooks=request.inherit_hooks is not False, asks=request.ask
        )
        return {
            "name": self.name,
            "folder": str(self.paths.folder),
            "argv": [*command, *flags],
            "cwd": str(cwd),
            "env": session_environment(env, self.name, "REMUDA_SESSION", {}),
            "agent": agent,
            "classifier": find_agent(agent).classifier,
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
        """Send the specification to a keeper that waits. If none does, `started` begins one."""
        if not self.is_kept and (waiting := take_waiting()) is not None:
            self._waiting, self._lifeline = waiting, waiting.lifeline
            waiting.tell(self._specification)

    def started(self) -> None:
        """Wait until it runs. Raises what a start can raise."""
        from remuda.keeper.start import default_start_timeout, hear_from, start_attended

        if self._waiting is not None:
            limit = default_start_timeout(self._specification["agent"])
            attended = hear_from(self._waiting, self.name, limit)
        else:
            from remuda.keeper.spec import SessionSpec

            attended = start_attended(SessionSpec(**self._specification), owned=not self.is_kept)
        self._lifeline, self.notices = attended.lifeline, attended.news

    def close(self, *, in_order: bool = False) -> None:
        """End the session. `in_order`: the agent may take its time."""
        if self._lifeline >= 0:
            if in_order:
                with suppress(OSError):  # its keeper is gone
                    os.write(self._lifeline, FAREWELL)
            os.close(self._lifeline)
            self._lifeline = -1


def _check_prompt(prompt: str, headless: Headless) -> None:
    try:
        headless.check_typed(prompt)
    except InputError as error:
        raise InputError(
            f"cannot type this prompt into a terminal: {error.message}", hint="add --backend stream"
        ) from None
