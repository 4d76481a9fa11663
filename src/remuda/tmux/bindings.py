"""Our keys and our piece of the status line: as lines of tmux.conf, and in a server that runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Final, NamedTuple

from remuda.errors import InvalidOptions

from .once import Tmux

_KEY: Final = re.compile(r"[!-~]+")
# What a shell, a format of tmux and strftime all leave alone between single quotes.
_WORD: Final = re.compile(r"[\w./+@=:, -]+")
_OURS: Final = re.compile(r"remuda\S* (?:next|skip|popup|return) #\{client_name\}")
_PIECE: Final = re.compile(r" #\([^()]*remuda[^() ]* segment\)")
_BEFORE: Final = "@remuda-before-"


class Keys(NamedTuple):
    """Keys behind the prefix. Empty: none is bound."""

    next: str = "Tab"
    skip: str = "S"
    popup: str = "g"
    back: str = "B"


def conf_lines(program: Sequence[str], keys: Keys | None = None, *, segment: bool = True) -> list[str]:
    """Lines of tmux.conf. Read once more they change nothing: tmux.conf is sourced again and again.

    `program` is run with what is to be done (next, skip, popup, return) and the client's name, or with
    `segment`. The server has a PATH of its own, so it is best absolute.
    """
    run = _shell_words(program)
    chosen = keys or Keys()
    commands = {"next": chosen.next, "skip": chosen.skip, "popup": chosen.popup, "return": chosen.back}
    lines = [
        f'bind-key -T prefix {_key(key)} run-shell -b "{run} {name} #{{client_name}}"'
        for name, key in commands.items()
        if key
    ]
    if segment:
        add = f'set-option -ga status-right \\" #({run} segment)\\"'
        lines.append(f"if-shell -F '#{{m:*remuda*segment*,#{{status-right}}}}' '' \"{add}\"")
    return lines


def _shell_words(program: Sequence[str]) -> str:
    for word in program:
        if not _WORD.fullmatch(word):
            raise InvalidOptions(
                f"{word!r} cannot be written into tmux.conf",
                hint="run remuda from a path with plain characters",
            )
    return shlex.join(program)


def _key(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise InvalidOptions(f"{key!r} is not a key of tmux", hint="write for example Tab, S, C-g, M-n")
    # Those that mean something to tmux's own parser.
    return f"\\{key}" if key in (";", "#", "{", "}", '"', "'", "~", "$", "%", "\\") else key


# ── in a server that runs ──


def bound_keys(tmux: Tmux) -> dict[str, str]:
    """What is bound behind the prefix: the key as tmux writes it, and the line that binds it."""
    found = {}
    for line in tmux.command("list-keys", "-T", "prefix"):
        if match := re.match(r"bind-key\s+(?:-r\s+)?-T prefix\s+(\S+)", line):
            found[match[1]] = line
    return found


def is_ours(line: str) -> bool:
    return _OURS.search(line) is not None


def taken_keys(tmux: Tmux, lines: Sequence[str]) -> dict[str, str]:
    """Those of our keys that are bound to something that is not ours."""
    bound = bound_keys(tmux)
    return {key: bound[key] for key in _keys_of(lines) if key in bound and not is_ours(bound[key])}


def apply(tmux: Tmux, lines: Sequence[str]) -> None:
    """Carry out our lines. What a key was bound to before is kept in an option of the server."""
    remove(tmux)
    before = taken_keys(tmux, lines)
    # A key's name may be `;`: as a number it can stand in the name of an option.
    kept = [["set-option", "-g", f"{_BEFORE}{key.encode().hex()}", line] for key, line in before.items()]
    tmux.output(*kept, *(["if-shell", "-F", "1", line] for line in lines))


def remove(tmux: Tmux) -> None:
    """Undo `apply`: keys are bound to what they were before, and our piece of the status line is gone."""
    ours = [key for key, line in bound_keys(tmux).items() if is_ours(line)]
    status = tmux.output(["show-options", "-gqv", "status-right"]).decode("utf-8", "surrogateescape")
    status = status.removesuffix("\n")
    commands = [["unbind-key", "-T", "prefix", key.removeprefix("\\") or key] for key in ours]
    for key, line in _kept(tmux).items():
        commands.append(["set-option", "-gu", f"{_BEFORE}{key.encode().hex()}"])
        if key in ours:
            commands.append(["if-shell", "-F", "1", line])
    if _PIECE.search(status):
        commands.append(["set-option", "-g", "status-right", _PIECE.sub("", status)])
    if commands:
        tmux.output(*commands)


def _kept(tmux: Tmux) -> dict[str, str]:
    found = {}
    for line in tmux.command("show-options", "-g"):
        name = line.partition(" ")[0]
        if name.startswith(_BEFORE):
            (value,) = tmux.command("show-options", "-gqv", name) or [""]
            found[bytes.fromhex(name.removeprefix(_BEFORE)).decode(errors="replace")] = value
    return found


def _keys_of(lines: Sequence[str]) -> list[str]:
    return [line.split(" ")[3] for line in lines if line.startswith("bind-key ")]
