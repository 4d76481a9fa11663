"""What opencode's events mean, in the order and with the fields of 1.18.33."""

from __future__ import annotations

from typing import Any

from remuda.agents.events import (
    AgentEvent,
    ConversationStarted,
    Failure,
    MessageRecorded,
    PermissionDecided,
    PermissionRequested,
    PromptRecorded,
    PromptSubmitted,
    Report,
    TextShown,
    ToolFinished,
    ToolStarted,
    TurnFailed,
    TurnInterrupted,
    TurnRecorded,
    TurnStopped,
)
from remuda.agents.opencode.reader import EventReader

NOW = 1_795_000_000.0
TOKENS = {"input": 12, "output": 7, "reasoning": 1, "cache": {"read": 3, "write": 2}}


def event(kind: str, session: str = "ses_a", **facts: Any) -> dict[str, Any]:
    return {"id": "evt_1", "type": kind, "properties": {"sessionID": session, **facts}}


def user(message: str, text: str, session: str = "ses_a", **part: Any) -> list[dict[str, Any]]:
    info = {"id": message, "role": "user", "sessionID": session, "agent": "build", "time": {"created": 1}}
    content = {"id": f"prt_{message}", "type": "text", "text": text, "messageID": message, **part}
    return [
        event("message.updated", session, info=info),
        event("message.part.updated", session, part=content),
    ]


def answer(message: str, parent: str, session: str = "ses_a", **more: Any) -> dict[str, Any]:
    info = {"id": message, "role": "assistant", "parentID": parent, "sessionID": session, "tokens": TOKENS}
    return event("message.updated", session, info={**info, "modelID": "m", "time": {"created": 1}, **more})


def done(message: str, parent: str, **more: Any) -> dict[str, Any]:
    return answer(message, parent, time={"created": 1, "completed": 2}, **more)


def text(message: str, words: str, session: str = "ses_a") -> dict[str, Any]:
    part = {"id": f"prt_{message}", "type": "text", "text": words, "messageID": message, "time": {"end": 2}}
    return event("message.part.updated", session, part=part)


def tool(message: str, status: str, call: str = "call_1", **state: Any) -> dict[str, Any]:
    made = {"status": status, "input": {"command": "ls"}, **state}
    part = {"id": f"prt_{call}", "type": "tool", "tool": "bash", "callID": call, "messageID": message}
    return event("message.part.updated", part={**part, "state": made})


def status(kind: str, session: str = "ses_a", **more: Any) -> dict[str, Any]:
    return event("session.status", session, status={"type": kind, **more})


IDLE = event("session.idle")


def reader() -> EventReader:
    made = EventReader("ses_a")
    made.open([], busy=False)
    return made


def reports(made: EventReader, *events: dict[str, Any]) -> list[Report]:
    return [report for one in events for report in made.take(one, NOW)]


def events(made: EventReader, *given: dict[str, Any]) -> list[AgentEvent]:
    return [one for report in reports(made, *given) for one in report.events]


def test_turn_is_reported_from_its_first_answer_to_idle() -> None:
    made = reader()
    assert events(made, *user("msg_1", "hello"), status("busy")) == []  # stored is not started
    begun = events(made, answer("msg_2", "msg_1"))
    assert begun == [PromptSubmitted("hello", "msg_1"), PromptRecorded("hello", "msg_1", "ses_a")]
    assert events(made, text("msg_2", "REPLY")) == [TextShown("prt_msg_2", 0, "REPLY", final=True)]
    ended = events(made, done("msg_2", "msg_1", finish="stop"), status("idle"), IDLE)
    usage = {
        "input_tokens": 12,
        "output_tokens": 8,
        "cache_creation_input_tokens": 2,
        "cache_read_input_tokens": 3,
    }
    assert ended == [
        MessageRecorded("msg_2", usage),
        MessageRecorded("msg_2", usage, "REPLY", final=True),
        TurnStopped("REPLY", "msg_1", conversation="ses_a"),
        TurnRecorded(),
    ]
    assert events(made, done("msg_2", "msg_1", finish="stop"), IDLE) == []


