"""`remuda run` without a pool: runs what `remuda print` runs, and prints the result as `run` does"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from remuda.agents import DEFAULT_AGENT, find_warm
from remuda.errors import AgentError, InvalidOptions, from_code
from remuda.oneshot.emitter import Emitter
from remuda.oneshot.print_request import PrintRequest as Request
from remuda.oneshot.run import DeferredOutput, run
from remuda.pool.option_readers import request_id as check_request_id
from remuda.pool.options import PartialProfile

from .run_once import DEFAULT_TIMEOUT, PROFILE, Printer, variables

_FLAGS = {
    "model": "--model",
    "allowed_tools": "--allowedTools",
    "disallowed_tools": "--disallowedTools",
    "permission_mode": "--permission-mode",
    "system_prompt": "--system-prompt",
    "append_system_prompt": "--append-system-prompt",
    "settings": "--settings",
    "setting_sources": "--setting-sources",
    "mcp_config": "--mcp-config",
    "add_dirs": "--add-dir",
}
_USAGE = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def run_cold(prompt: str, flags: Mapping[str, Any]) -> int:
    """Run a new agent. Raises `InvalidOptions` for what only a pool can do."""
    if flags.get("--permissions") == "allow":
        raise InvalidOptions(
            "--permissions allow needs a pool",
            hint="start one with 'remuda pool serve', or name the tools with --allowed-tools",
        )
    for refusal in find_warm(DEFAULT_AGENT).refusals(
        PartialProfile(extra_args=tuple(flags.get("--arg", [])))
    ):
        raise InvalidOptions(refusal, hint="'remuda print' may accept it")
    if (request_id := flags.get("--request-id")) is not None:
        check_request_id("request_id", request_id)
    request = Request(
        prompt_words=[prompt],
        passed=_words(flags),
        model=flags.get("--model"),
        backend="stream" if flags.get("--backend") in ("stream", "print") else "terminal",
        chose_backend="--backend" in flags,
        timeout=flags.get("--timeout", DEFAULT_TIMEOUT),
        claude_binary=flags.get("--claude-binary"),
        demo="--demo" in flags,
        output_format="stream-json" if "--stream" in flags else "json",
        partial_messages="--stream" in flags,
        config=os.devnull,  # the configuration file is for print
    )
    _move(flags)
    return run(request, ColdOutput(request, flags))


def _words(flags: Mapping[str, Any]) -> list[str]:
    words: list[str] = []
    for flag, name in PROFILE.items():
        values = flags.get(flag, [])
        several = values if isinstance(values, list) else [values]
        words += [value if name == "extra_args" else f"{_FLAGS[name]}={value}" for value in several]
    return words


def _move(flags: Mapping[str, Any]) -> None:
    """Change to the folder and the environment of the options."""
    for name, value in variables(flags.get("--env", [])).items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    if "--cwd" in flags:
        folder = os.path.expanduser(flags["--cwd"])
        try:
            os.chdir(folder)
        except OSError as error:
            raise InvalidOptions(f"cannot enter --cwd {folder}: {error.strerror}") from error
        os.environ["PWD"] = os.getcwd()
    sys.stdin = None  # the prompt has been read


class ColdOutput(DeferredOutput):
    def __init__(self, request: Request, flags: Mapping[str, Any]) -> None:
        super().__init__(request)
        self._flags = flags

    @cached_property
    def emitter(self) -> Emitter:
        return ColdEmitter(self._request, self._flags)


class ColdEmitter(Emitter):
    """Prints the output of `print` in the form of `run`."""

    def __init__(self, request: Request, flags: Mapping[str, Any]) -> None:
        super().__init__(request)
        self._printer = Printer(dict(flags))
        self._request_id = flags.get("--request-id")

    def emit(self, message: dict[str, Any]) -> None:
        """With --stream: print the text of a message."""
        delta = message["event"].get("delta", {}) if message.get("type") == "stream_event" else {}
        if delta.get("type") == "text_delta":
            self._printer.event({"type": "token", "text": str(delta.get("text", ""))})

    def stream_end(self) -> None:
        self.result(self._results[-1])

    def result(self, document: dict[str, Any]) -> None:
        if document.get("is_error"):
            why = (
                document.get("result")
                or "; ".join(map(str, document.get("errors", [])))
                or "the agent failed without a reason"
            )
            self._printer.failed(AgentError(str(why)))
        else:
            self._printer.done(self._as_run(document), cold=True)

    def error(self, document: dict[str, Any]) -> None:
        self._printer.failed(from_code(str(document["error_code"]), str(document["error_message"])))

    def _as_run(self, document: Mapping[str, Any]) -> dict[str, Any]:
        usage = document.get("usage")
        return {
            "request_id": self._request_id,
            "text": document.get("result", ""),
            "session_id": None,
            "backend": document.get("backend"),
            "duration": document.get("duration_ms", 0) / 1000,
            "queue_wait": 0.0,
            "warm": False,
            "usage": usage and {name: usage.get(name, 0) for name in _USAGE},
            "conversation_id": document.get("session_id"),
            "entrypoint": document.get("entrypoint"),
            "model": next(iter(document.get("modelUsage") or {}), None),
            "num_turns": document.get("num_turns"),
            "permission_denials": document.get("permission_denials", []),
            "total_cost_usd": document.get("total_cost_usd"),
        }
