"""What codex's app-server says, as events: notices, its requests to us, and turns of a conversation. Pure.

One server has several threads: the conversation, threads that make titles (`ephemeral`), and those of its
subagents (`parentThreadId`). Only the conversation is reported.
"""

from __future__ import annotations

import shlex
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from remuda.agents.events import (
    AgentEvent,
    ConversationStarted,
    DialogReported,
    Failure,
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
from remuda.agents.prompting import Past
from remuda.agents.state import Source
from remuda.untrusted import as_object, as_objects, finite

Document = Mapping[str, Any]

SHELL, PATCH, QUESTION = "Bash", "apply_patch", "request_user_input"
"""The names of its tools, as its own hooks have them."""
_KEPT_TURNS = 8


def is_conversation(thread: Document) -> bool:
    """Whether a thread is one that a user sees: not one that makes a title, and not that of a subagent."""
    return bool(thread.get("id")) and not thread.get("ephemeral") and not thread.get("parentThreadId")


def thread_of(message: Document) -> str | None:
    """Return the thread that a message is about."""
    params = as_object(message.get("params"))
    found = params.get("threadId") or as_object(params.get("thread")).get("id")
    return found if isinstance(found, str) else None


def text_of(item: Document) -> str:
    """Return the text of a prompt."""
    return "".join(str(one.get("text", "")) for one in as_objects(item.get("content")) if "text" in one)


# ── tools ──


def shell_command(command: object) -> str:
    """Return the script of a command: codex shows it as an argument of the user's shell."""
    text = str(command or "")
    try:
        words = shlex.split(text)
    except ValueError:
        return text
    return words[2] if len(words) == 3 and words[1] in ("-c", "-lc") else text


def tool_of(item: Document) -> tuple[str, dict[str, Any]] | None:
    """Return the tool of an item and its input; None for an item that is not the call of a tool."""
    match item.get("type"):
        case "commandExecution":
            return SHELL, {"command": shell_command(item.get("command"))}
        case "fileChange":
            return PATCH, {"changes": [dict(one) for one in as_objects(item.get("changes"))]}
        case "mcpToolCall":
            name = f"mcp__{item.get('server')}__{item.get('tool')}"
            return name, dict(as_object(item.get("arguments")))
        case "dynamicToolCall" | "collabAgentToolCall":
            return str(item.get("tool")), dict(as_object(item.get("arguments")))
        case "webSearch":
            return "web_search", {"query": item.get("query")}
    return None


def _tool_result(item: Document) -> object:
    return item.get("aggregatedOutput") or item.get("result") or item.get("contentItems") or ""


# ── a turn ──


def usage_of(counts: Document) -> dict[str, int]:
    """Return the tokens of one answer of the model, as all agents count them."""
    count = {key: int(finite(value)) for key, value in counts.items()}
    cached, written = count.get("cachedInputTokens", 0), count.get("cacheWriteInputTokens", 0)
    return {
        "input_tokens": max(0, count.get("inputTokens", 0) - cached - written),
        "output_tokens": count.get("outputTokens", 0),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": cached,
    }


def add_usage(usages: Sequence[Mapping[str, int]]) -> dict[str, int]:
    return {key: sum(one[key] for one in usages) for key in (usages[0] if usages else {})}


def answer_of(turn: Document) -> str:
    texts = [one.get("text") for one in as_objects(turn.get("items")) if one.get("type") == "agentMessage"]
    return str(texts[-1] or "") if texts else ""


def was_cut(turn: Document) -> bool:
    """Whether a turn ended with its server: one that a user interrupts has a date of its end."""
    return turn.get("status") == "interrupted" and turn.get("completedAt") is None


def _failure(error: Document) -> Failure:
    info = error.get("codexErrorInfo")
    name = info if isinstance(info, str) else next(iter(as_object(info)), "")
    status = finite(next((one.get("httpStatusCode") for one in as_object(info).values() if one), None))
    if name in ("usageLimitExceeded", "rateLimitExceeded", "sessionBudgetExceeded") or status == 429:
        return Failure.RATE_LIMITED
    if name in ("serverOverloaded", "internalServerError", "flexUnavailable") or status >= 500:
        return Failure.OVERLOADED
    if name == "unauthorized" or status in (401, 403):
        return Failure.AUTHENTICATION
    if name in ("contextWindowExceeded", "badRequest", "modelNotFound") or 400 <= status < 500:
        return Failure.INVALID
    return Failure.INVALID if "invalid_request_error" in str(error.get("message")) else Failure.OTHER


def turn_past(turn: Document) -> Past:
    """Return what a turn proves of the prompt that started it."""
    turn_id, status = str(turn.get("id")), turn.get("status")
    if status == "completed":
        return Past(True, True, answer_of(turn), turn_id)
    return Past(True, prompt_id=turn_id, interrupted=status == "interrupted" and not was_cut(turn))


def find_turn(turns: Sequence[Document], message_id: str) -> Document | None:
    """Return the turn that has this message."""
    for turn in turns:
        for item in as_objects(turn.get("items")):
            if item.get("type") == "userMessage" and item.get("clientId") == message_id:
                return turn
    return None


# ── requests to us ──

_APPROVALS = ("item/commandExecution/requestApproval", "item/fileChange/requestApproval")
_QUESTIONS = "item/tool/requestUserInput"
_DIALOGS = ("item/permissions/requestApproval", "mcpServer/elicitation/request")


def request_id(params: Document) -> str:
    """Return the id of the call that a request is about. One call may ask several times."""
    return str(params.get("approvalId") or params.get("itemId") or "")


def _approval_input(method: str, params: Document, item: Document) -> tuple[str, dict[str, Any]]:
    if method == _APPROVALS[1]:
        tool, given = tool_of({"type": "fileChange", **item}) or (PATCH, {})
        more = {"grant_root": params.get("grantRoot")}
    else:
        tool, given = SHELL, {"command": shell_command(params.get("command"))}
        more = {
            "network": params.get("networkApprovalContext"),
            "permissions": params.get("additionalPermissions"),
        }
    more["description"] = params.get("reason")
    return tool, {**given, **{key: value for key, value in more.items() if value}}


def _question_input(params: Document) -> dict[str, Any]:
    return {"questions": [dict(one) for one in as_objects(params.get("questions"))]}


class ThreadReader:
    """Reads the messages about one thread, in order. A new thread of the user's takes its place."""

    def __init__(self) -> None:
        self.thread: str | None = None
        self.running: str | None = None
        """The turn that runs."""
        self.turns: list[str] = []
        """Turns that were seen to start, the last ones."""
        self.open: dict[str, tuple[object, str, Document]] = {}
        """Requests that wait for an answer: their id on the wire, method and parameters, by call."""
        self._dialogs: deque[object] = deque(maxlen=8)  # open in codex, by their id on the wire
        self.first_messages: dict[str, str | None] = {}
        """The client's id of the message that started a turn, by turn."""
        self.listed_end: Document | None = None
        """The last turn, if it was listed as over before a notice said so."""
        self._ended: list[str] = []
        self._conversation: dict[str, str] = {}
        self._items: dict[str, Document] = {}
        self._prompts: set[str] = set()
        """Messages of the user in the turn that runs: the list of turns and a notice have the same ones."""
        self._pieces: dict[str, int] = {}
        self._usage: dict[str, dict[str, int]] = {}
        self._resets_at: float | None = None

    @property
    def conversation(self) -> dict[str, str]:
        return dict(self._conversation)

    @property
    def used(self) -> dict[str, int]:
        """What the turn that runs has used so far; empty if that is not known."""
        return add_usage([*self._usage.values()])

    def join(self, thread: Document, how: str) -> Report:
        """Begin with a thread."""
        if thread["id"] != self.thread:
            self.__init__()  # type: ignore[misc]  # nothing of another conversation counts
        self.thread = str(thread["id"])
        known = {"session_id": self.thread, "transcript_path": thread.get("path"), "cwd": thread.get("cwd")}
        known["model"] = thread.get("model")
        self._conversation = {key: str(value) for key, value in known.items() if value}
        return self.report(f"thread {how}", ConversationStarted(how))

    def report(self, name: str, *events: AgentEvent) -> Report:
        return Report(
            Source.HOOK, name, events, session_id=self.thread, conversation=dict(self._conversation)
        )

    def read(self, message: Document) -> Report | None:
        """Return what a message about this thread reports; None if it reports nothing."""
        method, params = str(message.get("method")), as_object(message.get("params"))
        if method == "account/rateLimits/updated":
            self._take_limits(as_object(params.get("rateLimits")))
        if self.thread is None or thread_of(message) != self.thread:
            return None
        events = self._request(message) if "id" in message else self._notice(method, params)
        return self.report(method, *events) if events else None

    def catch_up(self, turns: Sequence[Document], *, all_new: bool, was_lost: bool = False) -> list[Report]:
        """Return what happened while no one listened. `turns` are the last ones, the oldest first.

        `all_new`: none of them is from before we joined the conversation. `was_lost`: the connection was
        lost since. Only then a turn that is not among them is over: one that has just begun is listed later.
        And only then the end of the last turn is reported, because notices say more of it and may still
        come. See `listed_end`.
        """
        self._note_turns(turns)
        running, known = self.running, set(self.turns)
        if not known and not all_new:
            self.turns = [str(one.get("id")) for one in turns if one.get("status") != "inProgress"]
            known = set(self.turns[-_KEPT_TURNS:])
        newest = max((n for n, one in enumerate(turns) if one.get("id") in known), default=-1)
        found: list[AgentEvent] = []
        self.listed_end = None
        if was_lost and running is not None and all(one.get("id") != running for one in turns):
            found += self.turn_ended({"id": running, "status": "interrupted"})  # it was never written
        for n, turn in enumerate(turns):
            turn_id = str(turn.get("id"))
            if turn_id != running and n <= newest:
                continue
            self._begin(turn_id)
            for item in as_objects(turn.get("items")):
                if item.get("type") == "userMessage":
                    found += self._item(item, turn_id, done=True)
            if turn.get("status") == "inProgress":
                continue
            if was_lost or n < len(turns) - 1:
                found += self.turn_ended(turn)
            elif not was_cut(turn):  # one that has just begun is listed as cut for a moment (0.166.0)
                self.listed_end = turn
        return [self.report("thread/turns/list", *found)] if found else []

    def end_listed(self, turn: Document) -> Report | None:
        """Report the end of a `listed_end`, unless a notice did."""
        turn_id = str(turn.get("id"))
        if turn_id in self._ended or turn_id not in self.turns:
            return None
        return self.report("thread/turns/list", *self.turn_ended(turn))

    # ── notices ──

    def _notice(self, method: str, params: Document) -> list[AgentEvent]:
        turn_id = str(params.get("turnId") or as_object(params.get("turn")).get("id") or "")
        if turn_id in self._ended:  # these waited while `catch_up` reported the turn
            return []
        match method:
            case "turn/started":
                self._begin(turn_id)
            case "item/started" | "item/completed":
                self._begin(turn_id)
                return self._item(as_object(params.get("item")), turn_id, done=method == "item/completed")
            case "item/agentMessage/delta":
                item = str(params.get("itemId"))
                index = self._pieces[item] = self._pieces.get(item, -1) + 1
                return [TextShown(item, index, str(params.get("delta", "")))]
            case "thread/tokenUsage/updated":
                counts = as_object(params.get("tokenUsage"))
                if turn_id == self.running:  # the last one comes again for a new client
                    self._usage[repr(counts.get("total"))] = usage_of(as_object(counts.get("last")))
            case "serverRequest/resolved":
                return self._resolved(params.get("requestId"))
            case "turn/completed":
                turn = as_object(params.get("turn"))
                self._note_turns([turn])
                return self.turn_ended(turn)
        return []

    def _begin(self, turn_id: str) -> None:
        if turn_id and turn_id != self.running and turn_id not in self.turns:
            self.running, self._usage = turn_id, {}
            self._items.clear()
            self._prompts.clear()
            self._pieces.clear()
            self.turns = [*self.turns, turn_id][-_KEPT_TURNS:]
            self.first_messages = {
                known: self.first_messages[known] for known in self.turns if known in self.first_messages
            }

    def _item(self, item: Document, turn_id: str, *, done: bool) -> list[AgentEvent]:
        call = str(item.get("id"))
        if item.get("type") == "userMessage":
            text = text_of(item)
            self.first_messages.setdefault(turn_id, item.get("clientId"))
            if not done or call in self._prompts:
                return []
            self._prompts.add(call)
            return [PromptSubmitted(text, turn_id), PromptRecorded(text, turn_id, self.thread)]
        found = tool_of(item)
        if found is None:
            return []
        tool, given = found
        if not done:
            self._items[call] = item
            return [ToolStarted(tool, given, call)]
        started = [] if self._items.pop(call, None) is not None else [ToolStarted(tool, given, call)]
        self.open.pop(call, None)
        ok, denied = item.get("status") == "completed", item.get("status") == "declined"
        result = ToolOutput(call, tool, _tool_result(item))
        return [*started, ToolFinished(call, ok=ok, denied=denied, tool=tool), ToolsFinished((result,))]

    def turn_ended(self, turn: Document) -> list[AgentEvent]:
        """Return the events of a turn that has ended, also of one that ended while no one listened."""
        turn_id, status = str(turn.get("id")), turn.get("status")
        usages = list(self._usage.values()) if turn_id == self.running else []
        if turn_id == self.running:  # else the next one runs already
            self.running, self._usage = None, {}
            self.open.clear()
        self._ended = [*self._ended, turn_id][-_KEPT_TURNS:]
        if status == "completed":
            text = answer_of(turn)
            final = MessageRecorded(turn_id, add_usage(usages), text, final=True)
            recorded = [final] if usages else []
            return [*recorded, TurnStopped(text, turn_id, conversation=self.thread), TurnRecorded()]
        if status == "failed":
            error = as_object(turn.get("error"))
            kind = _failure(error)
            resets_at = self._resets_at if kind is Failure.RATE_LIMITED else None
            wait = None if resets_at is None else max(1.0, resets_at - finite(turn.get("completedAt")))
            return [TurnFailed(kind, str(error.get("message", "")), turn_id, wait, resets_at)]
        return [TurnInterrupted(turn_id, died=was_cut(turn))]

    def _note_turns(self, turns: Sequence[Document]) -> None:
        """Keep that this conversation had a turn that ended. From then on codex has a file of it."""
        over = [one for one in turns if one.get("status") != "inProgress" and not was_cut(one)]
        if self.thread is not None and over:
            self._conversation["had_turn"] = self.thread

    def _take_limits(self, limits: Document) -> None:
        """Keep when the window ends that is used up."""
        windows = [as_object(limits.get(name)) for name in ("primary", "secondary")]
        full = [finite(one.get("resetsAt")) for one in windows if finite(one.get("usedPercent")) >= 100]
        self._resets_at = max(full, default=None)

    # ── requests ──

    def _request(self, message: Document) -> list[AgentEvent]:
        method, params = str(message.get("method")), as_object(message.get("params"))
        turn_id, call = str(params.get("turnId") or "") or None, request_id(params)
        if turn_id in self._ended:
            return []
        self._begin(turn_id or "")
        if method in _APPROVALS or method == _QUESTIONS:
            is_known = call in self.open  # a new client gets open requests again
            self.open[call] = message["id"], method, params
            if is_known:
                return []
        if method in _APPROVALS:
            tool, given = _approval_input(method, params, self._items.get(call, {}))
            return [PermissionRequested(tool, given, prompt_id=turn_id, id=call)]
        if method == _QUESTIONS:
            given = _question_input(params)
            return [PermissionRequested(QUESTION, given, "question", prompt_id=turn_id, id=call)]
        if method in _DIALOGS:
            self._dialogs.append(message["id"])
            reason = "permission" if method == _DIALOGS[0] else "question"
            return [DialogReported(reason, str(params.get("message") or params.get("reason") or ""), method)]
        return []

    def _resolved(self, wire_id: object) -> list[AgentEvent]:
        if wire_id in self._dialogs:
            self._dialogs.remove(wire_id)
            return [PermissionDecided("")]
        calls = [call for call, (known, _, _) in self.open.items() if known == wire_id]
        for call in calls:
            del self.open[call]
        return [PermissionDecided(call) for call in calls]
