"""The environment of a program in a session: that of its own terminal, not of the starter's."""

from __future__ import annotations

import pytest

from remuda.keeper.environment import session_environment


def made(inherited: dict[str, str], **added: str) -> dict[str, str]:
    return session_environment(inherited, "work", "HEIMDALL_SESSION_ID", added)


@pytest.mark.parametrize(
    "name",
    [
        "TMUX",
        "TMUX_PANE",
        "STY",
        "LINES",
        "COLUMNS",
        "TERM_PROGRAM",
        "VTE_VERSION",
        "WT_SESSION",
        "ITERM_SESSION_ID",
        "KITTY_WINDOW_ID",
        "WEZTERM_PANE",
        "GHOSTTY_RESOURCES_DIR",
        "ALACRITTY_SOCKET",
        "ZELLIJ",
        "ZELLIJ_SESSION_NAME",
    ],
)
def test_variable_of_another_terminal_is_left_out(name: str) -> None:
    assert name not in made({name: "x"})


def test_variable_of_the_user_is_kept() -> None:
    kept = {"PATH": "/bin", "HOME": "/h", "LANG": "C.UTF-8", "TMUX_TMPDIR": "/t", "MY_TMUX": "1"}
    assert kept.items() <= made(kept).items()


def test_terminal_is_ours_whatever_it_was() -> None:
    found = made({"TERM": "dumb", "COLORTERM": ""})
    assert (found["TERM"], found["COLORTERM"]) == ("xterm-256color", "truecolor")


def test_session_is_named_under_both_variables() -> None:
    found = made({"REMUDA_SESSION": "outer", "HEIMDALL_SESSION_ID": "outer"})
    assert (found["REMUDA_SESSION"], found["HEIMDALL_SESSION_ID"]) == ("work", "work")


def test_added_variable_wins_over_all() -> None:
    found = made({"A": "inherited"}, A="added", TERM="vt100", TMUX="wanted")
    assert (found["A"], found["TERM"], found["TMUX"]) == ("added", "vt100", "wanted")


def test_inherited_environment_is_not_changed() -> None:
    inherited = {"TMUX": "x"}
    made(inherited)
    assert inherited == {"TMUX": "x"}
