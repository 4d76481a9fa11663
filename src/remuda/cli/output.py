"""All output to the operator's terminal. Text from anywhere is safe: it cannot control the terminal.

Every command prints with the functions of this module, never with click's or Python's (ruff checks that).
`echo` makes all text printable (`remuda.untrusted.printable`), so that a command cannot forget it. `ours`
marks the control sequences of this process, colours and cursor moves, with a token that is random for each
process. Only marked sequences are printed.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from remuda.errors import OutputFailed
from remuda.oneshot.output import for_terminal, without_halves
from remuda.patterns import pattern
from remuda.untrusted import printable, show_json

TYPE_CHECKING = False  # as type checkers read it
if TYPE_CHECKING:
    from typing import TextIO

_TOKEN = os.urandom(8).hex()
_MARKED = pattern(f"\x1b{_TOKEN}<([^>]*)>")
_SGR = pattern(r"\x1b\[[0-9;:]*m")
_COLOURS = {"red": "31", "green": "32", "yellow": "33", "magenta": "35", "cyan": "36"}
_OF_LINKS = pattern(r"\x1b\[\d+G.*|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x0e\x0f]")
"""Our keeper draws cells with links again after the row (`terminal.paint.row`), tmux in place.
tmux also switches to line drawing and back (3.3)."""


@contextlib.contextmanager
def after_success(done: str) -> Iterator[None]:
    """Print the result of what is `done`, so that a user does not take lost output for a failure."""
    try:
        yield
    except OutputFailed as error:
        raise OutputFailed(f"{done}, but {error.message}") from error


@contextlib.contextmanager
def writing_stdout() -> Iterator[None]:
    """Raise `OutputFailed` for an error of standard output; a reader that is gone keeps its own error."""
    try:
        yield
    except (BrokenPipeError, ConnectionResetError):
        raise
    except OSError as error:
        discard(sys.stdout)
        raise OutputFailed(f"standard output cannot be written: {error.strerror or error}") from error


def discard(stream: TextIO) -> None:
    """Send what is left in a buffer to nowhere. Python would complain again when it flushes at the end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def ours(sequence: str) -> str:
    """Mark a control sequence of this process, so that `echo` lets it through."""
    return f"\x1b{_TOKEN}<{sequence}>"


def style(text: str, *, fg: str | None = None, bold: bool = False) -> str:
    """Return `text` in a colour. `echo` drops the colour if none is wanted."""
    codes = [*(["1"] if bold else []), *([_COLOURS[fg]] if fg else [])]
    return ours(f"\x1b[{';'.join(codes)}m") + text + RESET if codes else text


RESET = ours("\x1b[0m")


def rendered(text: str, *, coloured: bool) -> str:
    """Return `text` that is safe for a terminal: printable, with the sequences that `ours` marked."""
    if "\x1b" not in text:
        return printable(text)
    parts = _MARKED.split(text)
    parts[::2] = map(printable, parts[::2])
    parts[1::2] = [one if coloured or not _SGR.fullmatch(one) else "" for one in parts[1::2]]
    return "".join(parts)


def unstyled(text: str) -> str:
    return rendered(text, coloured=False)


def flat(text: str) -> str:
    """Return `text` on one line, so that text of others cannot imitate a line of ours."""
    return text.replace("\n", " ").replace("\t", " ")


def echo(text: str = "", *, nl: bool = True, err: bool = False, coloured: bool | None = None) -> None:
    """Print any text. `coloured` decides about colours; None leaves it to the terminal."""
    stream = sys.stderr if err else sys.stdout
    printed = rendered(text, coloured=wants_colour(stream) if coloured is None else coloured)
    printed += "\n" if nl else ""
    printed = printed.encode(stream.encoding, "replace").decode(stream.encoding)
    if err:
        _write_stderr(printed)
        return
    with writing_stdout():
        stream.write(printed)
        stream.flush()


def _write_stderr(text: str) -> None:
    """Errors are ignored: nothing is left to report them with, and the exit code still says what happened."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        discard(sys.stderr)


def wants_colour(stream: TextIO) -> bool:
    """Whether `stream` gets colours. `NO_COLOR` wins over variables that force colours, those over `TERM`."""
    if os.environ.get("NO_COLOR"):
        return False
    if any(os.environ.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return can_move(stream)


def can_move(stream: TextIO) -> bool:
    """Whether `stream` is a terminal with a cursor that can be moved."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def is_dumb() -> bool:
    """Whether the terminal says that it cannot draw, as editors do for their shells."""
    return os.environ.get("TERM") == "dumb"


