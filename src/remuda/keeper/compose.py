"""Build a session's specification from the starter's options, the configuration and its old record."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remuda.agents import DEFAULT_AGENT, find_agent, guess_agent
from remuda.arguments import absolute_path, check_text
from remuda.config import Config, check_variable
from remuda.duration import check_seconds
from remuda.errors import InvalidOptions, SessionNotFound
from remuda.names import check_name
from remuda.paths import SessionPaths
from remuda.turns.readiness import DRAFT_PATIENCE

from .environment import session_environment
from .logfile import parse_filter, parse_level
from .record import SessionRecord
from .size import check_size
from .spec import DEFAULT_COLS, DEFAULT_ROWS, SessionSpec

_TEXTS = (
    *("agent", "classifier", "log_filter", "log_level", "on_orphan", "restart", "session_env_var", "size"),
)


@dataclass(frozen=True, slots=True)
class Composed:
    spec: SessionSpec
    forgotten: list[str]
    """Variables that were set for the session when it last ran, and are not set now."""


def compose(
    name: str,
    cmd: Sequence[str],
    folder: Path,
    said: Mapping[str, Any],
    config: Config,
    *,
    attached: bool = False,
    size: tuple[int, int] = (DEFAULT_COLS, DEFAULT_ROWS),
) -> Composed:
    """Build the specification. `said` has the options of `remuda start` by their names; None means not given.

    `size` is the default size. Raises for options that no keeper could carry out.
    """
    paths = SessionPaths.of(check_name(name), folder)
    record = _record_to_resume(paths) if said.get("resume") else None
    options = _remembered(said, record)
    for key in _TEXTS:
        if options.get(key) is not None:
            check_text(key, options[key])
    agent_name, argv, cwd = _what_to_run(record, list(cmd), options)
    agent = find_agent(agent_name)
    cols, rows = check_size(_first(options.get("cols"), size[0]), _first(options.get("rows"), size[1]))
    classifier = options.get("classifier") or config.classifier or agent.classifier
    chosen_here = options.get("classifier") is not None
    variable = _first(options.get("session_env_var"), config.session_env_var)
    check_variable(variable, "--session-env-var")
    log_level = options.get("log_level") or config.log_level
    log_filter = options.get("log_filter") or config.log_filter
    parse_level(log_level)
    parse_filter(log_filter)
    added = _variables(options)
    spec = SessionSpec(
        name=name,
        folder=str(folder),
        argv=argv,
        cwd=str(cwd),
        env=session_environment(os.environ, name, variable, {**config.env, **added}),
        variables=sorted({*added, *(record.variables if record else ())}),
        agent=agent.name,
        cols=cols,
        rows=rows,
        size_policy=options.get("size") or config.size,
        classifier=classifier,
        # A classifier named on the command line begins with its own defaults, as in Heimdall.
        idle_threshold_ms=_first(
            options.get("idle_threshold_ms"), None if chosen_here else config.idle_threshold_ms
        ),
        debounce_ms=_first(options.get("debounce_ms"), None if chosen_here else config.debounce_ms),
        scrollback_bytes=_first(options.get("scrollback_bytes"), config.scrollback_bytes),
        history_bytes=_first(options.get("history_bytes"), config.history_bytes),
        kill_group=_first(options.get("kill_group"), config.kill_process_group),
        kill_grace=check_seconds("grace", _first(options.get("grace"), config.kill_grace)),
        log_file=_absolute("log_file", options.get("log_file") or config.log_file),
        log_level=log_level,
        log_filter=log_filter,
        log_max_bytes=config.log_max_bytes,
        record_file=_absolute("record", options.get("record")),
        resume=bool(options.get("resume")),
        expect_attach=attached,
        on_orphan=options.get("on_orphan") or "deadletter",
        restart=options.get("restart") or "never",
        sleep_after=check_seconds("sleep_after", _first(options.get("sleep_after"), config.sleep_after)),
        worktree=record.worktree if record else None,
        trust=bool(options.get("trust")),
        draft_patience=check_seconds("draft_patience", _first(options.get("draft_patience"), DRAFT_PATIENCE)),
        turn_timeout=check_seconds("turn_timeout", _first(options.get("turn_timeout"), 0.0)),
        asks=True,
        key=options.get("key") or os.urandom(8).hex(),
        started_by=options.get("started_by") or "",
        depth=options.get("depth") or 0,
    )
    return Composed(spec, _forgotten(record, added))


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _absolute(name: str, path: str | Path | None) -> str | None:
    return str(absolute_path(name, path)) if path else None


def _record_to_resume(paths: SessionPaths) -> SessionRecord:
    record = SessionRecord.load(paths.record)
    if record is None:
        raise SessionNotFound(f"session '{paths.name}' not found", hint="'remuda ls --all' lists all")
    return record


def _remembered(options: Mapping[str, Any], record: SessionRecord | None) -> dict[str, Any]:
    """Use the options of the last run where none is given now."""
    given_now = {key: value for key, value in options.items() if value is not None}
    return {**options, **(record.options if record else {}), **given_now}


def _forgotten(record: SessionRecord | None, added: Mapping[str, str]) -> list[str]:
    return [name for name in (record.variables if record else []) if name not in {*added, *os.environ}]


def _what_to_run(
    record: SessionRecord | None, cmd: list[str], options: dict[str, Any]
) -> tuple[str, list[str], Path]:
    named = options.get("agent")
    agent_name = named or (record.agent if record and not cmd else guess_agent(cmd) if cmd else DEFAULT_AGENT)
    again = record is not None and not cmd
    argv = list(record.argv) if record and again else _command(agent_name, cmd, explicit=named is not None)
    cwd = options.get("cwd") or (Path(record.cwd) if record else Path.cwd())
    return agent_name, argv, absolute_path("cwd", cwd)


def _command(agent_name: str, cmd: list[str], *, explicit: bool) -> list[str]:
    default = list(find_agent(agent_name).default_argv)
    if not cmd:
        if not default or not explicit:
            raise InvalidOptions(
                "nothing to run",
                hint="give a command after '--', or an agent: remuda start work --agent claude",
            )
        return default
    # `--agent claude -- --model sonnet`: arguments for the agent, not a command.
    if default and (cmd[0].startswith("-") or agent_name == "demo"):
        return [*default, *cmd]
    return cmd


def _variables(options: dict[str, Any]) -> dict[str, str]:
    variables = {}
    for entry in options.get("variables") or ():
        name, equals, value = entry.partition("=")
        if not name or not equals:
            raise InvalidOptions(f"--env {entry!r} is not NAME=VALUE")
        variables[name] = value
    return variables
