"""The files of Claude Code that we read, and where they are."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Mapping
from pathlib import Path

from remuda.durable import open_regular, read_regular
from remuda.patterns import pattern
from remuda.untrusted import BadJson, as_object, parse_json, parse_object

TYPE_CHECKING = False  # as type checkers read it; importing `typing` takes 2 ms
if TYPE_CHECKING:
    from typing import Any

_PLAIN = pattern("[A-Za-z0-9]")
_MAX_NAME = 200
_SESSION_ID = pattern(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# The CLI writes a title when it is set, and again when the CLI ends.
_TITLE = pattern(rb'^\{"type":"custom-title".*\}$', re.MULTILINE)
_TITLE_BYTES = 1 << 16


def config_folder(env: Mapping[str, str]) -> Path:
    """Return the folder of settings, transcripts and registry. `CLAUDE_CONFIG_DIR` moves it."""
    if moved := env.get("CLAUDE_CONFIG_DIR"):
        return Path(moved)
    return Path(env.get("HOME", "/")) / ".claude"


def account_id(env: Mapping[str, str]) -> str:
    """Return the id of the account that is logged in; empty if there is none."""
    moved = env.get("CLAUDE_CONFIG_DIR")
    try:
        document = parse_object(read_regular(Path(moved or env.get("HOME", "/")) / ".claude.json"))
    except (OSError, BadJson):
        return ""
    return str(as_object(document.get("oauthAccount")).get("accountUuid") or "")


def registry_file(env: Mapping[str, str], pid: int) -> Path:
    return config_folder(env) / "sessions" / f"{pid}.json"


def entrypoint(env: Mapping[str, str], pid: object) -> str | None:
    """Return the entrypoint that the agent reports in its registry file."""
    if not isinstance(pid, int):
        return None
    try:
        value = parse_json(read_regular(registry_file(env, pid))).get("entrypoint")
    except (OSError, ValueError, AttributeError):  # the file is rewritten in place
        return None
    return value if isinstance(value, str) else None


def find_transcript(env: Mapping[str, str], conversation: Mapping[str, Any]) -> Path | None:
    """Return the transcript of a conversation; None while it has none."""
    reported = conversation.get("transcript_path")
    if reported and os.path.isfile(reported):  # unlike that of Path it never raises
        return Path(reported)
    session_id = str(conversation.get("session_id") or "")
    if not session_id or "/" in session_id:
        return None
    from glob import escape  # slow to load

    # The file is named by the conversation. The name of its folder follows rules of the CLI.
    return next((config_folder(env) / "projects").glob(f"*/{escape(session_id)}.jsonl"), None)


def has_messages(transcript: Path) -> bool:
    """Return whether a transcript holds a message.

    A CLI that was killed early may leave one without any, and refuses to resume that conversation.
    """
    try:
        with open(open_regular(transcript), "rb") as lines:
            return any(_is_message(line) for line in lines)
    except OSError:
        return False


def _is_message(line: bytes) -> bool:
    try:
        return parse_object(line).get("type") in ("user", "assistant")
    except BadJson:
        return False


def newest_conversation(env: Mapping[str, str], cwd: Path) -> str | None:
    """Return the conversation that `claude -p --continue` would continue in this folder."""
    files = _conversations(env, cwd)
    return max(files, key=_changed_at).stem if files else None


def titled_conversations(env: Mapping[str, str], cwd: Path, title: str) -> list[str]:
    """Return the conversations with this title, as `claude -p --resume TITLE` finds them; newest first."""
    wanted = title.strip().lower()
    found = [file for file in _conversations(env, cwd) if (_title_of(file) or "").strip().lower() == wanted]
    return [file.stem for file in sorted(found, key=_changed_at, reverse=True)] if wanted else []


def _title_of(file: Path) -> str | None:
    try:
        with open(open_regular(file), "rb") as opened:
            size = opened.seek(0, os.SEEK_END)
            for start in (max(0, size - _TITLE_BYTES), 0):
                opened.seek(start)
                if titles := _TITLE.findall(opened.read(_TITLE_BYTES)):
                    return str(parse_json(titles[-1]).get("customTitle"))
    except (OSError, ValueError):
        pass
    return None


def transcript_folders(env: Mapping[str, str], cwd: Path) -> list[Path]:
    """Return where a transcript of a session in `cwd` will appear: its folder, then those above it."""
    config = config_folder(env)
    return [*_project_folders(env, cwd), config / "projects", config]


def _project_folders(env: Mapping[str, str], cwd: Path) -> list[Path]:
    # Every UTF-16 unit but letters and digits becomes a dash; a long name is cut, and ends with a hash.
    path = os.path.realpath(cwd)
    name = "".join(one if _PLAIN.match(one) else "-" * (1 + (ord(one) > 0xFFFF)) for one in path)
    projects = config_folder(env) / "projects"
    return [projects / name] if len(name) <= _MAX_NAME else [*projects.glob(f"{name[:_MAX_NAME]}-*")]


def _conversations(env: Mapping[str, str], cwd: Path) -> list[Path]:
    folders = _project_folders(env, cwd)
    return [file for folder in folders for file in folder.glob("*.jsonl") if _SESSION_ID.fullmatch(file.stem)]


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # it was just removed
        return 0.0


def read_settings(path: Path) -> dict[str, Any]:
    """Return a settings file; empty if it is missing or invalid, as the CLI treats it."""
    try:
        found = parse_json(read_regular(path).removeprefix(codecs.BOM_UTF8))
    except (OSError, ValueError):
        return {}
    return as_object(found)


def user_file(env: Mapping[str, str]) -> Path:
    return config_folder(env) / "settings.json"


def project_file(cwd: Path) -> Path:
    return cwd / ".claude" / "settings.json"


def local_file(cwd: Path) -> Path:
    """Return the project's file for one user. It is not committed, so it may have paths of this machine."""
    return cwd / ".claude" / "settings.local.json"


def settings_files(env: Mapping[str, str], cwd: Path) -> list[Path]:
    """Return the files that apply in `cwd`, the strongest last; they need not exist."""
    return [user_file(env), project_file(cwd), local_file(cwd)]


def user_settings(env: Mapping[str, str], cwd: Path) -> list[dict[str, Any]]:
    """Return the user's settings that apply in `cwd`, the strongest first."""
    return [read_settings(path) for path in reversed(settings_files(env, cwd))]


def registry_folder(env: Mapping[str, str]) -> Path:
    """Return the folder with one file for each running process, named by its pid."""
    return config_folder(env) / "sessions"


def registry_beside(transcript: str) -> Path | None:
    """Return the registry that belongs to `<config>/projects/<folder>/<id>.jsonl`."""
    parts = Path(transcript).parents
    return parts[2] / "sessions" if len(parts) > 3 and parts[1].name == "projects" else None


def jobs_beside(registry: Path) -> Path:
    """Return the folder with one folder for each background agent."""
    return registry.parent / "jobs"
