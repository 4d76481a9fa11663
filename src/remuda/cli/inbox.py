"""remuda inbox: the group, and its commands in files of their own"""

from __future__ import annotations

import click

from . import inbox_care, inbox_look, inbox_put, inbox_serve
from .output import print_lines


class _InOrder(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group("inbox", cls=_InOrder, invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Put messages into an inbox, list those that are waiting, and handle dead letters.

    Each command takes the name of a session, or any folder with --inbox.

    \b
    Examples:
      remuda inbox put work "look at the failing tests"
      remuda inbox status work
      remuda inbox dead work
    """
    if ctx.invoked_subcommand is None:
        print_lines(ctx.get_help().splitlines())


command.add_command(inbox_put.command)
command.add_command(inbox_look.ls)
command.add_command(inbox_look.status)
command.add_command(inbox_look.dead)
command.add_command(inbox_care.recover)
command.add_command(inbox_care.redrive)
command.add_command(inbox_care.compact)
command.add_command(inbox_serve.command)