def test_failed_turn_ends_with_its_error_not_at_the_first_idle() -> None:
    made = reader()
    events(made, *user("msg_1", "x"), answer("msg_2", "msg_1"))
    error = {"name": "APIError", "data": {"message": "bad", "statusCode": 400}}
    assert events(made, event("session.error", error=error), status("idle"), IDLE) == []
    ended = events(made, done("msg_2", "msg_1", error=error), status("idle"), IDLE)
    assert TurnFailed(Failure.INVALID, "bad", "msg_1") in ended
    assert ended.count(TurnRecorded()) == 1


def test_aborted_turn_is_interrupted_also_without_an_error() -> None:
    made = reader()
    error = {"name": "MessageAbortedError", "data": {"message": "Aborted"}}
    events(made, *user("msg_1", "x"), answer("msg_2", "msg_1"))
    assert TurnInterrupted("msg_1") in events(made, done("msg_2", "msg_1", error=error), IDLE)
    events(made, *user("msg_3", "y"), answer("msg_4", "msg_3"))
    assert TurnInterrupted("msg_3") in events(made, done("msg_4", "msg_3"), IDLE)


def test_retries_are_a_limit_only_once_they_are_given_up() -> None:
    made = reader()
    events(made, *user("msg_1", "x"), answer("msg_2", "msg_1"))
    events(made, status("retry", attempt=1, message="Rate limited", next=(NOW + 30) * 1000))
    limited = TurnFailed(Failure.RATE_LIMITED, "Rate limited", "msg_1", 30.0)
    assert made.retries == limited
    made.give_up()
    assert limited in events(made, done("msg_2", "msg_1"), IDLE)
    events(made, *user("msg_3", "y"), answer("msg_4", "msg_3"))
    events(made, status("retry", attempt=1, message="Rate limited", next=(NOW + 30) * 1000))
    assert TurnInterrupted("msg_3") in events(made, done("msg_4", "msg_3"), IDLE)


def test_prompt_during_a_turn_runs_after_it_as_a_turn_of_its_own() -> None:
    made = reader()
    events(made, *user("msg_1", "x"), answer("msg_2", "msg_1"), *user("msg_3", "y"))
    events(made, text("msg_2", "first"), done("msg_2", "msg_1", finish="stop"))
    found = events(made, answer("msg_4", "msg_3"))
    assert [one for one in found if isinstance(one, TurnStopped | PromptSubmitted)] == [
        TurnStopped("first", "msg_1", conversation="ses_a"),
        PromptSubmitted("y", "msg_3"),
    ]


def test_message_that_opencode_writes_to_itself_continues_the_turn() -> None:
    made = reader()
    events(made, *user("msg_1", "x"), answer("msg_2", "msg_1"), done("msg_2", "msg_1", finish="tool-calls"))
    assert events(made, *user("msg_3", "Continue", synthetic=True), answer("msg_4", "msg_3")) == []
    ended = events(made, text("msg_4", "all"), done("msg_4", "msg_3", finish="stop"), IDLE)
    assert TurnStopped("all", "msg_1", conversation="ses_a") in ended


def test_tools_and_permissions() -> None:
    made = reader()
    events(made, *user("msg_1", "x"), answer("msg_2", "msg_1"), tool("msg_2", "pending"))
    assert events(made, tool("msg_2", "running")) == [ToolStarted("bash", {"command": "ls"}, "call_1")]
    assert events(made, tool("msg_2", "running", metadata={"output": "a"})) == []
    asked = event(
        "permission.asked",
        id="per_1",
        permission="bash",
        patterns=["ls"],
        metadata={"command": "ls"},
        always=["ls *"],
        tool={"messageID": "msg_2", "callID": "call_1"},
    )
    (request,) = events(made, asked)
    assert request == PermissionRequested(
        "bash", {"command": "ls"}, "permission", [{"always": "ls *"}], "msg_1", "per_1"
    )
    assert events(made, event("permission.replied", requestID="per_1", reply="once")) == [
        PermissionDecided("per_1")
    ]
    finished = events(made, tool("msg_2", "error", error="The user rejected permission to use this"))
    assert finished[0] == ToolFinished("call_1", ok=False, denied=True, tool="bash", input={"command": "ls"})
    assert events(made, tool("msg_2", "error", error="again")) == []


