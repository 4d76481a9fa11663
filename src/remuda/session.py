"""`remuda.Session`: a session by its name. It does what the commands do, for a program."""

from __future__ import annotations

import builtins
import importlib
import os
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Literal, Self, TypedDict, Unpack

from .arguments import (
    absolute_path,
    check_count,
    check_flag,
    check_options,
    check_text,
    check_variables,
    check_words,
    wrong,
)
from .config import load_config
from .duration import check_seconds
from .errors import InvalidOptions, MessageDead, SessionDead, SessionUnreachable
from .inbox.journal import Accepted, Inbox
from .inbox.message import PutOptions, check_prompt, check_put_options
from .inbox.receipts import Trace, find, follow
from .keeper.cancel import (
    DEFAULT_CANCEL_TIMEOUT,
    Cancelled,
    cancel_message,
    cancel_turn,
    wait_for_rest,
)
from .keeper.client import KeeperClient, absent, check_delivers, wait_for_end
from .keeper.compose import compose
from .keeper.elsewhere import split_host
from .keeper.foreign import ForeignEnd
from .keeper.hidden import is_alive, living_names
from .keeper.history_reader import HistoryReader, last_screen
from .keeper.history_stream import HistoryStream
from .keeper.listing import dead_records
from .keeper.record import SessionRecord
from .keeper.resume import give_up_restart
from .keeper.sendable import find_prompts
from .keeper.spec import DEFAULT_KILL_GRACE
from .keeper.start import DEFAULT_START_TIMEOUT, start_session
from .keeper.survivors import end_survivors
from .keeper.worktree import start_in_worktree
from .names import check_name
from .paths import SessionPaths, sessions_folder
from .terminal.history_lines import open_transcript

_END_TIMEOUT = 10.0
_LONGEST_ID = 128


class StartOptions(TypedDict, total=False):
    """Options of `Session.start`, as those of `remuda start`. None means the default."""

    agent: str | None
    """The agent to run: "claude", "demo" and so on. Default: recognised by the command."""
    resume: bool | None
    """Start an ended session of this name again, with its conversation."""
    trust: bool | None
    """Answer yes if the agent asks whether the folder is trusted."""
    on_orphan: Literal["retry", "deadletter", "drop"] | None
    """What to do with a message that was in flight when the session died. Default "deadletter"."""
    restart: Literal["never", "on-crash", "always"] | None
    """Whether the boss or `remuda resume --all` starts the session again after its end. Default "never"."""
    sleep_after: float | None
    """Seconds after which the agent of an idle session is ended until it is needed. Default 0: never."""
    worktree: bool | str | None
    """Run in a new git worktree: True for a new branch with the session's name, or the name of a branch."""
    turn_timeout: float | None
    """Seconds without a sign of life after which a turn has failed. Default 0: no limit."""
    draft_patience: float | None
    """Seconds after which an unchanged draft is stashed to deliver a message. Default 15."""
    grace: float | None
    """Seconds between SIGTERM and SIGKILL. Default 5."""
    kill_group: bool | None
    """Whether `kill` ends all descendants. Default True."""
    cols: int | None
    """Columns of the terminal."""
    rows: int | None
    """Rows of the terminal."""
    size: Literal["latest", "smallest", "fixed"] | None
    """Which attached terminal sets the size if there are several. Default "latest"."""
    record: Path | str | None
    """Record the terminal into this file, as asciicast v2."""
    scrollback_bytes: int | None
    """How much raw output the keeper holds for clients that attach."""
    classifier: str | None
    """How to read the state from byte timing: "simple", "claude" or "none"."""
    history_bytes: int | None
    """How much output to keep on disk. Default 8 MiB; 0 keeps none."""
    idle_threshold_ms: int | None
    """Milliseconds without output after which byte timing says idle."""
    debounce_ms: int | None
    """Milliseconds that a state from byte timing must last before it counts."""
    session_env_var: str | None
    """The environment variable that holds the session's name."""
    log_file: Path | str | None
    """Write the keeper's log to this file."""
    log_level: str | None
    """Level of the keeper's log."""
    log_filter: str | None
    """Filter of the keeper's log, as `keeper=debug`."""


