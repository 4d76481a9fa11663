"""The way to the operator's terminal: what it lets through, and how wide it is."""

from __future__ import annotations

import json
import logging
import os
import pty
import re
import subprocess
import sys
import termios
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.cli.output import (
    cells,
    cut,
    flat,
    json_line,
    ours,
    print_fields,
    print_screen,
    rendered,
    style,
    table_lines,
    unstyled,
)
from remuda.cli.queue import why
from remuda.keeper.logfile import PrintableFormatter, open_log
from support.hostile import HOSTILE, IN_JSON, MARK, offences

NASTY = st.text(
    st.sampled_from("ab <>m[0;1\x1b\x07\x9b\r\n\t\u202e\u2028\ue000\ud800中\U0003fffd"), max_size=40
)


@given(NASTY, NASTY)
def test_rendered_text_holds_no_sequence_but_ours(text: str, more: str) -> None:
    found = rendered(f"{text}{style(more, fg='red')}", coloured=True)
    assert offences(found.encode()) == []
    assert found.count("\x1b[31m") == found.count("\x1b[0m") == 1
    assert "\x1b" not in rendered(f"{text}{style(more, fg='red')}", coloured=False)


def test_rendered_keeps_moves_without_colours() -> None:
    assert rendered(ours("\x1b[H") + style("x", bold=True), coloured=False) == "\x1b[Hx"


def test_a_mark_that_is_guessed_stays_text() -> None:
    for token in ("", "0" * 16, "token"):
        assert "\x1b" not in rendered(f"\x1b{token}<\x1b[8m>", coloured=True)


@given(NASTY, st.integers(2, 30))
def test_cells_count_what_is_printed_and_cut_keeps_to_it(text: str, width: int) -> None:
    text = flat(text)
    assert cells(text) == cells(unstyled(text)) == cells(style(text, fg="cyan"))
    assert cells(cut(text, width)) <= width


@given(st.lists(st.tuples(NASTY, NASTY, NASTY), min_size=1, max_size=5))
def test_table_has_one_line_for_each_row_and_straight_columns(rows: list[tuple[str, str, str]]) -> None:
    marked = [(one, style(two, fg="red"), f"|{three}") for one, two, three in rows]
    lines = table_lines(("A", "B", "|C"), marked)
    assert len(lines) == len(rows) + 1
    assert not any("\n" in line or "\t" in line for line in lines)
    widths = {cells(line[: line.rindex("|C")]) for line in lines[:1]}
    column = [
        max(cells(flat(one)) for one in ("A", "B")[at : at + 1] + tuple(row[at] for row in rows))
        for at in (0, 1)
    ]
    assert widths == {sum(column) + 4}


def test_fields_with_line_ends_stay_on_their_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_fields([("cwd", f"/tmp/{HOSTILE}\nstate      idle"), ("state", "busy")])
    printed = capsys.readouterr().out
    assert offences(printed.encode()) == []
    assert printed.count("\n") == 2


def test_screen_of_tmux_or_a_keeper_keeps_colours_and_drops_links(capsys: pytest.CaptureFixture[str]) -> None:
    link = "\x1b]8;;http://x.example\x1b\\here\x1b]8;;\x1b\\"
    by_tmux = f"\x1b[31mgo {link}\x1b[39m \x0eqqq\x0f"
    by_keeper = f"\x1b[31mgo here\x1b[0m\x1b[4G{link}"
    print_screen([by_tmux, by_keeper, "\x1b[2Jx\x07\ud800", " ", ""], coloured=True)
    assert capsys.readouterr().out == (
        "\x1b[31mgo here\x1b[39m qqq\n\x1b[31mgo here\x1b[0m\n\ufffd[2Jx\ufffd\ufffd\x1b[0m\n"
    )
    print_screen([by_tmux], coloured=False)
    assert capsys.readouterr().out == "go here qqq\n"


