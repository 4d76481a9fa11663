"""What is to be said of the Stop hooks in the user's settings; shared by `hooks show` and `doctor`."""

from __future__ import annotations

import codecs
import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import remuda
from remuda.agents.claude.files import read_settings
from remuda.agents.claude.settings import SettingsFile, settings_files, user_file
from remuda.agents.claude.stop_hooks import (
    StopHook,
    block_cap,
    find_hooks,
    settings_environment,
)
from remuda.durable import read_regular
from remuda.untrusted import parse_json

from .common import short_path


class Found(NamedTuple):
    """A hook of ours in a settings file, and what is wrong with it."""

    path: Path
    hook: StopHook
    problems: list[str]


def shown_place(file: SettingsFile) -> str:
    """Its path, and where it is really written if a link leads elsewhere."""
    path, real = str(file.path), str(file.real)
    return short_path(path) if path == real else f"{short_path(path)} (which is {short_path(real)})"


def own_script() -> Path:
    return Path(remuda.__file__).parent / "inbox" / "stop.py"


def found_hooks(extra: Path | None = None, cwd: Path | None = None) -> list[Found]:
    """Ours, in all files that apply here, or in `extra` alone."""
    found = []
    for path in [extra] if extra else settings_files(os.environ, cwd or Path.cwd()):
        document, cap = read_settings(path), cap_in_force(path)
        found += [Found(path, hook, list(_problems(hook, document, cap))) for hook in find_hooks(document)]
    return found


def broken_settings(extra: Path | None = None) -> list[Path]:
    """Files that apply here and are no JSON object: the CLI passes over all that is in them."""
    return [
        path
        for path in ([extra] if extra else settings_files(os.environ, Path.cwd()))
        if path.exists() and not _is_object(path)
    ]


def _is_object(path: Path) -> bool:
    try:
        data = read_regular(path).removeprefix(codecs.BOM_UTF8)
        return not data.strip() or isinstance(parse_json(data), dict)
    except (OSError, ValueError):
        return False


def cap_in_force(path: Path) -> int:
    """How many blocks in a row are allowed to a hook of this file, where we did not start the session.

    The user's own hooks run in every project, so what is said in this one does not count for them.
    """
    others = [] if path == user_file(os.environ) else settings_files(os.environ, path.parent.parent)
    said = [settings_environment(read_settings(one)) for one in [path, *reversed(others)]]
    return block_cap(*said, os.environ)


def _problems(hook: StopHook, document: Mapping[str, Any], cap: int) -> Iterator[str]:
    if hook.interpreter and not Path(hook.interpreter).exists():
        yield f"its interpreter {hook.interpreter} is gone"
    if hook.script and not Path(hook.script).exists():
        yield f"its program {hook.script} is gone"
    elif hook.script and not _is_own(Path(hook.script)):
        yield f"its program {hook.script} belongs to another installation of Remuda"
    if not hook.inbox:
        yield "it has no --inbox"
    elif not Path(hook.inbox).parent.is_dir():
        yield f"the folder of its inbox {hook.inbox} is missing"
    if hook.mode == "persist" and hook.timeout <= _longest_wait(hook):
        yield f"its timeout of {hook.timeout:g} s is shorter than its wait"
    if document.get("disableAllHooks"):
        yield "the settings disable all hooks"
    if cap:
        yield cap_text(cap)


def cap_text(cap: int) -> str:
    return f"sessions not started by Remuda drop a message after {cap} blocked stops in a row"


def fix(found: Found) -> str:
    """The command that mends what can be mended."""
    words = ["remuda", "hooks", "install", "--inbox", found.hook.inbox or "PATH"]
    words += ["--mode", "persist"] if found.hook.mode == "persist" else []
    return shlex.join([*words, "--settings", str(found.path)])


def _is_own(script: Path) -> bool:
    own = own_script()
    return os.path.realpath(script.parent) == os.path.realpath(own.parent)


def _longest_wait(hook: StopHook) -> float:
    """As `inbox.stop_hook.Options.longest_wait` has it."""
    interval = hook.option("--idle-interval") or ("2" if "--idle-tick" in hook.words else "")
    named = [_seconds(one) for one in (hook.option("--wait"), interval) if one]
    return min(named, default=540.0)


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
