"""The terminal that Textual draws on, where Textual itself would fail or never end."""

from __future__ import annotations

import os
import select
import signal

from textual.drivers.linux_driver import LinuxDriver


class Terminal(LinuxDriver):
    """Drops input that is not UTF-8. Textual 8.2 ends with a traceback at the first such byte."""

    def run_input_thread(self) -> None:
        while True:
            try:
                return super().run_input_thread()
            except UnicodeDecodeError:
                continue
            except OSError:
                return end_without_terminal()


def is_gone() -> bool:
    """Return whether the terminal was closed. Textual would read its end again and again."""
    poll = select.poll()
    poll.register(0, 0)
    return any(seen & (select.POLLHUP | select.POLLNVAL) for _, seen in poll.poll(0))


def end_without_terminal() -> None:
    """End as a program does whose terminal is closed: no one could read what is drawn."""
    os._exit(128 + signal.SIGHUP)
