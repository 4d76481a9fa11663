"""remuda attach"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from remuda.agents.state import State
from remuda.config import Config
from remuda.errors import EXIT_CODES, InvalidOptions, NotATerminal, OutputFailed, SessionDead
from remuda.keeper.client import KeeperClient
from remuda.keeper.elsewhere import only_watches, split_host
from remuda.paths import SessionPaths
from remuda.wire import connection as wire
from remuda.wire.connection import ClientConnection
from remuda.wire.frames import HEADER_BYTES, SHORT_BYTES
from remuda.wire.messages import ONE_KEY, SHORT_OUTPUT

from .common import complete_session, config_option, configuration, find_folder, folder_option, pick_session
from .console import POLLIN, Console, Events, PollResult, put
from .output import ask_line, echo, is_dumb, print_screen
from .picture import Picture, RawPicture
from .screen import show_last_screen, show_last_screen_elsewhere
from .scroll import make_history, make_history_elsewhere

# Typed bytes that the session has not accepted. Above this we stop reading from the terminal.
_OUTGOING_BYTES = 16 << 20
# A Heimdall supervisor continues for a tenth of a second after its last message.
_TAIL_TIMEOUT = 1.0
_HANDLED: Events = [(-1, 0)]
# Up to this size Python uses its small-object memory, which is cache-warm. More is read the long way.
_SHORT_READ_BYTES = 448


@click.command("attach")
@click.argument("name", required=False, shell_complete=complete_session)
@click.option(
    "-r", "--read-only", is_flag=True, help="Watch only: send no keys, and keep the session's size."
)
@click.option("--raw", is_flag=True, help="Pass the program's exact bytes through, without a status bar.")
@click.option("--bar/--no-bar", default=None, help="Show a status bar on the last line.  [default: yes]")
@click.option("--mouse/--no-mouse", default=None, help="Scroll back with the mouse wheel.  [default: yes]")
@folder_option
@config_option
def command(
    name: str | None,
    read_only: bool,
    raw: bool,
    bar: bool | None,
    mouse: bool | None,
    folder: Path | None,
    config_file: Path | None,
) -> int:
    """Show a session in this terminal and type into it. Ctrl-\\ detaches; the session keeps running.

    The beginning of a NAME is enough. Without a NAME you choose from a list if several sessions
    are running; without a terminal to ask, attach takes the session that was started last.

    HOST/NAME is a session on another machine of your fleet.

    Any number of terminals can be attached at once. When the session ends, attach exits with its exit code.

    Shift-PgUp scrolls back, and so do the mouse wheel and PgUp if the program does not use them; q, Esc or
    End return. Hold Shift to select text.

    \b
    Examples:
      remuda attach work
      remuda attach
      remuda attach --read-only work
      remuda attach build7/work
    """
    config = configuration(config_file, strict=False)
    host, name = split_host(name) if name is not None and folder is None else (None, name)
    if host is not None:
        return attach_here(
            str(name), None, config, host=host, read_only=read_only, raw=raw, bar=bar, mouse=mouse
        )
    where = find_folder(folder, config)
    can_ask = sys.stdin.isatty() and sys.stdout.isatty()
    name = pick_session(name, where, (lambda names: _choose(names, where)) if can_ask else None)
    return attach_here(name, where, config, read_only=read_only, raw=raw, bar=bar, mouse=mouse)


def _choose(names: Sequence[str], folder: Path) -> str:
    """Ask which session to attach. Enter takes the first."""
    for number, name in enumerate(names, 1):
        echo(f"{number:>3}  {name}")
    typed = ask_line("Attach to number or name [1]") or "1"
    if typed.isdecimal() and 0 < int(typed) <= len(names) and typed not in names:
        return names[int(typed) - 1]
    return pick_session(typed, folder)


def attach_here(
    name: str,
    folder: Path | None,
    config: Config,
    *,
    host: str | None = None,
    read_only: bool = False,
    raw: bool = False,
    bar: bool | None = None,
    mouse: bool | None = None,
) -> int:
    """Attach this process's terminal to a session in `folder`, or on `host`. Return the exit code.

    A key of the fleet that may only watch attaches read-only: 'next' and others here do not know of keys.
    """
    read_only = read_only or (host is not None and only_watches())
    if host is None and os.environ.get("REMUDA_SESSION") == name:
        raise InvalidOptions(
            f"cannot attach: this terminal is session '{name}' itself", hint="attach from another terminal"
        )
    console = Console()
    if is_dumb() and not raw:
        raise NotATerminal(
            "attach cannot draw on this terminal: TERM is 'dumb'",
            hint="use 'remuda logs -f' and 'remuda send', or pass --raw",
        )
    raw = raw or not Picture.possible()
    with _connect(name, folder, host, read_only=read_only, raw=raw) as client:
        picture: Picture | RawPicture
        if raw or not client.speaks_ours:
            picture = RawPicture(client)
        else:
            picture = Picture(
                client,
                _history(name, folder, host),
                bar=config.status_bar if bar is None else bar,
                detach_key=config.detach_key,
                mouse=config.mouse if mouse is None else mouse,
                read_only=read_only,
            )
        attachment = _Attachment(client, console, picture, config.detach_key, read_only=read_only)
        code, message = attachment.run()
    try:
        if attachment.ended:
            print_screen(picture.remains(), coloured=True)
        echo(message)
    except (OSError, OutputFailed):
        pass  # the terminal is gone, so no one can read this
    return code


def _history(name: str, folder: Path | None, host: str | None) -> Callable[[], list[str]]:
    return make_history(SessionPaths.of(name, folder)) if host is None else make_history_elsewhere(host, name)


def _connect(name: str, folder: Path | None, host: str | None, *, read_only: bool, raw: bool) -> KeeperClient:
    """Connect to a session. If it has ended, print its last screen before the error."""
    try:
        if host is not None:
            return KeeperClient.connect_elsewhere(host, name, read_only=read_only, raw=raw)
        return KeeperClient.connect(name, folder, read_only=read_only, raw=raw)
    except SessionDead:
        if host is None:
            show_last_screen(SessionPaths.of(name, folder))
        else:
            show_last_screen_elsewhere(host, name)
        raise


class _Attachment:
    """The loop between a person and a session."""

    def __init__(
        self,
        client: KeeperClient,
        console: Console,
        picture: Picture | RawPicture,
        detach_key: int,
        *,
        read_only: bool,
    ) -> None:
        self._client = client
        self._console = console
        self._picture = picture
        self._read_only = read_only
        self._detach = detach_pattern(detach_key)
        self._kept_keys = (detach_key, 0x1B)  # the first is noted, the other begins a sequence
        self.ended = False
        """Whether the session ended, not only the attachment."""
        self._may_wake = not read_only
        self._outgoing = bytearray()
        self._done: tuple[int, str] | None = None

    def run(self) -> tuple[int, str]:
        with self._console as console:
            self._picture.open(*console.size)
            console.on_leaving(self._picture.leave)
            console.write(self._picture.enter())
            self._say_size()
            self._send(ClientConnection.subscribe())
            while self._done is None:
                self._turn(console)
            return self._done

    def _turn(self, console: Console) -> None:
        picture, client, sending = self._picture, self._client, bool(self._outgoing)
        console.watch(client, typing=len(self._outgoing) < _OUTGOING_BYTES, sending=sending)
        if sending or self._read_only or console.signalled or not (client.between_frames and picture.steady):
            events = console.wait(picture.patience())
        else:
            events = self._relay(console)
        if not events:
            picture.rest()
        if events is not _HANDLED:
            self._handle(console.result(client, events), console)
        self._show(console, picture.draw())

    def _relay(self, console: Console) -> Events:
        """Relay keys and their echoes until something else happens. Return the events that remain.

        A key and its echo need four wake-ups, and after each of them the code is cold. One more function
        costs about 4 us there, of 200. So this is one loop with little but system calls in it.
        """
        keyboard, session, terminal = console.keyboard, self._client.fileno(), console.quick_output
        picture, poll, patience = self._picture, console.poll, self._picture.patience()
        while True:
            events = poll(None if patience is None else patience * 1000)
            if len(events) != 1 or events[0][1] != POLLIN or events[0][0] not in (keyboard, session):
                return events
            try:
                data = os.read(events[0][0], _SHORT_READ_BYTES)
            except OSError:
                return events  # errors show when the events are handled
            if events[0][0] == keyboard:
                if len(data) != 1 or data[0] in self._kept_keys:
                    self._on_typing(data)
                    return _HANDLED
                if rest := put(session, ONE_KEY + data):
                    self._outgoing += rest
                    return _HANDLED
                continue
            size = len(data) - HEADER_BYTES
            short = 0 < size < SHORT_BYTES and data.startswith(SHORT_OUTPUT[size])
            if not short or not picture.echo(data[HEADER_BYTES:]):
                self._receive(data)
                return _HANDLED
            if rest := put(terminal, data[HEADER_BYTES:]):
                self._show(console, rest)
                return _HANDLED
            patience = picture.quiet

    def _handle(self, result: PollResult, console: Console) -> None:
        for one in result.signals:
            self._on_signal(one)
        if result.typed:
            self._on_typing(console.read())
        if result.sendable:
            self._send_some()
        if result.received:
            self._receive(self._client.read())

    def _receive(self, data: bytes) -> None:
        for event in self._client.take(data):
            if isinstance(event, wire.ExitReceived):
                self.ended = True
                self._done = (event.code, f"[session {self._client.name} exited with code {event.code}]")
            else:
                if self._may_wake and isinstance(event, wire.EventReceived):
                    self._wake(event.document)
                self._picture.take(event)
        if self._client.welcome is None and (self.ended or not data):
            for event in self._client.take_tail(_TAIL_TIMEOUT):
                self._picture.take(event)
        if not data and self._done is None:
            self._done = (EXIT_CODES["UNREACHABLE"], f"[{self._client.end_reason()}]")

    def _wake(self, document: dict[str, Any]) -> None:
        """Wake a session that is asleep when we come; if that fails, its next state says so."""
        if document.get("event") == "state":
            self._may_wake = False
            if document.get("state") == State.ASLEEP:
                self._send(ClientConnection.request(0, "wake", {}))

    def _show(self, console: Console, data: bytes) -> None:
        try:
            console.write(data)
        except OSError:
            self._done = (EXIT_CODES["OK"], "[terminal closed]")

    def _send(self, data: bytes) -> None:
        """Send now if possible, else later: a program that does not read delays typing, not the view."""
        self._outgoing += data if self._outgoing else put(self._client.fileno(), data)

    def _send_some(self) -> None:
        try:
            del self._outgoing[: self._client.send_some(self._outgoing)]
        except OSError:
            self._outgoing.clear()

    def _say_size(self) -> None:
        if not self._read_only:
            self._send(ClientConnection.resize(*self._picture.inner_size))

    def _on_signal(self, one: signal.Signals) -> None:
        if one == signal.SIGWINCH:
            self._picture.resize(*self._console.size)
            self._say_size()
        elif one == signal.SIGINT:  # sent to us by a program; a typed Ctrl-C arrives as a byte
            self._on_typing(b"\x03")
        else:
            self._done = (EXIT_CODES["OK"], "[terminal closed]" if one == signal.SIGHUP else "[terminated]")

    def _on_typing(self, data: bytes) -> None:
        if not data:
            self._done = (EXIT_CODES["OK"], "[terminal closed]")
        elif self._detach.fullmatch(data):
            self._done = (EXIT_CODES["OK"], f"[detached from session {self._client.name}]")
        elif (data := self._picture.typed(data)) and not self._read_only:
            self._send(ClientConnection.input(data))


def detach_pattern(key: int) -> re.Pattern[bytes]:
    """Match input that is only the detach key: the byte, or its modern encodings.

    Also several times: a user with a slow terminal presses it again.
    """
    if key == 0:
        return re.compile(rb"(?!)")
    ways = [re.escape(bytes((key,)))]
    if key < 32:
        code = key + 64 if not 1 <= key <= 26 else key + 96
        ways += [rb"\x1b\[%d;5u" % code, rb"\x1b\[27;5;%d~" % code]
    return re.compile(rb"(?:%b)+" % b"|".join(ways))
