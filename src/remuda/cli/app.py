"""The `remuda` command: its groups of commands, and how every error ends."""

from __future__ import annotations

import importlib
import keyword
import os
import select
import sys
from typing import Any

import click

from remuda._version import __version__
from remuda.errors import EXIT_CODES, FolderUnusable, RemudaError, SessionUnreachable

from .common import complain

SECTIONS: dict[str, dict[str, str]] = {
    "Sessions": {
        "start": "Start a command or an agent as a named session",
        "attach": "Show a session here and type into it",
        "ls": "List sessions: what each is doing, since when",
        "status": "Say what a session is doing, and why we think so; without a name how the boss is",
        "screen": "Print what a session's terminal shows",
        "logs": "Print what a session's keeper wrote down",
        "resize": "Give a session's terminal another size",
        "kill": "End a session and everything it started",
        "clean": "Remove logs and records of dead sessions",
    },
    "Messages": {
        "send": "Send a prompt to the agent in a session",
        "wait": "Wait for the end of a message, or for a session to be idle",
        "receipt": "Say what became of a message",
        "inbox": "Put messages for an agent, see what waits and what was given up",
    },
    "One shot": {
        "print": "Ask once and print the answer, as claude -p does",
        "run": "Ask an agent that is warm, and print the answer",
        "pool": "Keep agents warm for other processes, see them, end them",
    },
    "Attention": {
        "up": "Start the boss: one queue of all agents that wait for you",
        "down": "End the boss; sessions go on",
        "queue": "List who waits for you, and why",
        "agents": "List all agents that the boss knows, also those who work",
        "next": "Go to the first that waits, in tmux",
        "return": "Go back to where you were before",
        "popup": "Choose from those who wait, in a tmux popup",
        "preview": "Print what one who waits shows on his terminal",
        "skip": "Put one who waits at the end of the queue",
        "snooze": "Put one who waits out of sight for a while",
        "dismiss": "Take one who waits out of the queue",
        "bootstrap": "Tell the boss of agents in tmux panes that it does not know",
        "segment": "Print what a status line shows of the queue",
    },
    "Answers": {
        "reply": "Give a prompt to a session that rests, wherever it is",
        "approvals": "List what agents ask leave for, and what became of it",
        "approve": "Allow what an agent asks leave for, or answer its question",
        "deny": "Refuse what an agent asks leave for",
        "policy": "Check the rules that answer in your place",
    },
    "Hooks": {
        "launch": "Run a command on a terminal of its own, to its end",
        "stop-hook": "Hand out the next message of an inbox: what a Stop hook runs",
        "hooks": "Install, remove or show hooks in Claude Code's settings, and keys in tmux",
    },
    "Care": {
        "doctor": "Check this machine, and what is left of dead sessions",
        "demo": "A tour of one minute, without any account",
        "completion": "Print shell completion for bash, zsh or fish",
        "version": "Print the version",
    },
}
_COMMANDS = {name: text for section in SECTIONS.values() for name, text in section.items()}


class LazyGroup(click.Group):
    """Knows the names of its commands and loads each from its own module."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        module = f"{name}_" if keyword.iskeyword(name) else name
        command = importlib.import_module(f"remuda.cli.{module}").command
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """What the system refuses becomes an error of ours here: click has its own ideas of these."""
        try:
            return super().invoke(ctx)
        except EOFError:
            raise _keeper_gone() from None
        except (BrokenPipeError, ConnectionResetError):
            if not _nobody_reads():
                raise _keeper_gone() from None
            # Whoever read our output has seen enough. Python would complain again when it flushes.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return EXIT_CODES["OK"]
        except OSError as error:
            if not error.filename and _is_here_gone():
                raise FolderUnusable("this folder was removed", hint="go to another one") from error
            what = f"cannot use {error.filename}: " if error.filename else ""
            raise FolderUnusable(f"{what}{error.strerror or error}") from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(list(commands.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in _COMMANDS:
            from difflib import get_close_matches

            near = get_close_matches(args[0], _COMMANDS) or [n for n in _COMMANDS if n[0] == args[0][:1]]
            hint = f"did you mean {' or '.join(near)}?" if near else "'remuda --help' lists the commands"
            raise click.UsageError(f"there is no command '{args[0]}'; {hint}")
        return super().resolve_command(ctx, args)


def _keeper_gone() -> SessionUnreachable:
    return SessionUnreachable(
        "the session's keeper went away while it was asked", hint="'remuda ls --all' shows what became of it"
    )


def _nobody_reads() -> bool:
    """Is the pipe that we print to closed at its other end?"""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return bool(poll.poll(0))


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Try it without any account:  remuda demo",
)
@click.version_option(__version__, prog_name="remuda")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Keep interactive coding agents running, see what they do, attach at any moment.

    \b
      remuda start work --agent claude     an agent in a session of its own
      remuda start build -- make -j2       or any other command
      remuda ls                            what is running, and what it is doing
      remuda attach work                   open it here; Ctrl-\\ leaves it running
      remuda send work "fix the tests"     typed when it is idle, with a receipt
      remuda queue                         who waits for you, and why ('remuda up' first)
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def _is_here_gone() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _one_line(error: click.UsageError) -> str:
    """As our own errors are: what went wrong, and what to do."""
    message = error.format_message().rstrip(".")
    if message[1:2].islower():
        message = message[0].lower() + message[1:]
    if error.ctx is None:
        return message
    usage = " ".join([error.ctx.command_path, *error.ctx.command.collect_usage_pieces(error.ctx)])
    return f"{message}; usage: {usage}"


def run(args: list[str] | None = None) -> int:
    """Carry out a command line and return its exit code; nothing escapes as a traceback but our own bugs."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    try:
        result: Any = cli.main(args=args, prog_name="remuda", standalone_mode=False)
    except RemudaError as error:
        complain(str(error))
        return error.exit_code
    except click.UsageError as error:
        complain(_one_line(error))
        return EXIT_CODES["INVALID_OPTIONS"]
    except click.ClickException as error:
        complain(error.format_message())
        return EXIT_CODES["FAILED"]
    except (click.Abort, KeyboardInterrupt):
        return EXIT_CODES["INTERRUPTED"]
    return result if isinstance(result, int) else EXIT_CODES["OK"]
