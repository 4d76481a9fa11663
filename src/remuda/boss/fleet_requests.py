"""Requests to any host of the fleet, through the boss: for `remuda run --fleet` and `Client(fleet=True)`.

Blocking. The boss keeps the request, so one of its restarts is waited for.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from remuda.errors import BossDown, InvalidOptions, NotInFleet, WaitTimeout
from remuda.paths import home
from remuda.pool.worker import request_key
from remuda.untrusted import as_object

from .client import BossClient

Message = dict[str, Any]

_POLL = 20.0
_GRACE = 30.0
_RETRY_INTERVAL = 0.2
_CONFIGS = ("settings", "mcp_config")


class FleetRequest:
    """Sends a request when it is made; `next` returns its messages, as a served pool sends them.

    The last one is `done` or `error`. A host that is lost is reported by `retry`: another one runs it again.

    Raises `NotInFleet`, `BossDown`, `HubUnreachable`, `PoolNotServed` if no host offers a pool, and
    `InvalidOptions`.
    """

    def __init__(
        self,
        prompt: str,
        options: Mapping[str, Any],
        *,
        timeout: float,
        stream: bool = False,
        raw: bool = False,
        permissions: str | None = None,
        requires: Mapping[str, str] | None = None,
    ) -> None:
        if not (home() / "fleet" / "member.json").exists():
            raise NotInFleet("this machine has joined no fleet", hint="see 'remuda help fleet'")
        required = dict(requires or {})
        if "claude_binary" in required:
            raise InvalidOptions("a program cannot be chosen on another host", hint="leave it out")
        given = portable(options)
        payload = {"prompt": prompt, "options": given, "stream": stream, "raw": raw, "requires": required}
        payload |= {"permissions": permissions}
        profile = request_key(given, permissions, required.get("agent"))
        body = {"profile": profile, "payload": payload, "timeout": timeout}
        self._boss = BossClient(timeout=_POLL + _GRACE)
        self._deadline = time.monotonic() + timeout + _GRACE
        self.id = str(self._boss.post("fleet", "requests", body=body)["id"])
        self._position = 0
        self._messages: deque[Message] = deque()

    def next(self) -> Message:
        """Wait for the next message. Raises `WaitTimeout`."""
        while not self._messages:
            if time.monotonic() > self._deadline:
                raise WaitTimeout(f"request {self.id} did not end in time")
            try:
                document = self._boss.get("fleet", "requests", self.id, after=self._position, wait=_POLL)
            except BossDown:
                time.sleep(_RETRY_INTERVAL)
                continue
            # Events are in the memory of the boss: after its restart they begin again.
            self._position = int(document["position"])
            self._messages.extend(document["events"])
            if (outcome := document["outcome"]) is not None:
                self._messages.append(_last(outcome))
        return self._messages.popleft()

    def cancel(self) -> None:
        """End it; the host that runs it stops."""
        self._boss.post("fleet", "requests", self.id, "cancel")


def _last(outcome: Message) -> Message:
    if "result" in outcome:
        return {"type": "done", "result": outcome["result"]}
    return {"type": "error", **as_object(outcome.get("error"))}


def portable(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options for another machine: `cwd` is a path there, and files of settings are sent along."""
    plain = {name: _plain(value) for name, value in options.items() if value not in (None, (), [])}
    plain["cwd"] = os.path.normpath(os.path.join(os.getcwd(), str(plain.get("cwd") or "")))
    plain["env"] = dict(plain.get("env") or {})
    for name in ("timeout", "request_id"):
        plain.pop(name, None)
    for name in _CONFIGS:
        if name in plain:
            value = plain[name]
            plain[name] = [_content(one) for one in value] if isinstance(value, list) else _content(value)
    return plain


def _content(value: Any) -> Any:
    if not isinstance(value, str) or value.lstrip().startswith("{"):
        return value
    try:
        with open(os.path.expanduser(value), encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError) as error:
        raise InvalidOptions(f"cannot read {value}: {error}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return [_plain(one) for one in value] if isinstance(value, tuple | list) else value
