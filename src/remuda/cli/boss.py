"""remuda boss: the boss's own commands under one name"""

from __future__ import annotations

import click

from . import down, up
from .common import json_option
from .output import print_lines

_HABITS = {"start": "up", "stop": "down"}


class _Boss(click.Group):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] in _HABITS:
            raise click.UsageError(f"no such command '{args[0]}'; did you mean '{_HABITS[args[0]]}'?", ctx)
        return super().resolve_command(ctx, args)


@click.group("boss", cls=_Boss, invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Start, stop and inspect the boss: the process that keeps the queue of waiting agents.

    One boss runs per user. It may stop or crash at any time: sessions keep running, and it catches up when
    it starts again.

    \b
    Examples:
      remuda boss up --detach
      remuda boss status
      remuda boss down
    """
    if ctx.invoked_subcommand is None:
        print_lines(ctx.get_help().splitlines())


command.add_command(up.command, "up")
command.add_command(down.command, "down")


@command.command("status")
@json_option
def status(as_json: bool) -> None:
    """Show whether the boss runs, what it knows and where it listens.

    \b
    Example:
      remuda boss status --json
    """
    from .status_boss import show_boss

    show_boss(as_json)


@command.command("token")
def token() -> None:
    """Print the token of the boss's HTTP interface.

    \b
    Example:
      curl -H "Authorization: Bearer $(remuda boss token)" http://127.0.0.1:4127/v1/queue
    """
    up.print_token()