def test_json_is_printable_and_finite_and_means_the_same() -> None:
    found = json_line(
        {"text": IN_JSON, "numbers": [float("inf"), float("nan"), 1.5], IN_JSON: (1, "grüße 中")}
    )
    assert found.isprintable()
    assert "grüße 中" in found
    text = IN_JSON.replace("\ud800", "\ufffd")
    numbers = [sys.float_info.max, None, 1.5]
    assert json.loads(found) == {"text": text, "numbers": numbers, text: [1, "grüße 中"]}


PROGRAM = "from remuda.cli.output import echo, style; echo(style('x', fg='red'))"


def printed_on_a_terminal(program: str, env: Mapping[str, str]) -> bytes:
    master, slave = pty.openpty()
    subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **env}, stdout=slave, stderr=slave, check=False
    )
    os.close(slave)
    try:
        return os.read(master, 1 << 16)
    finally:
        os.close(master)


@pytest.mark.parametrize(
    ("env", "coloured"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "dumb"}, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, True),
        ({"TERM": "dumb", "CLICOLOR_FORCE": "0"}, False),
        ({"TERM": "xterm", "FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_colours_are_left_out_where_they_are_not_wanted(env: dict[str, str], coloured: bool) -> None:
    found = printed_on_a_terminal(PROGRAM, {"NO_COLOR": "", **env})
    assert found == (b"\x1b[31mx\x1b[0m\r\n" if coloured else b"x\r\n")


def test_forced_colours_reach_a_pipe() -> None:
    for name in ("FORCE_COLOR", "CLICOLOR_FORCE"):
        env = {**os.environ, "NO_COLOR": "", name: "1"}
        done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, check=True)
        assert done.stdout == b"\x1b[31mx\x1b[0m\n"


@given(NASTY, NASTY, st.integers(2, 30))
def test_cut_of_a_coloured_text_keeps_its_colours(text: str, more: str, width: int) -> None:
    whole = flat(text) + style(flat(more), fg="cyan")
    found = rendered(cut(whole, width), coloured=True)
    assert cells(cut(whole, width)) <= width
    assert found.count("\x1b[36m") == found.count("\x1b[0m") == 1
    assert found.endswith("\x1b[0m")


TABLE = (
    "import sys; from remuda.cli.output import echo, style, table_lines\n"
    "state = style('waiting_permission', fg='yellow')\n"
    "rows = [('x' * int(sys.argv[1]), state, '中' * 40, 'last ' * 30), ('a', 'b', 'c', 'd')]\n"
    "echo('\\n'.join(table_lines(('NAME', 'STATE', 'CWD', 'LAST'), rows, optional=sys.argv[2:])))\n"
)


def table_of(name_length: int, cols: int, *optional: str) -> list[str]:
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, cols))
    # What a variable says of the terminal may be old.
    env = {**os.environ, "NO_COLOR": "1", "COLUMNS": "300"}
    subprocess.run(
        [sys.executable, "-c", TABLE, str(name_length), *optional], env=env, stdout=slave, check=True
    )
    os.close(slave)
    lines = os.read(master, 1 << 16).decode().splitlines()
    os.close(master)
    return lines


def test_table_with_a_name_as_wide_as_the_terminal_still_shows_the_other_columns() -> None:
    head, row, _ = table_of(64, 80)
    assert head.split() == ["NAME", "STATE", "CWD", "LAST"]
    assert re.match("x{40,}…  wait…  中中…  last…$", row)


@pytest.mark.parametrize(
    ("cols", "heads"),
    [(80, ["NAME", "STATE", "CWD", "LAST"]), (38, ["NAME", "STATE", "LAST"]), (20, ["NAME", "LAST"])],
)
def test_narrow_terminal_loses_optional_columns_in_their_order(cols: int, heads: list[str]) -> None:
    lines = table_of(8, cols, "CWD", "STATE")
    assert lines[0].split() == heads
    assert max(map(cells, lines)) <= cols
    assert "x" * 8 in lines[1]
    assert "waiting_permission" in lines[1] or "STATE" not in heads


