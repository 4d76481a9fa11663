"""Kept sessions over HTTP: start and end them, their messages, screens and history. As the commands do it."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from remuda.async_session import AsyncSession
from remuda.boss.attention.model import BossSession
from remuda.boss.evidence.messages import short_step
from remuda.boss.ports import BossParts
from remuda.errors import InvalidOptions, NotInQueue, NotSafe, SessionDead, SessionUnreachable
from remuda.inbox.catalog import Listed, find_by_prefix, list_messages, with_prompts
from remuda.inbox.receipts import Trace, trace
from remuda.keeper.cancel import Cancelled
from remuda.keeper.client import KeeperClient
from remuda.keeper.history_reader import last_screen
from remuda.paths import SessionPaths, known_names, sessions_folder
from remuda.session import Session
from remuda.tmux.address import Address
from remuda.tmux.command import Tmux
from remuda.tmux.panes import capture
from remuda.untrusted import bounded

from . import page_schema as shapes
from .queue_routes import session_document
from .route import ApiRequest, ApiResponse, Route
from .schema import BOOLEAN, record, ref

T = TypeVar("T")

START_TIMEOUT = 30.0
_STARTED_TIMEOUT = 3.0
_PROMPT = 4000
_ANSWER = 20_000
_MESSAGES = 50
_HISTORY_LINES = 1000
_HISTORY_CHARACTERS = 1 << 20
_GRACE = {"type": "number", "minimum": 0, "maximum": 60}


def find(boss: BossParts, word: str) -> tuple[BossSession | None, str | None]:
    """Return the agent that the boss knows, and the name of its kept session.

    A session that ended long ago is known by its record alone.
    """
    try:
        agent = boss.service.session(word)
    except NotInQueue:
        if word in known_names(sessions_folder()):
            return None, word
        raise
    return agent, agent.name


def kept_name(boss: BossParts, word: str, what: str) -> str:
    """Return the name of a kept session. Raises `NotSafe` for an agent that is not kept."""
    agent, name = find(boss, word)
    if name is None:
        raise NotSafe(
            f"an agent that Remuda did not start cannot be {what} from here", hint="use its own terminal"
        )
    if agent is not None:
        refuse_replaced(agent)
    return name


def refuse_replaced(agent: BossSession) -> None:
    """Raise `NotSafe` if the terminal of an agent is another one's by now."""
    if agent.replaced_by is not None:
        raise NotSafe(f"the session '{agent.name}' is now in another conversation", hint="use its name")


async def reachable(work: Awaitable[T]) -> T:
    """Await a call to a keeper: one that hangs up in the middle is an error of ours."""
    try:
        return await work
    except (EOFError, OSError) as error:
        raise SessionUnreachable(f"the keeper of the session does not answer: {error}") from error


# ── beginning and end ──


async def post_session(boss: BossParts, request: ApiRequest) -> ApiResponse:
    body = dict(request.body)
    name, command, cwd = body.pop("name"), body.pop("command", ()), body.pop("cwd", None)
    folder = _folder(cwd)
    return await _start(boss, name, command, folder, body)


def _folder(cwd: str | None) -> Path:
    """Return the folder of a new session: home if none is named. A relative one raises `InvalidOptions`."""
    try:
        folder = Path("~" if cwd is None else cwd).expanduser()
    except RuntimeError:
        folder = Path(str(cwd))
    if not folder.is_absolute():
        raise InvalidOptions(f"cwd '{str(cwd)[:200]}' is not an absolute path")
    return folder


async def post_resume(boss: BossParts, request: ApiRequest) -> ApiResponse:
    name = kept_name(boss, request.path["session"], "resumed")
    return await _start(boss, name, (), None, {"resume": True})


async def _start(
    boss: BossParts, name: str, command: Any, cwd: Path | None, options: dict[str, Any]
) -> ApiResponse:
    session = await reachable(AsyncSession.start(name, command, cwd=cwd, timeout=START_TIMEOUT, **options))
    agent = await _heard_of(boss, session.name)
    return ApiResponse({"name": session.name, "session": session_document(boss, agent) if agent else None})


async def _heard_of(boss: BossParts, name: str) -> BossSession | None:
    """Wait a moment for the boss to follow it: its keeper has just begun."""

    def known() -> BossSession | None:
        own = (one for one in boss.service.sessions() if one.name == name and one.ended is None)
        return next((one for one in own if one.replaced_by is None), None)

    watcher = boss.service.feed.watch()
    try:
        async with asyncio.timeout(_STARTED_TIMEOUT):
            while (agent := known()) is None:
                await anext(watcher)
            return agent
    except (TimeoutError, StopAsyncIteration):
        return known()
    finally:
        watcher.close()


