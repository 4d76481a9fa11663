"""Claude Code's hooks: each payload as a report of typed events, and how a hook is answered. Pure.

This is the only reader of hook payloads. Facts it rests on (2.1.325): a request for permission carries no id
of its call; a UserPromptSubmit may be the agent waking itself; a Stop may leave work running that wakes it;
`PostToolBatch` has the text that the model gets for each call of a message, also for those that failed or
were denied, but not which those are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from remuda.agents.events import (
    AgentEvent,
    BackgroundStarted,
    CommandRun,
    ConversationEnded,
    ConversationStarted,
    DialogReported,
    PermissionRequested,
    PromptSubmitted,
    Report,
    RestReported,
    Task,
    TextShown,
    ToolFinished,
    ToolOutput,
    ToolsFinished,
    ToolStarted,
    TurnStopped,
)
from remuda.agents.permission import PermissionDecision, PermissionRequest
from remuda.agents.state import Source
from remuda.untrusted import LONGEST_NAME, as_object, name_at, text_at

from .asking import reason_of
from .failure import read_failure
from .stream import LASTING_TOOLS

TASK_NOTICE = "<task-notification>"
# The prompt with which the agent resumes after a usage limit (2.1.325).
_CONTINUES = "Your claude.ai usage limit has reset. Continue the task"
_TASK_ID = re.compile(r"<task-id>([^<]+)</task-id>")
# About another session in the agents view: `NAME needs your input`, perhaps with what it needs.
_OF_ANOTHER = re.compile(r".* needs your input(: .*)?", re.DOTALL)

Payload = Mapping[str, Any]

_SOMETHING, _SHELL = "something in the background", "a shell in the background"
IN_BACKGROUND = (_SOMETHING, _SHELL)
"""Effects that end by themselves. All others last as long as the process."""


def read_hook(payload: Payload, env: Mapping[str, str] | None = None, at: float = 0.0) -> Report:
    """Report what a hook's payload says.

    `env` is the hook's environment, as far as it was passed on. `at` (seconds since the epoch) is the time
    that the words of a rate limit refer to.
    """
    name, env = str(payload.get("hook_event_name"))[:LONGEST_NAME], env or {}
    read = _READERS.get(name)
    events = tuple(read(payload, at)) if read is not None and not _is_of_process(name, payload, env) else ()
    conversation = {
        key: value
        for key in ("session_id", "transcript_path", "cwd", "model")
        if (value := name_at(payload, key)) is not None and "\0" not in value  # no path has one
    }
    return Report(
        source=Source.HOOK,
        name=name,
        events=events,
        session_id=conversation.get("session_id") or None,
        pid=_pid(payload, env),
        subagent=str(payload.get("agent_id") or "")[:LONGEST_NAME],
        conversation=conversation,
        permission_mode=name_at(payload, "permission_mode"),
        carry_over=tuple(_carry_over(name, payload)),
        facts=_place(env),
    )


def read_emitted(arguments: Payload) -> Report | None:
    """Report what `keeper/emit` passed on: the payload, and the agent's own pid."""
    payload = arguments.get("payload")
    if not isinstance(payload, dict):
        return None
    return read_hook({**payload, "claude_pid": arguments.get("claude_pid")})


def _is_of_process(name: str, payload: Payload, env: Mapping[str, str]) -> bool:
    """Return whether an event is about a process of a background agent, which outlives its processes."""
    how = (name, payload.get("reason" if name == "SessionEnd" else "source"))
    return _is_job(env) and how in (("SessionEnd", "other"), ("SessionStart", "resume"))


def _is_job(env: Mapping[str, str]) -> bool:
    """Return whether the hook is of a background agent. Agents that it starts have the variable too."""
    return bool(env.get("CLAUDE_JOB_DIR")) and not env.get("CLAUDE_CODE_ENTRYPOINT", "").startswith("sdk")


