"""Every error that Remuda raises on purpose, and the one table of exit codes.

    RemudaError
    ├── InvalidOptions          the caller asked for something that cannot be
    │   ├── BadName             a session name that is not a safe file name
    │   └── InputError          a prompt that no agent can be given
    ├── SessionNotFound         nobody of that name is kept here
    │   └── PoolNotServed       nobody serves a warm pool there
    ├── SessionExists           the name is taken by a live session
    ├── SessionDead             it was here, and it ended
    ├── SessionUnreachable      its keeper does not answer
    ├── CommandNotFound         the program to run does not exist
    ├── CommandNotExecutable    it exists and cannot be run
    ├── SpawnFailed             the system refused to start it
    │   └── SpawnTimeout        it was not ready in time
    ├── FolderUnusable          a folder is missing, not a folder, or not ours to write
    ├── PathTooLong             no socket can have that path
    ├── NotATerminal            a terminal was needed
    ├── InboxBusy               another consumer hands out the messages of that inbox
    ├── InboxCorrupt            the files of that inbox contradict each other, and a human must look
    ├── MessageNotFound         no inbox here has a message of that id
    ├── MessageDead             a message will not be answered: a dead letter, expired, or dropped
    ├── WaitTimeout             what was waited for did not come
    ├── Aborted                 the caller gave up on a request
    ├── PoolExhausted           no warm session came free in time
    ├── SessionCrashed          a warm session ended in the middle of a request
    ├── SessionDirty            something of one request would reach the next: that session is not used again
    ├── AgentError              the agent itself reported an error
    ├── AgentRefused            the agent ended before it took the prompt, and said why
    ├── CallFailed              a call came to no end of the agent's own
    ├── Interrupted             a signal ended the call
    ├── InternalError           a bug of ours, or a machine that is out of something
    ├── ClientClosed            the client was closed before or during the call
    ├── PermissionRefused       the peer is another user
    ├── BossDown                the boss does not run, or does not answer
    ├── BossExists              one runs already
    ├── NotInQueue              there is nothing of that id in the queue, the ledger or the registry
    ├── AlreadyAnswered         somebody else was first, or it is over
    ├── NotSafe                 nothing was typed: the session is not proven to wait for a prompt
    ├── StoreFailed             it could not be written to the disk: nothing of it counts
    ├── TmuxError               tmux refused a command; it says why
    │   ├── TmuxMissing         there is no tmux to run
    │   ├── TmuxTooOld          it is too old for what was asked of it
    │   ├── TmuxGone            no tmux server answers there
    │   ├── TmuxTargetGone      the pane, window, session or client is there no more
    │   ├── NoTmuxClient        nobody is attached who could be shown a pane
    │   └── NoOrigin            there is no place to return to
    └── ProtocolError
        ├── LocalProtocolError  we tried to say something the protocol cannot carry
        └── RemoteProtocolError the peer said something that it cannot mean
            └── PoolBroken      whoever serves the pool says nonsense, nothing at all, or hung up

Handle them by type or by `.code`; the text is for people and may change.
"""

from __future__ import annotations

from typing import ClassVar, Final

EXIT_CODES: Final[dict[str, int]] = {
    "OK": 0,
    "FAILED": 1,
    "INVALID_OPTIONS": 2,
    "NO_SESSION": 3,
    "INVALID_INPUT": 4,
    "SESSION_EXISTS": 5,
    "SESSION_DEAD": 6,
    "UNREACHABLE": 7,
    "REFUSED": 8,
    "PROTOCOL": 9,
    "NOT_ANSWERED": 10,
    "TIMEOUT": 124,
    "IDLE_EXHAUSTED": 125,
    "NOT_EXECUTABLE": 126,
    "COMMAND_NOT_FOUND": 127,
    "INTERRUPTED": 130,
}
"""What `remuda` exits with. Commands that end with a session's own code say so in their help."""


class RemudaError(Exception):
    """Base of all. `.code` names the handling, `.exit_code` is what the command line ends with."""

    code: ClassVar[str] = "FAILED"
    exit_name: ClassVar[str] = "FAILED"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.exit_name]


class InvalidOptions(RemudaError):
    code = "INVALID_OPTIONS"
    exit_name = "INVALID_OPTIONS"


class BadName(InvalidOptions):
    code = "BAD_NAME"
    exit_name = "INVALID_INPUT"


class InputError(InvalidOptions):
    code = "INPUT_ERROR"
    exit_name = "INVALID_INPUT"


class SessionNotFound(RemudaError):
    code = "SESSION_NOT_FOUND"
    exit_name = "NO_SESSION"


class PoolNotServed(SessionNotFound):
    code = "POOL_NOT_SERVED"


class SessionExists(RemudaError):
    code = "SESSION_EXISTS"
    exit_name = "SESSION_EXISTS"


class SessionDead(RemudaError):
    code = "SESSION_DEAD"
    exit_name = "SESSION_DEAD"


class SessionUnreachable(RemudaError):
    code = "SESSION_UNREACHABLE"
    exit_name = "UNREACHABLE"


class CommandNotFound(RemudaError):
    code = "COMMAND_NOT_FOUND"
    exit_name = "COMMAND_NOT_FOUND"


