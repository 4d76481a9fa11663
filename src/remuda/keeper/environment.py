"""The environment of a program in a session. Pure.

The program runs on our terminal, not on the one that it was started from. Variables that describe that other
terminal are removed, or the program talks to something that is not there (an agent that finds TMUX set draws
nothing).
"""

from __future__ import annotations

from collections.abc import Mapping

TERMINAL = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
_OF_ANOTHER_TERMINAL = (
    "TMUX",
    "TMUX_PANE",
    "STY",
    "WINDOW",
    "WINDOWID",
    "LINES",
    "COLUMNS",
    "TERMCAP",
    "TERM_PROGRAM",
    "TERM_PROGRAM_VERSION",
    "TERM_SESSION_ID",
    "VTE_VERSION",
    "LC_TERMINAL",
    "LC_TERMINAL_VERSION",
    "WT_SESSION",
    "KONSOLE_VERSION",
)
_OF_ANOTHER_TERMINAL_PREFIXES = (
    "ITERM_",
    "KITTY_",
    "WEZTERM_",
    "GHOSTTY_",
    "ALACRITTY_",
    "KONSOLE_",
    "ZELLIJ",
)


def session_environment(
    inherited: Mapping[str, str], name: str, session_variable: str, added: Mapping[str, str]
) -> dict[str, str]:
    kept = without_terminal(inherited)
    return {**kept, **TERMINAL, "REMUDA_SESSION": name, session_variable: name, **added}


def without_terminal(inherited: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in inherited.items() if not _belongs_elsewhere(key)}


def _belongs_elsewhere(key: str) -> bool:
    return key in _OF_ANOTHER_TERMINAL or key.startswith(_OF_ANOTHER_TERMINAL_PREFIXES)
