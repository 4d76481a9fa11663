"""remuda pool: the group, and its commands in files of their own"""

from __future__ import annotations

import click

from . import pool_look, pool_serve
from .output import print_lines


class _InOrder(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group("pool", cls=_InOrder, invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Keep agents warm for 'remuda ask', 'remuda run' and other programs.

    'remuda help --page pool' has the guide.

    \b
    Examples:
      remuda pool serve --size 4
      remuda pool warm 2
      remuda pool status
      remuda pool stop
    """
    if ctx.invoked_subcommand is None:
        print_lines(ctx.get_help().splitlines())


command.add_command(pool_serve.command)
command.add_command(pool_look.warm)
command.add_command(pool_look.status)
command.add_command(pool_look.metrics)
command.add_command(pool_look.stop)