class CommandNotExecutable(RemudaError):
    code = "COMMAND_NOT_EXECUTABLE"
    exit_name = "NOT_EXECUTABLE"


class SpawnFailed(RemudaError):
    code = "SPAWN_FAILED"


class SpawnTimeout(SpawnFailed):
    code = "SPAWN_TIMEOUT"
    exit_name = "TIMEOUT"


class FolderUnusable(RemudaError):
    code = "FOLDER_UNUSABLE"
    exit_name = "INVALID_INPUT"


class PathTooLong(RemudaError):
    code = "PATH_TOO_LONG"
    exit_name = "INVALID_INPUT"


class NotATerminal(RemudaError):
    code = "NOT_A_TERMINAL"
    exit_name = "INVALID_INPUT"


class InboxBusy(RemudaError):
    code = "INBOX_BUSY"
    exit_name = "REFUSED"


class InboxCorrupt(RemudaError):
    code = "INBOX_CORRUPT"


class MessageNotFound(RemudaError):
    code = "MESSAGE_NOT_FOUND"
    exit_name = "NO_SESSION"


class MessageDead(RemudaError):
    code = "MESSAGE_DEAD"
    exit_name = "NOT_ANSWERED"


class WaitTimeout(RemudaError):
    code = "TIMEOUT"
    exit_name = "TIMEOUT"


class Aborted(RemudaError):
    code = "ABORTED"
    exit_name = "INTERRUPTED"


class PoolExhausted(RemudaError):
    """`waited` seconds for one of `size` sessions."""

    code = "POOL_EXHAUSTED"
    exit_name = "TIMEOUT"

    def __init__(self, message: str, *, hint: str | None = None, waited: float = 0.0, size: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.waited = waited
        self.size = size


class SessionCrashed(RemudaError):
    """`detail` is how it ended and what it said last."""

    code = "SESSION_CRASHED"
    exit_name = "SESSION_DEAD"

    def __init__(self, message: str, *, hint: str | None = None, detail: str = "") -> None:
        super().__init__(message, hint=hint)
        self.detail = detail


class SessionDirty(RemudaError):
    code = "SESSION_DIRTY"


class AgentError(RemudaError):
    code = "AGENT_ERROR"
    exit_name = "NOT_ANSWERED"


class AgentRefused(RemudaError):
    """`claude -p` ends with 1 then, and so does `remuda print`."""

    code = "AGENT_REFUSED"


class CallFailed(RemudaError):
    code = "CALL_FAILED"
    exit_name = "INVALID_OPTIONS"


class Interrupted(RemudaError):
    code = "INTERRUPTED"
    exit_name = "INTERRUPTED"


class InternalError(RemudaError):
    code = "INTERNAL_ERROR"
    exit_name = "INVALID_OPTIONS"


class ClientClosed(RemudaError):
    code = "CLIENT_CLOSED"
    exit_name = "REFUSED"


class PermissionRefused(RemudaError):
    code = "PERMISSION_REFUSED"
    exit_name = "REFUSED"


class TmuxError(RemudaError):
    code = "TMUX_ERROR"


class TmuxMissing(TmuxError):
    code = "TMUX_MISSING"
    exit_name = "COMMAND_NOT_FOUND"


class TmuxTooOld(TmuxError):
    code = "TMUX_TOO_OLD"


class TmuxGone(TmuxError):
    code = "TMUX_GONE"
    exit_name = "UNREACHABLE"


class TmuxTargetGone(TmuxError):
    code = "TMUX_TARGET_GONE"
    exit_name = "NO_SESSION"


class NoTmuxClient(TmuxError):
    code = "NO_TMUX_CLIENT"
    exit_name = "INVALID_INPUT"


class NoOrigin(TmuxError):
    code = "NO_ORIGIN"
    exit_name = "NO_SESSION"


class BossDown(RemudaError):
    code = "BOSS_DOWN"
    exit_name = "UNREACHABLE"


class BossExists(RemudaError):
    code = "BOSS_EXISTS"
    exit_name = "SESSION_EXISTS"


class NotInQueue(RemudaError):
    code = "NOT_IN_QUEUE"
    exit_name = "NO_SESSION"


class AlreadyAnswered(RemudaError):
    code = "ALREADY_ANSWERED"
    exit_name = "REFUSED"


class NotSafe(RemudaError):
    code = "NOT_SAFE"
    exit_name = "REFUSED"


class StoreFailed(RemudaError):
    code = "STORE_FAILED"


class ProtocolError(RemudaError):
    code = "PROTOCOL_ERROR"
    exit_name = "PROTOCOL"


class LocalProtocolError(ProtocolError):
    code = "LOCAL_PROTOCOL_ERROR"


class RemoteProtocolError(ProtocolError):
    code = "REMOTE_PROTOCOL_ERROR"


class PoolBroken(RemoteProtocolError):
    code = "POOL_BROKEN"


def _tree(base: type[RemudaError]) -> dict[str, type[RemudaError]]:
    found = {base.code: base}
    for sub in base.__subclasses__():
        found |= _tree(sub)
    return found


def from_code(code: str, message: str, hint: str | None = None) -> RemudaError:
    """Rebuild an error that crossed a process boundary; an unknown code becomes the base error."""
    return _tree(RemudaError).get(code, RemudaError)(message, hint=hint)
