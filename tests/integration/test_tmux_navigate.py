"""Taking a real client to a pane and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remuda.errors import NoOrigin, NoTmuxClient, TmuxTargetGone
from remuda.tmux.bindings import popup_words
from remuda.tmux.command import Tmux
from remuda.tmux.navigate import Jump, go_back, jump
from support.keeper import until
from support.tmux_attention import Person, TmuxBench

STAY = "exec sleep 1000"


@pytest.fixture
def work(tmux: TmuxBench, home: Path) -> Work:
    """Session `work` has a window of two panes and one of one, `other` has one. One person is in `work`."""
    tmux.start("work", "other")
    tmux.run("split-window", "-d", "-t", "work:0", STAY)
    tmux.run("new-window", "-d", "-t", "work:1", STAY)
    return Work(tmux, home)


class Work:
    def __init__(self, tmux: TmuxBench, home: Path) -> None:
        self.tmux = tmux
        self.home = home
        self.person = tmux.person("work")
        self.top, self.low = tmux.pane("work:0.0").id, tmux.pane("work:0.1").id
        self.next = tmux.pane("work:1").id
        self.other = tmux.pane("other").id

    def jump(self, pane: str, **more: Any) -> Jump:
        return jump(self.tmux.tmux, pane, self.home, **more)

    def back(self, **more: str) -> Jump:
        return go_back(self.tmux.tmux, self.home, **more)

    def at(self, person: Person | None = None) -> tuple[str, str, bool]:
        """Where a client is: session, pane, zoomed."""
        client = self.tmux.client(person or self.person)
        name = self.tmux.run("display-message", "-p", "-t", client.session_id, "#{session_name}")
        return name, client.pane_id, client.is_zoomed

    def zoom(self, pane: str) -> None:
        self.tmux.run("select-pane", "-t", pane)
        self.tmux.run("resize-pane", "-Z", "-t", pane)


def test_jump_to_a_pane_window_and_session_and_back(work: Work) -> None:
    for pane, session in [(work.low, "work"), (work.next, "work"), (work.other, "other")]:
        done = work.jump(pane)
        assert (done.client, done.pane.id, done.has_moved) == (work.person.name, pane, True)
        assert work.at() == (session, pane, False)
        assert work.back().has_moved
        assert work.at() == ("work", work.top, False)


def test_jump_to_where_one_is_moves_and_remembers_nothing(work: Work) -> None:
    assert not work.jump(work.top).has_moved
    with pytest.raises(NoOrigin):
        work.back()


def test_return_after_a_chain_of_jumps_goes_to_the_first_place(work: Work) -> None:
    for pane in (work.other, work.next, work.low):
        work.jump(pane)
    work.jump(work.low)
    work.back()
    assert work.at() == ("work", work.top, False)
    with pytest.raises(NoOrigin):
        work.back()


def test_return_after_walking_away_by_hand_goes_to_where_the_next_jump_began(work: Work) -> None:
    work.jump(work.other)
    work.tmux.run("switch-client", "-c", work.person.name, "-t", "work:1")
    work.jump(work.low)
    work.back()
    assert work.at() == ("work", work.next, False)


def test_jump_to_a_pane_that_is_gone_changes_nothing(work: Work) -> None:
    work.tmux.run("kill-pane", "-t", work.next)
    with pytest.raises(TmuxTargetGone):
        work.jump(work.next)
    assert work.at() == ("work", work.top, False)
    with pytest.raises(NoOrigin):
        work.back()


def test_jump_that_fails_halfway_keeps_the_trail_as_it_was(work: Work, tmp_path: Path) -> None:
    work.jump(work.other)
    # A tmux that lists everything and does nothing else.
    real = work.tmux.env["PATH"]
    (tmp_path / "tmux").write_text(
        f'#!/bin/sh\ncase "$*" in *select-window*) echo "can\'t find window: @1" >&2; exit 1;; esac\n'
        f'PATH="{real}"\nexec tmux "$@"\n'
    )
    (tmp_path / "tmux").chmod(0o755)
    broken = Tmux(work.tmux.address, work.tmux.env)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{tmp_path}:{real}")
        with pytest.raises(TmuxTargetGone):
            jump(broken, work.low, work.home)
    assert work.at() == ("other", work.other, False)
    work.jump(work.next)
    work.back()
    assert work.at() == ("work", work.top, False)


def test_return_to_a_pane_that_is_gone_goes_to_its_window_then_to_its_session(work: Work) -> None:
    work.jump(work.other)
    work.tmux.run("kill-pane", "-t", work.top)
    work.tmux.run("select-window", "-t", "work:1")
    work.back()
    assert work.at() == ("work", work.low, False)
    work.jump(work.other)
    work.tmux.run("kill-pane", "-t", work.low)
    work.back()
    assert work.at() == ("work", work.next, False)


def test_return_to_a_session_that_is_gone_is_an_error_once(work: Work) -> None:
    work.jump(work.other)
    work.tmux.run("kill-session", "-t", "work")
    with pytest.raises(TmuxTargetGone):
        work.back()
    with pytest.raises(NoOrigin):
        work.back()


def test_jump_within_a_zoomed_window_keeps_it_zoomed_and_return_zooms_the_first(work: Work) -> None:
    work.zoom(work.top)
    work.jump(work.low)
    assert work.at() == ("work", work.low, True)
    work.back()
    assert work.at() == ("work", work.top, True)


def test_jump_from_a_zoomed_window_and_return_finds_it_zoomed(work: Work) -> None:
    work.zoom(work.low)
    work.jump(work.other)
    assert work.at() == ("other", work.other, False)
    work.tmux.run("resize-pane", "-Z", "-t", work.low)  # unzoomed by someone in the meantime
    work.back()
    assert work.at() == ("work", work.low, True)


def test_jump_to_a_window_that_is_zoomed_on_another_pane_shows_the_target_zoomed(work: Work) -> None:
    work.zoom(work.top)
    work.tmux.run("switch-client", "-c", work.person.name, "-t", "other")
    work.jump(work.low)
    assert work.at() == ("work", work.low, True)
    work.back()
    assert work.at() == ("other", work.other, False)


def test_jump_to_a_linked_window_stays_in_the_clients_session(work: Work) -> None:
    work.tmux.run("link-window", "-d", "-s", "other:0", "-t", "work:8")
    work.jump(work.other)
    assert work.at() == ("work", work.other, False)


def test_jump_after_the_pane_has_moved_follows_it(work: Work) -> None:
    work.tmux.run("break-pane", "-d", "-s", work.low, "-t", "other:4")
    work.jump(work.low)
    assert work.at() == ("other", work.low, False)


def test_jump_of_one_of_two_people_leaves_the_other_alone(work: Work) -> None:
    second = work.tmux.person("other")
    work.jump(work.next, client=work.person.name)
    assert work.at(second) == ("other", work.other, False)
    work.jump(work.low, client=second.name)
    work.back(client=work.person.name)
    work.back(client=second.name)
    assert work.at(second) == ("other", work.other, False)
    with pytest.raises(NoOrigin):
        work.back(client=second.name)


def test_jump_from_a_pane_means_the_person_who_sees_it(work: Work) -> None:
    work.tmux.person("other")
    assert work.jump(work.next, from_pane=work.top).client == work.person.name


def test_jump_without_a_pane_means_the_person_who_was_active_last(work: Work) -> None:
    second = work.tmux.person("other")

    def second_is_last() -> bool:
        """tmux counts in seconds."""
        second.press(b"x")
        return work.tmux.client(second).activity > work.tmux.client(work.person).activity

    until(second_is_last, "the second person's key")
    assert work.jump(work.next).client == second.name


def test_jump_with_no_one_attached_is_an_error(tmux: TmuxBench, home: Path) -> None:
    tmux.start("work", "other")
    with pytest.raises(NoTmuxClient):
        jump(tmux.tmux, tmux.pane("work").id, home)


def test_return_to_a_terminal_that_is_another_clients_now_has_no_origin(work: Work) -> None:
    work.jump(work.other)
    (file,) = [path for path in work.home.iterdir() if path.name.startswith("dev-pts")]
    lines = file.read_text().split("\n")
    lines[2] = "1"  # the process of the client that the trail is of
    file.write_text("\n".join(lines))
    with pytest.raises(NoOrigin):
        work.back()


def test_popup_shows_the_program_with_its_words_to_that_client(work: Work) -> None:
    got = work.home / "got"
    program = [
        "sh",
        "-c",
        'printf "%s|" "$@" > "$0.new"; mv "$0.new" "$0"',
        str(got),
        "a b",
        ";",
        "#{x}",
    ]
    words = popup_words(work.person.name, program, work.tmux.panes().version, title="#{z}")
    work.tmux.tmux.command(*words, timeout=None)
    assert got.read_text() == "a b|;|#{x}|"
