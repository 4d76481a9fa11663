"""The program on the terminal of an ACP session: it owns the agent, shows the history, and takes lines.

    python -m remuda.agents.acp.terminal --socket PATH --records FOLDER [--resume ID] -- COMMAND…

An agent that speaks ACP has no terminal of its own. So this one shows its conversation as text, with a line
to type in at the bottom, and the keeper calls it over a socket. Text of the agent is made printable here.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import sys
import tty
from collections.abc import Mapping
from hmac import compare_digest
from pathlib import Path
from typing import Any

from remuda.errors import RemudaError
from remuda.paths import SocketAddress
from remuda.tasks import TaskSet
from remuda.untrusted import (
    as_object,
    dump_json,
    finite,
    one_line,
    parse_json,
    printable,
    show_json,
    text_at,
)

from .channel import LINE_BYTES
from .conversation import AcpConversation, Note, PromptNotSent
from .line_editor import EditedLine, KeyPress, LineEditor
from .notes import SECRET_VARIABLE

_MOST_UNREAD = 64 << 20
_MOST_SHOWN = 1 << 16
_MOST_LINE = 8192
_TOOL_LINES = 5
_READ_BYTES = 1 << 16
_CLEAR_ROW = "\r\x1b[K"
_PASTE_ON, _PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"
_DIM, _BOLD, _PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[0m"
_FAILED = 1


# ── the picture ──


class TerminalPage:
    """Prints complete lines above the row with the user's line, which is drawn once the agent is ready."""

    def __init__(self, fd: int, editor: LineEditor) -> None:
        self._fd, self._editor = fd, editor
        self._partial = self._style = ""
        self.takes_lines = False

    def text(self, text: str, style: str = "") -> None:
        """Add a piece of text. Its last line is shown when it is complete."""
        if style != self._style:
            self.flush()
            self._style = style
        *lines, self._partial = _lines(self._partial + _cut(text))
        if len(self._partial) > _MOST_LINE:
            lines, self._partial = [*lines, self._partial], ""
        if lines:
            self._print(lines, style)

    def flush(self) -> None:
        if self._partial:
            partial, self._partial = self._partial, ""
            self._print([partial], self._style)

    def say(self, text: str, style: str = _DIM) -> None:
        self.flush()
        self._print(_lines(_cut(text)), style)

    def _print(self, lines: list[str], style: str) -> None:
        shown = "".join(f"{style}{printable(line)}{_PLAIN if style else ''}\r\n" for line in lines)
        self._write(_CLEAR_ROW + shown + self._row())

    def draw(self) -> None:
        self._write(_CLEAR_ROW + self._row())

    def open(self) -> None:
        """Show the row for lines: from here on the agent takes prompts."""
        self.takes_lines = True
        self._write(_PASTE_ON + _CLEAR_ROW + self._row())

    def close(self) -> None:
        self.flush()
        self.takes_lines = False
        self._write(_CLEAR_ROW + _PASTE_OFF)

    def _row(self) -> str:
        if not self.takes_lines:
            return ""
        try:
            columns = os.get_terminal_size(self._fd).columns
        except OSError:
            columns = 80
        return self._editor.row(columns or 80)

    def _write(self, text: str) -> None:
        data = text.encode(errors="replace")
        while data:
            data = data[os.write(self._fd, data) :]


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").split("\n")


def _cut(text: str) -> str:
    left = len(text) - _MOST_SHOWN
    return text if left <= 0 else f"{text[:_MOST_SHOWN]}\n… {left} more characters are not shown"


# ── the keeper ──


