"""remuda pool serve"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from remuda.agents import DEFAULT_AGENT, find_agent
from remuda.errors import (
    CommandNotFound,
    FolderUnusable,
    InvalidOptions,
    RemudaError,
    SpawnFailed,
    SpawnTimeout,
)
from remuda.keeper.logfile import PrintableFormatter, open_log, parse_level
from remuda.paths import home, private_folder
from remuda.pool.pool_connection import default_socket
from remuda.pool.protocol import MAX_FRAME_BYTES
from remuda.untrusted import parse_object

from .click_types import AgentName
from .common import json_option, short_path, time_span
from .output import complain, echo, print_json

if TYPE_CHECKING:
    from remuda.pool.serve import ServeLimits

F = TypeVar("F", bound=Callable[..., Any])

_AT_LEAST_ONE = click.IntRange(1)
_DETACH_TIMEOUT = 30.0
_LOG_BYTES = 1 << 20


def socket_option(function: F) -> F:
    option = click.option(
        "--socket",
        type=click.Path(path_type=Path),
        help="Socket of the pool.  [default: pool.sock under $REMUDA_HOME]",
    )
    return option(function)


def _limit(text: str) -> float | None:
    """Parse a time; None for 0, which means no limit."""
    return time_span(text) or None


@click.command("serve", short_help="Keep agents warm for other processes.")
@click.option("--size", type=_AT_LEAST_ONE, default=4, show_default=True, help="Maximum number of agents.")
@click.option(
    "--backend",
    type=click.Choice(["terminal", "stream", "print"]),
    default=None,
    show_default="terminal, if the agent can",
    help="How agents run: in a terminal, over stream-json, or a new claude -p for each request.",
)
@socket_option
@click.option(
    "--warm",
    "--prewarm",
    type=click.IntRange(0),
    metavar="N",
    help="Start N agents for the current folder and environment before the first request, and keep N ready.  "
    "[default: 1; 0 in / and in your home folder, and with --backend print]",
)
@click.option("--warmup-prompt", metavar="TEXT", help="Send TEXT once to each prewarmed agent.")
@click.option(
    "--max-requests",
    type=_AT_LEAST_ONE,
    default=50,
    show_default=True,
    help="Restart an agent after N requests.",
    metavar="N",
)
@click.option(
    "--max-age",
    type=_limit,
    default="3600",
    show_default=True,
    metavar="TIME",
    help="Restart an agent after TIME (90, 45m); 0 means never.",
)
@click.option(
    "--max-idle",
    type=_limit,
    default="600",
    show_default=True,
    metavar="TIME",
    help="End an agent that is idle for TIME; 0 means never.",
)
@click.option(
    "--acquire-timeout",
    type=time_span,
    default="30",
    show_default=True,
    metavar="TIME",
    help="Fail a request that waits longer than TIME for an agent.",
)
@click.option(
    "--spawn-timeout",
    type=time_span,
    default="30",
    show_default=True,
    metavar="TIME",
    help="Give up on an agent that is not ready after TIME.",
)
@click.option(
    "--default-timeout",
    type=time_span,
    default="300",
    show_default=True,
    metavar="TIME",
    help="End a request that names no timeout after TIME.",
)
@click.option(
    "--drain-timeout",
    type=time_span,
    default="30",
    show_default=True,
    metavar="TIME",
    help="When stopping, let requests run for up to TIME.",
)
@click.option(
    "--permissions",
    type=click.Choice(["deny", "allow"]),
    default="deny",
    show_default=True,
    help="Answer to permission requests, unless a request says otherwise.",
)
@click.option(
    "--claude-binary", metavar="PATH", default="claude", show_default=True, help="Agent program to run."
)
@click.option("--agent", type=AgentName(), default=DEFAULT_AGENT, show_default=True, help="Agent to serve.")
@click.option("--demo", is_flag=True, help="Serve the scripted agent: no account, no network.")
@click.option("--fleet", is_flag=True, help="Also serve 'remuda run --fleet' of other machines.")
@click.option("--detach", is_flag=True, help="Run in the background; return when the pool is served.")
@click.option("--log-file", type=click.Path(path_type=Path), hidden=True)
@click.option(
    "--max-connections", type=_AT_LEAST_ONE, default=128, show_default=True, help="Maximum open connections."
)
@click.option(
    "--max-queue", type=click.IntRange(0), default=256, show_default=True, help="Maximum waiting requests."
)
@click.option(
    "--max-body-bytes",
    type=click.IntRange(1024, MAX_FRAME_BYTES),
    default=MAX_FRAME_BYTES,
    show_default=True,
    help="Maximum size of a request.",
)
@click.option("--verbose", is_flag=True, help="Log each event on standard error.")
@json_option
def command(
    size: int,
    socket: Path | None,
    warm: int | None,
    max_requests: int,
    max_age: float | None,
    drain_timeout: float,
    claude_binary: str,
    agent: str,
    demo: bool,
    fleet: bool,
    detach: bool,
    log_file: Path | None,
    max_connections: int,
    max_queue: int,
    max_body_bytes: int,
    verbose: bool,
    as_json: bool,
    **others: Any,
) -> None:
    """Keep agents warm for other processes of this user, until Ctrl-C or 'remuda pool stop'.

    Each request brings its own folder and environment. An agent serves only requests with the same folder,
    environment, model, tools, settings and permissions. Each request is a new conversation and sees nothing
    of the others.

    Prints that the agents are ready once they are. With --detach or --json it prints nothing before that,
    so the first request is warm. With --warm N it fails if they cannot start. With --warm 0 it also serves
    where the agent is not on the PATH, for requests whose own PATH has it.

    \b
    Examples:
      remuda pool serve --size 4 --detach
      remuda pool serve --backend stream --warm 2
      remuda pool serve --demo       the scripted agent, without Claude Code
    """
    import asyncio

    from remuda.pool.serve import ServeLimits

    if others["backend"] is None:
        from remuda.pool.options import read_client

        others["backend"] = read_client({"agent": "demo" if demo else agent}).backend
    count = _default_warm(others["backend"]) if warm is None else warm
    if count > size:
        raise InvalidOptions(f"--warm {count} is more than --size {size}", hint="raise --size")
    missing = None if demo else _missing_program(agent, claude_binary)
    path = str(socket.expanduser().absolute() if socket else default_socket())
    if detach and log_file is None:
        _announce(_detached(_DETACH_TIMEOUT + (_warm_timeout(others) if count else 0.0)), as_json=as_json)
        if missing:
            complain(_note(missing))
        return
    _log(log_file, "info" if verbose else "warning")
    options = {
        "pool_size": size,
        "max_requests_per_session": max_requests,
        "max_session_age": max_age,
        "close_timeout": drain_timeout,
        "claude_binary": os.path.abspath(claude_binary) if os.sep in claude_binary else claude_binary,
        "agent": "demo" if demo else agent,
        "inherit_env": False,
        **others,
    }
    limits = ServeLimits(max_connections, max_queue, max_body_bytes)
    ready = _Ready(missing, as_json=as_json, detached=log_file is not None)
    if fleet and path != str(default_socket()):
        raise InvalidOptions("--fleet needs the default socket", hint="leave out --socket")
    asyncio.run(_serve(options, limits, path, count, ready, strict=warm is not None, fleet=fleet))


def _default_warm(backend: str) -> int:
    """Return None for a service: its requests come from other folders, and an agent would trust this one."""
    return 0 if backend == "print" or os.getcwd() in ("/", os.path.expanduser("~")) else 1


def _missing_program(agent: str, claude_binary: str) -> str | None:
    """Return the agent's program if it is not on the PATH. Raises `CommandNotFound` for a path."""
    import shutil

    named = claude_binary if agent == DEFAULT_AGENT else next(iter(find_agent(agent).default_argv), "")
    if os.sep not in named:
        return named if named and shutil.which(named) is None else None
    if not os.path.isfile(named):
        raise CommandNotFound(f"cannot find the program {named}")
    return None


