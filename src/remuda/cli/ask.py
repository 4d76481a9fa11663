"""remuda ask"""

from __future__ import annotations

import click

from remuda.oneshot.output import Program

from .print import FLAGS, carry_out

_HELP = f"""Send one prompt to an agent and print the answer. Uses a warm agent if a pool is served.

    Takes everything that 'remuda print' takes, with the same output and exit codes. If 'remuda pool serve'
    runs and can carry out the request, an agent of the pool answers. Otherwise, and with --cold, a new agent
    is started.

    \b
    Examples:
      remuda ask "what does this repository do?"
      git diff | remuda ask "review this" --output-format json
      remuda ask "summarise" --cold      start a new agent, use no pool

{FLAGS}
    """


@click.command(
    "ask",
    help=_HELP,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    add_help_option=False,
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[FLAGS…] [PROMPT]")
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...]) -> int:
    Program.name = "remuda ask"
    return carry_out(ctx, words, ask=True)
