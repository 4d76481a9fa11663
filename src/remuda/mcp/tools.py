"""What each tool does. Every call is checked, paced and written to the ledger.

A session that the caller does not reach is answered exactly as one that does not exist.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remuda.agents import DEFAULT_AGENT, find_agent, find_sources
from remuda.agents.state import WAITING
from remuda.boss.answers.permission_policy import load_policy, policy_file
from remuda.boss.answers.policy_request import make_request
from remuda.boss.api import Approval, Boss, WaitingItem
from remuda.boss.attention.model import Reason
from remuda.boss.client import BossClient
from remuda.boss.conversation_page import read_page
from remuda.boss.elsewhere import must_have
from remuda.boss.folder import BossFolder
from remuda.boss.http.schema import check
from remuda.config import load_config
from remuda.errors import (
    BossDown,
    FolderUnusable,
    InvalidOptions,
    NotInQueue,
    NotSafe,
    PermissionRefused,
    RemudaError,
    SessionDead,
    SessionExists,
    SessionNotFound,
)
from remuda.inbox.message import check_prompt, new_id
from remuda.keeper.compose import compose
from remuda.keeper.elsewhere import split_host
from remuda.keeper.hidden import is_alive
from remuda.keeper.record import SessionRecord
from remuda.keeper.start import start_session
from remuda.names import is_name
from remuda.paths import SessionPaths, known_names, sessions_folder
from remuda.pool.remote import RemoteClient
from remuda.session import Session
from remuda.tasks import Check, in_thread
from remuda.turns.holds import Holds, holds_file
from remuda.untrusted import bounded, one_line, printable

from .caller import caller_of, chain_of, find_session, root_of
from .documents import (
    ANSWER_CHARACTERS,
    LINE_CHARACTERS,
    Document,
    document_elsewhere,
    shown_lines,
    waiting_elsewhere,
    with_sender,
)
from .ledger import count_tokens, only_one, record_call, used_messages
from .message_tools import MessageTools
from .reach import Reach
from .rights import Caller, caller_with, names_for, why_not_folder, why_not_start
from .tool_list import MOST_WAIT, TOOLS

log = logging.getLogger("remuda.mcp")

_TRANSCRIPT_ENTRIES = 200
MOST_AT_ONCE = 32
BURST, PER_SECOND = 300, 50.0


@dataclass(slots=True)
class Pace:
    """Limits the calls of one client: how many at once, and how many a second."""

    clock: Callable[[], float] = time.monotonic
    running: int = 0
    _room: float = BURST
    _at: float = field(default=-1.0)

    def enter(self) -> None:
        """Raises `NotSafe` for a call too many. `leave` must follow each that was let in."""
        now = self.clock()
        if self._at >= 0:
            self._room = min(BURST, self._room + (now - self._at) * PER_SECOND)
        self._at = now
        if self.running >= MOST_AT_ONCE:
            raise NotSafe(f"{self.running} calls run already", hint="wait until one has ended")
        if self._room < 1:
            raise NotSafe("too many calls", hint="wait a second, and use wait instead of asking again")
        self._room -= 1
        self.running += 1

    def leave(self) -> None:
        self.running -= 1


class AgentTools:
    """The tools for one agent. `caller` is called once, at the first call of a tool."""

    def __init__(self, caller: Callable[[], Caller], pace: Pace | None = None) -> None:
        self._reach = Reach(caller)
        self._pace = pace or Pace()
        self._messages = MessageTools(self._reach)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Document:
        """Use a tool, and return its result. Raises `RemudaError`, in words for the model."""
        return await self._recorded(name, arguments, lambda: self._call(name, arguments))

    async def _call(self, name: str, arguments: Mapping[str, Any]) -> Document:
        tool = TOOLS.get(name)
        if tool is None:
            raise InvalidOptions(
                f"no tool {one_line(name)[:80]!r}", hint=f"the tools are: {', '.join(TOOLS)}"
            )
        check(dict(arguments), tool.schema, "arguments")
        if name == "run":
            return await self._run(**arguments)
        function = self._messages.tools.get(name) or getattr(self, f"_{name}")
        return await in_thread(lambda check: function(check, **arguments))

    async def read(self, session: str, *, transcript: bool = False) -> Document:
        """Return the state of a session, or the last entries of its conversation. Raises as `call`."""
        read = self._transcript if transcript else self._show
        name = "read transcript" if transcript else "read session"
        return await self._recorded(name, {"session": session}, lambda: in_thread(lambda _: read(session)))

    async def _recorded(
        self, name: str, arguments: Mapping[str, Any], call: Callable[[], Awaitable[Document]]
    ) -> Document:
        self._pace.enter()  # what is refused here is not recorded: a flood would push all else out
        outcome = "INTERNAL_ERROR"
        facts: Document = {
            key: arguments.get(key) for key in ("session", "message", "request", "in_reply_to")
        }
        try:
            result = await call()
            outcome = "ok"
            facts |= {key: result.get(key, facts.get(key)) for key in ("session", "message")}
            return bounded(result)  # type: ignore[no-any-return]
        except RemudaError as error:
            outcome = error.code
            raise
        except OSError as error:
            outcome = FolderUnusable.code
            raise FolderUnusable(f"{error.filename or 'a file'}: {error.strerror or error}") from error
        finally:
            self._pace.leave()
            try:
                record_call(self._reach.caller.id, one_line(name)[:80], outcome, **facts)
            except (OSError, RemudaError) as error:  # what was done is done: the agent must hear of it
                log.error("cannot write the ledger: %s", error)

    # ── looking ──

    def _whoami(self, _check: Check) -> Document:
        caller, limits, root = self._reach.caller, self._reach.limits(), root_of(self._reach.caller)
        rights, tokens = self._reach.rights(), self._reach.output_tokens()
        record = find_session(caller.id)
        above = chain_of(record) if record is not None else []
        return {
            "you": caller.label,
            "session": caller.name if caller.kind == "session" else None,
            "folder": caller.folder,
            "depth": caller.depth,
            "started_by": caller_with(above[0]).label if above else "the user",
            "also_reach": [
                {"sessions": list(one.reach), "may": list(one.may)}
                for one in rights.grants
                if one.reach and one.is_for(caller)
            ],
            "limits": {
                "max_depth": limits.max_depth,
                "max_sessions": limits.max_sessions,
                "max_messages": limits.max_messages,
                "max_output_tokens": limits.max_output_tokens or None,
                "agents": list(limits.agents) or None,
                "folders": [one for one in (caller.folder, *limits.folders) if one],
            },
            "used": {
                "sessions": len(self._reach.tree()),
                "messages": used_messages(root),
                "output_tokens": tokens if tokens is not None else "not known",
            },
        }

    def _list_agents(self, _check: Check, ended: bool = False) -> Document:
        agents = [self._agent_document(one) for one in self._reach.sessions(ended=ended)]
        try:
            there = self._reach.elsewhere()
        except RemudaError as error:
            return {"agents": agents, "note": f"sessions of other hosts are not listed: {error}"}
        shown = [document_elsewhere(one) for one in there if ended or not one["session"]["ended"]]
        return {"agents": [*agents, *shown]}

    def _agent_document(self, record: SessionRecord) -> Document:
        state, detail = "dead", record.end_reason or ""
        paths = SessionPaths(sessions_folder(), record.name)
        if is_alive(paths):
            try:
                status = Session(record.name, folder=paths.folder).status()
                state, detail = str(status.get("state")), str(status.get("detail") or "")
            except RemudaError as error:
                state, detail = "unreachable", error.message
        started_by = chain_of(record)[:1]
        return {
            "session": record.name,
            "agent": record.agent,
            "state": state,
            "detail": one_line(detail)[:LINE_CHARACTERS],
            "folder": record.cwd,
            "started_by": caller_with(started_by[0]).label if started_by else "the user",
            "needs_human": state in WAITING,
        }

    def _screen(self, _check: Check, session: str) -> Document:
        reached = self._reach.find(session, "read")
        return {"session": session, "lines": shown_lines(reached.session.screen())}

    def _history(self, _check: Check, session: str, lines: float = 100) -> Document:
        reached = self._reach.find(session, "read")
        return {"session": session, "lines": shown_lines(reached.session.history(int(lines)))}

    def _show(self, session: str) -> Document:
        reached = self._reach.find(session, "read")
        if reached.record is not None:
            return self._agent_document(reached.record)
        for one in self._reach.elsewhere():
            if f"{one['host']}/{one['session']['name']}" == reached.session.name:
                return document_elsewhere(one)
        raise SessionNotFound(f"session '{reached.session.name}' not found")

    def _transcript(self, session: str) -> Document:
        reached = self._reach.find(session, "read")
        record = reached.record
        if record is None:
            return _transcript_elsewhere(session)
        sources = find_sources(record.agent)
        reader = sources.conversations if sources is not None else None
        path = record.conversation.get("transcript_path")
        conversation = record.conversation.get("session_id")
        if reader is None or not isinstance(path, str) or not isinstance(conversation, str):
            return {"session": session, "entries": [], "note": "no conversation of this agent is recorded"}
        try:
            page = read_page(reader, path, conversation, _TRANSCRIPT_ENTRIES, before=None, after=None)
        except OSError as error:
            return {
                "session": session,
                "entries": [],
                "note": f"the transcript cannot be read: {error.strerror}",
            }
        return {"session": session, "entries": page.entries, "is_whole": page.before is None}

    # ── starting and ending ──

    def _start(
        self,
        check: Check,
        name: str = "agent",
        agent: str | None = None,
        cwd: str | None = None,
        prompt: str | None = None,
    ) -> Document:
        if "/" in name:
            raise PermissionRefused(
                "agents are started on this machine only: no other host keeps the limits of mcp.toml here",
                hint="give a name without a host",
            )
        caller, limits = self._reach.caller, self._reach.limits()
        agent = agent or self._own_agent()
        if (prompts := find_agent(agent).prompts) is None:
            raise InvalidOptions(f"agent '{agent}' takes no messages", hint="use claude, for example")
        folder = self._folder(cwd)
        if prompt is not None:  # before anything is started
            whole = with_sender(caller, new_id(time.time()), prompt)
            check_prompt(whole)
            prompts.check(whole, command=False, literal=False)
        with only_one(check):
            if why := why_not_start(limits, caller, agent, folder, len(self._reach.tree()), os.path.realpath):
                raise PermissionRefused(why[0], hint=why[1])
            full = self._free_name(name)
            if prompt is not None:
                self._reach.spend_message()
            said = {"agent": agent, "cwd": folder, "started_by": caller.id, "depth": caller.depth + 1}
            config = load_config(None, Path(folder), os.environ)
            start_session(compose(full, (), sessions_folder(), said, config).spec)
        result: Document = {"session": full, "agent": agent, "folder": folder}
        if prompt is not None:
            try:
                result["message"] = self._messages.put(Session(full, folder=sessions_folder()), prompt)
            except RemudaError as error:
                error.hint = f"the session '{full}' runs: send it the prompt again, or kill it"
                raise
        return result

    def _folder(self, cwd: str | None) -> str:
        folder = os.path.normpath(os.path.join(self._reach.caller.folder, os.path.expanduser(cwd or "")))
        if not os.path.isdir(folder):
            raise InvalidOptions(f"{folder} is not a folder", hint="give an absolute path in cwd")
        return folder

    def _own_agent(self) -> str:
        record = find_session(self._reach.caller.id)
        return record.agent if record is not None and find_agent(record.agent).prompts else DEFAULT_AGENT

    def _free_name(self, wanted: str) -> str:
        """Return a name that no session has or had. Those of others' sessions are passed over silently."""
        folder, known, rights = sessions_folder(), known_names(sessions_folder()), self._reach.rights()
        for name in names_for(self._reach.caller, wanted):
            paths = SessionPaths(folder, name)
            if name not in known and not paths.inbox.exists():
                return name
            record = SessionRecord.load(paths.record)
            if record is not None and self._reach.may("kill", record, rights):
                raise SessionExists(
                    f"you have a session '{name}'" + ("" if is_alive(paths) else ", which has ended"),
                    hint="give another name, or send it a message if it runs",
                )
        raise SessionExists(f"too many sessions are called '{wanted}'", hint="give another name")

    def _kill(self, _check: Check, session: str) -> Document:
        reached = self._reach.find(session, "kill")
        assert reached.record is not None  # no agent started one of another host
        result: Document = {"session": session, "killed": True}
        try:
            result["exit_code"] = reached.session.kill()
        except SessionDead:
            result |= {"killed": False, "note": "it had ended before"}
        # After it, so that it starts no more while others end.
        below, also = caller_of(reached.record).id, []
        for record in self._reach.records():
            paths = SessionPaths(sessions_folder(), record.name)
            if below in chain_of(record) and is_alive(paths):
                with suppress(SessionDead):
                    Session(record.name, folder=paths.folder).kill()
                    also.append(record.name)
        return {**result, "also_killed": also}

    # ── the pool ──

    async def _run(
        self,
        prompt: str,
        cwd: str | None = None,
        model: str | None = None,
        timeout: float = MOST_WAIT,  # noqa: ASYNC109  # the pool ends the request
    ) -> Document:
        caller, limits = self._reach.caller, self._reach.limits()
        folder = self._folder(cwd)
        if why := why_not_folder(limits, caller, folder, os.path.realpath):
            raise PermissionRefused(why[0], hint=why[1])
        session = caller.name if caller.kind == "session" else ""
        if held := Holds(holds_file(), session, folder).reason(None, time.time()):
            raise PermissionRefused(held, hint="tell the user: 'remuda budget' lists the limits")
        await in_thread(lambda _: self._reach.spend_message())
        async with RemoteClient() as pool:
            result = await pool.run(prompt, cwd=folder, model=model, timeout=timeout, permissions="deny")
            if (usage := (await pool.complete(result)).usage) is not None:
                try:
                    count_tokens(root_of(caller), usage.output_tokens)
                except OSError as error:  # the agent must get the answer that was paid for
                    log.warning("cannot count the tokens of a pool request: %s", error)
        return {
            "answer": printable(result.text)[:ANSWER_CHARACTERS],
            "model": result.model,
            "denied_tools": [str(one.get("tool_name")) for one in result.permission_denials][:20],
            "seconds": round(result.duration, 3),
        }

    # ── what waits for a human ──

    def _queue(self, _check: Check) -> Document:
        own = {one.name for one in self._reach.sessions(ended=True)}
        try:
            items = Boss().queue(hidden=True)
            requests = Boss().permissions(limit=1000)
        except BossDown:
            waiting = [
                one
                for one in map(self._agent_document, self._reach.sessions(ended=False))
                if one["needs_human"]
            ]
            return {
                "waiting": waiting,
                "note": "the boss is not running: only permissions and questions show",
            }
        waiting = [
            self._waiting_document(one, [each for each in requests if each.session_id == one.session_id])
            for one in items
            if one.session is not None and one.session.get("name") in own
        ]
        try:
            return {"waiting": [*waiting, *filter(None, map(waiting_elsewhere, self._reach.elsewhere()))]}
        except RemudaError as error:
            return {"waiting": waiting, "note": f"sessions of other hosts are not listed: {error}"}

    def _waiting_document(self, item: WaitingItem, requests: list[Approval]) -> Document:
        assert item.session is not None
        name = str(item.session["name"])
        return {
            "session": name,
            "reason": item.reason,
            "since": item.since,
            "message": printable(item.message)[: 4 * LINE_CHARACTERS],
            "requests": [
                {"request": one.id, "tool": one.tool, "may_answer": self._lets(one, name)} for one in requests
            ],
        }

    def _lets(self, request: Approval, session: str) -> bool:
        """Whether a rule of the policy names the caller for this request."""
        record = SessionRecord.load(SessionPaths(sessions_folder(), session).record)
        if record is None or request.detail.get("hearsay") or request.reason == Reason.BUDGET:
            return False
        policy = load_policy(policy_file(BossFolder.default(), os.environ))
        cwd = request.detail.get("cwd") or record.cwd
        wanted = make_request(
            request.tool,
            Reason(request.reason),
            request.input,
            (request.session_id, session),
            cwd if isinstance(cwd, str) else None,
            policy.command_tools,
            agent=record.agent,
        )
        return policy.lets(self._reach.caller.label, wanted)

    def _answer_permission(self, _check: Check, request: str, decision: str, reason: str = "") -> Document:
        if reason and decision == "allow":
            raise InvalidOptions("reason needs decision=deny")
        boss = Boss()
        found = next((one for one in boss.permissions(limit=1000) if one.id == request), None)
        session = "" if found is None else self._session_with(found.session_id)
        if found is None or session is None:
            raise NotInQueue(
                f"no open request {one_line(request)[:80]!r} of an agent that you started",
                hint="queue lists them",
            )
        if not self._lets(found, session):
            raise PermissionRefused(
                "only the user can decide this request",
                hint=f"tell the user: 'remuda approve {session}' decides it",
            )
        by = f"mcp: {self._reach.caller.label}"
        decided = boss.approve(found, by=by) if decision == "allow" else boss.deny(found, reason, by=by)
        return {"session": session, "request": request, "decision": decision, "state": decided.state}

    def _session_with(self, session_id: str) -> str | None:
        """Return the name of a session that the caller started, by the boss's id of it."""
        try:
            name = BossClient().get("sessions", session_id)["session"].get("name")
        except NotInQueue:
            return None
        record = (
            SessionRecord.load(SessionPaths(sessions_folder(), name).record) if is_name(str(name)) else None
        )
        return (
            str(name)
            if record is not None and self._reach.may("kill", record, self._reach.rights())
            else None
        )


def _transcript_elsewhere(session: str) -> Document:
    host, name = split_host(session)
    assert host is not None
    page = must_have(host, name).get("sessions", name, "conversation", limit=_TRANSCRIPT_ENTRIES)
    note = {"note": one_line(str(page["note"]))} if page["note"] else {}
    return {"session": session, "entries": page["entries"], "is_whole": page["before"] is None, **note}