class Program:
    """The name of the program in our messages."""

    name = "remuda"


def complain(message: str, *, error: bool = False) -> None:
    """Print one line on standard error. `error`: the command ends with it."""
    echo(style(f"{Program.name}:", fg="red" if error else None) + f" {flat(message)}", err=True)


def ask_yes(question: str) -> bool:
    import click

    _show_question(f"{question} [y/N]:")
    with _new_line_after_abort():
        return click.confirm("", prompt_suffix=" ", show_default=False)


@contextlib.contextmanager
def _new_line_after_abort() -> Iterator[None]:
    """End the line of a question that Ctrl-C or Ctrl-D left open, so that the shell's prompt has its own."""
    import click

    try:
        yield
    except click.Abort:
        echo(err=True)
        raise


def _ask(default: str | None = None) -> str:
    import click

    with _new_line_after_abort():
        return str(click.prompt("", prompt_suffix=" ", default=default, show_default=False))


def ask_choice(question: str, choices: str, default: str) -> str:
    """Ask for one of these letters, until one of them is typed."""
    letters = "/".join(one.upper() if one == default else one for one in choices)
    while True:
        _show_question(f"{question} [{letters}]:")
        typed = _ask(default).strip().lower()
        if typed[:1] in choices and typed[:1]:
            return typed[:1]


def ask_text(question: str) -> str:
    _show_question(f"{question}:")
    return _ask()


def ask_line(question: str) -> str:
    """Ask for a line and return it without blanks around it; empty for a bare Enter."""
    _show_question(f"{question}:")
    return _ask("").strip()


def ask_letter(question: str, letters: str) -> str:
    """Ask for one of `letters` and return it; the first one for any other answer."""
    _show_question(f"{question} [{'/'.join([*letters[1:], letters[0].upper()])}]:")
    typed = _ask("").strip().lower()[:1]
    return typed if typed in [*letters] else letters[0]


def _show_question(text: str) -> None:
    """Discard what was typed before, which was not meant as the answer. Then print the question."""
    if sys.stdin.isatty():
        import termios

        termios.tcflush(sys.stdin, termios.TCIFLUSH)
    echo(unstyled(text), nl=False)


def json_line(document: object) -> str:
    return show_json(document)


def print_json(document: object) -> None:
    """Print JSON whose numbers are finite and whose characters are printable, or written as `\\uXXXX`."""
    echo(show_json(document, indent=2))


def print_answer(text: str) -> None:
    """Print an agent's answer: every byte to a file or a pipe, printable text to a terminal."""
    if sys.stdout.isatty():
        echo(for_terminal(text))
        return
    print_bytes(without_halves(f"{text}\n").encode())  # UTF-8 in every locale


def print_screen(lines: Sequence[str], *, coloured: bool | None, err: bool = False) -> None:
    """Print a picture of a terminal without the blank lines at its end: text and colours, no links."""
    kept = list(lines)
    while kept and not kept[-1].strip():
        kept.pop()
    print_lines(kept, coloured=coloured, err=err)


def print_lines(lines: Iterable[str], *, coloured: bool | None = None, err: bool = False) -> None:
    """Print lines that a terminal showed: text and colours, no links."""
    for some in _batched(lines):
        echo("\n".join(map(_picture, some)) + RESET, coloured=coloured, err=err)


def _batched(lines: Iterable[str], size: int = 1000) -> Iterator[list[str]]:
    left = iter(lines)
    while some := list(islice(left, size)):
        yield some


def print_bytes(data: bytes) -> None:
    """Write what a program printed, as it printed it: only for a user who asked for that."""
    with writing_stdout():
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _picture(line: str) -> str:
    return _SGR.sub(lambda found: ours(found[0]), _OF_LINKS.sub("", line))


# ── columns ──


def cells(text: str) -> int:
    """Return how many columns a text takes on a terminal."""
    plain = text if text.isascii() and text.isprintable() else unstyled(text)
    return len(plain) if plain.isascii() else sum(2 if _is_wide(character) else 1 for character in plain)