class Session:
    """Use a session by its name: send messages, wait for answers, read the screen, end it.

    The object holds nothing open; each call looks at the session as it is then. The session outlives the
    object and the program. Every method blocks. In asyncio use `AsyncSession`, which has the same methods.

    `Session("build7/work")` is a session of another host of your fleet, as HOST/SESSION is in a command.

        session = Session.start("work", agent="claude", cwd="~/project")
        print(session.ask("Which tests fail?", timeout=600))
        session.kill()
    """

    def __new__(cls, name: str, *, folder: Path | str | None = None) -> Self:
        """Make one of the class for other hosts, if the name has one."""
        if cls is Session and _split(name, folder)[0] is not None:
            made: Self = object.__new__(_elsewhere().SessionElsewhere)
            return made
        return object.__new__(cls)

    def __init__(self, name: str, *, folder: Path | str | None = None) -> None:
        """Find a session that was started before, running or ended. Raises `SessionNotFound`.

        `folder` is the folder of the session files; None is the one that the commands use. With HOST/SESSION
        nothing is asked yet: the methods raise `SessionNotFound`. Raises `NotInFleet` if this machine has
        joined no fleet.
        """
        self._paths = SessionPaths.of(check_name(_split(name, folder)[1]), _folder(folder))
        if not self.alive and SessionRecord.load(self._paths.record) is None:
            raise absent(self._paths)

    @classmethod
    def start(
        cls,
        name: str,
        command: Sequence[str] = (),
        *,
        cwd: Path | str | None = None,
        env: Mapping[str, str] | None = None,
        folder: Path | str | None = None,
        timeout: float = DEFAULT_START_TIMEOUT,
        **options: Unpack[StartOptions],
    ) -> Self:
        """Start a session and return when its program runs.

        `command` is what to run; leave it empty to run the agent's own command. `env` is added to the
        environment of this process. The other options are those of `remuda start`, listed in
        `StartOptions`: `agent="claude"`, `resume=True`, `trust=True`, `cols=120` and so on.

        With HOST/SESSION it runs on that host, with the environment of the boss there, and without `cwd` in
        the home folder. The options are `agent`, `resume`, `trust`, `cols` and `rows` then.

        Raises `InvalidOptions`, `SessionExists` if the name is in use, `CommandNotFound`, `NotSafe` for a
        program that `doctor --agent` found unsafe, `SpawnFailed`, and `SpawnTimeout` after `timeout` seconds.
        Nothing runs after an error.
        """
        check_options(options, StartOptions.__annotations__, "session")
        host, name = _split(name, folder)
        if host is not None:
            made: Self = _elsewhere().start(host, name, command, cwd, env, timeout, options)
            return made
        where = _folder(folder)
        config = load_config(None, Path.cwd(), os.environ)
        variables = [f"{key}={value}" for key, value in check_variables("env", env or {}).items()]
        start_options = {"cwd": cwd, "variables": variables, **options}
        limit = check_seconds("timeout", timeout)
        branch = start_options.pop("worktree", None)
        spec = compose(name, check_words("command", command), where, start_options, config).spec
        if branch is None or branch is False:
            start_session(spec, limit)
        else:
            start_in_worktree(spec, "" if branch is True else check_text("worktree", branch), config, limit)
        return cls(name, folder=where)

    @classmethod
    def list(
        cls, *, ended: bool = False, hosts: bool = False, folder: Path | str | None = None
    ) -> builtins.list[Self]:
        """Return the sessions that run, by name; with `ended` also those that have ended.

        No session is contacted: `status` does that, and raises `SessionDead` if one ended in between. With
        `hosts`, also those of other hosts of your fleet that are known to run; it needs a running boss.

            for session in Session.list():
                print(session.name, session.status()["state"])
        """
        where = _folder(folder)
        names = set(living_names(where))
        if check_flag("ended", ended):
            names |= {record.name for record in dead_records(where, names)}
        found = [cls._of(SessionPaths(where, name)) for name in sorted(names)]
        return [*found, *_elsewhere().list_sessions()] if check_flag("hosts", hosts) else found

    @classmethod
    def _of(cls, paths: SessionPaths) -> Self:
        """Make one without a look at its files."""
        session = object.__new__(cls)
        session._paths = paths
        return session

    @property
    def name(self) -> str:
        """The name of the session; of one on another host, HOST/SESSION."""
        return self._paths.name

    @property
    def host(self) -> str | None:
        """The host that the session runs on; None for this machine."""
        return None

    @property
    def alive(self) -> bool:
        """True while the session runs. Another host is asked."""
        return is_alive(self._paths)

    @property
    def inbox(self) -> Inbox:
        """The inbox of the session. `send` checks the prompt for this agent before it puts it there."""
        return Inbox(self._paths.inbox)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    # ── looking ──

    def attach(self, *, read_only: bool = False) -> KeeperClient:
        """Return a connection to the keeper, to read output and to type. Close it, or use it in a `with`.

        Raises `SessionDead` if the session has ended, and `SessionUnreachable` if its keeper does not answer.
        """
        return KeeperClient.connect(
            self.name, self._paths.folder, read_only=check_flag("read_only", read_only)
        )

    def status(self, *, explain: bool = False) -> dict[str, Any]:
        """Return what the session does and since when: the JSON of `remuda status NAME`.

        `explain` adds the evidence. Raises `SessionDead` if the session has ended.
        """
        with self.attach(read_only=True) as client:
            return client.describe(explain=check_flag("explain", explain))

    def screen(self) -> builtins.list[str]:
        """Return the lines that the terminal shows now; of an ended session, those it showed last.

        Raises `SessionDead` if the session has ended and no history of it was kept.
        """
        try:
            with self.attach(read_only=True) as client:
                return list(client.request("screen")["lines"])
        except SessionDead:
            if (screen := last_screen(self._paths)) is None:
                raise
            with closing(screen):
                return screen.lines()

    def history(self, lines: int | None = None) -> builtins.list[str]:
        """Return what the program printed, as lines of text; the last `lines` of them, or all.

        By default the last 8 MiB of output are kept (`history_bytes` of `StartOptions`), also after the end
        of the session. Returns an empty list if none was kept.
        """
        if lines is not None:
            check_count("lines", lines, 0, sys.maxsize)
        if self.alive:
            with (
                suppress(InvalidOptions, SessionDead, SessionUnreachable),
                self.attach(read_only=True) as client,
            ):
                client.request("history")  # the keeper writes everything printed so far
        try:
            reader = HistoryReader(self._paths)
        except OSError:
            return []
        with reader:
            return last_lines(reader, lines)

    # ── messages ──

    def send(self, text: str, **options: Unpack[PutOptions]) -> Accepted:
        """Send a message and return its id. It is on the disk when this returns; the agent gets it when idle.

        Options: `delay`, `ttl`, `dedup`, `sender`, `max_attempts`, `command`, `literal`, `priority`,
        `message_id` and `now`, as in `Inbox.put`. A session that has ended holds the message until it is
        started again.

        Raises `InputError` for a prompt that the agent cannot take, and `InvalidOptions` for a wrong option
        or a session that takes no messages: one that runs a plain command, or one of Heimdall's supervisor.
        """
        check_put_options(options)
        check_prompt(text)
        command, literal = options.get("command", False), options.get("literal", False)
        if (prompts := find_prompts(self._paths)) is not None:
            prompts.check(text, command=command, literal=literal)
        return self.inbox.put(text, **options)

    def receipt(self, message: str) -> Trace:
        """Return how far the message with this id got. Raises `MessageNotFound`."""
        return find(message_id(message), [self._paths.inbox])

    def wait(self, message: str, timeout: float | None = None) -> Trace:
        """Wait until the message with this id has ended, and return its receipt.

        Returns at once if it ended before. Raises `WaitTimeout` after `timeout` seconds; None waits without
        a limit. Raises `SessionDead` for an agent that failed while starting. The message stays in the inbox
        after either. Raises `MessageNotFound`.
        """
        return self._wait(message, timeout)

    def _wait(self, message: str, timeout: float | None, check: Callable[[], None] | None = None) -> Trace:
        def attend(trace: Trace) -> None:
            if check is not None:
                check()
            check_delivers(self._paths, trace.id)

        *_, last = follow(self._paths.inbox, message_id(message), limit_of(timeout), attend)
        return last

    def ask(self, text: str, timeout: float | None = None, **options: Unpack[PutOptions]) -> str:
        """Send a message, wait until it has ended, and return the agent's answer.

        `timeout` limits the wait in seconds; the options are those of `send`. Raises `WaitTimeout`, and
        `MessageDead` if no answer will come. The message stays in the inbox after a timeout.
        """
        limit = limit_of(timeout)  # before anything is sent
        return answer_of(self.wait(self.send(text, **options).id, limit))

    def cancel(self, message: str | None = None, timeout: float = DEFAULT_CANCEL_TIMEOUT) -> Cancelled | None:
        """Take a waiting message back, or interrupt its turn. Without `message`, do as `interrupt`.

        Returns the outcome when it is on the disk: `.fate` is "taken_back" (the agent never saw it),
        "not_retried" (it had failed), "interrupted", "answered" (too late) or "ended" (another end, see
        `.reason`).

        Raises `WaitTimeout` if the turn does not stop within `timeout` seconds, `NotSafe` if a dialog is open
        but no turn runs, and `MessageNotFound`.
        """
        if message is None:
            return self.interrupt(timeout)
        return cancel_message(
            self._paths.inbox, message_id(message), self._paths, check_seconds("timeout", timeout)
        )

    def interrupt(self, timeout: float = DEFAULT_CANCEL_TIMEOUT) -> Cancelled | None:
        """Interrupt the turn that runs and return the outcome, as `cancel`; None if no turn runs.

        Raises `WaitTimeout` if the turn does not stop within `timeout` seconds, `NotSafe` if a dialog is open
        but no turn runs, and `SessionDead`.
        """
        return cancel_turn(self.name, self._paths.folder, check_seconds("timeout", timeout))

    def wait_idle(self, timeout: float | None = None) -> dict[str, Any]:
        """Wait until the agent is idle and its inbox has nothing due, and return its status.

        Raises `WaitTimeout` after `timeout` seconds, and `SessionDead` if the session ends before.
        """
        return self._wait_idle(timeout, lambda: None)

    def _wait_idle(self, timeout: float | None, check: Callable[[], None]) -> dict[str, Any]:
        return wait_for_rest(self.name, self._paths.folder, limit_of(timeout), lambda _: check())

    # ── the end ──

    def kill(self, grace: float | None = None) -> int | None:
        """End the session and every process it started, and return its exit code.

        After `grace` seconds processes that still run are killed; None uses the session's own setting. The
        exit code is None if the keeper could not report it. If the keeper was killed before, ends what is
        left. A session of `restart` is not restarted after this. Raises `SessionDead` if nothing runs and
        nothing would be restarted.
        """
        if grace is not None:
            grace = check_seconds("grace", grace)  # also if no keeper is asked
        patience = DEFAULT_KILL_GRACE if grace is None else grace
        try:
            with self.attach() as client:
                if client.welcome is None:
                    return ForeignEnd(client, self._paths, patience).wait()
                allowed = client.ask_end(grace)
                code = client.wait_exit((patience if allowed is None else allowed) + _END_TIMEOUT)
            if code is None:
                end_survivors(self._paths, patience)
            if client.has_ended:  # it has not noted that this is for good
                wait_for_end(self._paths)
                give_up_restart(self._paths)
            return code
        except SessionDead:
            count = end_survivors(self._paths, patience)[0]
            if not give_up_restart(self._paths) and not count:
                raise
            return None


