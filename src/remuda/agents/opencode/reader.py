"""What an opencode server's events mean for the conversation that its terminal shows. Pure.

The stream has the events of all conversations in the folder that this server runs: that of the terminal,
those of subagents, and others that a user opened in the terminal. The end of a turn is `idle` together with
an answer that is over: an answer that failed is completed after the first of two `idle`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from remuda.agents.events import (
    AgentEvent,
    ConversationEnded,
    ConversationStarted,
    MessageRecorded,
    PermissionDecided,
    PermissionRequested,
    PromptRecorded,
    PromptSubmitted,
    Report,
    TextShown,
    ToolFinished,
    ToolOutput,
    ToolsFinished,
    ToolStarted,
    TurnFailed,
    TurnInterrupted,
    TurnRecorded,
    TurnStopped,
)
from remuda.agents.state import Source
from remuda.untrusted import as_object, as_objects, finite

from .messages import answers_to, end_of, info_of, is_over, is_prompt, limit, text_of, usage_of

Document = Mapping[str, Any]
_REMEMBERED = 256
REJECTED = "The user rejected permission"
ALWAYS = "a permission that is allowed always, which opencode keeps for all conversations of its server"


class _Message:
    """A message as far as it is known."""

    def __init__(self, info: dict[str, Any]) -> None:
        self.info = info
        self.parts: dict[str, dict[str, Any]] = {}
        self.shown: dict[str, list[int]] = {}
        """For each part with text: its characters and pieces that were reported."""

    def document(self) -> dict[str, Any]:
        return {"info": self.info, "parts": list(self.parts.values())}


class EventReader:
    """`records` collects messages that are complete, for the transcript."""

    def __init__(self, conversation: str, transcript: str = "") -> None:
        self.conversation = conversation
        self.transcript = transcript
        self.turn: str | None = None
        self.error: dict[str, Any] = {}
        """The last error that came without an answer."""
        self.retries: TurnFailed | None = None
        """Why and how long opencode waits to repeat a request; None if it does not."""
        self.attempt = 0
        self.records: list[dict[str, Any]] = []
        self._given_up: TurnFailed | None = None
        self._model = ""
        self._mode: str | None = None
        self._idle = True
        self._messages: dict[str, _Message] = {}
        self._answers: list[_Message] = []
        self._over: deque[str] = deque(maxlen=_REMEMBERED)
        self._parents: dict[str, str] = {}
        self._tools: dict[str, str] = {}  # calls by id: started, finished
        self._asked: dict[str, str] = {}

    # ── the beginning ──

    def open(
        self,
        messages: Sequence[Document],
        *,
        busy: bool,
        children: Sequence[Document] = (),
        known_turn: str = "",
    ) -> Report:
        """Take the conversation as it is now. `known_turn` ran when it was last seen."""
        self._idle = not busy
        for child in children:
            self._parents[str(child.get("id"))] = self.conversation
        users = [message for message in messages if info_of(message).get("role") == "user"]
        turns = [str(info_of(user).get("id")) for user in users if answers_to(messages, _id(user))]
        for message in messages:
            self._note_info(info_of(message))
        events: list[AgentEvent] = [ConversationStarted("resume" if messages else "startup")]
        running = turns[-1] if busy and turns else None
        turn = running or (known_turn if known_turn in turns else None)
        if turn is not None:
            prompt = next(user for user in users if _id(user) == turn)
            answers = answers_to(messages, turn)
            events += [
                PromptSubmitted(text_of(prompt), turn),
                PromptRecorded(text_of(prompt), turn, self.conversation),
            ]
            self.turn = turn
            self._answers = [self._known(message) for message in answers]
            if running is None:
                events += self._end_turn()
        self._over.extend(one for one in turns if one != self.turn)
        for user in users:
            self._known(user)
        self.records = [dict(message) for message in messages if _is_complete(message)]
        return self._report("connected", events)

    def _known(self, document: Document) -> _Message:
        message = self._messages[_id(document)] = _Message(info_of(document))
        for part in as_objects(document.get("parts")):
            message.parts[str(part.get("id"))] = part
            if part.get("type") == "text":
                message.shown[str(part.get("id"))] = [len(str(part.get("text") or "")), 1]
        return message

    # ── events ──

    def take(self, event: Document, now: float) -> list[Report]:
        """Return what an event reports; mostly one report, or none."""
        kind, facts = str(event.get("type")), as_object(event.get("properties"))
        conversation = str(facts.get("sessionID") or as_object(facts.get("info")).get("sessionID") or "")
        handler = _HANDLERS.get(kind)
        if handler is None or not conversation:
            return []
        subagent = self._subagent(conversation)
        if kind in ("session.created", "session.updated"):
            self._note_session(as_object(facts.get("info")))
            return []
        if kind in _OF_MESSAGES and subagent is None:
            return self._elsewhere(kind, facts, conversation)
        if subagent is None:
            return []
        if subagent:
            events = self._asks(kind, facts) if kind in _OF_REQUESTS else []
        else:
            events = handler(self, facts)
        if kind == "session.status" and not subagent:
            self._note_status(as_object(facts.get("status")), now)
        carry_over = (ALWAYS,) if kind == "permission.replied" and facts.get("reply") == "always" else ()
        return [self._report(kind, events, subagent, carry_over)] if events or carry_over else []

    def _subagent(self, conversation: str) -> str | None:
        """Return "" for our conversation, the id of a subagent's, None for one of another."""
        above = conversation
        for _ in range(16):
            if above == self.conversation:
                return "" if conversation == above else conversation
            if above not in self._parents:
                return None
            above = self._parents[above]
        return None

    def _note_session(self, info: Document) -> None:
        if isinstance(parent := info.get("parentID"), str):
            self._parents[str(info.get("id"))] = parent

    def _elsewhere(self, kind: str, facts: Document, conversation: str) -> list[Report]:
        """Take a message of another conversation: a user opened it in the terminal.

        Ours moves there with the first answer. A turn of ours that still runs is followed to its end first.
        """
        if conversation in self._parents:
            return []
        info = as_object(facts.get("info"))
        if kind != "message.updated" or info.get("role") != "assistant" or self.turn is not None:
            if kind == "message.updated" and info.get("role") == "user":
                self._message(info)
            elif kind == "message.part.updated":
                self._note_part(as_object(facts.get("part")))
            return []
        self.move(conversation)
        started = self._report("moved", [ConversationStarted("resume")])
        events = self._updated(facts)
        return [started, self._report(kind, events)]

    def move(self, conversation: str) -> None:
        """Follow another conversation from here on."""
        self.conversation = conversation
        self.turn, self._answers, self._idle = None, [], True
        self._asked.clear()

    # ── messages ──

    def _message(self, info: dict[str, Any]) -> _Message:
        message = self._messages.get(str(info.get("id")))
        if message is None:
            message = self._messages[str(info.get("id"))] = _Message(info)
            while len(self._messages) > _REMEMBERED:
                self._messages.pop(next(iter(self._messages)))
        message.info = info
        self._note_info(info)
        return message

    def _note_info(self, info: Document) -> None:
        if isinstance(model := info.get("modelID") or as_object(info.get("model")).get("modelID"), str):
            self._model = model
        if isinstance(mode := info.get("agent"), str) and info.get("role") == "user":
            self._mode = mode

    def _updated(self, facts: Document) -> list[AgentEvent]:
        info = as_object(facts.get("info"))
        prompt_id = str(info.get("parentID"))
        if info.get("role") != "assistant":
            self._message(info)
            return []
        if prompt_id in self._over:
            return []
        message = self._message(info)
        events = self._begin(prompt_id) if message not in self._answers else []
        if message not in self._answers:
            self._answers.append(message)
        if is_over(message.document()):
            document = message.document()
            events.append(MessageRecorded(str(info.get("id")), usage_of(document)))
            events += self._end_if_idle()
        return events

    def _begin(self, prompt_id: str) -> list[AgentEvent]:
        """Start the turn of a prompt, unless opencode goes on with the one that runs."""
        prompt = self._messages.get(prompt_id)
        self.error = {}
        if self.turn is not None and (
            prompt_id == self.turn or prompt is None or not is_prompt(prompt.document())
        ):
            return []
        events = self._end_turn() if self.turn is not None else []
        self.turn, self._idle = prompt_id, False
        text = text_of(prompt.document()) if prompt is not None else ""
        if prompt is not None:
            self.records.append(prompt.document())
        return [
            *events,
            PromptSubmitted(text, prompt_id),
            PromptRecorded(text, prompt_id, self.conversation),
        ]

    def _part(self, facts: Document) -> list[AgentEvent]:
        part = as_object(facts.get("part"))
        message = self._note_part(part)
        if message is None or message not in self._answers:
            return []
        if part.get("type") == "text":
            return self._text(message, part)
        return self._tool(part) if part.get("type") == "tool" else []

    def _note_part(self, part: dict[str, Any]) -> _Message | None:
        message = self._messages.get(str(part.get("messageID")))
        if message is not None:
            message.parts[str(part.get("id"))] = part
        return message

    def _text(self, message: _Message, part: Document) -> list[AgentEvent]:
        """Report what no delta had, and the end of a text."""
        text, part_id = str(part.get("text") or ""), str(part.get("id"))
        shown = message.shown.setdefault(part_id, [0, 0])
        rest, is_final = text[shown[0] :], bool(as_object(part.get("time")).get("end"))
        if not rest and not is_final:
            return []
        shown[0], shown[1] = len(text), shown[1] + 1
        return [TextShown(part_id, shown[1] - 1, rest, is_final)]

    def _delta(self, facts: Document) -> list[AgentEvent]:
        message = self._messages.get(str(facts.get("messageID")))
        part_id, delta = str(facts.get("partID")), facts.get("delta")
        if message is None or facts.get("field") != "text" or not isinstance(delta, str):
            return []
        if message not in self._answers or message.parts.get(part_id, {}).get("type") != "text":
            return []
        shown = message.shown.setdefault(part_id, [0, 0])
        shown[0], shown[1] = shown[0] + len(delta), shown[1] + 1
        return [TextShown(part_id, shown[1] - 1, delta)]

    def _tool(self, part: Document) -> list[AgentEvent]:
        state, call, tool = as_object(part.get("state")), str(part.get("callID")), str(part.get("tool"))
        status, events = state.get("status"), list[AgentEvent]()
        if status not in ("running", "completed", "error") or self._tools.get(call) == "finished":
            return []
        if call not in self._tools:
            self._tools[call] = "started"
            events.append(ToolStarted(tool, as_object(state.get("input")), call))
        if status != "running":
            self._tools[call] = "finished"
            ok = status == "completed"
            content = state.get("output") if ok else state.get("error")
            denied = not ok and str(content).startswith(REJECTED)
            events.append(ToolFinished(call, ok, denied, tool, as_object(state.get("input"))))
            events.append(ToolsFinished((ToolOutput(call, tool, content),)))
        return events

    def _removed(self, facts: Document) -> list[AgentEvent]:
        self._messages.pop(str(facts.get("messageID")), None)
        return []

    # ── the end of a turn ──

    def _note_status(self, status: Document, now: float) -> None:
        self.retries = None
        if status.get("type") == "retry" and self.turn is not None:
            self.retries, self.attempt = limit(status, self.turn, now), int(finite(status.get("attempt")))

    def give_up(self) -> None:
        """Note that the turn is aborted because of its limit: opencode itself tries again and again."""
        self._given_up = self.retries

    def has_begun(self, prompt_id: str) -> bool:
        """Return whether a turn runs for this prompt, or has run."""
        return prompt_id == self.turn or prompt_id in self._over

    def _status(self, facts: Document) -> list[AgentEvent]:
        self._idle = as_object(facts.get("status")).get("type") == "idle"
        return self._end_if_idle()

    def _rest(self, _facts: Document) -> list[AgentEvent]:
        self._idle = True
        return self._end_if_idle()

    def _failed(self, facts: Document) -> list[AgentEvent]:
        if self.turn is None:
            self.error = as_object(facts.get("error"))
        return []

    def _deleted(self, _facts: Document) -> list[AgentEvent]:
        return [ConversationEnded("deleted")]

    def _end_if_idle(self) -> list[AgentEvent]:
        if not self._idle or self.turn is None:
            return []
        return self._end_turn() if self._answers and is_over(self._answers[-1].document()) else []

    def _end_turn(self) -> list[AgentEvent]:
        assert self.turn is not None
        turn, answers = self.turn, [answer.document() for answer in self._answers]
        end = end_of(answers, turn, self.conversation)
        if isinstance(end, TurnInterrupted) and self._given_up is not None:
            end = self._given_up
        events: list[AgentEvent] = []
        if isinstance(end, TurnStopped) and answers:
            last = answers[-1]
            events.append(MessageRecorded(_id(last), usage_of(last), end.text, final=True))
        self.records += answers
        self._over.append(turn)
        for message in self._answers:
            self._messages.pop(str(message.info.get("id")), None)
        self._messages.pop(turn, None)
        self.turn, self._answers, self.retries, self._given_up = None, [], None, None
        self._tools.clear()
        self._asked.clear()
        return [*events, end, TurnRecorded()]

    # ── permissions and questions ──

    def _asks(self, kind: str, facts: Document) -> list[AgentEvent]:
        return _HANDLERS[kind](self, facts)

    def asked(self, facts: Document) -> list[AgentEvent]:
        """Return the event of a permission request."""
        request_id = str(facts.get("id"))
        call, inputs = as_object(facts.get("tool")), as_object(facts.get("metadata"))
        message = self._messages.get(str(call.get("messageID")))
        for part in message.parts.values() if message is not None else ():
            if part.get("callID") == call.get("callID"):
                inputs = {**inputs, **as_object(as_object(part.get("state")).get("input"))}
        patterns = [one for one in _texts(facts.get("patterns")) if one not in inputs.values()]
        permission = str(facts.get("permission"))
        if permission != "bash" and patterns:
            inputs = {**inputs, "patterns": patterns}
        self._asked[request_id] = permission
        always = [{"always": one} for one in _texts(facts.get("always"))]
        return [PermissionRequested(permission, inputs, "permission", always, self.turn, request_id)]

    def questioned(self, facts: Document) -> list[AgentEvent]:
        """Return the event of a question."""
        inputs = {"questions": as_objects(facts.get("questions"))}
        return [PermissionRequested("question", inputs, "question", (), self.turn, str(facts.get("id")))]

    def _decided(self, facts: Document) -> list[AgentEvent]:
        return [PermissionDecided(str(facts.get("requestID")))]

    def open_requests(self, permissions: Sequence[Document], questions: Sequence[Document]) -> list[Report]:
        """Take the requests that are open now, with a new connection."""
        found = [(self.asked(one), one, "permission.asked") for one in permissions]
        found += [(self.questioned(one), one, "question.asked") for one in questions]
        return [
            self._report(name, events, subagent)
            for events, one, name in found
            if (subagent := self._subagent(str(one.get("sessionID")))) is not None
        ]

    # ── reports ──

    def command_report(self, events: Sequence[AgentEvent]) -> Report:
        """Return a report of what we did ourselves."""
        return self._report("command", events)

    def end_report(self, messages: Sequence[Document], turn: str) -> Report:
        """Return how a turn ended that a search has found."""
        end = end_of(answers_to(messages, turn), turn, self.conversation)
        return self._report("found", [end, TurnRecorded()])

    def _report(
        self,
        name: str,
        events: Sequence[AgentEvent],
        subagent: str = "",
        carry_over: tuple[str, ...] = (),
    ) -> Report:
        known = {"session_id": self.conversation, "turn": self.turn or ""}
        if self._model:
            known["model"] = self._model
        if self.transcript:
            known["transcript_path"] = self.transcript
        return Report(
            Source.HOOK,
            name,
            tuple(events),
            session_id=self.conversation,
            subagent=subagent,
            conversation={} if subagent else known,
            permission_mode=self._mode,
            carry_over=carry_over,
        )


def _id(message: Document) -> str:
    return str(info_of(message).get("id"))


def _is_complete(message: Document) -> bool:
    return info_of(message).get("role") == "user" or is_over(message)


def _texts(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


_HANDLERS = {
    "session.created": EventReader._rest,  # read before
    "session.updated": EventReader._rest,
    "session.deleted": EventReader._deleted,
    "session.status": EventReader._status,
    "session.idle": EventReader._rest,
    "session.error": EventReader._failed,
    "message.updated": EventReader._updated,
    "message.removed": EventReader._removed,
    "message.part.updated": EventReader._part,
    "message.part.delta": EventReader._delta,
    "permission.asked": EventReader.asked,
    "permission.replied": EventReader._decided,
    "question.asked": EventReader.questioned,
    "question.replied": EventReader._decided,
    "question.rejected": EventReader._decided,
}
_OF_MESSAGES = frozenset(["message.updated", "message.part.updated"])
_OF_REQUESTS = frozenset(one for one in _HANDLERS if one.startswith(("permission.", "question.")))
