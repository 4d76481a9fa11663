"""Commands to a real tmux, run or by a control client: exact words, typed errors, and nobody disturbed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remuda.errors import TmuxError, TmuxGone, TmuxMissing, TmuxTargetGone, TmuxTooOld, WaitTimeout
from remuda.tmux.address import Address
from remuda.tmux.control import Control
from remuda.tmux.link import Link, choose_session
from remuda.tmux.once import Tmux, installed_version, run
from remuda.tmux.protocol import Notice, literal
from support import counts
from support.heimdall_client import PATIENCE
from support.keeper import Process
from support.tmux_attention import TmuxBench

T = TypeVar("T")

WORDS = [
    "plain", "", " ", "a b", "'", '"', ";", "a;", "a\\;", "\\", "a\\", "#", "#{pane_id}", "##", "a\nb", "\t",
    "$HOME", "${HOME}", "~", "~root", "{", "}", "{ a }", "%if", "%1", "a=b", "é中🙂", "\x1b[31m", "\x7f",
    "\udcff", "#(touch x)", "`x`", "%H:%M",
]  # fmt: skip


def option(tmux: TmuxBench) -> str:
    """What our words have become."""
    return tmux.run("show-options", "-gv", "@word")


# ── run ──


@pytest.mark.parametrize("word", WORDS, ids=repr)
def test_command_run_passes_any_word_as_it_is(tmux: TmuxBench, word: str) -> None:
    tmux.start("work")
    assert tmux.tmux.command("set-option", "-g", "--", "@word", word) == []
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


def test_installed_version_is_told_and_an_old_one_refused(
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


# ── control ──


def with_control(
    tmux: TmuxBench, use: Callable[[Control], Awaitable[T]], notices: list[Notice] | None = None
) -> T:
    async def main() -> T:
        heard = [] if notices is None else notices
        control = await Control.open(tmux.address, "$0", tmux.env, heard.append)
        try:
            return await use(control)
        finally:
            await control.aclose()

    return asyncio.run(main())


def test_control_passes_any_word_as_it_is(tmux: TmuxBench) -> None:
    tmux.start("work")

    async def use(control: Control) -> None:
        for word in WORDS:
            assert await control.command("set-option", "-g", "--", "@word", word) == []
            assert option(tmux) == word, word

    with_control(tmux, use)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=max(10, counts.EXAMPLES // 5)
)
@given(words=st.lists(st.text(st.sampled_from("".join(WORDS)), max_size=30), max_size=3))
def test_words_of_any_text_mean_the_same_both_ways(tmux: TmuxBench, words: list[str]) -> None:
    tmux.start() if tmux.server else tmux.start("work")

    async def use(control: Control) -> None:
        for word in words:
            await control.command("set-option", "-g", "--", "@word", word)
            assert option(tmux) == word
            await control.command("set-option", "-gu", "@word")
            tmux.tmux.command("set-option", "-g", "--", "@word", word)
            assert option(tmux) == word

    with_control(tmux, use)


def test_control_answers_in_order_with_hooks_in_between(tmux: TmuxBench) -> None:
    tmux.start("work")
    tmux.run("set-hook", "-g", "after-list-panes", "display-message -p intruder")

    async def use(control: Control) -> None:
        asked = [control.command("display-message", "-p", str(number)) for number in range(50)]
        listed = [control.command("list-panes", "-F", "#{pane_id}") for _ in range(50)]
        answers = await asyncio.gather(*(one for pair in zip(asked, listed, strict=True) for one in pair))
        assert answers[::2] == [[str(number)] for number in range(50)]
        assert answers[1::2] == [["%0"]] * 50

    with_control(tmux, use)


def test_control_errors_are_typed_and_leave_the_connection_good(tmux: TmuxBench) -> None:
    tmux.start("work")

    async def use(control: Control) -> None:
        with pytest.raises(TmuxTargetGone):
            await control.command("capture-pane", "-p", "-t", "%9")
        with pytest.raises(TmuxError, match="nonsense"):
            await control.command("nonsense")
        assert await control.command("display-message", "-p", "ok") == ["ok"]

    with_control(tmux, use)


def test_control_hears_notices_and_no_output(tmux: TmuxBench) -> None:
    tmux.start("work")
    notices: list[Notice] = []

    async def use(control: Control) -> None:
        tmux.run("send-keys", "-t", "%0", "echo hello", "Enter")
        tmux.run("new-window", "-d", "-n", "two words", "exec sleep 1000")
        tmux.run("rename-session", "-t", "work", "my work")
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while Notice("session-renamed", ("$0", "my work")) not in notices:
            assert asyncio.get_running_loop().time() < deadline, notices
            await control.command("display-message", "-p", "")
        assert Notice("window-add", ("@1",)) in notices

    with_control(tmux, use, notices)


def test_control_of_a_session_that_is_not_there_is_an_error_and_leaves_nothing(tmux: TmuxBench) -> None:
    tmux.start("work")

    async def main() -> None:
        with pytest.raises(TmuxTargetGone):
            await Control.open(tmux.address, "$7", tmux.env)
        nowhere = Address(f"{tmux.address.path}-none")
        with pytest.raises(TmuxGone):
            await Control.open(nowhere, "$0", tmux.env)
        assert not Path(nowhere.path).exists()

    asyncio.run(main())
    assert tmux.run("list-clients") == ""


def test_control_when_the_server_ends_tells_all_who_wait(tmux: TmuxBench) -> None:
    tmux.start("work")

    async def use(control: Control) -> None:
        await control.command("wait-for", "never")  # holds back all that comes behind it
        waiting = asyncio.create_task(control.command("list-panes", timeout=PATIENCE))
        await asyncio.sleep(0)
        await asyncio.to_thread(tmux.stop)
        with pytest.raises(TmuxGone):
            await waiting
        with pytest.raises(TmuxGone):
            await control.command("list-panes")
        assert not control.is_open

    with_control(tmux, use)


def test_control_command_beyond_its_time_ends_the_connection(tmux: TmuxBench) -> None:
    tmux.start("work")

    async def use(control: Control) -> None:
        await control.command("wait-for", "never")
        with pytest.raises(WaitTimeout):
            await control.command("list-panes", timeout=0.2)
        with pytest.raises(TmuxGone):
            await control.command("list-panes")

    with_control(tmux, use)


def test_control_command_cancelled_leaves_the_order_of_answers(tmux: TmuxBench) -> None:
    tmux.start("work")

    async def use(control: Control) -> None:
        first = asyncio.create_task(control.command("display-message", "-p", "first"))
        await asyncio.sleep(0)
        first.cancel()
        assert await control.command("display-message", "-p", "second") == ["second"]

    with_control(tmux, use)


# ── a link ──


def test_link_runs_commands_and_attaches_nothing(tmux: TmuxBench) -> None:
    tmux.start("work")
    tmux.person("work")

    async def main() -> None:
        link = Link(tmux.address, tmux.env)
        assert await link.command("display-message", "-p", "a b") == ["a b"]
        assert await link.rows("list-sessions", fields=["session_name"]) == [["work"]]
        assert await link.output(["display-message", "-p", "x"]) == b"x\n"
        assert len(tmux.ask("client_name")) == 1
        await link.aclose()

    asyncio.run(main())


def test_links_to_two_servers_at_once_and_a_server_that_comes_back(tmux: TmuxBench, home: Path) -> None:
    tmux.start("one")
    other = TmuxBench(home)
    other.start("two")

    async def main() -> None:
        links = [Link(tmux.address, tmux.env), Link(other.address, other.env, control=True)]
        names = [await link.rows("list-sessions", fields=["session_name"]) for link in links]
        assert names == [[["one"]], [["two"]]]
        await asyncio.to_thread(other.stop)
        with pytest.raises(TmuxGone):
            await links[1].command("list-sessions")
        other.start("again")
        assert await links[1].rows("list-sessions", fields=["session_name"]) == [["again"]]
        assert await links[0].rows("list-sessions", fields=["session_name"]) == [["one"]]
        for link in links:
            await link.aclose()

    try:
        asyncio.run(main())
    finally:
        other.close()


def seen_by(tmux: TmuxBench) -> tuple[str, ...]:
    """What people can see of a server, but for who is attached."""
    sessions = "#{session_name} #{window_flags} #{window_width}x#{window_height}"
    return (
        tmux.run("list-sessions", "-F", sessions),
        tmux.run("show-environment", "-g"),
        tmux.run("show-environment", "-t", "work"),
    )


def test_link_with_control_accompanies_a_human_and_changes_nothing_they_see(tmux: TmuxBench) -> None:
    tmux.env["DISPLAY"] = ":7"
    tmux.start("work", "other")
    tmux.person("work", cols=97, rows=31)
    del tmux.env["DISPLAY"]
    before = seen_by(tmux)

    async def main() -> None:
        link = Link(tmux.address, tmux.env, control=True)
        assert await link.command("display-message", "-p", "#{session_name}") == ["work"]
        assert link.has_control
        (flags,) = [flags for flags in tmux.ask("client_flags") if "control-mode" in flags]
        assert {"ignore-size", "no-output"} <= set(flags.split(","))
        assert len(tmux.ask("client_name")) == 2
        assert seen_by(tmux) == before
        await link.aclose()
        assert tmux.ask("client_control_mode") == ["0"]
        assert not link.has_control

    asyncio.run(main())
    assert seen_by(tmux) == before


def test_link_with_control_leaves_when_the_last_human_leaves(tmux: TmuxBench) -> None:
    tmux.start("work", "other")
    person = tmux.person("work")

    async def main() -> None:
        link = Link(tmux.address, tmux.env, control=True)
        await link.command("list-sessions")
        assert link.has_control
        tmux.run("switch-client", "-c", person.name, "-t", "other")
        await gone(lambda: tmux.ask("client_control_mode") == ["0"])
        assert await link.command("display-message", "-p", "by a run") == ["by a run"]
        await link.aclose()

    asyncio.run(main())


def test_link_with_control_leaves_a_session_that_its_human_detaches_from(tmux: TmuxBench) -> None:
    tmux.start("work")
    person = tmux.person("work")

    async def main() -> None:
        link = Link(tmux.address, tmux.env, control=True)
        await link.command("list-sessions")
        assert link.has_control
        tmux.run("detach-client", "-t", person.name)
        await gone(lambda: tmux.run("list-clients") == "")
        assert await link.command("display-message", "-p", "by a run") == ["by a run"]
        await link.aclose()

    asyncio.run(main())


async def gone(is_so: Callable[[], bool]) -> None:
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while not is_so():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    "why_not",
    [
        ["set-option", "-g", "destroy-unattached", "on"],
        ["set-option", "-s", "exit-unattached", "on"],
        ["set-hook", "-g", "client-attached", "display-message hi"],
        ["set-hook", "-g", "client-session-changed[3]", "display-message hi"],
    ],
    ids=lambda words: words[2],
)
def test_choose_session_where_it_would_be_noticed_is_none(tmux: TmuxBench, why_not: list[str]) -> None:
    tmux.start("work")
    assert choose_session(tmux.tmux) is None
    tmux.person("work")
    assert choose_session(tmux.tmux) == "$0"
    tmux.run(*why_not)
    assert choose_session(tmux.tmux) is None


def test_choose_session_beside_another_control_client_alone_is_none(tmux: TmuxBench) -> None:
    tmux.start("work")

    async def use(control: Control) -> None:
        assert choose_session(tmux.tmux) is None

    with_control(tmux, use)


def test_link_closed_while_a_control_client_comes_in_leaves_none(tmux: TmuxBench) -> None:
    tmux.start("work")
    tmux.person("work")

    async def main() -> None:
        link = Link(tmux.address, tmux.env, control=True)
        command = asyncio.create_task(link.command("display-message", "-p", "x"))
        await asyncio.sleep(0)
        await link.aclose()
        assert tmux.ask("client_control_mode") == ["0"]
        await asyncio.gather(command, return_exceptions=True)  # it may have been cut off
        assert tmux.ask("client_control_mode") == ["0"]

    asyncio.run(main())


def test_link_used_by_many_at_once_makes_one_control_client(tmux: TmuxBench) -> None:
    tmux.start("work")
    tmux.person("work")

    async def main() -> None:
        link = Link(tmux.address, tmux.env, control=True)
        answers = await asyncio.gather(*(link.command("display-message", "-p", str(n)) for n in range(20)))
        assert answers == [[str(number)] for number in range(20)]
        assert sorted(tmux.ask("client_control_mode")) == ["0", "1"]
        await link.aclose()

    asyncio.run(main())


def test_control_leaves_no_process_when_it_is_closed(tmux: TmuxBench) -> None:
    tmux.start("work")

    async def use(control: Control) -> Process:
        (pid,) = tmux.ask("client_pid")
        return Process(int(pid))

    process = with_control(tmux, use)
    assert process.ended(0)
    process.close()
