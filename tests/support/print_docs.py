"""The tables of docs/reference/print.md. `python tests/support/print_docs.py` writes them from the code."""

from __future__ import annotations

import re
from pathlib import Path

from remuda.agents.claude.print.print_flags import ALIASES, FLAGS, TERMINAL
from support import print_differences

NOTES = {
    "--agents": "on a terminal the CLI takes JSON, and no file",
    "--allow-dangerously-skip-permissions": "the CLI refuses it to root outside of a sandbox",
    "--ax-screen-reader": "changes the screen and not the answer: left out",
    "--continue": "on a terminal as `--resume` with the conversation that `claude -p` would go on with",
    "--dangerously-skip-permissions": "the CLI refuses it to root outside of a sandbox",
    "--from-pr": "a terminal opens a list to choose from",
    "--include-partial-messages": "on a terminal text alone, when a line of it is complete",
    "--input-format": "on a terminal `text` alone",
    "--max-turns": "on a terminal by a hook that stops the agent before its next request",
    "--permission-prompts": "on a terminal `none` alone; `--ask` leaves permissions to a human",
    "--resume": "needs an id or a title, as with `claude -p`",
    "--settings": "on a terminal together with our hooks, in one file",
    "--tmux": "a call has a session of its own: `remuda attach`",
}

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "print.md"


def flags_table() -> str:
    rows = ["| flag | terminal | stream | |", "| --- | --- | --- | --- |"]
    for flag in sorted(TERMINAL):
        names = ", ".join(f"`{name}`" for name in [flag, *_others(flag)])
        handled = " | ".join(str(FLAGS.handling(flag, backend)) for backend in ("terminal", "stream"))
        rows.append(f"| {names} | {handled} | {NOTES.get(flag, '')} |")
    return "\n".join(rows)


def _others(flag: str) -> list[str]:
    return sorted(alias for alias, name in ALIASES.items() if name == flag)


TABLES = {"flags": flags_table, "differences": print_differences.table}


def filled(page: str) -> str:
    """The page with every table as the code has it."""
    for name, table in TABLES.items():
        begin, end = f"<!-- table: {name} -->\n", "<!-- end -->"
        pattern = re.compile(f"({re.escape(begin)}).*?({re.escape(end)})", re.DOTALL)
        page, count = pattern.subn(lambda found: f"{found[1]}{table()}\n{found[2]}", page)  # noqa: B023
        assert count == 1, f"docs/reference/print.md has the table '{name}' {count} times"
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
