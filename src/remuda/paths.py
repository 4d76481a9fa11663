"""Where files are: all under one folder of the user's; see docs/reference/files.md.

The files of all sessions are in one folder, as Heimdall has them, so that its client can work on our folder:

    <sessions>/<name>.sock   the keeper's socket
    <sessions>/<name>.pid    two lines, keeper and child; locked while the keeper lives
    <sessions>/<name>.log    the keeper's log
    <sessions>/<name>.json   ours: the session's record, kept after its death
    <sessions>/<name>.history, .history.1   ours: what the program printed last, kept after its death
    <sessions>/<name>.d/     ours: what the keeper makes for the agent (settings overlay)
    <sessions>/<name>.acp/   ours: the record of an ACP session's conversations; outlives the session
    <sessions>/<name>.inbox/ ours: the session's inbox, with the files of heartbeat-rs; outlives the session
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import Path

from .errors import FolderUnusable, PathTooLong
from .frozen import frozen
from .names import check_name, is_name

TYPE_CHECKING = False  # as type checkers read it
if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

FOLDER_VARIABLE = "REMUDA_SESSION_FOLDER"
"""In the environment of a session's program: the folder of its session. Another may have the same name."""
# sun_path, less its terminating NUL.
SOCKET_PATH_BYTES = 107 if sys.platform.startswith("linux") else 103


def home(environ: Mapping[str, str] | None = None) -> Path:
    """Return `$REMUDA_HOME`, else `$XDG_STATE_HOME/remuda`, else `~/.local/state/remuda`."""
    environ = os.environ if environ is None else environ
    if own := environ.get("REMUDA_HOME"):
        return expanded(own)
    state = environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(state):  # a relative one is invalid, says its specification, and ignored
        return Path(state, "remuda")
    return expanded(Path(environ.get("HOME") or "~", ".local/state/remuda"))


def expanded(path: Path | str) -> Path:
    """Return an absolute path, with the home of a user instead of `~`. Raises `FolderUnusable`."""
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError as error:  # a user that this system does not know, or ours, without HOME
        raise FolderUnusable(
            f"cannot use folder {path}: the home of that user is not known",
            hint="set HOME, or REMUDA_HOME to a folder of yours",
        ) from error


def config_home(environ: Mapping[str, str]) -> Path:
    """Return the folder of the user's own configuration.

    A relative `$XDG_CONFIG_HOME` is ignored: it would name a folder below any working folder.
    """
    named = environ.get("XDG_CONFIG_HOME", "")
    return Path(named) if os.path.isabs(named) else Path(environ.get("HOME") or "/", ".config")


def own_config_files(environ: Mapping[str, str]) -> list[Path]:
    """Return where the user's own configuration may be. The first file that exists is used alone."""
    base = config_home(environ)
    return [base / "remuda" / "remuda.toml", base / "heimdall" / "heimdall.toml"]


def own_config_file(environ: Mapping[str, str]) -> Path | None:
    return next((one for one in own_config_files(environ) if one.is_file()), None)


def sessions_folder() -> Path:
    return home() / "sessions"


def accounts_folder() -> Path:
    """Return the folder for what keepers know of the limits of the accounts that they share."""
    return home() / "accounts"


@frozen
class SessionPaths:
    """The files of one session."""

    folder: Path
    name: str

    @classmethod
    def of(cls, name: str, folder: Path | None = None) -> SessionPaths:
        return cls(folder if folder is not None else sessions_folder(), check_name(name))

    @property
    def socket(self) -> Path:
        return self.folder / f"{self.name}.sock"

    @property
    def pid(self) -> Path:
        return self.folder / f"{self.name}.pid"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def record(self) -> Path:
        return self.folder / f"{self.name}.json"

    @property
    def history(self) -> Path:
        return self.folder / f"{self.name}.history"

    @property
    def older_history(self) -> Path:
        return self.folder / f"{self.name}.history.1"

    @property
    def scratch(self) -> Path:
        return self.folder / f"{self.name}.d"

    @property
    def inbox(self) -> Path:
        return self.folder / f"{self.name}.inbox"


