"""The keeper's main loop: a session's life from the moment its program runs.

`process` starts the program and calls `run`. This module is loaded while the program starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.agents.attention import attention_events
from remuda.agents.events import ConversationStarted, Report
from remuda.agents.permission import PermissionDecision, PermissionRequest
from remuda.agents.timing import make_classifier
from remuda.agents.unattended import DenyPermission, Halt, Unattended
from remuda.errors import NotSafe, RemudaError
from remuda.frozen import replaced
from remuda.proctree import start_ticks
from remuda.terminal.screen import open_screen, unavailable_reason

from .asks import Asks, CallDecision, decide_call, refusals_of
from .begin import begin
from .claim import Claim
from .cleanliness import Cleanliness, left_running
from .delivery import Delivery
from .hooks import AgentProcessFilter, Answer, HookServer
from .observe import Observation
from .operations import (
    make_ask_operations,
    make_operations,
    make_sleep_operations,
    make_turn_operations,
)
from .owner import LentTrust, OwnerNotifier, OwnerWatch
from .prepare import Prepared
from .process import StartReport
from .record import remove_traces
from .restart import SETTLED_AFTER, STARTER_GAVE_UP
from .server import Operation, SessionServer
from .session import Session
from .sleep import SleepLook
from .sleeper import Sleeper
from .spec import SessionSpec

if TYPE_CHECKING:
    from remuda.agents.base import HookChannel, Resumption

    from .call import CallLink

log = logging.getLogger("remuda.keeper")

_LINUX = sys.platform.startswith("linux")

_STARTER_PATIENCE = 5.0
_OWNER_PATIENCE = 5.0


class Keeper:
    """One session: start, main loop, shut down."""

    def __init__(self, spec: SessionSpec, claim: Claim, prepared: Prepared) -> None:
        self._spec = spec
        self._claim = claim
        self._paths = claim.paths
        self._begun = begun = prepared.begun
        self._recorder = prepared.recorder
        self._agent = begun.agent
        self._channel = begun.agent.hooks
        self._unattended = Unattended(
            deny_permissions=spec.deny_permissions, max_turns=spec.max_turns, first_only=spec.once
        )
        self._mailbox = prepared.mailbox
        self._degraded = prepared.degraded
        self._hooks = HookServer(self._on_hook, begun.listener, begun.token)
        self._processes = AgentProcessFilter()
        self._session_kept: Session | None = None
        self._observation: Observation | None = None
        self._delivery: Delivery | None = None
        self._cleanliness: Cleanliness | None = None
        self._asks: Asks | None = None
        self._news: OwnerNotifier | None = None
        self._link: CallLink | None = None
        self._resumption: Resumption | None = None
        self._sleeper: Sleeper | None = None
        self._why_never = "it takes no messages"
        """Why this session cannot sleep, if it cannot."""
        self._server: SessionServer | None = None
        self._was_woken = False
        self._is_program = False
        """Whether the agent is the program that was started, and not a child of a wrapper."""
        self._permission_mode = self._model = ""
        """The mode that the agent was in when it fell asleep."""
        self._permissions: list[Mapping[str, Any]] = []
        """What was allowed for its conversation, in the agent's own words."""
        self._file = prepared.file

    # ── start ──

    async def open(self) -> tuple[Session, SessionServer]:
        try:
            session = self._session()
        except BaseException:
            self._begun.abandon()
            raise
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, session.kill, None, "the keeper was asked to end")
        try:
            server = self._introduce(session)
            loop.add_signal_handler(signal.SIGHUP, self._put_files_back, server)
            self._hooks.open()
            return session, server
        except BaseException:
            await session.child.end(0.0)  # no client could ever find it
            raise

    def _introduce(self, session: Session) -> SessionServer:
        """Connect a running program to its observer, and make it known on disk and on the socket."""
        self._session_kept = session
        session.on_kill = self._note_kill
        if self._spec.restart != "never":
            asyncio.get_running_loop().call_later(SETTLED_AFTER, partial(self._file.note, settled=True))
        self._observe(session)
        self._note_program(session)
        if self._link is not None:
            self._link.start()
        operations = make_operations(
            self._degraded_now, self._delivery_status, self._on_emitted, self._more_operations()
        )
        self._server = SessionServer(session, self._claim.listen(), operations)
        return self._server

    def _observe(self, session: Session) -> None:
        """Connect a program to what reads it: at the start, and after each sleep."""
        has_screen = session.screen is not None
        observer = self._agent.observer(session.child.pid, self._begun.launch.env, has_screen=has_screen)
        spec = self._spec
        if observer is None:
            self._why_never = "it runs a plain command"
            return
        observation = self._observation = Observation(
            session, observer, lambda conversation: self._file.note(conversation=conversation)
        )
        self._link = self._make_link(session, observation)
        self._listen_for_asks(session)
        if self._mailbox is not None:
            self._make_sleeper(session, observation)
            settings = list(self._begun.launch.files)
            if self._delivery is None:
                trust = self._agent.trust_record(spec.env, spec.cwd)
                self._delivery = Delivery(
                    session,
                    self._mailbox,
                    observation,
                    dict(self._file.record.conversation),
                    self._last_word(),
                    LentTrust(trust, spec.name, lends=spec.forget_trust),
                    hooks_expected=self._hooks_expected,
                    settings=settings,
                    caller=self._link,
                    waker=self._sleeper,
                )
            else:
                expected = self._hooks_expected
                self._delivery.woken(observation, hooks_expected=expected, settings=settings)
            self._cleanliness = Cleanliness(session, observer, observation.progress, self._mailbox.prompts)

    def _make_sleeper(self, session: Session, observation: Observation) -> None:
        """Let the session sleep, if its agent can be brought back as it was."""
        spec = self._spec
        # Agents of other packages may not know such a name.
        make = getattr(self._agent, "resumption", None)
        self._resumption = make(spec.argv, spec.env, Path(spec.cwd)) if make is not None else None
        if self._resumption is None:
            self._why_never = f"{self._agent.name} cannot be brought back as it was"
        elif spec.ephemeral or spec.once or spec.owned:
            self._why_never = "it belongs to a program"
        elif not session.has_screen:
            self._why_never = "it has no screen model, so its composer cannot be seen"
        else:
            observation.report_listeners.append(self._resumption.take)
            if self._sleeper is None:
                takes_argument = self._agent.takes_argument(spec.argv)
                self._sleeper = Sleeper(session, self, spec.sleep_after, takes_argument=takes_argument)
            observation.listeners.append(self._sleeper.nudge)
            session.child.on_reaped = self._sleeper.nudge

    def _note_program(self, session: Session) -> None:
        """Make the running program known on disk."""
        companion = self._begun.companion
        self._claim.write_pids(os.getpid(), session.child.pid)
        self._file.note(
            child_pid=session.child.pid,
            child_started=start_ticks(session.child.pid) or "",
            companion_pid=companion.pid if companion is not None else 0,
            companion_started=companion.started if companion is not None else "",
            terminal=self._begun.pty.terminal,
            terminal_made=self._begun.pty.terminal_made,
            asleep=False,
        )

    def _make_link(self, session: Session, observation: Observation) -> CallLink | None:
        """Return the call channel; None for an agent that is not called.

        A resumed agent joins its old conversation, which is known before its first report.
        """
        prompts, begun = self._agent.prompts, self._begun
        if prompts is None or prompts.transport.kind != "call":
            return None
        assert begun.address is not None
        assert begun.companion is not None
        from .call import CallLink

        return CallLink(
            prompts.transport,
            begun.address,
            begun.companion,
            self._on_call,
            self._link_changed,
            lambda: observation.conversation or self._file.record.conversation,
            lambda: session.is_ending,
        )

    def _link_changed(self) -> None:
        """Note a server that was started again, and look again at everything."""
        companion = self._begun.companion
        if companion is not None and companion.pid != self._file.record.companion_pid:
            self._file.note(companion_pid=companion.pid, companion_started=companion.started)
        if self._observation is not None:
            self._observation.look_again()

    def _listen_for_asks(self, session: Session) -> None:
        if not self._spec.asks or self._observation is None:
            return
        refusals = partial(refusals_of, self._agent)
        if self._link is not None:
            decide = partial(decide_call, self._link, refusals)
            self._asks = Asks(decide, session.tell_whole, time.time, refusals)
        elif self._channel is not None:
            self._asks = Asks(self._hook_decision, session.tell_whole, time.time, refusals)
            self._observation.report_listeners.append(self._asks.take)

    def _hook_decision(self, request: PermissionRequest, decision: PermissionDecision) -> dict[str, Any]:
        assert self._channel is not None
        answer = self._channel.decide(request, decision)
        if self._resumption is not None:
            self._permissions += self._resumption.decided(request, answer)
        return answer

    def _last_word(self) -> Callable[[], bool]:
        """Return the check whether a stop is final.

        The check reads files. With `once` it does so only after the first answer.
        """
        spec = self._spec
        make = partial(self._agent.last_word, spec.argv, spec.env, Path(spec.cwd))
        if not spec.once:
            return make()
        made = cache(make)
        return lambda: made()()

    def _more_operations(self) -> dict[str, Operation]:
        sleep = make_sleep_operations(self._sleeper, self._why_never)
        if self._delivery is None or self._cleanliness is None:
            return {**sleep, **make_ask_operations(self._asks)}
        return {**sleep, **make_turn_operations(self._delivery, self._cleanliness, self._asks)}

    def _session(self) -> Session:
        spec = self._spec
        classifier = make_classifier(spec.classifier, spec.idle_threshold_ms, spec.debounce_ms)
        screen = open_screen(spec.cols, spec.rows)
        if screen is None:
            self._degraded.append(f"no screen model: {unavailable_reason()}")
        else:
            screen.feed(self._agent.screen_setup)
        session = Session(spec, self._begun.pty, screen, classifier)
        session.recorder = self._recorder
        try:
            session.keep_history(self._paths)
        except OSError as error:
            self._degraded.append(f"no history: {error.strerror}")
        for reason in self._degraded:
            log.warning("degraded: %s", reason)
        return session

    # ── main loop ──

    def _on_hook(self, payload: dict[str, Any]) -> Answer | asyncio.Future[Answer]:
        """Parse a payload, pass the report to all reducers, and return the answer to the hook."""
        channel, now = self._channel, time.time()
        assert channel is not None
        if self._is_asleep:
            return None  # the last hooks of an agent that was ended: its conversation goes on
        report = self._processes.attributed(channel.read(payload, now))
        if self._resumption is not None:
            self._resumption.take(report)
        if self._observation is not None:
            self._observation.take_hook(report)
        refused = self._delivery.take(report) if self._delivery is not None else None
        if self._cleanliness is not None:
            self._cleanliness.hook()
        answer = self._unattended_answer(channel, report)
        asked = self._asks.take(report) if self._asks is not None else None
        self._tell_report(report, payload, now, asked=asked is not None)
        return (channel.refuse_prompt(refused) if refused else None) or answer or asked

    def _on_call(self, report: Report) -> None:
        """Pass a report of the call channel to all reducers. Its requests are answered by calls."""
        assert self._link is not None
        if self._observation is not None:
            self._observation.take_hook(report)
        if self._delivery is not None:
            self._delivery.take(report)
        if self._cleanliness is not None:
            self._cleanliness.hook()
        asked = self._asks.take(report) if self._asks is not None else None
        if asked is not None:
            asked.add_done_callback(self._send_decision)
        match self._unattended.take(report):
            case DenyPermission(message):
                self._link.deny(report, message)
            case Halt(reason):
                self._halt(reason)
                self._link.interrupt(None)
        self._tell_report(report, None, time.time(), asked=asked is not None)

    def _send_decision(self, asked: asyncio.Future[Any]) -> None:
        if self._link is not None and not asked.cancelled() and isinstance(asked.result(), CallDecision):
            self._link.decide(asked.result().request, asked.result().decision)

    def _unattended_answer(self, channel: HookChannel, report: Report) -> Answer:
        match self._unattended.take(report):
            case DenyPermission(message):
                request = PermissionRequest("", {})
                return channel.decide(request, PermissionDecision(allow=False, message=message))
            case Halt(reason):
                self._halt(reason)
                return channel.halt(reason)
        return None

    def _halt(self, reason: str) -> None:
        if self._delivery is not None:
            self._delivery.halt(reason)

    def _tell_report(
        self, report: Report, payload: dict[str, Any] | None, at: float, *, asked: bool = False
    ) -> None:
        """Report to bosses. A request that clients may decide has its own event, which says more."""
        session = self._session_kept
        if session is None:
            return
        if payload is not None:
            session.tell_hook(report.name, payload, at)
        if self._was_woken and any(isinstance(event, ConversationStarted) for event in report.events):
            report = replaced(report, events=())  # to a boss, the conversation went on
        if session.has_event_listeners and not asked:
            event_id = f"hook:{self._spec.name}:{report.name}:{at}"
            for event in attention_events(report, at, agent=self._agent.name, id=event_id):
                session.tell_agent_event(event)

    def _on_emitted(self, args: dict[str, Any]) -> None:
        """Take a hook that ran as a command."""
        report = self._channel.read_emitted(args) if self._channel is not None else None
        if report is None or self._is_asleep or self._processes.starts_another(report):
            return
        if self._resumption is not None:
            self._resumption.take(report)
        if self._observation is not None:
            self._observation.take_hook(report)
            if self._delivery is not None:
                self._delivery.take(report)
            more = {name: value for name, value in args.items() if name != "payload"}
            self._tell_report(report, {**args["payload"], **more}, time.time())

    def _delivery_status(self) -> dict[str, Any]:
        """Return what `status` shows in addition to the session's own facts."""
        delivery = self._delivery.document() if self._delivery is not None else None
        return {
            "conversation": self._file.record.conversation,
            "delivery": delivery,
            "last_message": self._delivery.last_message if self._delivery is not None else "",
            "hooks": self._delivery is not None and self._delivery.health.hooked,
            "hooks_expected": self._hooks_expected,
            "sleep": self._sleep_document(),
        }

    @property
    def _hooks_expected(self) -> bool:
        reports = self._begun.listener is not None or self._link is not None
        return reports and not self._begun.launch.degraded

    def _degraded_now(self) -> list[str]:
        return [*self._degraded, *(self._delivery.health.reasons() if self._delivery is not None else ())]

    def _note_kill(self) -> None:
        """Save that a user wants the end, first of all: if everything is killed now, nothing restarts it."""
        if self._spec.restart != "never" and not self._file.record.killed:
            self._file.note(killed=True)

    def _put_files_back(self, server: SessionServer) -> None:
        """Restore the session's files: they were removed, and a client looks for them."""
        try:
            listener = self._claim.restore()
        except (OSError, RemudaError) as error:
            log.error("cannot put the session's files back: %s", error)
            return
        if listener is not None:
            log.warning("the session's files had been removed, and are back")
            server.listen_on(listener)
            self._file.save()

    def is_delivering(self) -> bool:
        return self._delivery is not None and self._delivery.document()["in_flight"] is not None

    def tell_news(self, session: Session, fd: int) -> None:
        self._news = OwnerNotifier(fd, session, self._observation)

    # ── sleep ──

    @property
    def _is_asleep(self) -> bool:
        return self._session_kept is not None and self._session_kept.is_asleep

    def _sleep_document(self) -> dict[str, Any] | None:
        if self._sleeper is not None:
            return self._sleeper.document()
        return {"after": self._spec.sleep_after or None, "phase": "awake", "awake_because": self._why_never}

    def sleep_look(self) -> SleepLook:
        session, resumption = self._sleeping_parts()
        assert self._mailbox is not None
        assert self._delivery is not None
        assert self._server is not None
        prompts, evidence, screen = self._mailbox.prompts, session.evidence, session.screen
        lines = screen.lines() if screen is not None else []
        asks = self._asks.document() if self._asks is not None else []
        composer = None
        if screen is not None:
            composer = prompts.composer(lines, lambda y: screen.styled_row(y, screen.cols))
        return SleepLook(
            state=evidence.verdict.state,
            agreed=not evidence.dissent() and not evidence.is_guess,
            composer=composer,
            dialog=prompts.dialog(lines),
            clients=self._server.watcher_count,
            message=self._delivery.waits or ("a permission request is open" if asks else ""),
            processes=left_running(session.child.pid),
            losses=resumption.losses(lines),
            unresumable=self._why_unresumable(resumption),
        )

    def _sleeping_parts(self) -> tuple[Session, Resumption]:
        assert self._session_kept is not None
        assert self._resumption is not None
        return self._session_kept, self._resumption

    def _why_unresumable(self, resumption: Resumption) -> str:
        try:
            resumption.check(self._file.record.conversation)
        except NotSafe as error:
            return error.message
        return ""

    def note_sleep(self) -> None:
        session, resumption = self._sleeping_parts()
        lines = session.screen.lines() if session.screen is not None else []
        self._permission_mode = resumption.permission_mode(lines) or ""
        self._model = resumption.model or self._model  # also what was chosen before an earlier sleep
        self._file.note(asleep=True)

    async def forget_program(self) -> None:
        if self._observation is not None:
            self._observation.close()
        if self._asks is not None:
            self._asks.close()
        if self._delivery is not None:
            self._delivery.health.close()
        await self._hooks.close()
        import shutil  # slow to load

        shutil.rmtree(self._paths.scratch, ignore_errors=True)
        self._file.note(asleep=True, child_pid=0, child_started="", terminal="")
        try:
            self._claim.write_pids(os.getpid(), 0)
        except OSError as error:
            log.error("cannot note that the session is asleep: %s", error)
        gc.collect()

    def begin_program(self, prompt: str | None) -> None:
        session, resumption = self._sleeping_parts()
        resumption.check(self._file.record.conversation)
        cols, rows = session.size
        spec = replaced(self._spec, cols=cols, rows=rows)
        is_program = self._processes.is_program(session.child.pid)
        self._is_program = self._is_program if is_program is None else is_program
        # Without a prompt, its report says that it is ready.
        is_known = self._is_program and prompt is not None
        conversation, mode = self._file.record.conversation, self._permission_mode
        begun = begin(
            spec,
            self._paths,
            prompt,
            conversation,
            mode,
            self._permissions,
            model=self._model,
            is_known=is_known,
        )
        log.info("started pid %d: %s", begun.pty.pid, shlex.join(begun.launch.argv))
        self._begun, self._was_woken = begun, True
        try:
            session.begin_again(begun.pty, self._agent.screen_setup)
            self._processes = AgentProcessFilter()
            self._hooks = HookServer(self._on_hook, begun.listener, begun.token)
            self._hooks.open()
            self._observe(session)
            if self._server is not None:
                self._server.operations.update(self._more_operations())
            self._note_program(session)
        except BaseException:
            session.child.close()
            begun.abandon()
            raise

    def not_woken(self, why: str) -> None:
        if self._delivery is not None:
            self._delivery.not_woken(why)

    # ── shut down ──

    def _release(self) -> None:
        try:
            self._claim.release()
        except OSError as error:
            log.error("cannot remove the session's files: %s", error)

    async def close(
        self, session: Session, server: SessionServer, code: int, owner: OwnerWatch | None
    ) -> None:
        log.info("%s, exit code %d", session.end_reason, code)
        if session.history_file is not None:
            session.history_file.close()
        self._file.note(
            ended_at=time.time(), exit_code=code, end_reason=session.end_reason, came_up=session.came_up
        )
        if self._asks is not None:
            self._asks.close()
        if self._delivery is not None:
            await self._delivery.close(f"its session ended ({session.end_reason})")
        if self._link is not None:
            await self._link.aclose()
        if self._sleeper is not None:
            self._sleeper.close()
        if self._news is not None:
            self._news()
        if self._observation is not None:
            self._observation.close()
        import shutil  # slow to load

        # Free the name before the end is reported: a client that waits for the end may reuse it at once.
        shutil.rmtree(self._paths.scratch, ignore_errors=True)
        if self._spec.ephemeral:
            if owner is not None:
                await owner.gone(_OWNER_PATIENCE)  # it may want to read the receipt of its message
            remove_traces(self._paths)
        self._release()
        await server.finish(code)
        await self._hooks.close()
        session.close()


