"""Commands to a real tmux: exact words, exact rows, typed errors."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remuda.errors import TmuxError, TmuxGone, TmuxMissing, TmuxTargetGone, TmuxTooOld, WaitTimeout
from remuda.tmux.command import Tmux, installed_version, literal, run
from support import counts
from support.tmux_attention import TmuxBench

WORDS = [
    "plain", "", " ", "a b", "'", '"', ";", "a;", "a\\;", "\\", "a\\", "#", "#{pane_id}", "##", "a\nb", "\t",
    "$HOME", "${HOME}", "~", "~root", "{", "}", "{ a }", "%if", "%1", "a=b", "é中🙂", "\x1b[31m", "\x7f",
    "\udcff", "#(touch x)", "`x`", "%H:%M",
]  # fmt: skip


def option(tmux: TmuxBench) -> str:
    """What our words have become."""
    return tmux.run("show-options", "-gv", "@word")


@pytest.mark.parametrize("word", WORDS, ids=repr)
def test_command_run_passes_any_word_as_it_is(tmux: TmuxBench, word: str) -> None:
    tmux.start("work")
    assert tmux.tmux.command("set-option", "-g", "--", "@word", word) == []
    assert option(tmux) == word


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=max(10, counts.EXAMPLES // 5)
)
@given(words=st.lists(st.text(st.sampled_from("".join(WORDS)), max_size=30), max_size=3))
def test_command_run_passes_words_of_any_text(tmux: TmuxBench, words: list[str]) -> None:
    tmux.start() if tmux.server else tmux.start("work")
    for word in words:
        tmux.tmux.command("set-option", "-g", "--", "@word", word)
        assert option(tmux) == word


def test_command_run_prints_lines(tmux: TmuxBench) -> None:
    tmux.start("work", "more")
    assert tmux.tmux.command("list-sessions", "-F", "#{session_name}") == ["more", "work"]


def test_output_of_several_commands_ends_at_the_first_that_fails(tmux: TmuxBench) -> None:
    tmux.start("work")
    assert tmux.tmux.output(["display-message", "-p", "a"], ["display-message", "-p", "b"]) == b"a\nb\n"
    with pytest.raises(TmuxTargetGone, match="%99"):
        tmux.tmux.output(["list-panes", "-t", "%99"], ["set-option", "-g", "@word", "done"])
    assert "@word" not in tmux.run("show-options", "-g")


def test_output_takes_and_gives_more_than_a_pipe_holds(tmux: TmuxBench) -> None:
    tmux.start("work")
    data = os.urandom(200_000).hex().encode()
    tmux.tmux.output(["load-buffer", "-b", "b", "-"], stdin=data)
    assert tmux.tmux.output(["save-buffer", "-b", "b", "-"]) == data


def test_rows_with_a_hook_and_with_every_character_are_exact(tmux: TmuxBench, home: Path) -> None:
    odd = home / "line\nbreak\t%end 1 2 3 #{x}"
    odd.mkdir()
    tmux.start("work")
    tmux.run("set-hook", "-g", "after-list-panes", "display-message -p intruder")
    tmux.run("new-window", "-c", literal(str(odd)), "-n", "a: .b", "exec sleep 1000")
    tmux.run("select-pane", "-T", literal("été #{y} $z"), "-t", "work:1")
    tmux.until(
        lambda seen: any((pane.cwd, pane.command) == (str(odd), "sleep") for pane in seen.panes.values()),
        "the program in the folder",
    )
    (pane,) = [pane for pane in tmux.panes().panes.values() if pane.window_name == "a: .b"]
    assert (pane.title, pane.command) == ("été #{y} $z", "sleep")


def test_rows_in_a_locale_without_utf8_are_exact_too(tmux: TmuxBench) -> None:
    tmux.start("work")
    tmux.run("rename-session", "-t", "work", "été 中")
    plain = {name: value for name, value in tmux.env.items() if not name.startswith(("LC_", "LANG"))}
    rows = Tmux(tmux.address, {**plain, "LC_ALL": "C"}).rows("list-sessions", fields=["session_name"])
    assert rows == [["été 中"]]


def test_command_without_a_server_is_gone_and_starts_none(tmux: TmuxBench) -> None:
    for _ in range(2):
        with pytest.raises(TmuxGone):
            tmux.tmux.command("list-sessions")
        with pytest.raises(TmuxGone):
            tmux.panes()
    assert not Path(tmux.address.path).exists()


def test_command_to_a_socket_without_a_server_is_gone(tmux: TmuxBench) -> None:
    tmux.start("work")
    tmux.stop()
    assert Path(tmux.address.path).exists()
    with pytest.raises(TmuxGone):
        tmux.tmux.command("list-sessions")


def test_command_refused_says_what_tmux_says(tmux: TmuxBench) -> None:
    tmux.start("work")
    with pytest.raises(TmuxError, match="unknown command: nonsense"):
        tmux.tmux.command("nonsense")


def test_command_without_tmux_on_the_machine_is_missing(tmux: TmuxBench) -> None:
    tmux.start("work")
    without = Tmux(tmux.address, {**tmux.env, "PATH": "/nonexistent"})
    before = len(os.listdir("/proc/self/fd"))
    # The search goes by our own PATH, as the system's call does it.
    os.environ["PATH"], kept = "/nonexistent", os.environ["PATH"]
    try:
        with pytest.raises(TmuxMissing):
            without.command("list-sessions")
        with pytest.raises(TmuxMissing):
            installed_version()
    finally:
        os.environ["PATH"] = kept
    assert len(os.listdir("/proc/self/fd")) == before


def fake_tmux(folder: Path, script: str) -> str:
    """A folder for PATH with a `tmux` that is a script."""
    program = folder / "tmux"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def test_installed_version_is_reported_and_an_old_one_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert installed_version()[0].isdigit()
    monkeypatch.setenv("PATH", fake_tmux(tmp_path, "echo tmux 2.8"))
    with pytest.raises(TmuxTooOld):
        installed_version()


def test_run_beyond_its_time_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", fake_tmux(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 1000"))
    with pytest.raises(WaitTimeout):
        run(["tmux"], os.environ, timeout=0.3)
    # It may have been killed before it wrote anything; if it did write, it is no more.
    written = (tmp_path / "pid").read_text().strip() if (tmp_path / "pid").exists() else ""
    assert not written or not Path(f"/proc/{written}").exists()