class KeeperSocket:
    """Sends each note to every connected keeper, and does what a keeper asks."""

    def __init__(self, conversation: AcpConversation, secret: str) -> None:
        self._conversation, self._secret = conversation, secret
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks = TaskSet()
        self._server: asyncio.Server | None = None

    async def listen(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):  # of one that was killed
            os.unlink(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with SocketAddress(path) as address:
            listener.bind(address)
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=LINE_BYTES)

    def tell(self, note: Note) -> None:
        for writer in list(self._writers):
            _send(writer, note)
            if writer.transport.get_write_buffer_size() > _MOST_UNREAD:
                self._writers.discard(writer)
                writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            secret = text_at(as_object(parse_json(await reader.readline())), "secret") or ""
            if not compare_digest(secret.encode(), self._secret.encode()):
                return
            for note in self._conversation.present():
                _send(writer, note)
            self._writers.add(writer)
            while line := await reader.readline():
                self._tasks.start(self._answer(as_object(parse_json(line)), writer))
        except (OSError, ValueError, asyncio.CancelledError):
            pass  # asyncio logs a connection that is cancelled at the end of the program
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, asked: Mapping[str, Any], writer: asyncio.StreamWriter) -> None:
        _send(writer, {"to": asked.get("id"), **await self._do(asked)})

    async def _do(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        conversation = self._conversation
        match asked.get("do"):
            case "submit":
                try:
                    turn = conversation.prompt(text_at(asked, "text") or "", text_at(asked, "message"))
                except PromptNotSent as error:
                    return {"refused": str(error)}
                return {"turn": turn.id} if await conversation.proven(turn) else {}
            case "find":
                where = text_at(asked, "conversation") or ""
                return conversation.find(str(asked.get("message")), where, finite(asked.get("since")))
            case "decide":
                by = "from elsewhere"
                if reason := one_line(text_at(asked, "reason") or ""):
                    by = f"from elsewhere, with a reason that ACP cannot pass on: {reason[:200]}"
                return {"done": conversation.decide(str(asked.get("ask")), text_at(asked, "option"), by)}
            case "cancel":
                conversation.cancel(text_at(asked, "turn"))
        return {}

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._tasks.aclose()
        for writer in self._writers:
            writer.close()


def _send(writer: asyncio.StreamWriter, document: Mapping[str, Any]) -> None:
    if not writer.is_closing():
        writer.write(dump_json(document).encode() + b"\n")


# ── the program ──


class Terminal:
    def __init__(self, argv: list[str], folder: Path, secret: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._editor = LineEditor()
        self._page = TerminalPage(sys.stdout.fileno(), self._editor)
        self._done: asyncio.Future[int] = self._loop.create_future()
        self._conversation = AcpConversation(
            argv, os.getcwd(), dict(os.environ), folder, self._take, self._agent_ended
        )
        self._keeper = KeeperSocket(self._conversation, secret)
        self._argv = argv
        self._earlier = ""
        """Who said the last piece of the history."""
        self._asking = ""
        """The request that a number decides."""
        self._put_aside = ""
        """The line that was being typed when the request came."""

    async def run(self, path: Path, resumed: str) -> int:
        """Return the exit code, when the agent has ended or the user ends it."""
        fd = sys.stdin.fileno()
        tty.setraw(fd)
        self._loop.set_exception_handler(self._fail)
        self._loop.add_reader(fd, self._read_keys, fd)
        self._loop.add_signal_handler(signal.SIGWINCH, self._page.draw)
        await self._keeper.listen(path)
        self._page.say(f"starting {one_line(' '.join(self._argv))[:200]}")
        opening = asyncio.ensure_future(self._conversation.open(resumed))
        waits: list[asyncio.Future[Any]] = [opening, self._done]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if opening.done():
                opening.result()
            return await self._done
        except RemudaError as error:
            self._page.say(f"{error.message}{f'; {error.hint}' if error.hint else ''}", _BOLD)
            return _FAILED
        finally:
            opening.cancel()
            self._page.close()
            await self._conversation.close()
            await self._keeper.close()

    def _agent_ended(self, why: str) -> None:
        if not self._done.done() and self._conversation.came_up:
            self._page.say(why, _BOLD)
            code = self._conversation.returncode
            self._done.set_result(_FAILED if code is None or self._conversation.turn is not None else code)

    def _fail(self, _loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        """End the session for an error of ours: what goes on would not be reported any more."""
        self._page.say(f"internal error: {context.get('exception') or context['message']!r}", _BOLD)
        self._finish(_FAILED)

    # ── notes ──

    def _take(self, note: Note) -> None:
        self._show(note)
        self._keeper.tell(note)

    def _show(self, note: Note) -> None:  # noqa: C901  # one case for each note
        page, text = self._page, str(note.get("text") or "")
        match note["note"]:
            case "ready":
                page.say(f"ready: conversation {one_line(note['conversation'])[:80]}")
                page.open()
            case "sent":
                page.say(f"> {text}", _BOLD)
            case "text" | "stray":
                page.text(text)
            case "thought":
                page.text(text, _DIM)
            case "earlier":
                self._show_earlier(note["who"], text)
            case "said":
                page.say(text)
            case "tool":
                page.say(f"* {_about(note)}")
            case "tool_ended":
                lines = text.splitlines()
                more = [f"  … {len(lines) - _TOOL_LINES} more lines"] if len(lines) > _TOOL_LINES else []
                shown = [f"  {line[:200]}" for line in lines[:_TOOL_LINES]]
                page.say("\n".join([f"  {'done' if note['ok'] else 'failed'}", *shown, *more]))
            case "asked":
                self._ask_next()
            case "decided":
                page.say(f"  {note['chosen'] or 'not decided'}: {note['by']}")
                self._ask_next()
            case "ended":
                page.flush()
                if note["how"] != "answered":
                    page.say(f"— {note['how']}{f': {text}' if text else ''}")

    def _show_earlier(self, who: str, text: str) -> None:
        """Show a piece of the history that a resumed agent sends."""
        if who != self._earlier:
            self._page.flush()
        if who == "user":
            self._page.text(text if who == self._earlier else f"> {text}", _BOLD)
        elif who == "tool":
            self._page.say(f"* {one_line(text)[:200]}")
        else:
            self._page.text(text)
        self._earlier = who

    def _ask_next(self) -> None:
        """Show the oldest open request. What is typed then is a number for it, and nothing else."""
        asks = self._conversation.asks
        if self._asking in asks:
            return
        if not self._asking and asks:
            self._put_aside, self._editor.text = self._editor.text, ""
        self._asking = next(iter(asks), "")
        if not self._asking:
            self._editor.text, self._put_aside = self._put_aside, ""
            self._page.draw()
            return
        ask = asks[self._asking]
        self._page.say(f"? {one_line(str(ask.note['title']))[:200]}", _BOLD)
        for line in _request_lines(ask.note["input"]):
            self._page.say(line)
        options = [f"  {number}  {one['name']}" for number, one in enumerate(ask.options, 1)]
        self._page.say("\n".join(options), _BOLD)
        self._page.say("type a number and Enter; Ctrl-C stops the turn")

    # ── keys ──

    def _read_keys(self, fd: int) -> None:
        try:
            data = os.read(fd, _READ_BYTES)
        except OSError:
            data = b""
        if not data:  # the terminal is gone
            self._loop.remove_reader(fd)
            self._finish(_FAILED)
            return
        for key in self._editor.feed(data):
            self._press(key)
        if self._page.takes_lines:
            self._page.draw()

    def _press(self, key: EditedLine | KeyPress) -> None:
        conversation = self._conversation
        if isinstance(key, EditedLine):
            self._enter(key.text)
        elif key is KeyPress.INTERRUPT and conversation.turn is not None:
            conversation.cancel(None)
        elif key is KeyPress.INTERRUPT:
            self._page.say("no turn is running; Ctrl-D ends the session")
        elif conversation.turn is not None:
            self._page.say("a turn is running; Ctrl-C stops it")
        else:
            self._finish(0)

    def _finish(self, code: int) -> None:
        if not self._done.done():
            self._done.set_result(code)

    def _enter(self, line: str) -> None:
        if self._asking:
            self._choose(line)
            return
        try:
            self._conversation.prompt(line)
        except PromptNotSent as error:
            self._editor.text = line  # nothing that was typed is lost
            self._page.say(f"{error}; your line was not sent, and is kept")

    def _choose(self, line: str) -> None:
        ask, word = self._conversation.asks[self._asking], line.strip()
        if word.isdecimal() and 1 <= int(word) <= len(ask.options):
            self._conversation.decide(self._asking, ask.options[int(word) - 1]["optionId"], "in the terminal")
        else:
            self._page.say(f"type a number from 1 to {len(ask.options)}")


def _about(note: Note) -> str:
    given, tool = as_object(note.get("input")), str(note["tool"])
    words = given.get("command") if isinstance(given.get("command"), str) else note.get("title")
    return one_line(tool if words in (tool, "", None) else f"{tool}: {words}")[:400]


def _request_lines(given: Mapping[str, Any]) -> list[str]:
    fields = [(name, value) for name, value in given.items() if name not in ("offered", "questions", "title")]
    return [
        f"  {one_line(str(name))[:40]}: {value if isinstance(value, str) else show_json(value)}"
        for name, value in fields
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="remuda.agents.acp.terminal")
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--records", type=Path, required=True)
    parser.add_argument("--resume", default="")
    parser.add_argument("command", nargs="+")
    words = parser.parse_args()
    secret = os.environ.pop(SECRET_VARIABLE, "")
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or not secret:
        parser.error("it runs on the terminal of a session: use 'remuda start NAME --agent acp -- COMMAND'")
    words.records.mkdir(mode=0o700, exist_ok=True)

    async def run() -> int:
        return await Terminal(words.command, words.records, secret).run(words.socket, words.resume)

    with contextlib.suppress(KeyboardInterrupt):
        return asyncio.run(run())
    return _FAILED


if __name__ == "__main__":
    sys.exit(main())
