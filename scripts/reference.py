"""Write docs/reference/commands.md and man/remuda.1 from the commands themselves.

python scripts/reference.py           write both files
python scripts/reference.py --check   exit with 1 if one of them is not current
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from remuda.cli.app import DAILY, MORE, cli
from remuda.errors import EXIT_CODES

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/reference/commands.md"
MAN = ROOT / "man/remuda.1"
OLD_NAMES = {
    "status NAME": "show NAME",
    "screen NAME": "show NAME",
    "status": "boss status",
    "up": "boss up",
    "up --install": "setup boss --service",
    "up --print-token": "boss token",
    "down": "boss down",
    "wait ID": "messages ID --wait",
    "receipt ID": "messages ID",
    "inbox dead": "messages --dead",
    "reply NAME TEXT": "send NAME TEXT",
    "print PROMPT": "ask PROMPT",
    "run PROMPT": "ask PROMPT",
    "agents": "ls",
    "popup": "queue -i",
    "snooze NAME": "later NAME",
    "skip NAME": "later NAME end",
    "dismiss NAME": "later NAME never",
    "hooks install --boss": "setup boss",
    "hooks install --tmux": "setup tmux",
    "hooks install --inbox PATH": "setup inbox --inbox PATH",
    "hooks show": "setup --show",
    "hooks uninstall": "setup --remove",
    "completion SHELL": "setup completion",
    "version": "-V",
}


@dataclass(frozen=True)
class Described:
    """A command as its help describes it."""

    words: str
    usage: str
    paragraphs: list[tuple[str, bool]]
    """The text of its help; whether each paragraph has lines of its own (examples)."""
    options: list[tuple[str, str]]


def sections() -> Iterator[tuple[str, list[Described]]]:
    root = click.Context(cli, info_name="remuda")
    for page in (DAILY, MORE):
        for title, names in page.items():
            yield title, [one for name in names for one in _describe(root, cli, name)]


def _describe(parent: click.Context, group: click.Group, name: str) -> Iterator[Described]:
    command = group.get_command(parent, name)
    assert command is not None, name
    context = click.Context(command, info_name=name, parent=parent)
    options = [one for one in command.get_params(context) if isinstance(one, click.Option)]
    records = (one.get_help_record(context) for one in options)
    yield Described(
        context.command_path,
        " ".join([context.command_path, *command.collect_usage_pieces(context)]),
        list(_paragraphs(command.help or "")),
        [(names, _spaced(text)) for names, text in filter(None, records) if "--help" not in names],
    )
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            yield from _describe(context, command, inner)


def _paragraphs(text: str) -> Iterator[tuple[str, bool]]:
    """Split a help text as click does: after a line with \\b the lines stay as they are."""
    lines = text.split("\n")
    margin = min((len(one) - len(one.lstrip()) for one in lines[1:] if one.strip()), default=0)
    text = "\n".join([lines[0], *(one[margin:] for one in lines[1:])])
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        if block.startswith("\b"):
            yield block.removeprefix("\b").strip("\n"), True
        elif block.strip():
            yield _spaced(block), False


def _spaced(text: str) -> str:
    return " ".join(text.split())


# ── Markdown ──


def markdown() -> str:
    lines = [
        "# Commands",
        "",
        "<!-- Written by scripts/reference.py from the commands. Change the commands, then run it again. -->",
        "",
        "`remuda help COMMAND` prints the same in a terminal.",
        "TIME is seconds (`90`) or has units (`45m`, `2h30m`).",
        "The beginning of a session's name or of a message's id is enough if no other has it.",
        "Exit codes are [in their own table](exit-codes.md).",
        "",
    ]
    for title, commands in sections():
        lines += [f"## {title}", ""]
        for one in commands:
            lines += _markdown_command(one)
    lines += [
        "## Old names and new names",
        "",
        "The old names keep working, with the same flags, JSON and exit codes.",
        "",
        "| old | new |",
        "| --- | --- |",
        *(f"| `remuda {old}` | `remuda {new}` |" for old, new in OLD_NAMES.items()),
    ]
    return "\n".join(lines) + "\n"


def _markdown_command(one: Described) -> Iterator[str]:
    yield from (f"### {one.words}", "", "```text", one.usage, "```", "")
    for text, literal in one.paragraphs:
        yield from ("```text", text, "```", "") if literal else (_escaped(text), "")
    if one.options:
        yield from ("| option | meaning |", "| --- | --- |")
        for names, text in one.options:
            yield f"| `{_cell(names)}` | {_cell(_escaped(text))} |"
        yield ""


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is: `*` and `<` mean nothing, quoted commands become code."""
    parts = re.split(r"(`[^`]*`)", re.sub(r"(?<!\w)'((?:remuda |--)[^']*)'", r"`\1`", text))
    return "".join(
        one if number % 2 else re.sub(r"([*<_\[])", r"\\\1", one) for number, one in enumerate(parts)
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


# ── the manual page ──


def manual_page() -> str:
    lines = [
        '.\\" Written by scripts/reference.py from the commands.',
        '.TH REMUDA 1 "" "Remuda" "User commands"',
        ".SH NAME",
        "remuda \\- keep interactive coding agents running, send them prompts, and see which one needs you",
        ".SH SYNOPSIS",
        ".B remuda",
        "[\\fICOMMAND\\fR] [\\fIARGUMENTS\\fR]...",
        ".SH DESCRIPTION",
        "Each agent runs in a session: a terminal that a process of its own keeps open.",
        "Sessions outlive your terminal and your connection.",
        "Each prompt that you send has a receipt, which shows how far it got.",
        "The boss, an optional process, keeps a queue of the agents that need a human.",
        ".PP",
        "\\fBremuda help tutorial\\fR shows the first ten minutes.",
        "\\fBremuda help topics\\fR lists the other pages of the manual.",
        "TIME is seconds (90) or has units (45m, 2h30m).",
    ]
    for title, commands in sections():
        lines += [f".SH {title.upper()}"]
        for one in commands:
            lines += _manual_command(one)
    lines += [".SH EXIT STATUS"]
    for name, code in sorted(EXIT_CODES.items(), key=lambda item: item[1]):
        lines += [".TP", f".B {code}", _roff(name.lower().replace("_", " "))]
    lines += [
        ".SH ENVIRONMENT",
        *(".TP", ".B REMUDA_HOME", "Folder of all state. Default: $XDG_STATE_HOME/remuda."),
        *(".TP", ".B NO_COLOR", "Print without colours."),
        *(".TP", ".B FORCE_COLOR", "Print colours into a pipe, too."),
        *(".TP", ".B PAGER", "Program that shows long pages of help. Default: less."),
        ".SH FILES",
        *(".TP", ".I ~/.local/state/remuda", "Sessions, inboxes, and the files of the boss."),
        *(".TP", ".I ~/.config/remuda/remuda.toml", "Configuration."),
        *(".TP", ".I ~/.config/remuda/policy.toml", "Rules that decide permission requests."),
        *(".TP", ".I ~/.config/remuda/notify.toml", "Where notices go."),
    ]
    return "\n".join(lines) + "\n"


def _manual_command(one: Described) -> Iterator[str]:
    yield from (f".SS {_roff(one.words)}", _roff(one.usage))
    for text, literal in one.paragraphs:
        if literal:
            yield from (".PP", ".nf", *(_roff(line) for line in text.splitlines()), ".fi")
        else:
            yield from (".PP", _roff(text))
    for names, text in one.options:
        yield from (".TP", f"\\fB{_roff(names)}\\fR", _roff(text))


def _roff(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text


def main() -> int:
    stale = [
        path
        for path, text in ((PAGE, markdown()), (MAN, manual_page()))
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not current; run: python scripts/reference.py")
        return 1 if stale else 0
    MAN.parent.mkdir(exist_ok=True)
    PAGE.write_text(markdown(), encoding="utf-8")
    MAN.write_text(manual_page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
