"""Insert our lines into the user's tmux.conf, between two marks, and remove them. No other byte changes."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from remuda.durable import read_regular, replace_file
from remuda.errors import InvalidOptions

_BEGIN: Final = b"# >>> remuda >>>"
_END: Final = b"# <<< remuda <<<"
_HINT: Final = b" 'remuda setup tmux --remove' takes these lines out"
# The first mark also says what else `uninstall` has to undo.
_NEWLINE: Final = b" (and the line break before)"
_NEW: Final = b" (and the file)"


def conf_files(env: Mapping[str, str]) -> list[Path]:
    """Return the paths where tmux looks for the user's configuration, in its order."""
    home = Path(env.get("HOME") or "~").expanduser()
    config = env.get("XDG_CONFIG_HOME")
    return [home / ".tmux.conf", (Path(config) if config else home / ".config") / "tmux" / "tmux.conf"]


def conf_file(env: Mapping[str, str]) -> Path:
    """Return the file that tmux reads: the first that exists, else the one that every version reads."""
    files = conf_files(env)
    return next((path for path in files if path.exists()), files[0])


def put_block(text: bytes | None, lines: Sequence[str]) -> bytes:
    """Return the file with our lines: where they were, else at the end. `None`: no file exists yet."""
    place = _find(text or b"")
    if text is not None and place is not None:
        first = text[place[0] :].partition(b"\n")[0]
        undo = next((undo for undo in (_NEW, _NEWLINE) if undo in first), b"")
        return text[: place[0]] + _block(lines, undo) + text[place[1] :]
    if text is None:
        return _block(lines, _NEW)
    if text and not text.endswith(b"\n"):
        return text + b"\n" + _block(lines, _NEWLINE)
    return text + _block(lines, b"")


def take_block(text: bytes) -> bytes | None:
    """Return the file without our lines. None: it did not exist before."""
    place = _find(text)
    if place is None:
        return text
    before, block, after = text[: place[0]], text[place[0] : place[1]], text[place[1] :]
    first = block.partition(b"\n")[0]
    if _NEW in first and not (before + after).strip():
        return None
    if _NEWLINE in first and not after:
        before = before.removesuffix(b"\n")
    return before + after


def _block(lines: Sequence[str], undo: bytes) -> bytes:
    return b"\n".join([_BEGIN + _HINT + undo, *(line.encode() for line in lines), _END, b""])


def _find(text: bytes) -> tuple[int, int] | None:
    """Return where our block begins and ends. Raises `InvalidOptions` if a mark is missing or repeated."""
    starts, ends, at = [], [], 0
    for line in text.splitlines(keepends=True):
        if line.startswith(_BEGIN):
            starts.append(at)
        at += len(line)
        if line.rstrip() == _END:
            ends.append(at)
    if not starts and not ends:
        return None
    if len(starts) != 1 or len(ends) != 1 or starts[0] >= ends[0]:
        raise InvalidOptions(
            "the marks around Remuda's lines are damaged",
            hint=f"keep one line '{_BEGIN.decode()}' and one line '{_END.decode()}' after it",
        )
    return starts[0], ends[0]


class ConfFile:
    """A file, before and after our change. `save` raises if another program changed the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Written through a link: many keep their configuration elsewhere.
        self.real = Path(os.path.realpath(path))
        self.before = self._read()
        self.after = self.before

    def _read(self) -> bytes | None:
        try:
            return read_regular(self.real)
        except FileNotFoundError:
            return None

    def install(self, lines: Sequence[str]) -> None:
        with self._named():
            self.after = put_block(self.before, lines)

    def uninstall(self) -> None:
        with self._named():
            self.after = None if self.before is None else take_block(self.before)

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Name the file in an error about its marks."""
        try:
            yield
        except InvalidOptions as error:
            raise InvalidOptions(f"{self.path}: {error.message}", hint=error.hint) from None

    @property
    def has_block(self) -> bool:
        """Raises `InvalidOptions` if the marks are damaged."""
        with self._named():
            return self.before is not None and _find(self.before) is not None

    @property
    def will_have_block(self) -> bool:
        return self.after is not None and _find(self.after) is not None

    @property
    def is_changed(self) -> bool:
        return self.after != self.before

    def save(self) -> None:
        if not self.is_changed:
            return
        if self._read() != self.before:
            raise InvalidOptions(
                f"{self.path} was changed by another program at the same time", hint="try again"
            )
        if self.after is None:
            self.real.unlink()
        else:
            self.real.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self.real, self.after, self._mode())
        self.before = self.after

    def _mode(self) -> int:
        try:
            return stat.S_IMODE(self.real.stat().st_mode)
        except FileNotFoundError:
            return 0o644
