"""remuda help. Pages of the manual are in the installed package, or in a checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click

import remuda
from remuda.errors import InvalidOptions
from remuda.names import did_you_mean

from .output import (
    RESET,
    cells,
    echo,
    print_lines,
    print_table,
    rendered,
    style,
    terminal_width,
    wants_colour,
)


def _complete_word(ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    """Complete commands and pages; after a command, its own commands."""
    from .app import COMMANDS

    before = ctx.params.get("words") or ()
    root = ctx.find_root()
    if not before:
        words = [*COMMANDS, *topics(), "topics"]
    else:
        group = root.command.get_command(root, before[0]) if isinstance(root.command, click.Group) else None
        words = group.list_commands(root) if isinstance(group, click.Group) else []
    return [one for one in dict.fromkeys(words) if one.startswith(begun)]


@click.command("help")
@click.argument("words", metavar="[COMMAND | TOPIC]...", nargs=-1, shell_complete=_complete_word)
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

    root = ctx.find_root()
    if not words:
        root.obj = ALL if everything else None
    elif words == ("topics",):
        _list_topics()
        return
    elif page or words[0] not in COMMANDS:
        pages = topics()
        if words[0] not in pages:
            names = [*pages] if page else [*COMMANDS, *pages]
            hint = did_you_mean(words[0], names) or "'remuda help topics' lists the pages"
            what = "topic" if page else "command or topic"
            raise InvalidOptions(f"{what} '{words[0]}' not found", hint=hint)
        show_page(pages[words[0]])
        return
    inner_context = root
    for word in words:
        group = inner_context.command
        if not isinstance(group, click.Group):
            raise click.UsageError(f"'{inner_context.command_path}' has no command '{word}'", inner_context)
        _, inner, _ = group.resolve_command(inner_context, [word])
        assert inner is not None
        inner_context = click.Context(inner, info_name=word, parent=inner_context)
    print_lines(inner_context.get_help().splitlines())
    if len(words) == 1 and words[0] in topics():
        echo(f"\nThe manual has a page on this: remuda help --page {words[0]}")


def _list_topics() -> None:
    print_table(("TOPIC", "PAGE"), [(name, title(path)) for name, path in topics().items()])


# ── the pages of the manual ──


_WIDEST = 100
_LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\[\]]*\]|\[\[[^\[\]]*\]\])*)\]\([^)]*\)")
_CODE = re.compile(r"`([^`]*)`")
_BOLD = re.compile(r"\*\*([^*]+)\*\*|(?<![\w*`])\*([^*`\s][^*`]*)\*(?![\w*`])")
_ITEM = re.compile(r"(\s*)([-*]|\d+\.) +(.*)")


def docs_folder() -> Path:
    package = Path(remuda.__file__).parent
    installed = package / "_docs"
    return installed if installed.is_dir() else package.parent.parent / "docs"


def topics() -> dict[str, Path]:
    """Return the pages by name: `policy` is docs/reference/policy.md.

    If two pages have the same name, the deeper one gets its folder as prefix: `python/inbox`.
    """
    folder = docs_folder()
    pages: dict[str, Path] = {}
    for path in sorted(folder.rglob("*.md"), key=lambda one: (len(one.parts), str(one))):
        name = path.parent.name if path.stem == "index" and path.parent != folder else path.stem
        pages[f"{path.parent.name}/{name}" if name in pages else name] = path
    return pages


def title(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        first = next((line for line in file if line.startswith("# ")), path.stem)
    return first.removeprefix("# ").strip()


def render_page(path: Path, width: int) -> list[str]:
    """Return the lines of a Markdown page for a terminal."""
    lines: list[str] = []
    for kind, block in _blocks(path.read_text(encoding="utf-8").splitlines()):
        if kind == "code":
            lines += [style(f"    {line}", fg="cyan") for line in block]
        elif kind == "table":
            lines += _table(block, width)
        elif kind == "heading":
            lines.append(style(_plain(block[0].lstrip("#").strip()), bold=True))
        elif kind == "text":
            lines += _wrapped(
                " ".join(one.strip() if number else one for number, one in enumerate(block)), width
            )
        elif lines and lines[-1]:
            lines.append("")
    return lines


def _blocks(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Split a page into blocks: `code`, `table`, `heading`, `text` (a paragraph or an item), `blank`."""
    kind, fenced, commented = "", False, False
    block: list[str] = []
    for line in lines:
        if line.lstrip().startswith("```"):
            fenced = not fenced
            continue
        commented = not fenced and (commented or line.startswith("<!--"))
        if commented:
            commented = "-->" not in line
            continue
        line_kind = "code" if fenced else _kind(line)
        begins = line_kind in ("heading", "blank") or (line_kind == "text" and _ITEM.fullmatch(line))
        if block and (line_kind != kind or begins):
            yield kind, block
            block = []
        kind = line_kind
        block.append(line)
    if block:
        yield kind, block


