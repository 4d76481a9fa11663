"""The `remuda` command: its list of commands, and how errors become exit codes."""

from __future__ import annotations

import importlib
import os
import re
import select
import sys
from collections.abc import Sequence
from typing import Any

import click

from remuda._version import __version__
from remuda.errors import EXIT_CODES, FolderUnusable, RemudaError, SessionUnreachable
from remuda.oneshot.output import open_standard_streams, show_bug

from .output import Program, complain, discard, print_lines, wants_colour, writing_stdout

DAILY: dict[str, dict[str, str]] = {
    "Sessions": {
        "start": "Start an agent or any command as a session",
        "attach": "Show a session in this terminal and type into it",
        "ls": "List all agents and what each is doing",
        "show": "Show one session: state, evidence, messages, screen",
        "logs": "Print the output of a session",
        "kill": "End a session and every process it started",
    },
    "Messages": {
        "send": "Send a prompt to an agent",
        "cancel": "Cancel a waiting message, or interrupt the running turn",
        "messages": "List messages and how far each got",
    },
    "One shot": {
        "ask": "Ask once and print the answer, like claude -p",
    },
    "Attention": {
        "queue": "List agents that are waiting for you, and why",
        "next": "Go to the first agent in the queue",
        "approve": "Allow a permission request, or answer a question",
        "deny": "Deny a permission request",
        "later": "Postpone an agent in the queue, or remove it",
        "dash": "Show all agents on one screen, and answer from there",
        "open": "Open the page in a browser, or show its login link",
    },
    "This machine": {
        "setup": "Set up hooks, tmux keys and completion, or remove them",
        "doctor": "Check this machine and say how to fix what is wrong",
        "demo": "Take a one-minute tour; needs no account and no network",
        "help": "Show the help of a command, or a page of the manual",
    },
}
"""The first page of help."""
MORE: dict[str, dict[str, str]] = {
    "More on sessions": {
        "status": "Show the state of a session (part of 'show')",
        "screen": "Print the screen of a session (part of 'show')",
        "resume": "Bring back sessions that ended with their machine",
        "sleep": "End an idle agent until it is needed again",
        "wake": "Start the agent of a session that is asleep",
        "resize": "Change the terminal size of a session",
        "usage": "Show the tokens and the money that agents used",
        "budget": "List the limits on usage, and check their file",
        "clean": "Remove logs and records of ended sessions",
        "launch": "Run a command on its own terminal, without a keeper",
    },
    "More on messages": {
        "wait": "Wait until a message has ended, or a session is idle",
        "receipt": "Show the receipt of a message",
        "inbox": "Put, list, recover and serve messages of an inbox",
        "stop-hook": "Return the next message of an inbox to a Stop hook",
    },
    "More on one shot": {
        "print": "Ask once, with the exact interface of claude -p",
        "run": "Ask a warm agent of a pool",
        "pool": "Keep agents warm for other processes",
    },
    "More on attention": {
        "agents": "List the agents that the boss knows",
        "reply": "Send a prompt to an idle agent, wherever it runs",
        "approvals": "List permission requests and their outcomes",
        "preview": "Print the screen of a waiting agent",
        "popup": "Choose from the queue in a tmux popup",
        "return": "Go back to the pane that 'next' left",
        "skip": "Move an agent to the end of the queue",
        "snooze": "Hide an agent from the queue for a while",
        "dismiss": "Remove an agent from the queue",
        "policy": "Check and explain permission rules",
        "notify": "List who is notified, or send a test notice",
    },
    "The boss": {
        "boss": "Start, stop and inspect the boss, which keeps the queue",
        "up": "Start the boss",
        "down": "Stop the boss; sessions keep running",
        "bootstrap": "Add agents in tmux panes that the boss does not know",
        "segment": "Print the queue for a status line",
    },
    "Many machines": {
        "fleet": "Run a hub, join it, and see all machines",
    },
    "Agents that run agents": {
        "mcp": "Serve tools by which an agent runs other agents",
    },
    "More on this machine": {
        "hooks": "Install, remove and show hooks and tmux keys",
        "completion": "Print the completion script of a shell",
        "version": "Print the version",
    },
}
"""The rest: exact forms, and names from before `show`, `later`, `messages` and `setup` united them."""
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
COMMANDS = {
    name: text for page in (DAILY, MORE) for section in page.values() for name, text in section.items()
}
SHARED_MODULES = {
    "agents": "queue",
    "approvals": "approve",
    "ask": "print",
    "deny": "approve",
    "dismiss": "queue_steps",
    "down": "boss",
    "later": "queue_steps",
    "next": "queue_steps",
    "reply": "send",
    "resize": "screen",
    "return": "queue_steps",
    "run": "print",
    "skip": "queue_steps",
    "snooze": "queue_steps",
    "stop-hook": "inbox",
    "up": "boss",
    "version": "help",
    "wait": "receipt",
    "wake": "sleep",
}
"""Commands that are in the module of another, as `NAME_command`. All others are `command` in `NAME.py`."""


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
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        shared = SHARED_MODULES.get(cmd_name)
        package = "tui" if cmd_name == "dash" else "cli"  # above the commands, which it uses
        module = importlib.import_module(f"remuda.{package}.{shared or name}")
        command = getattr(module, f"{name}_command" if shared else "command")
        assert isinstance(command, click.Command)
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
        try:
            return super().invoke(ctx)
        except EOFError:
            raise _keeper_gone() from None
        except (BrokenPipeError, ConnectionResetError):
            if not _reader_is_gone():
                raise _keeper_gone() from None
            discard(sys.stdout)  # the reader of our output has closed it
            return EXIT_CODES["OK"]
        except OSError as error:
            if not error.filename and _is_folder_gone():
                raise FolderUnusable(
                    "the working folder was removed", hint="change to another folder"
                ) from error
            what = f"cannot use {error.filename}: " if error.filename else ""
            raise FolderUnusable(f"{what}{error.strerror or error}") from error

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


def _keeper_gone() -> SessionUnreachable:
    return SessionUnreachable(
        "the session's keeper ended while it answered", hint="'remuda ls --all' shows the session's state"
    )


def _reader_is_gone() -> bool:
    """Whether the other end of the pipe that we print to is closed."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return bool(poll.poll(0))


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


def _is_folder_gone() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


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
    except RemudaError as error:
        complain(str(error), error=True)
        return error.exit_code
    except click.UsageError as error:
        complain(_one_line(error), error=True)
        return EXIT_CODES["INVALID_OPTIONS"]
    except click.ClickException as error:
        complain(error.format_message(), error=True)
        return EXIT_CODES["FAILED"]
    except (click.Abort, KeyboardInterrupt):
        return EXIT_CODES["INTERRUPTED"]
    return result if isinstance(result, int) else EXIT_CODES["OK"]
