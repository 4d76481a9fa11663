"""Our keys, popups and segment of the status line: as lines of tmux.conf, and in a running server."""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Sequence
from typing import Final, NamedTuple

from remuda.errors import InvalidOptions

from .address import POPUPS, check_version, parse_version, surroundings
from .command import Tmux, arguments_of, literal, run

_KEY: Final = re.compile(r"[!-~]+")
# Characters that a shell, a tmux format and strftime leave unchanged between single quotes.
_WORD: Final = re.compile(r"[\w./+@=:, -]+")
_OURS: Final = re.compile(r"remuda\S* (?:next|skip|popup|return) #\{client_name\}")
_CALL: Final = r"#\([^()]*remuda[^() ]* segment\)"
_SEGMENT: Final = re.compile(rf"^{_CALL} | {_CALL}")
"""An older version put it at the end."""
_BEFORE: Final = "@remuda-before-"
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


class Keys(NamedTuple):
    """Keys after the prefix key. An empty name: not bound."""

    next: str = "Tab"
    skip: str = "S"
    popup: str = "g"
    back: str = "B"


def conf_lines(program: Sequence[str], keys: Keys | None = None, *, segment: bool = True) -> list[str]:
    """Return lines for tmux.conf. Users source that file again and again, so a second time changes nothing.

    `program` is run with an action (next, skip, popup, return) and the client's name, or with `segment`.
    Pass an absolute path: the server has a PATH of its own.
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
        # First, because tmux cuts the end at status-right-length: 40, and its own text with a title has that.
        add = f'set-option -gF status-right \\"##({run} segment) #{{status-right}}\\"'
        lines.append(f"if-shell -F '#{{m:*remuda*segment*,#{{status-right}}}}' '' \"{add}\"")
    return lines


def check_keys(keys: Keys) -> None:
    """Bind the keys in a tmux server that only exists for this. Raises `InvalidOptions` for a bad key.

    Only tmux knows its names of keys, and which two names mean one key.
    """
    options = {"--next": keys.next, "--skip": keys.skip, "--popup": keys.popup, "--return": keys.back}
    chosen = {option: key for option, key in options.items() if key}
    names = _names_in_tmux([_plain_key(key) for key in chosen.values()])
    taken: dict[str, str] = {}
    for index, (option, key) in enumerate(chosen.items()):
        if index >= len(names):
            raise InvalidOptions(
                f"{option}: tmux has no key '{key}'", hint="write for example Tab, S, C-g, M-n"
            )
        first = taken.setdefault(names[index], option)
        if first != option:
            raise InvalidOptions(
                f"{first} and {option} are both the key '{key}'", hint="give each its own key"
            )


def _plain_key(key: str) -> str:
    """Return the key, or a name that tmux refuses in place of a word that tmux 3.3 reads as an option."""
    _key(key)
    return "none" if key.startswith("-") and key != "-" else key


def _names_in_tmux(keys: Sequence[str]) -> list[str]:
    """Return tmux's own names of these keys, up to the first that it does not know."""
    commands = [["start-server"]]
    for index, key in enumerate(keys):
        table = f"remuda-{index}"
        commands += [["bind-key", "-T", table, key, "run-shell", "true"], ["list-keys", "-T", table]]
    # The server has no session, so it ends at once, and may remove its socket while we remove the folder.
    with tempfile.TemporaryDirectory(prefix="remuda-", ignore_cleanup_errors=True) as folder:
        words = ["tmux", "-u", "-f", os.devnull, "-S", f"{folder}/tmux", *arguments_of(*commands)]
        output = run(words, surroundings(os.environ)).output.decode(errors="replace")
    return re.findall(r"-T remuda-\d+\s+(\S+)", output)


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
    # Special characters of tmux's own parser.
    return f"\\{key}" if key in (";", "#", "{", "}", '"', "'", "~", "$", "%", "\\") else key


# ── popup and status line ──


