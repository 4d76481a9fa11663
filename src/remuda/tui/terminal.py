"""The terminal that Textual draws on, where Textual itself would fail or never end."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterable

from textual import events
from textual._xterm_parser import XTermParser
from textual.drivers import linux_driver
from textual.drivers.linux_driver import LinuxDriver

_ESC = "\x1b"
_INTRODUCERS = "[]OPX^_" + _ESC
"""What follows Esc in a sequence that a terminal sends."""


class KeyParser(XTermParser):
    """Reads Esc and a key right after it as two keys. Textual 8.2 makes one of them, with Alt or without."""

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[events.Key]:
        if len(sequence) == 2 and sequence[0] == _ESC and sequence[1] not in _INTRODUCERS:
            sequence, alt = sequence[1], True
        if alt:
            yield events.Key("escape", _ESC)
        yield from super()._sequence_to_key_events(sequence)


vars(linux_driver)["XTermParser"] = KeyParser  # the driver makes one by this name


class TerminalDriver(LinuxDriver):
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
