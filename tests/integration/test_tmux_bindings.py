"""Our keys and our piece of the status line in a server that runs, and read from a configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.tmux.bindings import Keys, apply, conf_lines, remove, segment, taken_keys
from remuda.tmux.conf import ConfFile
from support.keeper import until
from support.tmux_attention import TmuxBench


def state(tmux: TmuxBench) -> tuple[str, ...]:
    """Everything that our lines may touch."""
    return (
        tmux.run("list-keys", "-T", "prefix"),
        tmux.run("show-options", "-g"),
        tmux.run("show-options", "-s"),
    )


def program(home: Path) -> Path:
    """Stands for `remuda`, in a folder whose name has a space: writes down how it was called."""
    path = home / "my bin" / "remuda"
    path.parent.mkdir()
    path.write_text(
        '#!/bin/sh\n[ "$1" = segment ] && exec cat "${0%/*/*}/segment"\necho "$@" >> "$0.called"\n'
    )
    path.chmod(0o755)
    return path


def test_apply_and_remove_give_the_server_back_as_it_was(tmux: TmuxBench, home: Path) -> None:
    tmux.start("work")
    odd = "a;b 'c' \"d\" $HOME #{pane_id} ~ \\"
    tmux.run("bind-key", "-r", "g", "display-message", odd, ";", "select-pane", "-L")
    tmux.run("bind-key", "S", "list-buffers")
    before = state(tmux)
    lines = conf_lines([str(program(home))], Keys(next=";", skip="S", popup="g", back="Tab"))
    assert set(taken_keys(tmux.tmux, lines)) == {"\\;", "S", "g"}
    apply(tmux.tmux, lines)
    assert taken_keys(tmux.tmux, lines) == {}
    once = state(tmux)
    assert once != before
    apply(tmux.tmux, lines)
    assert state(tmux) == once
    apply(tmux.tmux, conf_lines([str(home / "my bin" / "remuda")], Keys(next="N"), segment=False))
    remove(tmux.tmux)
    assert state(tmux) == before
    remove(tmux.tmux)
    assert state(tmux) == before


def test_remove_takes_out_the_segment_that_an_older_version_put_at_the_end(tmux: TmuxBench) -> None:
    tmux.start("work")
    tmux.run("set-option", "-g", "status-right", "#H %H:%M ##1")
    before = state(tmux)
    tmux.run("set-option", "-ga", "status-right", " #(/opt/bin/remuda segment)")
    apply(tmux.tmux, conf_lines(["/opt/bin/remuda"]))
    assert tmux.run("show-options", "-gv", "status-right").strip() == (
        "#(/opt/bin/remuda segment) #H %H:%M ##1"
    )
    remove(tmux.tmux)
    assert state(tmux) == before


def test_remove_leaves_a_key_that_was_bound_to_something_else_since(tmux: TmuxBench) -> None:
    tmux.start("work")
    tmux.run("bind-key", "S", "list-clients")
    apply(tmux.tmux, conf_lines(["remuda"]))
    tmux.run("bind-key", "S", "list-buffers")
    remove(tmux.tmux)
    assert "list-buffers" in tmux.run("list-keys", "-T", "prefix", "S")


def test_conf_read_again_and_again_by_tmux_binds_once_and_adds_one_segment(
    tmux: TmuxBench, home: Path
) -> None:
    tmux.start("work")
    conf = home / "tmux.conf"
    conf.write_text("set -g status-left 'mine'  # last line, no line break")
    plain = state(tmux)
    tmux.run("source-file", str(conf))
    before = state(tmux)
    assert before != plain
    file = ConfFile(conf)
    file.install(conf_lines([str(program(home))]))
    file.save()
    for _ in range(3):
        tmux.run("source-file", str(conf))
    assert tmux.run("show-options", "-gv", "status-right").count("segment") == 1
    assert tmux.run("show-options", "-gv", "status-left") == "mine"
    remove(tmux.tmux)
    assert state(tmux) == before


@pytest.mark.parametrize(
    ("key", "command"), [(b"\t", "next"), (b"S", "skip"), (b"g", "popup"), (b"B", "return")]
)
def test_key_runs_the_command_for_the_client_that_pressed_it(
    tmux: TmuxBench, home: Path, key: bytes, command: str
) -> None:
    tmux.start("work", "other")
    called = program(home).with_name("remuda.called")
    apply(tmux.tmux, conf_lines([str(home / "my bin" / "remuda")]))
    tmux.person("work")
    second = tmux.person("other")
    second.press(b"\x02" + key)
    until(lambda: called.exists() and called.read_text().endswith("\n"), "the call")
    assert called.read_text() == f"{command} {second.name}\n"


def test_segment_in_the_status_line_is_shown_in_the_styles_of_tmux(tmux: TmuxBench, home: Path) -> None:
    tmux.start("work")
    tmux.run("set-option", "-g", "status-interval", "1")
    tmux.run("select-pane", "-T", "a title as agents set one, which fills the line")
    (home / "segment").write_text(segment(3, 700.0))
    apply(tmux.tmux, conf_lines([str(program(home))]))
    person = tmux.person("work")
    until(lambda: "⚠ 3 11m".encode() in person.seen, "the segment")
    assert b"fg=" not in person.seen
