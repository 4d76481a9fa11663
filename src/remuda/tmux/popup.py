"""A program in a popup over a client, and what a pane shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .address import POPUPS, check_version, parse_version
from .once import Tmux
from .protocol import literal


def popup_words(
    client: str,
    program: Sequence[str],
    version: str,
    *,
    width: str = "80%",
    height: str = "80%",
    title: str = "",
    cwd: str = "",
    env: Mapping[str, str] | None = None,
) -> list[str]:
    """The command that shows a program in a popup and is done when the program has ended.

    The program's words reach it as they are: no shell is involved. Raises if the server has no popups.
    """
    check_version(version, POPUPS, "a popup")
    words = ["display-popup", "-E", "-c", client, "-w", width, "-h", height]
    if title and parse_version(version) >= (3, 3):
        words += ["-T", literal(f" {title} ")]
    if cwd:
        words += ["-d", literal(cwd)]
    # One word alone would go to a shell, and 3.2 has no option for the environment. env(1) is for both.
    return [*words, "--", "env", *(f"{name}={value}" for name, value in (env or {}).items()), *program]


def capture(tmux: Tmux, pane: str, *, history: int = 0, styled: bool = False) -> list[str]:
    """The lines that a pane shows, and so many above them. `styled`: with escape sequences for colours."""
    words = ["capture-pane", "-p", "-t", pane, "-S", str(-history) if history else "0"]
    output = tmux.output([*words, *(["-e"] if styled else [])])
    return output.decode("utf-8", "surrogateescape").removesuffix("\n").split("\n")