def test_state_is_cut_after_the_columns_of_free_text() -> None:
    assert "waiting_permission" in table_of(4, 80)[1]
    assert "waiting_permission" in table_of(4, 46)[1]


@pytest.mark.parametrize("cols", [200, 80, 40, 20, 9])
def test_no_line_of_a_table_is_wider_than_the_terminal(cols: int) -> None:
    lines = table_of(38, cols)
    assert len(lines) == 3
    assert max(map(cells, lines)) <= cols
    assert all("…" in line for line in lines[1:2])
    assert "x" * 38 in lines[1] or cols < 80, "a name is cut last"
    if cols >= 40:
        assert lines[2].split() == ["a", "b", "c", "d"]


def test_echo_where_the_locale_has_few_characters_replaces_the_others() -> None:
    program = f"from remuda.cli.output import echo; echo({HOSTILE!r} + '▶')"
    found = printed_on_a_terminal(program, {"PYTHONIOENCODING": "latin-1"})
    assert MARK.encode() in found
    assert b"Traceback" not in found
    assert not re.search(rb"[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f-\x9f]", found)


def test_a_traceback_that_quotes_hostile_text_is_printable() -> None:
    hook = "import sys; from remuda.oneshot.output import show_bug; sys.excepthook = show_bug"
    program = f"{hook}; raise ValueError({HOSTILE!r})"
    found = printed_on_a_terminal(program, {})
    assert b"ValueError: evil" in found
    assert offences(found) == []


# ── logs ──


def test_log_record_with_hostile_text_is_one_printable_line() -> None:
    formatter = PrintableFormatter("%(levelname)s %(name)s: %(message)s")
    record = logging.makeLogRecord({"name": HOSTILE, "levelname": "INFO", "msg": "%s", "args": (IN_JSON,)})
    found = formatter.format(record)
    assert offences(found.encode()) == []
    assert "\n" not in found


def test_log_line_is_cut_and_says_so() -> None:
    record = logging.makeLogRecord({"msg": "path %s", "args": ("/" + "a" * 3_000_000,)})
    found = PrintableFormatter("%(message)s").format(record)
    assert len(found) < 5000
    assert found.endswith("more characters)")


def test_log_of_a_traceback_indents_what_may_look_like_a_record(tmp_path: Path) -> None:
    logger = logging.getLogger("test_output")
    handlers, level = logging.getLogger().handlers[:], logging.getLogger().level
    raises = logging.raiseExceptions
    try:
        open_log(tmp_path / "log", "info", None, 0)
        try:
            raise ValueError(f"{HOSTILE}\n2026-01-01 00:00:00,000 INFO remuda: all is well")
        except ValueError:
            logger.exception("failed")
    finally:
        for one in set(logging.getLogger().handlers) - set(handlers):
            logging.getLogger().removeHandler(one)
            one.close()
        logging.getLogger().setLevel(level)
        logging.raiseExceptions = raises
    first, *rest = (tmp_path / "log").read_text().splitlines()
    assert first.endswith("ERROR test_output: failed")
    assert offences((tmp_path / "log").read_bytes()) == []
    assert any("all is well" in line for line in rest)
    assert all(line.startswith("    ") for line in rest)


@pytest.mark.parametrize(
    ("item", "shown"),
    [
        ({"reason": "permission", "detail": {"tool": "Bash"}}, "\x1b[33mpermission: Bash\x1b[0m"),
        ({"reason": "plan"}, "\x1b[33mplan\x1b[0m"),
        ({"reason": "stopped"}, "\x1b[32mstopped\x1b[0m"),
        ({"reason": "dead"}, "\x1b[31mdead\x1b[0m"),
    ],
)
def test_reason_to_wait_has_the_colour_of_its_state(item: dict[str, Any], shown: str) -> None:
    assert rendered(why(item), coloured=True) == shown
