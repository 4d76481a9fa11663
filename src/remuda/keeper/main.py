"""The keeper process: claims the name, starts the program, keeps it, and cleans up behind it.

It is started by `start.py` with the specification on standard input and one descriptor to report to:
either what runs now, or why it does not. From then on nobody is needed: it has its own process session,
no terminal, and a parent that is already gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from remuda import durable
from remuda._version import __version__
from remuda.agents import find_agent
from remuda.agents.base import Agent, Launch, LaunchContext
from remuda.agents.timing import make_classifier
from remuda.errors import FolderUnusable, RemudaError, SpawnFailed
from remuda.paths import SessionPaths, private_folder
from remuda.proctree import adopt_orphans
from remuda.terminal.asciicast import Recorder
from remuda.terminal.pty import spawn
from remuda.terminal.screen import open_screen, unavailable_reason

from . import emit
from .claim import Claim
from .delivery import Delivery, Mailbox
from .hooks import HookServer
from .logfile import open_log
from .loop import make_loop
from .observe import Observation
from .operations import make_operations
from .record import SessionRecord, remove_traces
from .server import Server
from .session import Session
from .spec import SessionSpec

log = logging.getLogger("remuda.keeper")

_STARTER_PATIENCE = 5.0
_OWNER_PATIENCE = 5.0


class Report:
    """The one message to whoever started us."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        os.set_inheritable(fd, False)

    def send(self, document: dict[str, Any]) -> None:
        if self._fd >= 0:
            with contextlib.suppress(OSError):  # the starter may be gone; that is no reason to go as well
                os.write(self._fd, json.dumps(document).encode())
            os.close(self._fd)
            self._fd = -1


