"""remuda completion"""

from __future__ import annotations

import os

import click

from remuda.errors import InvalidOptions

from .output import echo
from .setup_completion import SHELLS, script


@click.command("completion")
@click.argument("shell", metavar="[bash|zsh|fish]", required=False, shell_complete=lambda *_: [*SHELLS])
def command(shell: str | None) -> None:
    """Print the completion script of a shell. 'remuda setup completion' installs it.

    \b
    Examples:
      remuda completion bash > ~/.local/share/bash-completion/completions/remuda
      remuda completion zsh  > ~/.zfunc/_remuda
      remuda completion fish > ~/.config/fish/completions/remuda.fish
    """
    if shell not in SHELLS:
        own = os.path.basename(os.environ.get("SHELL", ""))
        example = own if own in SHELLS else SHELLS[0]
        what = "no shell given" if shell is None else f"no completion is available for '{shell}'"
        raise InvalidOptions(what, hint=f"for example: remuda completion {example} (of {', '.join(SHELLS)})")
    echo(script(shell), nl=False)
