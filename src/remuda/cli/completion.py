"""remuda completion"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of a shell: commands, options and the names of live sessions.

    \b
    Examples:
      remuda completion bash > ~/.local/share/bash-completion/completions/remuda
      remuda completion zsh  > ~/.zfunc/_remuda
      remuda completion fish > ~/.config/fish/completions/remuda.fish
    """
    from .app import cli

    completion = get_completion_class(shell)
    assert completion is not None
    click.echo(completion(cli, {}, "remuda", "_REMUDA_COMPLETE").source())
