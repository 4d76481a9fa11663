"""remuda launch, and heartbeat-launch"""

from __future__ import annotations

import os
import shlex
import sys
import unicodedata
from pathlib import Path

import click

from remuda.errors import EXIT_CODES, RemudaError

from .common import complain, seconds

_HELP = """Run CMD on a terminal of its own, print what it prints, and end with it.

    For scripts: the program finds a terminal (50 rows, 200 columns) where the script has none, so an agent
    starts its full interface. It does not inherit the identity of an agent that this runs in, and the cap on
    blocked stops is lifted for its Stop hook. Run from a terminal it has that one, and you can type.

    The exit code is CMD's, 123 at most. Else 124: --timeout, and it was killed with all that it started. 125:
    it stayed silent after the last idle prompt. 0: --exit-signal. 1: it could not be run. 128 and the signal,
    when a signal ended us. Also installed as heartbeat-launch.

    \b
    Examples:
      remuda launch --timeout 600 -- claude "look at the failing tests"
      remuda launch --exit-signal run/.done -- claude "first"     the Stop hook makes the file:
      remuda hooks install --inbox run/inbox.jsonl --signal-file run/.done
    """


def _prompt(_ctx: click.Context, _param: click.Parameter, text: str) -> str:
    """It is typed: a control character in it would be a key."""
    if any(unicodedata.category(one) == "Cc" for one in text):
        raise click.BadParameter("control characters cannot be typed as text")
    return text


@click.command("launch", help=_HELP, context_settings={"allow_interspersed_args": False})
@click.argument("cmd", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--cwd", default=".", type=click.Path(path_type=Path), help="Working folder.  [default: this one]"
)
@click.option(
    "--timeout", default="3600", type=seconds, metavar="SECONDS",
    help="Kill it after so long; 0 for no limit.  [default: 3600]",
)  # fmt: skip
@click.option("--exit-signal", type=click.Path(path_type=Path), metavar="FILE",
              help="End it when this file appears, and remove the file.")  # fmt: skip
@click.option("--idle-timeout", default="0", type=seconds, metavar="SECONDS",
              help="Type the idle prompt after so much silence.  [default: never]")  # fmt: skip
@click.option("--idle-prompt", default="Continue", callback=_prompt, metavar="TEXT",
              help="Typed blindly, behind two Escapes.  [default: Continue]")  # fmt: skip
@click.option("--max-idle-retries", default=3, type=click.IntRange(min=0), metavar="N",
              help="Give up after so many prompts in vain.  [default: 3]")  # fmt: skip
def command(
    cmd: tuple[str, ...],
    cwd: Path,
    timeout: float,
    exit_signal: Path | None,
    idle_timeout: float,
    idle_prompt: str,
    max_idle_retries: int,
) -> int:
    from remuda.agents.claude.launch import own_environment
    from remuda.launch.plan import Plan
    from remuda.launch.run import launch

    plan = Plan(
        argv=cmd,
        cwd=Path(os.path.realpath(cwd)),
        env={"TERM": "xterm-256color", **own_environment(os.environ)},
        timeout=timeout,
        exit_signal=exit_signal and exit_signal.absolute(),
        idle_timeout=idle_timeout,
        idle_prompt=idle_prompt,
        max_idle_retries=max_idle_retries,
    )
    limit = f"with {timeout:g}s timeout" if timeout else "with no timeout"
    _tell(f"spawning {shlex.join(cmd)} {limit}")
    try:
        return launch(plan, _tell)
    except RemudaError as error:
        complain(str(error))
        return EXIT_CODES["FAILED"]


def _tell(line: str) -> None:
    try:
        click.echo(f"remuda launch: {line}", err=True)
    except OSError:  # nobody reads what we say; the program goes on
        pass


def main() -> None:
    """The console script heartbeat-launch."""
    from .app import run

    sys.exit(run(["launch", *sys.argv[1:]]))
