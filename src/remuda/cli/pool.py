"""remuda pool: the group, and its commands in files of their own"""

from __future__ import annotations

import click

from . import pool_look, pool_serve


class _InOrder(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group("pool", cls=_InOrder, invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Warm agents for 'remuda run', 'remuda print --pool' and programs: serve them, see them, end them.

    \b
    Examples:
      remuda pool serve --size 4
      remuda pool warm 2
      remuda pool status
      remuda pool stop
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


command.add_command(pool_serve.command)
command.add_command(pool_look.warm)
command.add_command(pool_look.status)
command.add_command(pool_look.metrics)
command.add_command(pool_look.stop)
