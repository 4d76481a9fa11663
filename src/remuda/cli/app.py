"""The `remuda` command: its list of commands, and how errors become exit codes."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

import click

from remuda._version import __version__
from remuda.errors import EXIT_CODES, RemudaError
from remuda.oneshot.output import open_standard_streams, show_bug

from .command_list import COMMANDS as COMMANDS
from .command_list import DAILY as DAILY
from .command_list import MORE as MORE
from .command_list import SHARED_MODULES as SHARED_MODULES
from .command_list import load
from .declare import DeclaredCommand
from .output import Program, complain, discard, print_lines, wants_colour, writing_stdout
from .quick import with_own_errors

HABITS = {
    "connect": "attach",
    "join": "attach",
    "create": "start",
    "new": "start",
    "list": "ls",
    "ps": "ls",
    "sessions": "ls",
    "top": "ls --watch",
    "dashboard": "dash",
    "tui": "dash",
    "info": "show",
    "inspect": "show",
    "log": "logs",
    "tail": "logs -f",
    "delete": "kill",
    "remove": "kill",
    "rm": "kill",
    "stop": "kill",
    "end": "kill",
    "abort": "cancel",
    "interrupt": "cancel",
    "exec": "send",
    "message": "send",
    "msg": "send",
    "allow": "approve",
    "reject": "deny",
    "serve": "pool serve",
    "init": "setup",
    "install": "setup",
    "uninstall": "setup --remove",
    "prune": "clean",
    "tour": "demo",
    "man": "help",
}
"""Names that other programs use, and our name for each."""


ALL = object()
"""`ctx.obj` of the root context when every command is listed."""


class HelpFormatter(click.HelpFormatter):
    """Help with bold headings, and commands and options in colour."""

    def getvalue(self) -> str:
        text = super().getvalue()
        if not wants_colour(sys.stdout):
            return text
        text = re.sub(r"(?m)^(Usage|[A-Z][\w ]*)(?=:)", "\x1b[1m\\1\x1b[0m", text)
        return re.sub(r"(?m)^(  )(-\S.*?|[a-z][\w-]*)(?=  |$)", "\\1\x1b[36m\\2\x1b[0m", text)


def _print_help(ctx: click.Context, _option: click.Parameter, wanted: bool) -> None:
    """Print the help of a command as all output. Click's own way ends in a traceback on a full disk."""
    if wanted and not ctx.resilient_parsing:
        print_lines(ctx.get_help().splitlines())
        ctx.exit()


def _help_option(
    command: click.Command, ctx: click.Context, made: Any = click.Command.get_help_option
) -> Any:
    option = made(command, ctx)
    if option is not None:
        option.callback = _print_help
    return option


click.Context.formatter_class = HelpFormatter
click.Command.get_help_option = _help_option  # type: ignore[method-assign,assignment]


class LazyGroup(click.Group):
    """Knows the names of its commands, and loads the module of the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = load(cmd_name)
        if isinstance(command, DeclaredCommand):
            return command.to_click()
        assert command is None or isinstance(command, click.Command)
        return command

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Print --help and --version, whose output may be lost as that of any command."""
        try:
            with writing_stdout():
                return super().make_context(info_name, args, parent, **extra)
        except (BrokenPipeError, ConnectionResetError):
            discard(sys.stdout)
            raise click.exceptions.Exit(EXIT_CODES["OK"]) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Turn errors of the operating system into ours. Click would handle them in its own way."""
        return with_own_errors(lambda: super(LazyGroup, self).invoke(ctx))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the daily commands; `remuda help --all` sets `ctx.obj` to list the rest too."""
        pages = (DAILY, MORE) if ctx.obj is ALL else (DAILY,)
        for title, commands in [section for page in pages for section in page.items()]:
            with formatter.section(title):
                formatter.write_dl(list(commands.items()))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        more = "COMMAND' explains a command" if ctx.obj is ALL else "--all' lists all commands"
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(f"'remuda help {more}. 'remuda help topics' lists the pages of the manual.")

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            from remuda.names import did_you_mean

            habit = HABITS.get(args[0].lower())
            hint = f"did you mean '{habit}'?" if habit else did_you_mean(args[0], COMMANDS)
            hint = hint or "'remuda help' lists the commands"
            raise click.UsageError(f"unknown command '{args[0]}'; {hint}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, "-V", "--version", prog_name="remuda")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Keep interactive coding agents running, send them prompts, and see which one needs you.

    \b
      remuda start work --agent claude     start an agent in a session
      remuda send work "fix the tests"     send it a prompt and get a receipt
      remuda attach work                   open it here; Ctrl-\\ leaves it running
      remuda queue                         see which agents are waiting, and why
    """
    if ctx.invoked_subcommand is None:
        print_lines(ctx.get_help().splitlines())


_PLAIN_WORDS = {
    r"is not a valid integer( range)?": "is not an integer",
    r"is not a valid float( range)?": "is not a number",
    r"is not in the range x>=(\S+)": r"is less than \1",
    r"is not in the range (\S+)<=x<=(\S+)": r"is not between \1 and \2",
}


def _one_line(error: click.UsageError) -> str:
    """Format an error of click as our own: what went wrong, and what to do."""
    if isinstance(error, click.NoSuchOption) and error.possibilities:
        near = _near_options(error.option_name, error.possibilities)
        error = click.NoSuchOption(error.option_name, possibilities=near, ctx=error.ctx)
    message = error.format_message().rstrip(".").replace(". Did you mean", "; did you mean")
    for theirs, ours in _PLAIN_WORDS.items():
        message = re.sub(theirs, ours, message)
    if "unexpected extra argument" in message and error.ctx and "text" in error.ctx.params:
        message += "; put a prompt of several words in quotes"
    if message[1:2].islower():
        message = message[0].lower() + message[1:]
    if error.ctx is None:
        return message
    usage = " ".join([error.ctx.command_path, *error.ctx.command.collect_usage_pieces(error.ctx)])
    return f"{message}{'' if message.endswith('?') else ';'} usage: {usage}"


def _near_options(word: str, options: Sequence[str]) -> list[str]:
    """Return the options that `word` begins or may be a typing mistake for. Click suggests distant ones."""
    from remuda.names import near_names

    return [one for one in options if one.startswith(word)] or near_names(word, options)


def run(args: list[str] | None = None, command: click.Command = cli) -> int:
    """Run a command line and return its exit code. Only our own bugs become a traceback.

    `command`: a command that is installed under its own name (`Program.name`).
    """
    sys.excepthook = show_bug
    open_standard_streams()
    try:
        result: Any = command.main(args=args, prog_name=Program.name, standalone_mode=False)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - what is a bug is raised again
        return report(error)
    return result if isinstance(result, int) else EXIT_CODES["OK"]


def report(error: BaseException, command: click.Command | None = None) -> int:
    """Print the error of a command and return its exit code. Raises an error that is our own bug.

    `command`: the one that raised it, if click did not call it.
    """
    if isinstance(error, RemudaError):
        complain(str(error), error=True)
        return error.exit_code
    if isinstance(error, click.UsageError):
        if error.ctx is None and command is not None:
            parent = click.Context(cli, info_name=Program.name)
            error.ctx = click.Context(command, parent, info_name=command.name)
        complain(_one_line(error), error=True)
        return EXIT_CODES["INVALID_OPTIONS"]
    if isinstance(error, click.ClickException):
        complain(error.format_message(), error=True)
        return EXIT_CODES["FAILED"]
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        return EXIT_CODES["INTERRUPTED"]
    raise error