def _pid(payload: Payload, env: Mapping[str, str]) -> int | None:
    """Return the pid of the agent. The program that was started may be a wrapper script."""
    digits = str(env.get("CLAUDE_PID") or payload.get("claude_pid") or "")
    is_pid = digits.isdecimal() and len(digits) < 11 and 0 < int(digits) < 1 << 31
    return int(digits) if is_pid else None


def _place(env: Mapping[str, str]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    if pane := env.get("TMUX_PANE"):
        facts["pane"] = pane
        if tmux := env.get("TMUX", "").partition(",")[0]:
            facts["tmux"] = tmux
    if entrypoint := env.get("CLAUDE_CODE_ENTRYPOINT"):
        facts["entrypoint"] = entrypoint
    if session := env.get("REMUDA_SESSION"):
        facts["name"] = session
    elif _is_job(env):
        facts["origin"] = "background"
    return facts


# ── one reader for each hook ──


def _session_start(payload: Payload, _at: float) -> Iterator[AgentEvent]:
    how = str(payload.get("source", "startup"))
    yield ConversationStarted(how)
    if how == "clear":
        yield CommandRun("clear", confirmed=True, conversation=name_at(payload, "session_id"))


def _session_end(payload: Payload, _at: float) -> Iterator[AgentEvent]:
    yield ConversationEnded(str(payload.get("reason", "other")))


def _prompt_submit(payload: Payload, _at: float) -> Iterator[AgentEvent]:
    prompt = str(payload.get("prompt", ""))
    notice = prompt.startswith(TASK_NOTICE)
    ends = frozenset(_TASK_ID.findall(prompt) if notice else ())
    yield PromptSubmitted(prompt, name_at(payload, "prompt_id"), notice, ends, prompt.startswith(_CONTINUES))


def _stop(payload: Payload, _at: float) -> Iterator[AgentEvent]:
    yield TurnStopped(
        str(payload.get("last_assistant_message") or ""),
        name_at(payload, "prompt_id"),
        tuple(_tasks(payload.get("background_tasks"))),
        name_at(payload, "session_id"),
    )


def _tasks(tasks: object) -> Iterator[Task]:
    for task in tasks if isinstance(tasks, list) else []:
        if isinstance(task, dict):
            kind, what = str(task.get("type", "task")), text_at(task, "description")
            is_shell, is_running = (
                "shell" in kind or "bash" in kind,
                task.get("status", "running") == "running",
            )
            yield Task(str(task.get("id")), kind, is_shell, what, is_running)


def _stop_failure(payload: Payload, at: float) -> Iterator[AgentEvent]:
    text = str(payload.get("last_assistant_message") or payload.get("error") or "")
    yield read_failure(payload.get("error"), text, at, prompt_id=name_at(payload, "prompt_id"))


def _pre_tool_use(payload: Payload, _at: float) -> Iterator[AgentEvent]:
    yield ToolStarted(_tool(payload), payload.get("tool_input"), name_at(payload, "tool_use_id") or "")


def _post_tool_use(payload: Payload, _at: float) -> Iterator[AgentEvent]:
    name = payload.get("hook_event_name")
    yield ToolFinished(
        name_at(payload, "tool_use_id") or "",
        ok=name == "PostToolUse",
        denied=name == "PermissionDenied",
        tool=_tool(payload),
        input=payload.get("tool_input"),
    )
    response = as_object(payload.get("tool_response") if name == "PostToolUse" else None)
    if response.get("isAsync") and response.get("agentId") and not payload.get("agent_id"):
        # A subagent. It may end before the turn stops, and still wakes the agent.
        yield BackgroundStarted(str(response["agentId"]))


def _post_tool_batch(payload: Payload, _at: float) -> Iterator[AgentEvent]:
    calls = payload.get("tool_calls")
    results = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    yield ToolsFinished(
        tuple(
            ToolOutput(str(call.get("tool_use_id")), str(call.get("tool_name")), call.get("tool_response"))
            for call in results
        )
    )


def _permission_request(payload: Payload, _at: float) -> Iterator[AgentEvent]:
    tool, suggestions = _tool(payload), payload.get("permission_suggestions")
    yield PermissionRequested(
        tool,
        payload.get("tool_input"),
        reason_of(tool),
        [one for one in suggestions if isinstance(one, dict)] if isinstance(suggestions, list) else [],
        name_at(payload, "prompt_id"),
        name_at(payload, "tool_use_id") or "",
    )


def _message_display(payload: Payload, _at: float) -> Iterator[AgentEvent]:
    delta, index = payload.get("delta"), payload.get("index")
    if isinstance(delta, str):
        number = index if isinstance(index, int) else None
        yield TextShown(payload.get("message_id"), number, delta, bool(payload.get("final")))


def _notification(payload: Payload, _at: float) -> Iterator[AgentEvent]:
    """Read a notification. It comes later than other hooks and says less: for users without the others."""
    kind, message = str(payload.get("notification_type")), str(payload.get("message", ""))
    if kind == "permission_prompt":
        yield DialogReported("permission", message, kind, reminder=True)
    elif kind.endswith("_dialog") or (kind == "agent_needs_input" and not _OF_ANOTHER.fullmatch(message)):
        yield DialogReported("question", message, kind)
    elif kind == "idle_prompt":
        yield RestReported()


_READERS: dict[str, Callable[[Payload, float], Iterator[AgentEvent]]] = {
    "SessionStart": _session_start,
    "SessionEnd": _session_end,
    "UserPromptSubmit": _prompt_submit,
    "Stop": _stop,
    "StopFailure": _stop_failure,
    "PreToolUse": _pre_tool_use,
    "PostToolUse": _post_tool_use,
    "PostToolUseFailure": _post_tool_use,
    "PermissionDenied": _post_tool_use,
    "PostToolBatch": _post_tool_batch,
    "PermissionRequest": _permission_request,
    "MessageDisplay": _message_display,
    "Notification": _notification,
}


def _carry_over(name: str, payload: Payload) -> Iterator[str]:
    """Return effects that outlive the conversation.

    Also those of a subagent, and of work that has ended since: its notice may still come.
    """
    if name not in ("PreToolUse", "PostToolUse", "Stop"):
        return
    tool = str(payload.get("tool_name"))
    call, response = as_object(payload.get("tool_input")), as_object(payload.get("tool_response"))
    if what := LASTING_TOOLS.get(tool):
        yield f"{what} ({tool})"
    if payload.get("background_tasks") or response.get("isAsync") or response.get("backgroundTaskId"):
        yield _SOMETHING
    elif tool == "Bash" and call.get("run_in_background"):
        yield _SHELL
    if payload.get("session_crons"):
        yield "a scheduled prompt"


def permission_decision(decision: dict[str, Any]) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": decision}}


def _tool(payload: Payload) -> str:
    return str(payload.get("tool_name", ""))[:LONGEST_NAME]


# ── answering a permission request ──

_DENIED = "The user does not want this. Go on without it, or say what you would need."


def answer_permission(request: PermissionRequest, decision: PermissionDecision) -> dict[str, Any]:
    """Return the answer to the hook that requests a permission.

    A plan is in the request's input when the agent has written its plan file; else the input is empty.
    """
    if not decision.allow:
        deny: dict[str, Any] = {"behavior": "deny", "message": decision.message or _DENIED}
        return permission_decision(deny | ({"interrupt": True} if decision.interrupt else {}))
    allow: dict[str, Any] = {"behavior": "allow"}
    if decision.input is not None:
        allow["updatedInput"] = dict(decision.input)
    elif request.tool == "ExitPlanMode":
        allow["updatedInput"] = {}  # without one the answer is ignored
    if decision.always:
        from .stream.stream_protocol import for_conversation

        edited = decision.input is not None
        given = request.input if decision.input is None else decision.input
        lasting = for_conversation(request.tool, given, request.suggestions, edited=edited)
        allow |= {"updatedPermissions": lasting} if lasting else {}
    return permission_decision(allow)
