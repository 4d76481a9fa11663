"""Who asks: the session that a server runs in, or the agent of a token; and who started which session."""

from __future__ import annotations

import hmac
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

from remuda.admission.credentials import load_token
from remuda.boss.folder import BossFolder, read_own
from remuda.errors import InvalidOptions, SessionNotFound
from remuda.keeper.record import SessionRecord
from remuda.names import check_name, is_name
from remuda.paths import FOLDER_VARIABLE, SessionPaths, config_home, home, private_folder, sessions_folder
from remuda.proctree import ancestors

from .rights import Caller, Rights, read_rights, session_of

_DEEPEST = 64
_MOST_TOKENS = 1000


def find_caller(environ: Mapping[str, str], cwd: str) -> Caller:
    """Return the agent that started this process: its session if it is in one, else its folder.

    A variable alone does not prove a session: a tmux server that was started in one hands it to all panes.
    The program of the session, or the server that its keeper started for it, must be an ancestor of this
    process.
    """
    name, folder = environ.get("REMUDA_SESSION", ""), environ.get(FOLDER_VARIABLE)
    if is_name(name) and (folder is None or folder == str(sessions_folder())):
        record = SessionRecord.load(SessionPaths(sessions_folder(), name).record)
        own = {record.child_pid, record.companion_pid} - {0} if record is not None else set()
        if record is not None and not own.isdisjoint(ancestors(os.getpid())):
            return caller_of(record)
    return Caller("folder", os.path.realpath(cwd), folder=cwd)


def caller_of(record: SessionRecord) -> Caller:
    return Caller("session", record.name, _key(record), record.cwd, _depth(record))


def _key(record: SessionRecord) -> str:
    """Return what distinguishes it from others of its name. A session of an older version has no key."""
    key = record.options.get("key")
    return key if isinstance(key, str) and key else f"{record.started_at:.3f}"


def _depth(record: SessionRecord) -> int:
    depth = record.options.get("depth")
    return depth if isinstance(depth, int) else 0


def chain_of(record: SessionRecord) -> list[str]:
    """Return who started a session, who started that one, and so on, as ids of callers."""
    chain: list[str] = []
    current: SessionRecord | None = record
    while current is not None and len(chain) < _DEEPEST:
        started_by = current.options.get("started_by")
        if not isinstance(started_by, str) or not started_by:
            break
        chain.append(started_by)
        current = find_session(started_by)
    return chain


def find_session(caller_id: str) -> SessionRecord | None:
    """Return the session with that id; None if the caller has none, or another has its name now."""
    found = session_of(caller_id)
    record = None if found is None else SessionRecord.load(SessionPaths(sessions_folder(), found[0]).record)
    return record if record is not None and found is not None and _key(record) == found[1] else None


def root_of(caller: Caller) -> str:
    """Return the id of the first agent of its tree."""
    record = find_session(caller.id)
    chain = chain_of(record) if record is not None else []
    return chain[-1] if chain else caller.id


# ── the file of rights ──


def rights_file(environ: Mapping[str, str]) -> Path:
    """Return that in the folder of the boss if it exists, else that in the folder of the configuration."""
    own = BossFolder.default().path / "mcp.toml"
    return own if own.exists() else config_home(environ) / "remuda" / "mcp.toml"


def load_rights(path: Path) -> Rights:
    """Load the rights; without a file an agent reaches what it started. Raises `InvalidOptions`."""
    try:
        document = tomllib.loads(read_own(path).decode())
        return read_rights(document, os.path.expanduser("~"), os.path.realpath)
    except FileNotFoundError:
        return Rights()
    except OSError as error:
        raise InvalidOptions(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidOptions(f"{path}: {error}", hint="no tool works until it is valid") from error
    except InvalidOptions as error:
        if str(path) in error.message:
            raise
        raise InvalidOptions(f"{path}: {error.message}", hint=error.hint) from None


# ── tokens, for clients of the boss ──


def tokens_folder() -> Path:
    return home() / "mcp" / "tokens"


def make_token(name: str) -> str:
    """Return the token of that name, which is made if it does not exist."""
    check_name(name)
    return load_token(private_folder(tokens_folder()) / name)


def remove_token(name: str) -> None:
    """Raises `SessionNotFound` if there is none."""
    try:
        (tokens_folder() / check_name(name)).unlink()
    except FileNotFoundError:
        raise SessionNotFound(f"no token '{name}'", hint="'remuda mcp token' lists them") from None


def token_names() -> list[str]:
    try:
        return sorted(name for name in os.listdir(tokens_folder()) if is_name(name))
    except OSError:
        return []


def caller_of_token(token: str) -> Caller | None:
    """Return the agent with that token; None if there is none. All are compared, in equal time."""
    found, given = None, token.encode("utf-8", "surrogatepass")
    for name in token_names()[:_MOST_TOKENS]:
        try:
            known = (tokens_folder() / name).read_bytes().strip()
        except OSError:
            continue
        if known and hmac.compare_digest(known, given):
            found = Caller("token", name, folder=os.path.expanduser("~"))
    return found