def last_lines(reader: HistoryReader | HistoryStream, count: int | None) -> list[str]:
    """Return the last lines of what a program printed; all for None."""
    with closing(open_transcript(styled=False, unwrap=True)) as transcript:
        taken = deque(transcript.take(reader.read()), maxlen=count)
        taken.extend(transcript.rest())
    return list(taken)


def answer_of(ended: Trace) -> str:
    """Return the answer of a message that has ended. Raises `MessageDead` if it was not answered."""
    if ended.stage != "acked":
        raise MessageDead(f"message {ended.id} was not answered: {ended.stage}, {ended.reason}")
    return str((ended.answer or {}).get("text") or "")


def limit_of(timeout: float | None) -> float | None:
    return None if timeout is None else check_seconds("timeout", timeout)


def message_id(message: object) -> str:
    name = check_text("message", message)
    if not 0 < len(name) <= _LONGEST_ID:
        raise wrong("message", message, "the id of a message")
    return name


def _split(name: str, folder: Path | str | None) -> tuple[str | None, str]:
    """Return the host and the rest of HOST/SESSION; None as the host for a session of this machine."""
    return split_host(name) if folder is None and isinstance(name, str) else (None, name)


def _elsewhere() -> Any:
    """Return the module for sessions of other hosts. It needs the boss, which is above this one."""
    return importlib.import_module("remuda.boss.session_elsewhere")


def _folder(folder: Path | str | None) -> Path:
    return sessions_folder() if folder is None else absolute_path("folder", folder)
