"""The keys of the dashboard: those of the table that all faces share, and its own. Pure."""

from __future__ import annotations

from rich.text import Text

from remuda.cli.permission_request import questions_of
from remuda.cli.queue_keys import key_actions, key_table

from .model import Dashboard

ACTIONS = key_actions({"Enter": ("enter",), "ArrowDown": ("down",), "ArrowUp": ("up",)}) | {
    "tab": "focus",
    "J": "scroll_down",
    "K": "scroll_up",
    "right": "next_view",
    "left": "previous_view",
    "g": "first",
    "G": "last",
    "ctrl+d": "page_down",
    "ctrl+u": "page_up",
    "pagedown": "page_down",
    "pageup": "page_up",
    "home": "first",
    "end": "last",
    "/": "filter",
    "q": "quit",
    "ctrl+c": "quit",
    "ctrl+z": "suspend",
    "escape": "escape",
}
"""What each key does. A key is its character, else Textual's name for it."""
SCROLLS = ("up", "down", "scroll_up", "scroll_down", "page_up", "page_down")
_OWN = (
    ("Left Right", "next view: request, screen, conversation, messages, evidence"),
    ("J K", "scroll the right side"),
    ("Tab", "go to the right side and back; j and k scroll there"),
    ("1-9", "open that agent"),
    ("g G", "first agent, last agent"),
    ("/", "filter by any word; Esc shows all again"),
    ("q", "quit"),
)
_SHARED = tuple(
    (" ".join((one["key"], *one.get("also", ()))).replace("Arrow", ""), one["label"])
    + ((f", then {one['confirm']}",) if "confirm" in one else ("",))
    for one in key_table()
    if one["action"] != "yes"
)


def help_text() -> Text:
    text = Text()
    for keys, words, more in (*_SHARED, *((*one, "") for one in _OWN)):
        text.append(f"{keys:<12}", "bold")
        text.append(f"{words}{more}\n")
    return text


def hint(board: Dashboard) -> str:
    """Return the keys that matter for the marked agent, in 78 columns."""
    request, row = board.request, board.marked
    words = ["? keys", "q quit"]
    if request is not None:
        words += ["a answer" if questions_of(request) else "a allow", "n deny"]
    if row is not None:
        words += ["Enter open", "R reply"]
    if row is not None and row.item is not None:
        words += ["z later"]
    if row is not None:
        words += ["←→ view"]
    return " · ".join([*words, "/ filter"][:8])