async def post_end(boss: BossParts, request: ApiRequest) -> ApiResponse:
    name = kept_name(boss, request.path["session"], "ended")
    code = await reachable(AsyncSession(name).kill((request.body or {}).get("grace")))
    return ApiResponse({"name": name, "exit_code": code})


async def post_interrupt(boss: BossParts, request: ApiRequest) -> ApiResponse:
    name = kept_name(boss, request.path["session"], "interrupted")
    return ApiResponse(_outcome(await reachable(AsyncSession(name).interrupt())))


def _outcome(cancelled: Cancelled | None) -> dict[str, Any]:
    return cancelled.document() if cancelled else {"id": None, "outcome": "nothing", "reason": ""}


# ── messages ──


async def get_messages(boss: BossParts, request: ApiRequest) -> ApiResponse:
    agent, name = find(boss, request.path["session"])
    details = boss.service.details(agent.id) if agent else None
    found: dict[str, Any] = {
        "session": name,
        "messages": [],
        "waiting": details.waiting if details else None,
        "held": details.held if details else None,
        "cut": False,
        "last_event_id": boss.service.feed.last_id,
    }
    if name is not None:
        limit = int(request.query.get("limit", _MESSAGES))
        inbox = SessionPaths.of(name, sessions_folder()).inbox
        found["messages"], found["cut"] = await asyncio.to_thread(_messages, inbox, limit)
    return ApiResponse(found)


def _messages(inbox: Path, limit: int) -> tuple[list[dict[str, Any]], bool]:
    listed = list_messages(inbox)
    newest = with_prompts(reversed(listed[-limit:]))
    return [_message(one, trace(inbox, one.id)) for one in newest], len(listed) > limit


def _message(listed: Listed, receipt: Trace | None) -> dict[str, Any]:
    answer = (receipt.answer or {}).get("text") if receipt is not None else None
    if receipt is not None and not isinstance(answer, str) and receipt.answer is not None:
        answer = str(receipt.answer.get("answer") or "")
    steps = [short_step(one) for one in receipt.steps] if receipt is not None else []
    for one in steps:
        one.pop("id")
    is_cut = len(listed.prompt) > _PROMPT or (answer is not None and len(answer) > _ANSWER)
    document: dict[str, Any] = bounded(
        {
            "id": listed.id,
            "stage": receipt.stage if receipt is not None else listed.stage,
            "ended": receipt.ended if receipt is not None else listed.ended,
            "sent_at": listed.sent_at or None,
            "at": listed.at or None,
            "due": listed.due or None,
            "attempt": max(0, listed.attempt),
            "reason": listed.reason[:_PROMPT],
            "prompt": listed.prompt[:_PROMPT],
            "steps": steps,
            "answer": None if answer is None else answer[:_ANSWER],
            "cut": is_cut,
        }
    )
    return document


async def get_message(boss: BossParts, request: ApiRequest) -> ApiResponse:
    inbox = _inbox(boss, request)
    return ApiResponse(await asyncio.to_thread(_one_message, inbox, request.path["message"]))


def _inbox(boss: BossParts, request: ApiRequest) -> Path:
    name = kept_name(boss, request.path["session"], "asked for messages")
    return SessionPaths.of(name, sessions_folder()).inbox


def _one_message(inbox: Path, word: str) -> dict[str, Any]:
    receipt = find_by_prefix(word, [inbox])
    listed = next((one for one in list_messages(inbox) if one.id == receipt.id), None)
    if listed is None:
        listed = Listed(receipt.id, inbox, receipt.stage, 0.0, 0.0)
    return _message(with_prompts([listed])[0], receipt)


async def post_cancel(boss: BossParts, request: ApiRequest) -> ApiResponse:
    name = kept_name(boss, request.path["session"], "sent messages")
    inbox = SessionPaths.of(name, sessions_folder()).inbox
    receipt = await asyncio.to_thread(find_by_prefix, request.path["message"], [inbox])
    return ApiResponse(_outcome(await reachable(AsyncSession(name).cancel(receipt.id))))


# ── screen and history ──


async def get_screen(boss: BossParts, request: ApiRequest) -> ApiResponse:
    agent, name = find(boss, request.path["session"])
    if agent is not None:
        refuse_replaced(agent)
    styled = bool(request.query.get("styled"))
    read: Callable[[], dict[str, Any]]
    if name is not None:
        paths = SessionPaths.of(name, sessions_folder())

        def read() -> dict[str, Any]:
            return _kept_screen(paths, styled)
    elif agent is not None and agent.pane is not None and agent.ended is None:
        pane, tmux = agent.pane, _tmux(agent)

        def read() -> dict[str, Any]:
            return _plain_screen(capture(tmux, pane, styled=styled))
    else:
        raise NotSafe("this agent has no terminal that can be read")
    return ApiResponse(bounded(await reachable(asyncio.to_thread(read))))