def test_permission_allowed_always_would_carry_over() -> None:
    (report,) = reports(reader(), event("permission.replied", requestID="per_1", reply="always"))
    assert report.carry_over


def test_subagents_request_permissions_and_nothing_else_of_them_is_ours() -> None:
    made = reader()
    events(made, *user("msg_1", "x"), answer("msg_2", "msg_1"))
    child = {"id": "ses_b", "parentID": "ses_a"}
    assert reports(made, event("session.created", "ses_b", info=child)) == []
    assert events(made, *user("msg_5", "sub", "ses_b"), answer("msg_6", "msg_5", "ses_b")) == []
    assert events(made, status("idle", "ses_b"), event("session.idle", "ses_b")) == []
    asked = event("permission.asked", "ses_b", id="per_1", permission="bash", metadata={"command": "ls"})
    (report,) = reports(made, asked)
    assert (report.subagent, report.conversation) == ("ses_b", {})
    assert made.turn == "msg_1"


def test_conversation_that_a_user_opens_in_the_terminal_is_followed() -> None:
    made = reader()
    assert events(made, *user("msg_1", "new one", "ses_c")) == []
    moved, begun = reports(made, answer("msg_2", "msg_1", "ses_c"))
    assert moved.events == (ConversationStarted("resume"),)
    assert begun.conversation["session_id"] == "ses_c"
    assert PromptSubmitted("new one", "msg_1") in begun.events


def test_conversation_elsewhere_does_not_end_a_turn_that_runs() -> None:
    made = reader()
    events(made, *user("msg_1", "x"), answer("msg_2", "msg_1"))
    assert events(made, *user("msg_3", "y", "ses_c"), answer("msg_4", "msg_3", "ses_c")) == []
    assert (made.conversation, made.turn) == ("ses_a", "msg_1")


def as_messages(*given: dict[str, Any]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for one in given:
        facts = one["properties"]
        if "info" in facts:
            found.setdefault(facts["info"]["id"], {"parts": []})["info"] = facts["info"]
        else:
            found[facts["part"]["messageID"]]["parts"].append(facts["part"])
    return list(found.values())


def test_connection_joins_a_turn_that_runs() -> None:
    made = EventReader("ses_a")
    given = [*user("msg_1", "x"), answer("msg_2", "msg_1"), text("msg_2", "wo")]
    opened = made.open(as_messages(*given), busy=True)
    assert PromptSubmitted("x", "msg_1") in opened.events
    assert events(made, text("msg_2", "word")) == [TextShown("prt_msg_2", 1, "rd", final=True)]
    assert TurnStopped("word", "msg_1", conversation="ses_a") in events(
        made, done("msg_2", "msg_1", finish="stop"), IDLE
    )


def test_connection_reports_the_end_of_the_turn_that_was_known() -> None:
    given = as_messages(*user("msg_1", "x"), answer("msg_2", "msg_1"))
    cut = EventReader("ses_a").open(given, busy=False, known_turn="msg_1")
    assert TurnInterrupted("msg_1") in cut.events
    assert EventReader("ses_a").open(given, busy=False).events == (ConversationStarted("resume"),)


def test_hostile_events_are_taken_without_an_error() -> None:
    made = reader()
    for kind in ("message.updated", "message.part.updated", "permission.asked", "session.status", "x"):
        for facts in (
            {},
            {"info": 3, "part": [], "status": None},
            {"sessionID": ["a"]},
            {"sessionID": "ses_a"},
        ):
            made.take({"type": kind, "properties": facts}, NOW)
    made.take({"type": None, "properties": 7}, NOW)
