"""remuda help"""

from __future__ import annotations

import click

from remuda.errors import InvalidOptions
from remuda.names import did_you_mean

from .output import echo, print_lines, print_table


@click.command("help")
@click.argument("words", metavar="[COMMAND | TOPIC]...", nargs=-1)
@click.option("--all", "-a", "everything", is_flag=True, help="List every command.")
@click.option("--page", is_flag=True, help="Show the page of the manual, also where a command has its name.")
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...], everything: bool, page: bool) -> None:
    """Show the help of a command, or a page of the manual.

    'remuda help topics' lists the pages. They are part of the package and need no network.

    \b
    Examples:
      remuda help --all
      remuda help inbox put
      remuda help tutorial
      remuda help --page policy
    """
    from .app import ALL, COMMANDS
    from .manual import show_page, topics

    root = ctx.find_root()
    if not words:
        root.obj = ALL if everything else None
    elif words == ("topics",):
        _list_topics()
        return
    elif page or words[0] not in COMMANDS:
        pages = topics()
        if words[0] not in pages:
            known = [*pages] if page else [*COMMANDS, *pages]
            hint = did_you_mean(words[0], known) or "'remuda help topics' lists the pages"
            what = "topic" if page else "command or topic"
            raise InvalidOptions(f"{what} '{words[0]}' not found", hint=hint)
        show_page(pages[words[0]])
        return
    found = root
    for word in words:
        group = found.command
        if not isinstance(group, click.Group):
            raise click.UsageError(f"'{found.command_path}' has no command '{word}'", found)
        _, inner, _ = group.resolve_command(found, [word])
        assert inner is not None
        found = click.Context(inner, info_name=word, parent=found)
    print_lines(found.get_help().splitlines())
    if len(words) == 1 and words[0] in topics():
        echo(f"\nThe manual has a page on this: remuda help --page {words[0]}")


def _list_topics() -> None:
    from .manual import title, topics

    print_table(("TOPIC", "PAGE"), [(name, title(path)) for name, path in topics().items()])
