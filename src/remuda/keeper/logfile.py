"""A keeper's log: one private file that rotates. Its failures never end the session."""

from __future__ import annotations

import errno
import logging
import os
import stat
from io import TextIOWrapper
from pathlib import Path

from remuda.errors import InvalidOptions
from remuda.untrusted import printable

LEVELS = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def parse_level(name: str) -> int:
    try:
        return LEVELS[name.lower()]
    except KeyError:
        raise InvalidOptions(f"unknown log level {name!r}", hint=f"use one of: {', '.join(LEVELS)}") from None


def parse_filter(text: str | None) -> dict[str, int]:
    """Read levels for parts of the keeper: `name=level,name=level`, such as `remuda.keeper.hooks=debug`."""
    parts = [part.strip().partition("=") for part in (text or "").split(",") if part.strip()]
    return {name: parse_level(level) for name, _, level in parts}


class _PrivateHandler(logging.FileHandler):
    """Rotates as the library's own handler does, which takes four milliseconds to load, and is private."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        super().__init__(path)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = f"{self.format(record)}\n"
            stream = self.stream or self._reopened()
            status = os.fstat(stream.fileno())
            size = status.st_size + len(line.encode(errors="backslashreplace"))
            if 0 < self._max_bytes < size:
                self.stream = None
                stream.close()
                os.replace(self.baseFilename, f"{self.baseFilename}.1")
                stream = self._reopened()
            stream.write(line)
            stream.flush()
        except Exception:  # noqa: BLE001  # whatever it is: reported as the library does
            self.handleError(record)

    def _reopened(self) -> TextIOWrapper:
        self.stream = stream = self._open()
        return stream

    def _open(self) -> TextIOWrapper:
        fd = _open_regular(self.baseFilename)
        return TextIOWrapper(
            os.fdopen(fd, "ab"), encoding="utf-8", errors="backslashreplace", write_through=True
        )


def _open_regular(path: str) -> int:
    """Open a log file, never through a link, and without waiting for a pipe.

    Raises OSError unless it is a regular file.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        fd = os.open(path, flags, 0o600)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.ENXIO, "")
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.EINVAL, "it is a symbolic link") from error
        if error.errno == errno.ENXIO:
            raise OSError(errno.EINVAL, "it is not a regular file") from error
        raise
    os.fchmod(fd, 0o600)  # whatever the umask
    return fd


class PrintableFormatter(logging.Formatter):
    """Makes one printable line of each record. A traceback follows on lines of its own, indented.

    Records quote agents and senders. Their text can neither control the terminal of a reader nor begin a line
    that looks like another record. A line is cut: one could push all others out of the file.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the library's name
        return super().formatMessage(record).replace("\n", " ")

    def format(self, record: logging.LogRecord) -> str:
        lines = printable(super().format(record)).split("\n")
        return "\n    ".join(_cut(line) for line in lines)


_LINE_CHARACTERS = 4096


def _cut(line: str) -> str:
    more = len(line) - _LINE_CHARACTERS
    return line if more <= 0 else f"{line[:_LINE_CHARACTERS]}… ({more} more characters)"


def open_log(path: Path, level: str, filters: str | None, max_bytes: int) -> None:
    logging.raiseExceptions = False  # a full disk costs log lines, nothing else
    handler = _PrivateHandler(path, max_bytes)
    handler.setFormatter(PrintableFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(parse_level(level))
    for name, one in parse_filter(filters).items():
        logging.getLogger(name).setLevel(one)