def popup_words(client: str, program: Sequence[str], version: str, *, title: str = "") -> list[str]:
    """Return the command that shows a program in a popup, and ends with that program.

    No shell reads the program's words. Raises if the server is too old for popups.
    """
    check_version(version, POPUPS, "a popup")
    words = ["display-popup", "-E", "-c", client, "-w", "80%", "-h", "80%"]
    if title and parse_version(version) >= (3, 3):
        words += ["-T", literal(f" {title} ")]
    return [*words, "--", "env", *program]  # env(1), because a single word would go to a shell


def segment(waiting: int | None, age: float | None = None, *, styled: bool = True) -> str:
    """Return the text for the status line: empty, `⚠ 3 12m` (how many wait, and since when), or `✗ down`.

    `waiting` is None when the boss is down; `age` is how long the first has waited, in seconds.
    """
    if waiting is None:
        return _in("fg=red", "✗ down", styled)
    if waiting == 0:
        return ""
    since = f" {_short(age)}" if age is not None else ""
    return _in("fg=yellow,bold", f"⚠ {waiting}{since}", styled)


def _in(style: str, text: str, styled: bool) -> str:
    return f"#[{style}]{text}#[default]" if styled else text


def _short(age: float) -> str:
    """Format an age in one unit: short to read, and the status line is redrawn at most once a minute."""
    if age < _MINUTE:
        return "<1m"
    if age < _HOUR:
        return f"{age // _MINUTE:.0f}m"
    if age < _DAY:
        return f"{age // _HOUR:.0f}h"
    return f"{age // _DAY:.0f}d"


# ── in a running server ──


def bound_keys(tmux: Tmux) -> dict[str, str]:
    """Return the keys after the prefix, as tmux writes them, each with the line that binds it."""
    bound = {}
    for line in tmux.command("list-keys", "-T", "prefix"):
        if match := re.match(r"bind-key\s+(?:-r\s+)?-T prefix\s+(\S+)", line):
            bound[match[1]] = line
    return bound


def is_ours(line: str) -> bool:
    return _OURS.search(line) is not None


def taken_keys(tmux: Tmux, lines: Sequence[str]) -> dict[str, str]:
    """Return those of our keys that are already bound to something else."""
    bound = bound_keys(tmux)
    return {key: bound[key] for key in _keys_of(lines) if key in bound and not is_ours(bound[key])}


def apply(tmux: Tmux, lines: Sequence[str]) -> None:
    """Run our lines in the server. It keeps the previous binding of each key in an option."""
    remove(tmux)
    before = taken_keys(tmux, lines)
    # In hexadecimal, because a key such as `;` cannot be part of an option's name.
    kept = [["set-option", "-g", f"{_BEFORE}{key.encode().hex()}", line] for key, line in before.items()]
    tmux.output(*kept, *(["if-shell", "-F", "1", line] for line in lines))


def remove(tmux: Tmux) -> None:
    """Undo `apply`: restore the previous bindings, and remove our segment from the status line."""
    ours = [key for key, line in bound_keys(tmux).items() if is_ours(line)]
    status = tmux.output(["show-options", "-gqv", "status-right"]).decode("utf-8", "surrogateescape")
    status = status.removesuffix("\n")
    commands = [["unbind-key", "-T", "prefix", key.removeprefix("\\") or key] for key in ours]
    for key, line in _previous_bindings(tmux).items():
        commands.append(["set-option", "-gu", f"{_BEFORE}{key.encode().hex()}"])
        if key in ours:
            commands.append(["if-shell", "-F", "1", line])
    if _SEGMENT.search(status):
        commands.append(["set-option", "-g", "status-right", _SEGMENT.sub("", status)])
    if commands:
        tmux.output(*commands)


def _previous_bindings(tmux: Tmux) -> dict[str, str]:
    lines = {}
    for line in tmux.command("show-options", "-g"):
        name = line.partition(" ")[0]
        if name.startswith(_BEFORE):
            (value,) = tmux.command("show-options", "-gqv", name) or [""]
            lines[bytes.fromhex(name.removeprefix(_BEFORE)).decode(errors="replace")] = value
    return lines


def _keys_of(lines: Sequence[str]) -> list[str]:
    return [line.split(" ")[3] for line in lines if line.startswith("bind-key ")]
