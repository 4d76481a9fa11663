"""remuda launch, and heartbeat-launch"""

from __future__ import annotations

import os
import shlex
import sys
import unicodedata
from pathlib import Path

import click

from remuda.errors import EXIT_CODES, RemudaError

from .common import time_span
from .output import Program, complain, echo

_OLD_NAME = "heartbeat-launch"
_HELP = """Run CMD on its own terminal, print its output, and exit when it exits.

    For scripts without a terminal: CMD gets one of 50 rows and 200 columns, so an agent starts its full
    interface. CMD does not inherit the identity of an agent that runs this command. The cap on blocked stops
    is lifted for its Stop hook. On a terminal, you can type into CMD.

    The exit code is that of CMD, at most 123. A signal that ended CMD gives 123 (1 under the name
    heartbeat-launch). 124 means --timeout: CMD and its children were killed. 125 means no output after the
    last idle prompt. 0 means --exit-signal. 1 means CMD could not be run. 128 plus the signal means that a
    signal ended this command. It is also installed as heartbeat-launch.

    \b
    Examples:
      remuda launch --timeout 600 -- claude "look at the failing tests"
      remuda launch --exit-signal run/.done -- claude "first"
      remuda setup inbox --inbox run/inbox.jsonl --signal-file run/.done
    """


def _prompt(_ctx: click.Context, _param: click.Parameter, text: str) -> str:
    """Refuse control characters: the text is typed, so they would be keys."""
    if any(unicodedata.category(one) == "Cc" for one in text):
        raise click.BadParameter("control characters are not allowed")
    return text


@click.command("launch", help=_HELP, context_settings={"allow_interspersed_args": False})
@click.argument("cmd", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--cwd", default=".", type=click.Path(path_type=Path), help="Working folder.  [default: the current one]"
)
@click.option(
    "--timeout", default="3600", type=time_span, metavar="TIME",
    help="Kill CMD after TIME (90, 45m, 2h30m); 0 for no limit.  [default: 3600]",
)  # fmt: skip
@click.option("--exit-signal", type=click.Path(path_type=Path), metavar="FILE",
              help="End CMD when FILE appears, then remove FILE.")  # fmt: skip
@click.option("--idle-timeout", default="0", type=time_span, metavar="TIME",
              help="Type the idle prompt after TIME without output.  [default: never]")  # fmt: skip
@click.option("--idle-prompt", default="Continue", callback=_prompt, metavar="TEXT",
              help="Text to type, after two Escapes, unchecked.  [default: Continue]")  # fmt: skip
@click.option("--max-idle-retries", default=3, type=click.IntRange(min=0), metavar="N",
              help="Give up after N idle prompts without output.  [default: 3]")  # fmt: skip
def command(
    cmd: tuple[str, ...],
    cwd: Path,
    timeout: float,
    exit_signal: Path | None,
    idle_timeout: float,
    idle_prompt: str,
    max_idle_retries: int,
) -> int:
    from remuda.agents import agent_setups
    from remuda.launch.launcher import HIGHEST_CODE, Plan, launch

    env = {**os.environ}
    for setup in agent_setups():
        env = setup.launch_environment(env)
    plan = Plan(
        argv=cmd,
        cwd=Path(os.path.realpath(cwd)),
        env={"TERM": "xterm-256color", **env},
        timeout=timeout,
        exit_signal=exit_signal and exit_signal.absolute(),
        idle_timeout=idle_timeout,
        idle_prompt=idle_prompt,
        max_idle_retries=max_idle_retries,
        signal_code=EXIT_CODES["FAILED"] if Program.name == _OLD_NAME else HIGHEST_CODE,
    )
    limit = f"with {timeout:g}s timeout" if timeout else "with no timeout"
    _print_line(f"spawning {shlex.join(cmd)} in {plan.cwd} {limit}")
    try:
        return launch(plan, _print_line)
    except RemudaError as error:
        complain(str(error))
        return EXIT_CODES["FAILED"]


def _print_line(line: str) -> None:
    program = Program.name if Program.name == _OLD_NAME else f"{Program.name} launch"
    echo(f"{program}: {line}", err=True)


def main() -> None:
    """Run as the console script heartbeat-launch."""
    from .app import run

    Program.name = _OLD_NAME
    sys.exit(run(command=command))