def make_loop() -> asyncio.AbstractEventLoop:
    """Return our own loop on Linux, where it makes an echo faster, else asyncio's."""
    if _LINUX:
        from .loop import KeeperLoop

        return KeeperLoop()
    return asyncio.new_event_loop()


def run(
    spec: SessionSpec, claim: Claim, prepared: Prepared, report: StartReport, lifeline: int | None
) -> int:
    """Run until the program ends. Returns its exit code."""
    with asyncio.Runner(loop_factory=make_loop) as runner:
        return runner.run(keep(spec, claim, prepared, report, lifeline))


async def keep(
    spec: SessionSpec, claim: Claim, prepared: Prepared, report: StartReport, lifeline: int | None
) -> int:
    keeper = Keeper(spec, claim, prepared)
    session, server = await keeper.open()
    owner = None if lifeline is None else OwnerWatch(lifeline, session.kill, keeper.is_delivering)
    gc.freeze()  # these objects stay: no collection has to visit them
    started = {"ok": True, "pid": os.getpid(), "child_pid": session.child.pid}
    is_wanted = report.is_wanted()
    if not is_wanted:  # the report stays open: the starter waits for our end
        session.kill(0.0, STARTER_GAVE_UP)
    elif spec.once:
        keeper.tell_news(session, report.send_first(started))
    else:
        report.send(started)
    code = await session.ended()
    if is_wanted and spec.expect_attach:
        # It may have ended before its starter could attach: the starter should see its output.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(server.subscribed_once.wait(), _STARTER_PATIENCE)
    await keeper.close(session, server, code, owner)
    return code