def _is_wide(character: str) -> bool:
    import unicodedata

    return ord(character) > 0x10FF and unicodedata.east_asian_width(character) in "WF"


def cut(text: str, width: int) -> str:
    """Return at most `width` columns of a text, with its colours."""
    if cells(text) <= width:
        return text
    parts = _MARKED.split(text)
    left = width - 1
    for index in range(0, len(parts), 2):
        parts[index], left = _taken(parts[index], left)
    parts[1::2] = map(ours, parts[1::2])
    return "".join(parts)


def _taken(text: str, left: int) -> tuple[str, int]:
    """Return what fits of a text without marks, and the room after it; -1 if it was cut."""
    if left < 0:
        return "", -1
    taken = ""
    for character in text:
        size = cells(character)
        if size > left:
            return f"{taken}…", -1
        taken, left = taken + character, left - size
    return taken, left


def print_fields(fields: Iterable[tuple[str, str]]) -> None:
    """Print one line for each label and its value."""
    fields = list(fields)
    width = max([10, *(len(label) for label, _ in fields)])
    for label, value in fields:
        echo(f"{label:<{width}} {flat(value)}")


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], *, optional: Sequence[str] = ()) -> None:
    for line in table_lines(head, rows, optional=optional):
        echo(line)


_TYPED = ("NAME", "ID")
"""Heads of columns that a user types or copies into the next command."""
_STATE_COLUMNS = len("waiting_permission")
"""The longest state. A table says nothing if just that is cut."""


def terminal_width() -> int:
    """Return the columns of the terminal now; a variable may have an earlier size."""
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        size = os.terminal_size((0, 0))
    if not size.columns:
        import shutil  # slow to load

        size = shutil.get_terminal_size()
    return size.columns


def table_lines(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, optional: Sequence[str] = ()
) -> list[str]:
    """Set a table. On a terminal, columns are narrowed until a line fits, the widest first.

    NAME and ID, which the user types, are cut only after the others have five characters. Before a column
    loses its head or eight characters, or STATE the longest state, `optional` columns are left out, in
    this order.
    """
    rows = [[flat(text) for text in row] for row in [head, *rows]]
    widths = [max(cells(row[column]) for row in rows) for column in range(len(head))]
    room = sum(widths) + 2 * len(widths)
    if sys.stdout.isatty():
        room = terminal_width()
        for name in optional:
            if sum(_readable(widths, head)) + 2 * (len(widths) - 1) <= room:
                break
            if name in head:
                column = head.index(name)
                widths = [*widths[:column], *widths[column + 1 :]]
                head, *rows = ([*one[:column], *one[column + 1 :]] for one in (head, *rows))
        widths = _narrowed(widths, head, room)
    lines = []
    for number, row in enumerate(rows):
        fitted = [cut(text, size) for text, size in zip(row, widths, strict=True)]
        padded = [text + " " * (size - cells(text)) for text, size in zip(fitted, widths, strict=True)]
        line = cut("  ".join(padded).rstrip(), room)
        lines.append(style(line, bold=True) if number == 0 else line)
    return lines


def _readable(widths: Sequence[int], head: Sequence[str]) -> list[int]:
    """Return the least widths at which a table is easy to read."""
    least = {"STATE": _STATE_COLUMNS}
    return [
        size if unstyled(one) in _TYPED else min(size, max(least.get(unstyled(one), 8), cells(one)))
        for size, one in zip(widths, head, strict=True)
    ]


def _narrowed(widths: list[int], head: Sequence[str], room: int) -> list[int]:
    """Return widths that fit into `room`. A column keeps its head and eight characters if possible."""
    widths = [min(size, room) for size in widths]
    typed = [unstyled(one) in _TYPED for one in head]
    columns = list(zip(widths, typed, strict=True))
    for least in (
        _readable(widths, head),
        [size if is_typed else min(size, 5) for size, is_typed in columns],
        [min(size, 8 if is_typed else 5) for size, is_typed in columns],
        [1] * len(widths),
    ):
        while sum(widths) + 2 * (len(widths) - 1) > room:
            wide = [column for column, size in enumerate(widths) if size > least[column]]
            if not wide:
                break
            widest = max(wide, key=lambda column: widths[column])
            widths = [size - (column == widest) for column, size in enumerate(widths)]
    return widths
