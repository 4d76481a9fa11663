"""Numbers that JSON does not have, nesting and halves of characters, at every door of the boss."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

from remuda.boss.navigator import reason
from remuda.untrusted import parse_json
from support.boss import RunningBoss, event
from support.commands import Commands

VALUES = {
    "too large": "1e999",
    "too small": "-1e999",
    "many digits": "9" * 400,
    "very many digits": "9" * 5000,
    "nan": "NaN",
    "infinity": "-Infinity",
    "deep": "[" * 5000 + "]" * 5000,
    "half a character": '"\\ud800"',
    "half a key": '{"\\udfff": 1}',
    "large and finite": "1e308",
}
REFUSED = VALUES.keys() - {"half a character", "half a key", "large and finite"}
DOORS = {
    "/v1/hooks": '{"payload": {"session_id": "a", "hook_event_name": "PermissionRequest",'
    ' "tool_name": "Bash", "tool_input": {"command": "ls", "more": %s}, "cwd": %s}, "env": {}}',
    "/v1/hooks/permission": '{"payload": {"session_id": "b", "hook_event_name": "Stop", "prompt": %s},'
    ' "wait": 0}',
    "/v1/events": '{"events": [{"kind": "stopped", "session_id": "c", "facts": {"message": "x", "name": %s,'
    ' "pane": %s, "tmux": %s, "pid": %s, "background": %s, "tool_use_id": %s}}]}',
    "/event": '{"session_id": "d", "hook_event_name": "Stop", "last_assistant_message": %s}',
    "/event/normalized": '{"type": "stuck", "sessionId": "e", "paneId": "%%1", "reason": "stopped",'
    ' "timestamp": 1000, "message": %s, "more": %s}',
    "/v1/queue/x/skip": '{"cooldown": %s}',
    "/v1/queue/x/snooze": '{"until": %s}',
    "/v1/approvals/x/answer": '{"behavior": "allow", "updated_input": {"a": %s}}',
    "/v1/answer/" + "x" * 32: '{"behavior": "deny", "message": %s}',
    "/v1/sessions/x/reply": '{"text": "x", "wait": %s}',
    "/v1/navigate": '{"action": "next", "client": %s, "tmux": "/none"}',
}
LOOKS = (
    "/v1/queue?hidden=true",
    "/v1/sessions",
    "/v1/approvals",
    "/v1/queue/history",
    "/queue",
    "/v1/health",
)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("value", VALUES)
def test_document_beyond_bounds_is_refused_with_a_reason_or_bounded(
    served: RunningBoss, door: str, value: str
) -> None:
    body = DOORS[door].replace("%%", "\0").replace("%s", VALUES[value]).replace("\0", "%")
    headers = {"Content-Type": "application/json", "X-Tmux-Pane": "%1"}
    answer = served.ask("POST", door, body.encode(), headers)
    error = parse_json(answer.body).get("error", "")
    if value in REFUSED:
        assert (answer.status, bool(error)) == (400, True)
    else:
        assert answer.status in (200, 400, 404, 502)
    for look in LOOKS:
        seen = served.ask("GET", look)
        assert seen.status == 200
        parse_json(seen.body)


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e999", "1e400", "infinity", "9" * 5000])
@pytest.mark.parametrize("path", ["/v1/queue/history", "/v1/approvals"])
@pytest.mark.parametrize("name", ["before", "limit"])
def test_number_of_a_query_must_be_finite(served: RunningBoss, path: str, name: str, number: str) -> None:
    answer = served.ask("GET", f"{path}?{name}={number}")
    assert (answer.status, answer.json["error"]["code"]) == (400, "INVALID_OPTIONS")
    assert name in answer.json["error"]["message"]


def test_text_that_is_no_utf_8_is_refused(served: RunningBoss) -> None:
    headers = {"Content-Type": "application/json"}
    for body in (b'{"a": "\xff"}', '{"a": 1}'.encode("utf-16"), b'\xef\xbb\xbf{"a": 1}', b"\xed\xa0\x80"):
        assert served.ask("POST", "/v1/events", body, headers).status == 400


def test_deepest_request_that_is_taken_can_be_looked_at(boss: RunningBoss) -> None:
    deep = "[" * 497 + "]" * 497
    body = '{"payload": {"session_id": "a", "hook_event_name": "PermissionRequest", "tool_name": "Bash",'
    body += f' "tool_input": {{"x": {deep}}}}}}}'
    headers = {"Content-Type": "application/json"}
    assert boss.ask("POST", "/v1/hooks", body.encode(), headers).status == 200
    assert boss.ask("POST", "/v1/hooks", body.replace("[", "[[").encode(), headers).status == 400
    assert len(boss.waiting()) == len(boss.client.get("approvals")["approvals"]) == 1
    boss.restart()
    assert len(boss.waiting()) == len(boss.client.get("approvals")["approvals"]) == 1


# ── what an older boss has written ──

OLD_LIMIT = '{"message": "try again", "error": "rate_limited", "until": %s}'
OLD_ASK = (
    '{"tool": "Bash", "input": {"command": "ls", "timeout": Infinity, "more": [NaN, -Infinity, "\\ud800"]},'
    ' "reason": "permission", "message": "Bash: ls", "expires_at": Infinity}'
)


@pytest.fixture
def old(boss: RunningBoss) -> RunningBoss:
    """A boss on a database that one before 0.2 has left behind."""
    boss.tell(event("limited", 1000.0, session="far", message="x", until=1.0))
    boss.tell(event("limited", 1000.0, session="never", message="x", until=1.0))
    boss.tell(event("asked", 1000.0, session="asks", tool="Bash", input={"command": "ls"}))
    boss.tell(event("limited", 1000.0, session="over", message="x", until=7.2e22))
    boss.tell(event("prompted", 1001.0, session="over", prompt="x"))
    boss.end()
    with closing(sqlite3.connect(boss.folder.database)) as database, database:
        for session, facts in (
            ("far", OLD_LIMIT % "7.2e+22"),
            ("never", OLD_LIMIT % "Infinity"),
            ("asks", OLD_ASK),
        ):
            database.execute("UPDATE event SET facts = ? WHERE session_id = ?", (facts, session))
        (document,) = database.execute("SELECT document FROM approval").fetchone()
        database.execute("UPDATE approval SET document = ?", (document.replace('"ls"', '"ls","n":NaN'),))
        (document,) = database.execute("SELECT document FROM item").fetchone()
        changed = document.replace("7.2e+22", "Infinity")
        assert changed != document
        database.execute("UPDATE item SET document = ?", (changed,))
    boss.start()
    return boss


def test_rows_with_numbers_that_json_does_not_have_are_loaded_and_shown(
    remuda: Commands, old: RunningBoss
) -> None:
    found = {item["session_id"]: item for item in old.waiting()}
    assert found.keys() == {"far", "never", "asks"}
    assert reason(found["far"]).startswith("limited until 9999-")
    assert reason(found["never"]).startswith("limited until 9999-")
    assert found["asks"]["detail"]["input"]["more"][0] is None
    for look in LOOKS:
        seen = old.ask("GET", look)
        assert seen.status == 200
        parse_json(seen.body)
    for words in (["queue"], ["queue", "--all"], ["agents"], ["queue", "--history"], ["approvals", "--all"]):
        remuda(*words)
    assert "limited until 9999-" in remuda("queue").out
    assert "limited until 9999-" in remuda("queue", "--history").out


def test_limit_with_a_giant_number_is_shown_as_a_date(remuda: Commands, boss: RunningBoss) -> None:
    for session, number in (("a", "20000000000000000000"), ("b", "9" * 400)):
        payload = {
            "session_id": session,
            "hook_event_name": "StopFailure",
            "error": "rate_limit",
            "last_assistant_message": f"API Error: 429 too much, try again in {number} hours",
        }
        boss.client.post("hooks", body={"payload": payload})
    for item in boss.waiting():
        assert item["detail"]["until"] < 4e9
        assert reason(item).startswith("limited until 20")
    remuda("queue")
    remuda("agents")
    boss.client.post("queue", boss.waiting()[0]["id"], "dismiss")
    assert "limited until 20" in remuda("queue", "--history").out


def test_every_row_is_json(boss: RunningBoss) -> None:
    headers = {"Content-Type": "application/json"}
    body = DOORS["/v1/events"].replace("%s", '{"\\ud800": 1e308}')
    assert boss.ask("POST", "/v1/events", body.encode(), headers).status == 200
    boss.end()
    with closing(sqlite3.connect(boss.folder.database)) as database:
        for table, column in (("event", "facts"), ("session", "document"), ("item", "document")):
            for (text,) in database.execute(f"SELECT {column} FROM {table}"):
                json.loads(text, parse_constant=lambda name: pytest.fail(name))