def _tmux(agent: BossSession) -> Tmux:
    return Tmux(Address.of(agent.tmux) if agent.tmux else Address.named("default", os.environ), os.environ)


def _kept_screen(paths: SessionPaths, styled: bool) -> dict[str, Any]:
    try:
        with KeeperClient.connect(paths.name, paths.folder, read_only=True) as client:
            found = client.request("screen", styled=styled)
        fields = ("lines", "cols", "rows", "cursor", "alternate", "title")
        return {**{name: found.get(name) for name in fields}, "alive": True}
    except SessionDead:
        if (screen := last_screen(paths)) is None:
            raise
        try:
            rows = range(screen.rows)
            lines = [screen.styled_row(y, screen.cols).decode("utf-8", "replace") for y in rows]
            return {**_plain_screen(lines if styled else screen.lines()), "alive": False}
        finally:
            screen.close()


def _plain_screen(lines: list[str]) -> dict[str, Any]:
    unknown = dict.fromkeys(("cols", "rows", "cursor", "alternate", "title"))
    return {"lines": lines, **unknown, "alive": True}


async def get_session_history(boss: BossParts, request: ApiRequest) -> ApiResponse:
    agent, name = find(boss, request.path["session"])
    most = int(request.query.get("lines", _HISTORY_LINES))
    if name is not None:
        lines = await reachable(asyncio.to_thread(Session(name).history, most + 1))
    elif agent is not None and agent.pane is not None and agent.ended is None:
        tmux, pane = _tmux(agent), agent.pane
        lines = await asyncio.to_thread(lambda: capture(tmux, pane, history=most + 1))
    else:
        raise NotSafe("this agent has no terminal that can be read")
    kept = lines[-most:]
    sizes = itertools.accumulate(len(line) + 1 for line in reversed(kept))
    count = sum(size <= _HISTORY_CHARACTERS for size in sizes)
    kept = kept[len(kept) - count :]
    return ApiResponse(bounded({"lines": kept, "cut": len(kept) < len(lines)}))


_ERRORS = (400, 404, 409, 413, 415, 502, 504, 507)
_READ = (400, 404, 409, 502, 504)

ROUTES = (
    Route(
        "POST",
        "/v1/sessions",
        post_session,
        "Start a session, with the environment of the boss. Returns when its program runs.",
        body=shapes.START,
        answer=shapes.STARTED,
        errors=(*_ERRORS, 500),
    ),
    Route(
        "POST",
        "/v1/sessions/{session}/resume",
        post_resume,
        "Start an ended kept session again, with its conversation and its inbox.",
        body=record({}),
        answer=shapes.STARTED,
        errors=(*_ERRORS, 500),
    ),
    Route(
        "POST",
        "/v1/sessions/{session}/end",
        post_end,
        "End a kept session and every process that it started.",
        body=record({}, {"grace": _GRACE}),
        answer=shapes.ENDED,
        errors=_ERRORS,
    ),
    Route(
        "POST",
        "/v1/sessions/{session}/interrupt",
        post_interrupt,
        "Interrupt the turn that runs in a kept session.",
        body=record({}),
        answer=shapes.CANCELLED,
        errors=_ERRORS,
    ),
    Route(
        "GET",
        "/v1/sessions/{session}/messages",
        get_messages,
        "Messages of a session with their receipts, the newest first.",
        query={"limit": {"type": "integer", "minimum": 1, "maximum": 200}},
        answer=shapes.MESSAGES,
        errors=_READ,
    ),
    Route(
        "GET",
        "/v1/sessions/{session}/messages/{message}",
        get_message,
        "One message with its receipt, by its id or the beginning of it.",
        answer=ref("Message"),
        errors=_READ,
    ),
    Route(
        "POST",
        "/v1/sessions/{session}/messages/{message}/cancel",
        post_cancel,
        "Take a waiting message back, or interrupt its turn.",
        body=record({}),
        answer=shapes.CANCELLED,
        errors=_ERRORS,
    ),
    Route(
        "GET",
        "/v1/sessions/{session}/screen",
        get_screen,
        "What the terminal of an agent shows; of an ended kept session, what it showed last.",
        query={"styled": BOOLEAN},
        answer=shapes.SCREEN,
        errors=_READ,
    ),
    Route(
        "GET",
        "/v1/sessions/{session}/history",
        get_session_history,
        "What an agent printed, as lines of text; the last 'lines' of them (default 1000).",
        query={"lines": {"type": "integer", "minimum": 1, "maximum": 10_000}},
        answer=shapes.HISTORY,
        errors=_READ,
    ),
)