class Keeper:
    """Start, main loop, shut down: one session's whole life."""

    def __init__(self, spec: SessionSpec, claim: Claim) -> None:
        self._spec = spec
        self._claim = claim
        self._paths = claim.paths
        self._agent: Agent = find_agent(spec.agent)
        self._hooks = HookServer(self._on_hook)
        self._observation: Observation | None = None
        self._answers = self._agent.answers(deny_permissions=spec.deny_permissions, max_turns=spec.max_turns)
        self._mailbox: Mailbox | None = None
        self._delivery: Delivery | None = None
        self._degraded: list[str] = []
        self._record = SessionRecord(
            name=spec.name,
            agent=spec.agent,
            argv=spec.argv,
            cwd=spec.cwd,
            started_at=time.time(),
            version=__version__,
            keeper_pid=os.getpid(),
            cols=spec.cols,
            rows=spec.rows,
            conversation=self._conversation_to_resume(),
            options=spec.options(),
            variables=spec.variables,
            log_file=spec.log_file,
        )

    def _conversation_to_resume(self) -> dict[str, Any]:
        known = SessionRecord.load(self._paths.record) if self._spec.resume else None
        return dict(known.conversation) if known else {}

    # ── start ──

    async def open(self) -> tuple[Session, Server]:
        launch = await self._prepare()
        session = self._spawn(launch)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, session.kill, None, "keeper was told to end")
        try:
            return session, self._introduce(session, launch)
        except BaseException:
            await session.child.end(0.0)  # nobody would ever know of it
            raise

    def _introduce(self, session: Session, launch: Launch) -> Server:
        """Make a program that runs known: to its observer, on disk, on the socket."""
        has_screen = session.screen is not None
        observer = self._agent.observer(session.child.pid, launch.env, has_screen=has_screen)
        if observer is not None:
            self._observation = Observation(session, observer, self._conversation_changed)
            if self._mailbox is not None:
                self._delivery = Delivery(
                    session, self._mailbox, self._observation, dict(self._record.conversation)
                )
        self._claim.write_pids(os.getpid(), session.child.pid)
        self._record = replace(self._record, child_pid=session.child.pid)
        self._save_record()
        operations = make_operations(self._degraded, self._told, self._on_emitted)
        return Server(session, self._claim.listen(), operations)

    def _open_mailbox(self) -> Mailbox | None:
        if self._agent.speech is None:
            return None
        try:
            return Mailbox(self._spec, self._agent.speech, self._paths.inbox)
        except RemudaError as error:  # the session is worth more than its inbox
            if self._spec.prompt is not None:
                raise
            self._degraded.append(f"no delivery of messages: {error}")
            return None

    async def _prepare(self) -> Launch:
        spec = self._spec
        if self._agent.name in ("claude", "demo"):
            private_folder(self._paths.scratch)
            await self._hooks.open()
        script = shlex.join([sys.executable, "-I", "-S", emit.__file__, str(self._paths.socket)])
        self._mailbox = self._open_mailbox()
        may_ask = self._mailbox is not None and self._agent.takes_argument(spec.argv)
        prompt = self._mailbox.take_first() if self._mailbox is not None and may_ask else None
        context = LaunchContext(
            argv=spec.argv,
            env=spec.env,
            cwd=Path(spec.cwd),
            scratch=self._paths.scratch,
            hook_url=self._hooks.url,
            hook_token=self._hooks.token,
            emit_command="" if spec.ephemeral and prompt is not None else script,
            conversation=self._record.conversation,
            events=self._answers.events if self._answers is not None else (),
            prompt=prompt,
        )
        launch = self._agent.launch(context)
        for path, content in launch.files.items():
            durable.replace_file(path, content)
        self._degraded += launch.degraded
        return launch

    def _spawn(self, launch: Launch) -> Session:
        spec = self._spec
        if not adopt_orphans():
            self._degraded.append("orphans of the program cannot be adopted on this system")
        classifier = make_classifier(spec.classifier, spec.idle_threshold_ms, spec.debounce_ms)
        screen = open_screen(spec.cols, spec.rows)
        if screen is None:
            self._degraded.append(f"no screen model: {unavailable_reason()}")
        else:
            screen.feed(self._agent.screen_setup)
        recorder = self._open_recorder()
        pty = spawn(launch.argv, cwd=Path(spec.cwd), env=launch.env, cols=spec.cols, rows=spec.rows)
        session = Session(spec, pty, screen, classifier)
        session.recorder = recorder
        log.info("started pid %d: %s", pty.pid, shlex.join(launch.argv))
        for reason in self._degraded:
            log.warning("degraded: %s", reason)
        return session

    def _open_recorder(self) -> Recorder | None:
        spec = self._spec
        if spec.record_file is None:
            return None
        try:
            return Recorder(Path(spec.record_file), spec.cols, spec.rows, spec.name)
        except OSError as error:
            raise SpawnFailed(f"cannot record to {spec.record_file}: {error.strerror}") from error

    # ── main loop ──

    async def _on_hook(self, payload: dict[str, Any]) -> dict[str, Any] | None:
        if self._observation is not None:
            self._observation.hook(payload)
        refused = self._delivery.hook(payload) if self._delivery is not None else None
        answer = self._answers.answer(payload) if self._answers is not None else None
        if answer is not None and answer.get("continue") is False and self._delivery is not None:
            self._delivery.halt(str(answer.get("stopReason")))
        return refused or answer

    def _on_emitted(self, args: dict[str, Any]) -> None:
        """A hook that came by command: the payload, and the agent's own pid."""
        payload = args.get("payload")
        if self._observation is not None and isinstance(payload, dict):
            self._observation.hook({**payload, "claude_pid": args.get("claude_pid")})
            if self._delivery is not None:
                self._delivery.hook(payload)

    def _told(self) -> dict[str, Any]:
        """What `status` shows beside what the session itself knows."""
        delivery = self._delivery.document() if self._delivery is not None else None
        return {"conversation": self._record.conversation, "delivery": delivery}

    def _conversation_changed(self, conversation: dict[str, Any]) -> None:
        self._record = replace(self._record, conversation=conversation)
        self._save_record()

    def _save_record(self) -> None:
        try:
            self._record.save(self._paths.record)
        except OSError as error:
            log.error("cannot save the session's record: %s", error)

    # ── shut down ──

    def _release(self) -> None:
        try:
            self._claim.release()
        except OSError as error:
            log.error("cannot remove the session's files: %s", error)

    async def close(self, session: Session, server: Server, code: int, owner: Owner | None) -> None:
        log.info("%s, exit code %d", session.end_reason, code)
        self._record = self._record.ended(time.time(), code, session.end_reason)
        self._save_record()
        if self._delivery is not None:
            await self._delivery.close(f"its session ended ({session.end_reason})")
        if self._observation is not None:
            self._observation.close()
        # The name is free before anyone hears of the end: who waits for it may take it at once.
        shutil.rmtree(self._paths.scratch, ignore_errors=True)
        if self._spec.ephemeral:
            if owner is not None:
                await owner.gone(_OWNER_PATIENCE)  # it may want to read what became of its message
            remove_traces(self._paths)
        self._release()
        await server.finish(code)
        await self._hooks.close()
        session.close()


