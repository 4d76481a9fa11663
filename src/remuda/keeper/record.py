"""What is kept about a session on disk: enough to list it when dead and to resume it."""

from __future__ import annotations

import json
from pathlib import Path

from remuda import durable
from remuda.frozen import fields_of, fresh, frozen, replaced
from remuda.paths import SessionPaths
from remuda.untrusted import parse_json

TYPE_CHECKING = False  # as type checkers read it
if TYPE_CHECKING:
    from typing import Any


@frozen
class SessionRecord:
    """One JSON file, rewritten at every change that matters. Unknown keys of a newer version are ignored."""

    name: str
    agent: str
    argv: list[str]
    cwd: str
    started_at: float
    keeper_pid: int = 0
    child_pid: int = 0
    child_started: str = ""
    """When the program started, by the system's count: its pid may belong to another process by now."""
    companion_pid: int = 0
    companion_started: str = ""
    """The same of the process that serves the agent's calls, if there is one."""
    terminal: str = ""
    terminal_made: int = 0
    """The path of its terminal, and when that was made (nanoseconds)."""
    version: str = ""
    cols: int = 0
    rows: int = 0
    conversation: dict[str, Any] = fresh(dict)
    options: dict[str, Any] = fresh(dict)
    """How it was started, by the names of `start`'s options: a resume uses them again."""
    variables: list[str] = fresh(list)
    """Names of variables that were set for it. Their values may be secret and are not saved."""
    log_file: str | None = None
    account: str = ""
    """Whose limits delay its messages: the name of a file in the folder of accounts."""
    ephemeral: bool = False
    """A program's own session, which leaves nothing: its files can be removed once its keeper is dead."""
    worktree: dict[str, Any] | None = None
    """The git worktree that was made for it, as `Worktree.document`."""
    resumed: bool = False
    """Whether it was started again with its conversation."""
    first_started_at: float | None = None
    """When the first of its runs began; None for this one. A resume begins another run."""
    settled: bool = False
    """Whether it ran for a while (`restart.SETTLED_AFTER`). Known only of a session that may be restarted."""
    killed: bool = False
    """Whether a user asked for its end: it is not restarted. Saved before anything is ended."""
    asleep: bool = False
    """Whether its agent was ended until it is needed. The session itself goes on."""
    ended_at: float | None = None
    exit_code: int | None = None
    end_reason: str | None = None
    came_up: bool = True
    """Whether its agent got past its start. False is known only of a session that ended in order."""

    def save(self, path: Path) -> None:
        durable.replace_file(path, json.dumps(fields_of(self), indent=1).encode())

    @classmethod
    def load(cls, path: Path) -> SessionRecord | None:
        """Return the record; None if it is missing, cannot be read, or holds what no keeper wrote."""
        try:
            document = parse_json(durable.read_regular(path), keep_surrogates=True)
            fields = {key: document[key] for key in cls.__match_args__ if key in document}
            # One with a list for a name would end whatever looks at all sessions, such as the boss.
            if not all(_fits(one, str(cls.__annotations__[key])) for key, one in fields.items()):
                return None
            return cls(**fields)
        except (OSError, ValueError, TypeError):
            return None


class RecordFile:
    """The record of a session that runs, saved at each change. One that cannot be saved ends no session."""

    def __init__(self, path: Path, record: SessionRecord) -> None:
        self._path = path
        self.record = record

    def note(self, **changes: Any) -> None:
        self.record = replaced(self.record, **changes)
        self.save()

    def save(self) -> None:
        try:
            self.record.save(self._path)
        except OSError as error:
            import logging  # slow to load: commands that only read records do without it

            log = logging.getLogger("remuda.keeper")
            log.error("cannot save the session's record: %s", error)


def _fits(value: object, annotation: str) -> bool:
    """Whether a value of JSON is of that type."""
    kind = annotation.removesuffix(" | None")
    if value is None:
        return kind != annotation
    if kind == "list[str]":
        return isinstance(value, list) and all(isinstance(one, str) for one in value)
    return kind not in _TYPES or (
        isinstance(value, _TYPES[kind]) and isinstance(value, bool) == (kind == "bool")
    )


_TYPES: dict[str, Any] = {
    "str": str,
    "int": int,
    "float": (int, float),
    "bool": bool,
    "dict[str, Any]": dict,
}


def remove_traces(paths: SessionPaths) -> None:
    """Remove what a session leaves when it ends: its record, its log, its history and its inbox."""
    logs = (paths.log, paths.log.with_name(f"{paths.log.name}.1"))
    for path in (paths.record, *logs, paths.history, paths.older_history):
        path.unlink(missing_ok=True)
    import shutil  # slow to load, and needed only at the end

    shutil.rmtree(paths.inbox, ignore_errors=True)
