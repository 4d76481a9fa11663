"""remuda start"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from remuda.agents import AGENT_NAMES, find_agent, guess_agent
from remuda.config import CLASSIFIERS, Config, check_variable
from remuda.errors import InvalidOptions, SessionNotFound
from remuda.keeper.environment import session_environment
from remuda.keeper.logfile import parse_filter, parse_level
from remuda.keeper.record import SessionRecord
from remuda.keeper.size import check_size
from remuda.keeper.spec import DEFAULT_COLS, DEFAULT_ROWS, SessionSpec
from remuda.keeper.start import start_session
from remuda.names import check_name
from remuda.paths import SessionPaths
from remuda.turns.readiness import DRAFT_PATIENCE

from .common import (
    config_option,
    configuration,
    find_folder,
    folder_option,
    json_option,
    print_json,
    seconds,
)

_HELP = """Start CMD, or an agent, as the session NAME on a terminal of its own.

    From a terminal you are attached to it at once; --detach leaves it in the background. It goes on when
    you leave, when your connection breaks, and when you log out.

    \b
    Examples:
      remuda start work --agent claude
      remuda start work --detach -- claude --model sonnet "look at the failing tests"
      remuda start build -- make -j2
      remuda start work --resume             bring a dead session back, with its conversation
    """


@click.command("start", help=_HELP, context_settings={"ignore_unknown_options": False})
@click.argument("name")
@click.argument("cmd", nargs=-1, type=click.UNPROCESSED)
@click.option("--agent", type=click.Choice(AGENT_NAMES), help="What runs.  [default: seen from the command]")
@click.option(
    "--cwd", "--workdir", type=click.Path(path_type=Path), help="Working folder.  [default: this one]"
)
@click.option("--cols", type=int, help="Columns.  [default: those of this terminal, else 220]")
@click.option("--rows", type=int, help="Rows.  [default: those of this terminal, else 50]")
@click.option(
    "--size", type=click.Choice(["latest", "smallest", "fixed"]), help="Whose size the session has."
)
@click.option("-d", "--detach", is_flag=True, help="Do not attach.")
@click.option("--resume", is_flag=True, help="Bring back the dead session NAME, with its conversation.")
@click.option(
    "--env", "variables", multiple=True, metavar="NAME=VALUE", help="Set a variable for the program."
)
@click.option("--record", type=click.Path(path_type=Path), metavar="FILE", help="Record as asciicast v2.")
@click.option("--kill-group/--no-kill-group", "--kill-process-group/--no-kill-process-group", default=None,
              help="Whether 'kill' ends all descendants, or the program alone.")  # fmt: skip
@click.option(
    "--trust", is_flag=True, default=None, help="Answer yes when the agent asks to trust the folder."
)
@click.option(
    "--on-orphan",
    type=click.Choice(["retry", "deadletter", "drop"]),
    help="What becomes of a message whose answer was under way when the session died.  [default: deadletter]",
)
@click.option(
    "--turn-timeout",
    type=seconds,
    metavar="SECONDS",
    help="A turn without a sign of life for so long has failed.",
)
@click.option(
    "--draft-patience",
    type=seconds,
    metavar="SECONDS",
    help="A draft that nobody touched for so long is laid aside for a message.  [default: 15]",
)
@click.option("--grace", type=seconds, metavar="SECONDS", help="Time between TERM and KILL.  [default: 5]")
@click.option("--scrollback-bytes", type=click.IntRange(min=0), help="Raw history for plain clients.")
@click.option("--classifier", type=click.Choice(CLASSIFIERS), help="How byte timing is read.")
@click.option("--idle-threshold-ms", type=click.IntRange(min=0), help="Silence that counts as idle.")
@click.option("--debounce-ms", type=click.IntRange(min=0), help="How long a state must hold (claude).")
@click.option("--session-env-var", metavar="NAME", help="Variable that tells the program its session.")
@click.option("--log-file", type=click.Path(path_type=Path), help="The keeper's log.")
@click.option("--log-level", help="trace, debug, info, warn or error.")
@click.option("--log-filter", metavar="NAME=LEVEL,…", help="Levels for parts of the keeper.")
@folder_option
@config_option
@json_option
def command(name: str, cmd: tuple[str, ...], as_json: bool, detach: bool, **options: Any) -> int | None:
    config = configuration(options["config_file"])
    attach = not detach and not as_json and sys.stdin.isatty() and sys.stdout.isatty()
    spec = make_spec(name, list(cmd), options, config, attached=attach)
    started = start_session(spec)
    if attach:
        from .attach import attach_here

        return attach_here(name, Path(spec.folder), config)
    if as_json:
        print_json({"name": name, "keeper_pid": started.keeper_pid, "pid": started.child_pid})
    else:
        click.echo(f"started {name} (pid {started.child_pid}); attach with: remuda attach {name}")
    return None


def make_spec(
    name: str, cmd: list[str], options: dict[str, Any], config: Config, *, attached: bool = False
) -> SessionSpec:
    """Everything the keeper needs, from options, configuration and, to resume, the session's record."""
    folder = find_folder(options.get("folder"), config)
    paths = SessionPaths.of(check_name(name), folder)
    record = _record_to_resume(paths) if options.get("resume") else None
    options = _remembered(options, record)
    agent_name, argv, cwd = _what_to_run(record, cmd, options)
    agent = find_agent(agent_name)
    cols, rows = _size(options, attached, bar=config.status_bar)
    classifier = options.get("classifier") or config.classifier or agent.classifier
    chosen_here = options.get("classifier") is not None
    variable = _first(options.get("session_env_var"), config.session_env_var)
    check_variable(variable, "--session-env-var")
    log_level = options.get("log_level") or config.log_level
    log_filter = options.get("log_filter") or config.log_filter
    parse_level(log_level)
    parse_filter(log_filter)
    added = _variables(options)
    _tell_forgotten(record, added)
    return SessionSpec(
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
        # A classifier named on the command line begins with its own defaults, as Heimdall's does.
        idle_threshold_ms=_first(
            options.get("idle_threshold_ms"), None if chosen_here else config.idle_threshold_ms
        ),
        debounce_ms=_first(options.get("debounce_ms"), None if chosen_here else config.debounce_ms),
        scrollback_bytes=_first(options.get("scrollback_bytes"), config.scrollback_bytes),
        kill_group=_first(options.get("kill_group"), config.kill_process_group),
        kill_grace=_first(options.get("grace"), config.kill_grace),
        log_file=_absolute(options.get("log_file") or config.log_file),
        log_level=log_level,
        log_filter=log_filter,
        log_max_bytes=config.log_max_bytes,
        record_file=_absolute(options.get("record")),
        resume=bool(options.get("resume")),
        expect_attach=attached,
        on_orphan=options.get("on_orphan") or "deadletter",
        trust=bool(options.get("trust")),
        draft_patience=_first(options.get("draft_patience"), DRAFT_PATIENCE),
        turn_timeout=_first(options.get("turn_timeout"), 0.0),
    )


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _absolute(path: str | Path | None) -> str | None:
    return str(Path(path).expanduser().absolute()) if path else None