async def keep(spec: SessionSpec, claim: Claim, report: Report, lifeline: int | None) -> int:
    keeper = Keeper(spec, claim)
    try:
        session, server = await keeper.open()
    except BaseException:
        shutil.rmtree(claim.paths.scratch, ignore_errors=True)
        if spec.ephemeral:
            remove_traces(claim.paths)
        raise
    owner = None if lifeline is None else Owner(lifeline, session)
    gc.freeze()  # what is there now stays: no collection has to look at it
    report.send({"ok": True, "pid": os.getpid(), "child_pid": session.child.pid})
    code = await session.ended()
    if spec.expect_attach:
        # It may have been too quick for the one who started it to see: what it said is for them.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(server.subscribed_once.wait(), _STARTER_PATIENCE)
    await keeper.close(session, server, code, owner)
    return code


class Owner:
    """Whoever the session ends with: it holds the other end of this pipe, and closes it at the latest by its
    own end."""

    def __init__(self, lifeline: int, session: Session) -> None:
        self._lifeline = lifeline
        self._session = session
        self._closed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(lifeline, self._on_closed)

    def _on_closed(self) -> None:
        self._loop.remove_reader(self._lifeline)
        os.close(self._lifeline)
        self._closed.set()
        self._session.kill(reason="ended with its owner")

    async def gone(self, patience: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._closed.wait(), patience)


def _detach() -> None:
    """Leave the starter for good. It began a process session for us; we give up leading it as well."""
    if os.fork():
        os._exit(0)
    settle()


def settle() -> None:
    """Nothing of the starter's is used from here on: no terminal, no folder, no standard streams."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)


@contextlib.contextmanager
def _reporting(report: Report) -> Iterator[None]:
    try:
        yield
    except RemudaError as error:
        report.send({"ok": False, "code": error.code, "message": error.message, "hint": error.hint})
        raise SystemExit(error.exit_code) from error
    except Exception as error:
        log.exception("keeper failed")
        report.send({"ok": False, "code": "SPAWN_FAILED", "message": f"keeper failed: {error}", "hint": None})
        raise


def main() -> None:
    report = Report(int(sys.argv[1]))
    lifeline = int(sys.argv[3]) if len(sys.argv) > 3 else None
    if lifeline is not None:
        os.set_inheritable(lifeline, False)
    spec = SessionSpec.from_json(sys.stdin.buffer.read())
    _detach()
    sys.exit(run_keeper(spec, report, lifeline))


def run_keeper(spec: SessionSpec, report: Report, lifeline: int | None) -> int:
    """The session's whole life, in a process that is detached already. What it shall exit with."""
    with _reporting(report):
        spec.check()
        paths = SessionPaths.of(spec.name, Path(spec.folder))
        claim = Claim.take(paths)
        try:
            log_path = Path(spec.log_file) if spec.log_file else paths.log
            try:
                open_log(log_path, spec.log_level, spec.log_filter, spec.log_max_bytes)
            except OSError as error:
                raise FolderUnusable(f"cannot write the log {log_path}: {error.strerror}") from error
            with asyncio.Runner(loop_factory=make_loop) as runner:
                code = runner.run(keep(spec, claim, report, lifeline))
        finally:
            with contextlib.suppress(OSError):  # said in the log already
                claim.release()
    return code if 0 <= code <= 255 else 1