def _note(missing: str) -> str:
    return f"{missing} is not on the PATH; only requests whose own PATH has it can be served"


def _warm_timeout(options: dict[str, Any]) -> float:
    """Return the most that agents take to be ready: as `remuda.pool.prewarm` waits for them."""
    spans = ("acquire_timeout", "spawn_timeout", *(["default_timeout"] if options["warmup_prompt"] else []))
    return sum(float(options[name]) for name in spans)


def _log(path: Path | None, level: str) -> None:
    if path is not None:
        try:
            open_log(path, level, None, _LOG_BYTES)
        except OSError as error:
            raise FolderUnusable(f"cannot write the log {path}: {error.strerror}") from error
        return
    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter("%(asctime)s %(levelname)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(parse_level(level))


# ── in the background ──


def _detached(timeout: float) -> dict[str, Any]:
    """Run the same command in its own process session, with a log. Return what it announces."""
    import subprocess
    import sys

    from remuda.readable import is_readable

    log_file = private_folder(home()) / "pool.log"
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "remuda", *sys.argv[1:], "--json", "--log-file", str(log_file)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        try:
            is_ready = is_readable(server.stdout.fileno(), timeout)
        except KeyboardInterrupt:
            server.terminate()  # the terminal's signal does not reach it
            raise
        if not is_ready:
            server.kill()
            raise SpawnTimeout(f"the pool was not ready within {timeout:g} s", hint=f"see {log_file}")
        announced = b""
        while not announced.endswith(b"}\n") and (line := server.stdout.readline()):
            announced += line
        if announced:
            server.returncode = 0  # we do not wait for it
            return {**parse_object(announced), "log_file": str(log_file)}
        error_text = server.stderr.read(_LOG_BYTES).decode(errors="replace").strip().removeprefix("remuda: ")
    if not error_text or not server.returncode:
        raise SpawnFailed("the pool server exited before it was ready", hint=f"see {log_file}")
    complain(error_text)
    raise SystemExit(server.returncode)


class _Ready:
    """Report to the starting process that the server is ready, and detach from it if wanted."""

    def __init__(self, missing: str | None, *, as_json: bool, detached: bool) -> None:
        self.missing, self._as_json, self._detached = missing, as_json, detached

    def serving(self, facts: dict[str, Any]) -> None:
        _announce(facts, as_json=self._as_json)
        if self.missing and not self._detached:
            complain(_note(self.missing))
        if self._detached:
            null = os.open(os.devnull, os.O_RDWR)
            for fd in (1, 2):
                os.dup2(null, fd)
            os.close(null)

    @property
    def is_one_message(self) -> bool:
        """Whether a program reads what is printed, once."""
        return self._as_json or self._detached

    def warm(self, facts: dict[str, Any]) -> None:
        if self.is_one_message:
            self.serving(facts)
        elif "not_ready" in facts:
            _complain_not_ready(facts)
        else:
            count = facts["ready"]
            echo(f"{count} {'agent is' if count == 1 else 'agents are'} ready for {os.getcwd()}", err=True)


async def _serve(
    options: dict[str, Any],
    limits: ServeLimits,
    path: str,
    warm: int,
    ready: _Ready,
    *,
    strict: bool,
    fleet: bool,
) -> None:
    """Serve until a signal or a request to stop. `strict`: fail unless `warm` agents can be made ready."""
    import asyncio

    from remuda.pool.client import Client
    from remuda.pool.serve import serving

    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    facts = {name: options[name] for name in ("agent", "default_timeout", "claude_binary")}
    if fleet:
        prompts = find_agent(options["agent"]).prompts
        facts |= {"fleet": True, "account": "" if prompts is None else prompts.account(os.environ)}
    client = Client(**options)
    async with serving(client, path, limits, **facts) as server:
        if warm and ready.missing:
            raise CommandNotFound(
                f"{ready.missing} is not on the PATH, so no agent can be made ready",
                hint="install it, or use '--warm 0' to serve requests whose own PATH has it",
            )
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ended.set)
        shown_options = {name: options[name] for name in ("pool_size", "backend", "agent")}
        announced = {"socket": path, "pid": os.getpid(), **shown_options, "ready": 0}
        if not (warm and ready.is_one_message):
            ready.serving(announced)
        steps = [
            asyncio.create_task(ended.wait()),
            asyncio.create_task(server.asked_to_stop.wait()),
        ]
        warming = asyncio.create_task(_warm(client, warm, strict=strict))
        if warm:
            await asyncio.wait((*steps, warming), return_when=asyncio.FIRST_COMPLETED)
            if warming.done():
                ready.warm(announced | warming.result())
        await asyncio.wait(steps, return_when=asyncio.FIRST_COMPLETED)
        for step in (*steps, warming):
            step.cancel()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)  # a second one ends us at once


async def _warm(client: Any, count: int, *, strict: bool) -> dict[str, Any]:
    """Return how many agents are `ready`, or why they are not."""
    from remuda.pool.request_builder import whole_options

    if not count:
        return {}
    try:
        await client.prewarm(count, **whole_options({}, cwd=os.getcwd(), environ=os.environ))
    except RemudaError as error:
        if strict:
            raise
        logging.getLogger("remuda.pool").warning("prewarm failed: %s", error)
        return {"not_ready": str(error)}
    return {"ready": count}


def _complain_not_ready(facts: dict[str, Any]) -> None:
    complain(f"no agent is ready, so the first request will start one: {facts['not_ready']}")


def _announce(facts: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(facts)
        return
    agent = "" if facts["agent"] == DEFAULT_AGENT else f", {facts['agent']} agent"
    agent += f", {facts['ready']} ready" if facts["ready"] else ""
    end = "'remuda pool stop'" if "log_file" in facts else "Ctrl-C"
    echo(
        f"serving up to {facts['pool_size']} agents ({facts['backend']}{agent}) "
        f"at {short_path(facts['socket'])} "
        f"(pid {facts['pid']}); stop it with {end}"
    )
    if "not_ready" in facts:
        _complain_not_ready(facts)