def _record_to_resume(paths: SessionPaths) -> SessionRecord:
    record = SessionRecord.load(paths.record)
    if record is None:
        raise SessionNotFound(f"there is no session '{paths.name}' to resume")
    return record


def _remembered(options: dict[str, Any], record: SessionRecord | None) -> dict[str, Any]:
    """What is not said now is as it was."""
    said = {key: value for key, value in options.items() if value is not None}
    return {**options, **(record.options if record else {}), **said}


def _tell_forgotten(record: SessionRecord | None, added: dict[str, str]) -> None:
    missing = [name for name in (record.variables if record else []) if name not in {*added, *os.environ}]
    if missing:
        click.echo(
            f"remuda: these variables were set for it before and are not now: {', '.join(missing)}; "
            "give them again with --env",
            err=True,
        )


def _what_to_run(
    record: SessionRecord | None, cmd: list[str], options: dict[str, Any]
) -> tuple[str, list[str], Path]:
    named = options.get("agent")
    agent_name = named or (record.agent if record and not cmd else guess_agent(cmd) if cmd else "claude")
    again = record is not None and not cmd
    argv = list(record.argv) if record and again else _command(agent_name, cmd, explicit=named is not None)
    cwd = options.get("cwd") or (Path(record.cwd) if record else Path.cwd())
    return agent_name, argv, Path(cwd).expanduser().absolute()


def _command(agent_name: str, cmd: list[str], *, explicit: bool) -> list[str]:
    default = list(find_agent(agent_name).default_argv)
    if not cmd:
        if not default or not explicit:
            raise InvalidOptions(
                "nothing to run",
                hint="name a command behind '--', or an agent: remuda start work --agent claude",
            )
        return default
    # `--agent claude -- --model sonnet`: arguments for the agent, not a command.
    if default and (cmd[0].startswith("-") or agent_name == "demo"):
        return [*default, *cmd]
    return cmd


def _variables(options: dict[str, Any]) -> dict[str, str]:
    found = {}
    for entry in options.get("variables") or ():
        name, equals, value = entry.partition("=")
        if not name or not equals:
            raise InvalidOptions(f"--env {entry!r} is not NAME=VALUE")
        found[name] = value
    return found


def _size(options: dict[str, Any], attached: bool, *, bar: bool) -> tuple[int, int]:
    cols, rows = DEFAULT_COLS, DEFAULT_ROWS
    if attached:
        here = os.get_terminal_size(sys.stdout.fileno())
        if here.columns and here.lines:
            cols, rows = here.columns, max(1, here.lines - (1 if bar else 0))
    return check_size(_first(options.get("cols"), cols), _first(options.get("rows"), rows))
