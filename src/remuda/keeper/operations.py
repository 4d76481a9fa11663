"""The requests that a client that said HELLO can send to a keeper. Each takes the peer and its arguments."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from remuda._version import __version__
from remuda.duration import check_seconds
from remuda.errors import InvalidOptions, NotSafe
from remuda.terminal.screen import Screen
from remuda.untrusted import one_line

from .asks import Asks
from .cleanliness import Cleanliness
from .delivery import Delivery
from .server import Operation, Peer
from .session import HookSubscription, Session
from .sleeper import Sleeper

_ARGV_CHARACTERS = 16_384
_HOW_CHARACTERS = 200


def _number(args: dict[str, Any], key: str) -> int:
    value = args.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidOptions(f"{key} must be an integer, not {value!r}")
    return value


def shortened(argv: list[str]) -> list[str]:
    """Return the command, shortened: a list of files can be longer than a frame."""
    words: list[str] = []
    room = _ARGV_CHARACTERS
    for word in argv:
        if len(word) > room:
            return [*words, "…"]
        words.append(word)
        room -= len(word)
    return words


def describe(session: Session, clients: int, degraded: list[str]) -> dict[str, Any]:
    """Return everything that `ls` and `status` show."""
    spec = session.spec
    cols, rows = session.size
    screen = session.screen
    exited = session.child.exited
    return {
        "name": spec.name,
        "agent": spec.agent,
        "argv": shortened(spec.argv),
        "cwd": spec.cwd,
        "pid": 0 if session.is_asleep else session.child.pid,
        "keeper_pid": os.getpid(),
        "alive": session.is_asleep or not exited.done(),
        "exit_code": exited.result() if exited.done() and not session.is_asleep else None,
        "started_at": round(session.started_at, 3),
        "uptime": round(time.time() - session.started_at, 3),
        "idle": round(session.now() - session.child.last_read, 3),
        "printed": session.child.has_printed,
        "cols": cols,
        "rows": rows,
        "size_policy": spec.size_policy,
        "clients": clients,
        "ephemeral": spec.ephemeral,
        # Sessions of a pool ask the program that uses them; `print --ask` asks a human.
        "asks_human": spec.asks and (spec.once or not spec.ephemeral),
        "title": screen.title if screen else "",
        "last_line": screen.last_line if screen else "",
        "recording": session.recorder.path.as_posix() if session.recorder else None,
        "degraded": degraded
        + [one.failure for one in (session.recorder, session.history_file) if one and one.failure],
        "keeper_version": __version__,
        **({"started_by": spec.started_by} if spec.started_by else {}),
        **session.state_document(),
    }


def _styled(screen: Screen) -> list[str]:
    return [screen.styled_row(y, screen.cols).decode("utf-8", "replace") for y in range(screen.rows)]


def _hook_subscription(args: dict[str, Any]) -> HookSubscription | None:
    if args.get("hooks") is None:
        return None
    lists = [args["hooks"], args.get("without", [])]
    if not all(isinstance(one, list) and all(isinstance(name, str) for name in one) for one in lists):
        raise InvalidOptions("hooks and without must be lists of names")
    return HookSubscription(*(frozenset(one) for one in lists))


def _history(peer: Peer, _args: dict[str, Any]) -> dict[str, Any]:
    """Write the history to the disk, for a client that reads it there."""
    history = peer.session.history_file
    peer.session.settle()
    if history is not None:
        history.flush()
    return {"kept": history is not None}


def _parcel(peer: Peer, args: dict[str, Any]) -> dict[str, Any]:
    return peer.session.large_events.piece(args.get("id"), args.get("offset", 0))


def make_operations(
    degraded: Callable[[], list[str]],
    more_status: Callable[[], dict[str, Any]],
    hook: Callable[[dict[str, Any]], None],
    more: Mapping[str, Operation],
) -> dict[str, Operation]:
    def status(peer: Peer, args: dict[str, Any]) -> dict[str, Any]:
        document = {**describe(peer.session, peer.server.watcher_count, degraded()), **more_status()}
        if args.get("explain"):
            document["votes"] = peer.session.evidence.explain(peer.session.now())
        return peer.in_known_words(document)

    def screen(peer: Peer, args: dict[str, Any]) -> dict[str, Any]:
        shown = peer.session.screen
        if shown is None:
            raise InvalidOptions("this session has no screen model", hint="; ".join(degraded()))
        cursor = shown.cursor
        return {
            "lines": _styled(shown) if args.get("styled") else shown.lines(),
            "cols": shown.cols,
            "rows": shown.rows,
            "cursor": {"x": cursor.x, "y": cursor.y, "visible": cursor.visible},
            "alternate": shown.alternate,
            "title": shown.title,
        }

    def resize(peer: Peer, args: dict[str, Any]) -> dict[str, Any]:
        peer.require_typist()
        peer.session.set_size(_number(args, "cols"), _number(args, "rows"))
        cols, rows = peer.session.size
        return {"cols": cols, "rows": rows}

    def kill(peer: Peer, args: dict[str, Any]) -> dict[str, Any]:
        peer.require_typist()
        grace = args.get("grace")
        if grace is not None:
            grace = check_seconds("grace", grace)
        peer.session.kill(grace)
        return {"grace": peer.session.spec.kill_grace if grace is None else grace}

    def watch(peer: Peer, args: dict[str, Any]) -> dict[str, Any]:
        agent_events = args.get("agent_events") is True
        hooks = None if agent_events else _hook_subscription(args)
        peer.watch(tools=args.get("tools") is True, agent_events=agent_events, hooks=hooks)
        return {**status(peer, {}), "agent_events": agent_events}

    def take_hook(_peer: Peer, args: dict[str, Any]) -> dict[str, Any]:
        hook(args)
        return {}

    return {
        "status": status,
        "screen": screen,
        "resize": resize,
        "kill": kill,
        "watch": watch,
        "hook": take_hook,
        "history": _history,
        "parcel": _parcel,
        **more,
    }


# ── sleep ──


def make_sleep_operations(sleeper: Sleeper | None, why_never: str) -> dict[str, Operation]:
    def sleep(peer: Peer, _args: dict[str, Any]) -> dict[str, Any]:
        peer.require_typist()
        if sleeper is None:
            raise NotSafe(f"session '{peer.session.spec.name}' cannot sleep: {why_never}")
        sleeper.sleep_now()
        return peer.session.state_document()

    def wake(peer: Peer, _args: dict[str, Any]) -> dict[str, Any]:
        """Begin to wake it. Its state says how that ends."""
        peer.require_typist()
        if sleeper is not None:
            sleeper.rouse()
        return peer.session.state_document()

    return {"sleep": sleep, "wake": wake}


# ── messages, carry-over and permission requests ──


def make_turn_operations(
    delivery: Delivery, cleanliness: Cleanliness, asks: Asks | None
) -> dict[str, Operation]:
    def interrupt(peer: Peer, args: dict[str, Any]) -> dict[str, Any]:
        peer.require_typist()
        message = args.get("id")
        if args.get("turn") is True and message is None:
            how = one_line(str(args.get("how") or "on request"))[:_HOW_CHARACTERS]
            return {"in_flight": (found := delivery.interrupt_turn(how)) is not None, "id": found}
        if not isinstance(message, str) or not message:
            raise InvalidOptions("interrupt needs the id of a message")
        return {"in_flight": delivery.interrupt(message)}

    def submit(peer: Peer, args: dict[str, Any]) -> dict[str, Any]:
        peer.require_typist()
        prompt, message_id, command = args.get("prompt"), args.get("id"), args.get("command", False)
        if not (isinstance(prompt, str) and isinstance(message_id, str) and isinstance(command, bool)):
            raise InvalidOptions("submit needs a prompt and the id of its message")
        delivery.submit(prompt, message_id, command=command)
        return {"id": message_id}

    def ready(_peer: Peer, _args: dict[str, Any]) -> dict[str, Any]:
        return delivery.ready()

    def clean(_peer: Peer, _args: dict[str, Any]) -> dict[str, Any]:
        return cleanliness.document()

    return {
        "interrupt": interrupt,
        "submit": submit,
        "ready": ready,
        "cleanliness": clean,
        **make_ask_operations(asks),
    }


def make_ask_operations(asks: Asks | None) -> dict[str, Operation]:
    def listed(peer: Peer, _args: dict[str, Any]) -> dict[str, Any]:
        return peer.session.large_events.shorten({"asks": asks.document() if asks is not None else []})

    def answer(peer: Peer, args: dict[str, Any]) -> dict[str, Any]:
        peer.require_typist()
        if asks is None:
            raise InvalidOptions("clients cannot decide the permission requests of this session")
        return asks.answer(args)

    return {"asks": listed, "answer": answer}