def _kind(line: str) -> str:
    if not line.strip():
        return "blank"
    return "heading" if line.startswith("#") else "table" if line.startswith("|") else "text"


def _plain(text: str) -> str:
    return _CODE.sub(r"\1", _without_marks(text))


def _without_marks(text: str) -> str:
    return _BOLD.sub(lambda found: found[1] or found[2], _LINK.sub(r"\1", text))


def _wrapped(text: str, width: int) -> list[str]:
    """Wrap text, but not at a blank in a short code span."""
    text = _without_marks(text)
    item = _ITEM.fullmatch(text)
    indent = " " * (len(item[1]) + len(item[2]) + 1) if item else ""
    joined = _CODE.sub(
        lambda code: code[0].replace(" ", "\x00" if len(code[0]) < width // 2 else "` `"), text
    )
    wrapped = textwrap.wrap(
        joined, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return [_CODE.sub(_coloured, line.replace("\x00", " ")) for line in wrapped]


def _coloured(code: re.Match[str]) -> str:
    return style(code[1], fg="cyan")


def _table(rows: list[str], width: int) -> list[str]:
    """Set a table: the last column wraps. A table that is too wide becomes a list."""
    split = [[one.strip() for one in re.split(r"(?<!\\)\|", row.strip().strip("|"))] for row in rows]
    split = [row for row in split if not all(set(one) <= set("-: ") for one in row)]
    plain = [[_plain(one).replace("\\|", "|") for one in row] for row in split]
    columns = max(map(len, plain))
    plain = [[*row, *[""] * (columns - len(row))] for row in plain]
    widths = [max(cells(row[number]) for row in plain) for number in range(columns)]
    room = width - sum(widths[:-1]) - 2 * (columns - 1)
    if columns == 1 or room < 24:
        return _list(plain, width)
    lines = []
    for number, row in enumerate(plain):
        first = "  ".join(
            one + " " * (size - cells(one)) for one, size in zip(row, widths[:-1], strict=False)
        )
        rest = textwrap.wrap(row[-1], room, break_long_words=False) or [""]
        row_lines = [f"{first}  {rest[0]}".rstrip()]
        row_lines += [" " * (cells(first) + 2) + one for one in rest[1:]]
        lines += [style(one, bold=True) if number == 0 else one for one in row_lines]
    return lines


def _list(rows: list[list[str]], width: int) -> list[str]:
    head, *body = rows
    lines = []
    for row in body:
        wrapped = textwrap.wrap(row[0], width, subsequent_indent="  ", break_long_words=False)
        lines += [style(one, bold=True) for one in wrapped]
        for label, value in zip(head[1:], row[1:], strict=True):
            lines += textwrap.wrap(
                f"{label}: {value}" if label and value else value,
                width,
                initial_indent="  ",
                subsequent_indent="    ",
                break_long_words=False,
            )
    return lines


def show_page(path: Path) -> None:
    """Print a page; through `$PAGER` or less if it does not fit on the terminal."""
    lines = render_page(path, min(terminal_width(), _WIDEST) - 1)
    if sys.stdout.isatty() and len(lines) >= shutil.get_terminal_size().lines and (pager := _pager()):
        text = rendered("\n".join([*lines, RESET]), coloured=wants_colour(sys.stdout))
        environ = {"LESS": "FRX", **os.environ}
        try:
            subprocess.run(pager, input=text.encode(), shell=False, env=environ, check=False)
        except KeyboardInterrupt:
            pass
        return
    for line in lines:
        echo(line)


def _pager() -> list[str] | None:
    import shlex

    try:
        words = shlex.split(os.environ.get("PAGER", "less"))
    except ValueError:  # an unclosed quote
        return None
    return words if words and shutil.which(words[0]) and os.environ.get("TERM") != "dumb" else None
