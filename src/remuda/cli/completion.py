"""remuda completion, and the installation of its script for a shell"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from remuda.durable import read_regular, replace_file
from remuda.errors import InvalidOptions
from remuda.paths import config_home

from .common import short_path
from .file_changes import (
    Agreement,
    agreed,
    agreement_options,
    forget_program,
    is_program,
    program_before,
    remember_program,
)
from .output import echo

SHELLS = ("bash", "zsh", "fish")
_MARK = "_REMUDA_COMPLETE"


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


# ── remuda setup completion ──


def script(shell: str) -> str:
    from .app import cli

    completion = get_completion_class(shell)
    assert completion is not None
    return completion(cli, {}, "remuda", _MARK).source() + "\n"


def own_shell() -> str:
    own = os.path.basename(os.environ.get("SHELL", ""))
    if own not in SHELLS:
        raise InvalidOptions(
            f"the shell {own or '$SHELL'} is not supported", hint=f"give --shell: {', '.join(SHELLS)}"
        )
    return own


def file_for(shell: str) -> Path:
    home = Path.home()
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local/share")
    return {
        "bash": data / "bash-completion/completions/remuda",
        "zsh": home / ".zfunc/_remuda",
        "fish": config_home(os.environ) / "fish/completions/remuda.fish",
    }[shell]


def installed_file() -> Path | None:
    """Return the first installed script of ours, for any shell."""
    return next((file_for(shell) for shell in SHELLS if _is_ours(shell)), None)


def _is_ours(shell: str) -> bool:
    """Whether setup wrote the file, or would write the same. A file with lines of the user is not ours."""
    path = file_for(shell)
    try:
        text = _text(path)
    except (OSError, InvalidOptions):
        return False
    return text is not None and (is_program(path, text) or text == script(shell))


def _text(path: Path) -> str | None:
    """Return the text of the file; None if it does not exist."""
    try:
        return read_regular(path).decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise InvalidOptions(f"{path} is not UTF-8", hint="move it away first") from None


def _write(path: Path, text: str | None) -> None:
    """Write through a link: many users keep such files elsewhere."""
    real = Path(os.path.realpath(path))
    if text is None:
        real.unlink()
    else:
        real.parent.mkdir(parents=True, exist_ok=True)
        replace_file(real, text.encode(), stat.S_IMODE(real.stat().st_mode) if real.exists() else 0o644)


_shell_option = click.option(
    "--shell", type=click.Choice(SHELLS), help="The shell to install it for.  [default: $SHELL]"
)


@click.command("install")
@_shell_option
@agreement_options
def install(shell: str | None = None, yes: bool = False, dry_run: bool = False, diff: bool = False) -> None:
    shell = shell or own_shell()
    path, text = file_for(shell), script(shell)
    before = _text(path)
    if before == text:
        echo(f"{short_path(str(path))}: already installed; nothing to change")
        return
    if before is not None and _MARK not in before:
        raise InvalidOptions(f"{path} belongs to another program", hint="move it away first")
    if not agreed(
        short_path(str(path)),
        before,
        text,
        f"completion into {short_path(str(path))}",
        Agreement(yes, dry_run, diff),
    ):
        return
    remember_program(path, before, text)
    _write(path, text)
    echo(f"installed {short_path(str(path))}; it works in shells that you start from now on")
    if shell == "bash":
        echo("bash reads it if the package bash-completion is installed")
    if shell == "zsh":
        echo("zsh needs this line in ~/.zshrc: fpath+=~/.zfunc; autoload -Uz compinit && compinit")


@click.command("uninstall")
@_shell_option
@agreement_options
def uninstall(shell: str | None = None, yes: bool = False, dry_run: bool = False, diff: bool = False) -> None:
    paths = [file_for(one) for one in ([shell] if shell else SHELLS) if _is_ours(one)]
    if not paths:
        echo("completion is not installed; nothing to change")
    for path in paths:
        place, text = short_path(str(path)), _text(path) or ""
        before = program_before(path, text)
        if agreed(place, text, before, f"remove {place}", Agreement(yes, dry_run, diff)):
            _write(path, before)
            forget_program(path)
            echo(f"removed {place}")


@click.command("show")
@_shell_option
def show(shell: str | None = None) -> None:
    for one in [shell] if shell else SHELLS:
        path = file_for(one)
        if _is_ours(one):
            state = "installed" if _text(path) == script(one) else "installed, outdated"
        else:
            state = "not installed"
        echo(f"{one:<5} {state}: {short_path(str(path))}")


SETUP_COMMANDS = {"install": install, "uninstall": uninstall, "show": show}