def known_names(folder: Path) -> set[str]:
    """Return the names of all sessions in `folder`, alive or not."""
    try:
        entries = os.listdir(folder)
    except OSError:
        return set()
    stems = (entry.rpartition(".") for entry in entries)
    return {stem for stem, _, suffix in stems if suffix in ("json", "pid") and is_name(stem)}


def private_folder(path: Path) -> Path:
    """Make `path` (and its parents) if missing; 0700 whatever the umask. Raise if we may not use it.

    A folder below our own home is tightened; one that the user named elsewhere stays unchanged.
    """
    try:
        _make(path)
        status = path.stat()
        if status.st_mode & stat.S_ISVTX and status.st_mode & 0o022:  # such as /tmp, which root owns
            raise FolderUnusable(
                f"folder {path} is shared with other users", hint="choose a folder that is only yours"
            )
        if path.is_relative_to(home()) and status.st_uid == os.getuid() and status.st_mode & 0o077:
            path.chmod(0o700)
            status = path.stat()
    except OSError as error:
        hint = "set REMUDA_HOME to a folder of yours" if path.is_relative_to(home()) else None
        raise FolderUnusable(f"cannot use folder {path}: {error.strerror}", hint=hint) from error
    if not stat.S_ISDIR(status.st_mode):
        raise FolderUnusable(f"{path} is not a folder")
    if status.st_uid != os.getuid():
        raise FolderUnusable(
            f"folder {path} belongs to another user", hint="set REMUDA_HOME to a folder that you own"
        )
    if stat.S_IMODE(status.st_mode) & 0o022:
        raise FolderUnusable(
            f"other users can write to folder {path}", hint=f"chmod 700 {path}, or choose another"
        )
    if not os.access(path, os.W_OK | os.X_OK):
        raise FolderUnusable(f"folder {path} is not writable")
    return path


def _make(path: Path) -> None:
    if not path.exists():
        _make(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


class SocketAddress:
    """A path that fits into a socket address and means `path`, valid while the context is open.

    A path that is too long is reached through its folder's descriptor (`/proc/self/fd/N/name`), which the
    kernel resolves to the same file; without /proc it is an error.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder_fd = -1

    def __enter__(self) -> str:
        if len(os.fsencode(self._path)) <= SOCKET_PATH_BYTES:
            return str(self._path)
        if not sys.platform.startswith("linux"):
            raise PathTooLong(
                f"socket path is too long: {self._path}", hint="set REMUDA_HOME to a shorter folder"
            )
        self._folder_fd = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._folder_fd}/{self._path.name}"

    def __exit__(self, *exc: object) -> None:
        if self._folder_fd >= 0:
            os.close(self._folder_fd)
            self._folder_fd = -1


class OtherUser(PermissionError):
    """Another user listens on a socket that should be ours."""


def connect_own(path: Path) -> socket.socket | None:
    """Connect to a socket of this user without waiting. Return None if the backlog of its server is full.

    Raises `OSError`, and `OtherUser` before anything is sent.
    """
    import socket

    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        with SocketAddress(path) as address:
            sock.connect(address)
        if (uid := peer_uid(sock)) != os.getuid():
            raise OtherUser(errno.EPERM, f"uid {uid} listens on {path}, which is another user")
    except BaseException as error:
        sock.close()
        if isinstance(error, BlockingIOError):
            return None
        raise
    return sock


def peer_uid(sock: socket.socket) -> int:
    """Return the user at the other end of a socket, by the kernel: who connected, or who listens."""
    import socket
    import struct

    if hasattr(socket, "SO_PEERCRED"):
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", credentials)[1])
    # macOS: struct xucred by LOCAL_PEERCRED; the uid is its second field.
    return int(struct.unpack_from("2I", sock.getsockopt(0, 1, 76))[1])
