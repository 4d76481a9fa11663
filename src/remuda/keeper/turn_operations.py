"""What a client can ask of a session whose agent is handed messages: see `operations` for the others."""

from __future__ import annotations

from typing import Any

from remuda.errors import InvalidOptions

from .asks import Asks
from .cleanliness import Cleanliness
from .delivery import Delivery
from .server import Operation, Peer


def make_turn_operations(
    delivery: Delivery, cleanliness: Cleanliness, asks: Asks | None
) -> dict[str, Operation]:
    def interrupt(peer: Peer, args: dict[str, Any]) -> dict[str, Any]:
        peer.require_typist()
        message = args.get("id")
        if args.get("turn") is True and message is None:
            return {"in_flight": (found := delivery.interrupt_turn()) is not None, "id": found}
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
