"""Text into a pane, as a paste. Whether that is right is decided elsewhere: this only does it."""

from __future__ import annotations

from remuda.errors import RemudaError, TmuxTargetGone

from .once import TIMEOUT, Tmux, new_mark
from .panes import check_pane


def paste(tmux: Tmux, pane: str, data: bytes, *, timeout: float = TIMEOUT) -> None:
    """Paste `data` into the pane (`%12`), bracketed if its program asked for that; no buffer is left behind.

    Line feeds go as they are. Control bytes are the caller's to strip: `ESC[201~` would end the paste, and
    the rest would be typed. Raises if the pane is gone or its program has ended; nothing was pasted then.
    """
    check_pane(pane)
    if not data:
        return
    mark = new_mark()
    buffer = f"remuda-{mark}"
    # A paste into a dead pane ends the server (3.3a). Between this look and the paste nothing else is done.
    paste_it = f"paste-buffer -p -r -d -b {buffer} -t {pane}"
    refuse = f"display-message -p {mark} ; delete-buffer -b {buffer}"
    try:
        output = tmux.output(
            ["list-panes", "-t", pane],
            ["load-buffer", "-b", buffer, "-"],
            ["if-shell", "-F", "-t", pane, "#{?pane_dead,0,1}", paste_it, refuse],
            stdin=data,
            timeout=timeout,
        )
    except RemudaError:
        _forget(tmux, buffer)
        raise
    if mark.encode() in output:
        raise TmuxTargetGone(f"the program in pane {pane} has ended")


def _forget(tmux: Tmux, buffer: str) -> None:
    try:
        tmux.command("delete-buffer", "-b", buffer)
    except RemudaError:
        pass  # it never was there
