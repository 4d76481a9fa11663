"""`remuda approvals`, `approve` and `deny`: what is asked is shown whole, and answered once."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from remuda.agents.attention import digest
from remuda.agents.state import Source
from remuda.cli.permission_request import must_be_seen
from remuda.errors import NotSafe
from remuda.keeper.client import KeeperClient
from support.boss import RunningBoss, event
from support.commands import COMMAND, Commands
from support.heimdall_client import PATIENCE
from support.keeper import Start, event_named, until
from support.watcher import Watcher

WRITE = {"file_path": "/srv/new.txt", "content": "one\ntwo\n"}


def told(tool: str = "Bash", given: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    payload = {
        "session_id": "11112222-0000",
        "hook_event_name": "PermissionRequest",
        "tool_name": tool,
        "tool_input": {"command": "touch x"} if given is None else given,
        "cwd": "/srv",
        **more,
    }
    return {"payload": payload, "id": f"ask:{digest(tool, payload['tool_input'])}"}


@contextmanager
def asking(boss: RunningBoss, *what: Any) -> Iterator[Future[dict[str, Any]]]:
    with boss.holding(told(*what)) as hook:
        try:
            yield hook
        finally:  # nothing waits for a test that failed
            for one in boss.client.get("approvals", state="open")["approvals"]:
                boss.client.post("approvals", one["id"], "answer", body={"behavior": "deny"})


def said(hook: Future[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = hook.result(PATIENCE)["output"]["hookSpecificOutput"]["decision"]
    return found


def test_approve_by_the_beginning_of_a_session_id_then_again_names_the_first(
    remuda: Commands, boss: RunningBoss
) -> None:
    with asking(boss) as hook:
        assert remuda("approve", "11112222", "--yes").out.startswith("allowed ")
        assert said(hook) == {"behavior": "allow"}
    (number,) = (one["id"] for one in boss.client.get("approvals")["approvals"])
    assert "command line has already decided: allow" in remuda.refused("deny", number, code=8)
    assert "has no open permission request" in remuda.refused("approve", "11112222", "--yes", code=3)


def test_approve_with_another_input(remuda: Commands, boss: RunningBoss, tmp_path: Path) -> None:
    (tmp_path / "edited.json").write_text('{"command": "touch y"}')
    with asking(boss) as hook:
        remuda("approve", "11112222", "--yes", "--edit-file", str(tmp_path / "edited.json"), "--always")
        answer = said(hook)
    assert (answer["behavior"], answer["updatedInput"]) == ("allow", {"command": "touch y"})
    assert answer["updatedPermissions"][0]["destination"] == "session"


def test_decision_that_the_agent_cannot_take_is_refused_before_it_is_sent(
    remuda: Commands, boss: RunningBoss
) -> None:
    refuses = {
        "edit": "a cow runs no edits: allow it",
        "always": "a cow asks again",
        "message": "it reads none",
    }
    given = {"tool": "Bash", "input": {"command": "ls"}, "refuses": refuses}
    boss.tell(event("asked", time.time(), Source.HOOK, "11112222-0000", **given))
    shown = remuda("approvals", "11112222").out
    for words, option, why in (
        (("approve", "--yes", "--edit", "{}"), "no --edit", refuses["edit"]),
        (("approve", "--yes", "--always"), "no --always", refuses["always"]),
        (("deny", "--message", "later"), "no --message", refuses["message"]),
    ):
        # The boss would say that it can be decided only in its terminal, with exit code 8.
        assert why in remuda.refused(words[0], "11112222", *words[1:], code=2)
        assert f"  {option:<12} {why}" in shown
    remuda.refused("approve", "11112222", "--yes", code=8)


def test_deny_says_why_and_ends_the_turn(remuda: Commands, boss: RunningBoss) -> None:
    with asking(boss) as hook:
        assert remuda("deny", "11112222", "--message", "not now", "--interrupt").out.startswith("denied ")
        assert said(hook) == {"behavior": "deny", "message": "not now", "interrupt": True}


def test_question_is_answered_by_its_header(remuda: Commands, boss: RunningBoss) -> None:
    given = {"questions": [{"question": "Which colour?", "header": "Colour", "options": []}]}
    with asking(boss, "AskUserQuestion", given) as hook:
        assert "answers" in remuda.refused("approve", "11112222", "--yes", code=2)
        assert "no question" in remuda.refused("approve", "11112222", "--yes", "--answer", "Size=L", code=2)
        remuda("approve", "11112222", "--yes", "--answer", "Colour=Blue")
        assert said(hook)["updatedInput"]["answers"] == {"Which colour?": "Blue"}


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("approve", "11112222", "--yes"), {"behavior": "allow", "updatedInput": {}}),
        (
            ("approve", "11112222", "--yes", "--edit", '{"plan": "less"}'),
            {"behavior": "allow", "updatedInput": {"plan": "less"}},
        ),
        (("deny", "11112222", "-m", "add tests"), {"behavior": "deny", "message": "add tests"}),
    ],
)
def test_plan_is_agreed_to_changed_or_sent_back(
    remuda: Commands, boss: RunningBoss, words: tuple[str, ...], answer: dict[str, Any]
) -> None:
    with asking(boss, "ExitPlanMode", {}) as hook:
        remuda(*words)
        assert said(hook) == answer


def test_plan_of_which_nothing_is_known_is_agreed_to_by_a_word_alone(
    remuda: Commands, boss: RunningBoss, start: Start
) -> None:
    with asking(boss, "ExitPlanMode", {}) as hook:
        refused = remuda.refused("approve", "11112222", code=8)
        assert "only in the agent's terminal" in refused
        assert "'remuda next'" in refused
        shell = ["sh", "-c", '"$@"; echo rc=$?; exec cat', "sh"]  # it stays, to be looked at
        watcher = Watcher(start("ask", [*shell, *COMMAND, "approve", "11112222"], cols=100, rows=30).hello())
        watcher.until_shows("only in the agent's terminal")
        watcher.until_shows("rc=8")
        (one,) = boss.client.get("approvals")["approvals"]
        assert (one["state"], hook.done()) == ("open", False)
        assert "only in the agent's terminal" in remuda("approvals", "srv").out
        with pytest.raises(NotSafe) as error:
            must_be_seen(one, {"name": "work"})
        assert "'remuda attach work'" in str(error.value.hint)


def test_plan_that_is_known_is_shown_whole_and_asked_about(boss: RunningBoss, start: Start) -> None:
    plan = {"plan": "# Rework\n1. first this\n2. then that\n", "planFilePath": "/srv/plans/rework.md"}
    with asking(boss, "ExitPlanMode", plan) as hook:
        kept = start("ask", [*COMMAND, "approve", "11112222"], cols=100, rows=30)
        client = kept.hello()
        watcher = Watcher(client)
        watcher.until_shows("n: leave it open [y/N/d]:")
        lines = [line.strip() for line in client.request("screen")["lines"]]
        assert {"# Rework", "1. first this", "2. then that"} <= set(lines)
        watcher.press(b"y\r")
        assert event_named(client, "exited")["code"] == 0
        assert said(hook) == {"behavior": "allow", "updatedInput": {}}


def test_approvals_lists_what_is_asked_and_the_ledger(remuda: Commands, boss: RunningBoss) -> None:
    assert remuda("approvals").out == "no open permission requests\n"
    with asking(boss, "Write", WRITE):
        head, row = remuda("approvals").out.splitlines()
        assert head.split() == ["ID", "WHO", "TOOL", "AGE", "STATE", "WHAT"]
        assert row.split()[1:3] == ["srv", "Write"]
        assert row.endswith("open   /srv/new.txt")
        whole = remuda("approvals", "srv").out
        assert "/srv/new.txt" in whole
        assert "+one\n+two\n" in whole
    assert remuda("approvals").out == "no open permission requests\n"
    (one,) = remuda.json("approvals", "--all")["approvals"]
    assert (one["state"], one["input"]) == ("answered", WRITE)
    assert "deny by api" in remuda("approvals", "--all").out


def test_nothing_is_allowed_without_a_terminal_or_a_word(remuda: Commands, boss: RunningBoss) -> None:
    with asking(boss):
        assert "pass --yes" in remuda.refused("approve", "11112222", code=2)
        for words in (("--edit", "{"), ("--edit", "[]"), ("--edit-file", "/nowhere"), ("--answer", "x")):
            remuda.refused("approve", "11112222", "--yes", *words, code=2)
        (one,) = boss.client.get("approvals")["approvals"]
        assert one["state"] == "open"
    assert "no permission request and no session" in remuda.refused("approve", "nobody", "--yes", code=3)


@pytest.mark.parametrize("answer", ["y", "n", "d"])
def test_terminal_shows_all_of_it_and_asks(boss: RunningBoss, start: Start, answer: str) -> None:
    with asking(boss, "Write", WRITE) as hook:
        kept = start("ask", [*COMMAND, "approve", "11112222"], cols=100, rows=30)
        client = kept.hello()
        watcher = Watcher(client)
        watcher.until_shows("n: leave it open [y/N/d]:")
        lines = [line.rstrip() for line in client.request("screen")["lines"]]
        assert {"+one", "+two"} <= set(lines)
        assert any("/srv/new.txt" in line for line in lines)
        watcher.press(f"{answer}\r".encode())
        code = event_named(client, "exited")["code"]
        if answer == "n":
            assert (code, hook.done()) == (130, False)
        else:
            assert (code, said(hook)["behavior"]) == (0, {"y": "allow", "d": "deny"}[answer])


def test_approve_edit_without_json_opens_the_input_in_an_editor(
    boss: RunningBoss, start: Start, tmp_path: Path
) -> None:
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/touch x/touch y/' \"$1\"\n")
    editor.chmod(0o755)
    env = {**os.environ, "EDITOR": str(editor)}
    env.pop("VISUAL", None)
    with asking(boss) as hook:
        client = start("ask", [*COMMAND, "approve", "11112222", "--edit"], cols=100, rows=30, env=env).hello()
        watcher = Watcher(client)
        watcher.until_shows("allow the edited request?")
        watcher.until_shows("touch y")
        watcher.press(b"y\r")
        assert event_named(client, "exited")["code"] == 0
        assert said(hook)["updatedInput"] == {"command": "touch y"}


@pytest.mark.parametrize("command", ["approve", "deny", "approvals"])
def test_dialog_that_no_answer_reaches_is_left_to_its_terminal(
    remuda: Commands, boss: RunningBoss, command: str
) -> None:
    """Of a session without hooks it is known that it asks, and not what."""
    now = time.time()
    boss.tell(
        event("prompted", now - 9, Source.TRANSCRIPT, "11112222-0000", cwd="/srv"),
        event("asked", now - 5, Source.REGISTRY, "11112222-0000", reason="permission"),
    )
    (item,) = boss.waiting()
    for word in ("srv", item["id"], item["detail"]["ask"]):
        refused = remuda.refused(command, word, *(["--yes"] if command == "approve" else []), code=8)
        assert "only be decided in the agent's terminal" in refused
        assert "'remuda next'" in refused
    body = {"behavior": "allow"}
    assert boss.ask("POST", f"/v1/approvals/{item['detail']['ask']}/answer", body).status == 409


def test_request_is_shown_by_the_name_that_the_queue_has_for_its_session(
    remuda: Commands, boss: RunningBoss
) -> None:
    with asking(boss):
        assert re.search(r"^  session +srv$", remuda("approvals", "srv").out, re.MULTILINE)


def test_approve_takes_nothing_for_an_answer_that_was_typed_before_its_question(
    boss: RunningBoss, start: Start, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with asking(boss, "Write", WRITE) as hook:
        later = ["sh", "-c", 'read go < "$0"; exec "$@"', str(gate), *COMMAND, "approve", "11112222"]
        client = start("ask", later, cols=100, rows=30).hello()
        watcher = Watcher(client)
        watcher.press(b"y\r")
        watcher.until_shows("y")
        gate.write_text("go\n")
        watcher.until_shows("n: leave it open [y/N/d]:")
        watcher.press(b"n\r")
        assert (event_named(client, "exited")["code"], hook.done()) == (130, False)


QUESTIONS = {
    "questions": [
        {"question": "Which colour?", "options": [{"label": "Red"}, {"label": "Blue", "description": "sea"}]},
        {"question": "Which sizes?", "options": [{"label": "S"}, {"label": "L"}], "multiSelect": True},
        {"question": "Why?", "options": [{"label": "So"}]},
    ]
}


def is_asked(client: KeeperClient) -> bool:
    lines = [line.rstrip() for line in client.request("screen")["lines"] if line.strip()]
    return bool(lines) and lines[-1].endswith("your own words:")


def test_terminal_asks_for_the_answers_to_a_question(boss: RunningBoss, start: Start) -> None:
    with asking(boss, "AskUserQuestion", QUESTIONS) as hook:
        kept = start("ask", [*COMMAND, "approve", "11112222"], cols=100, rows=30)
        client = kept.hello()
        watcher = Watcher(client)
        for question, said_to_it in (
            ("Which colour?", "2"),
            ("Which sizes?", "1, 2"),
            ("Why?", "because, 1"),
        ):
            watcher.until_shows(question)
            until(lambda: is_asked(client), "the prompt")  # what is typed before it is discarded
            watcher.press(f"{said_to_it}\r".encode())
        assert event_named(client, "exited")["code"] == 0
        answers = said(hook)["updatedInput"]["answers"]
        assert answers == {"Which colour?": "Blue", "Which sizes?": "S, L", "Why?": "because, 1"}


def test_question_is_shown_with_its_options(remuda: Commands, boss: RunningBoss) -> None:
    with asking(boss, "AskUserQuestion", QUESTIONS):
        whole = remuda("approvals", "srv").out
    assert "  Which colour?\n    1  Red\n    2  Blue  sea\n  Which sizes? (you can choose several)\n" in whole


def test_control_characters_of_an_agent_reach_no_terminal(remuda: Commands, boss: RunningBoss) -> None:
    with asking(boss, "Bash", {"command": "touch x\x1b[2J\x07", "more": {"a": "\x1b[31m"}}):
        for words in (("approvals",), ("approvals", "11112222")):
            out = remuda(*words).out
            assert "touch x" in out
            assert not [c for c in out if c != "\n" and not c.isprintable()]
    assert json.loads(remuda("approvals", "--all", "--json").out)


# ── rules that answer ──

POLICY = """
[[rule]]
name = "look around"
decision = "allow"
tool = "Bash"
command = ["git status", "ls *"]

[[rule]]
name = "not there"
decision = "deny"
tool = ["Write", "Edit"]
path = "/srv"
message = "nothing below /srv is yours"
"""


def write_policy(boss: RunningBoss, text: str = POLICY) -> None:
    path = boss.folder.path / "policy.toml"
    path.write_text(text)
    path.chmod(0o600)


def hooked(boss: RunningBoss, *what: Any) -> dict[str, Any]:
    """Of a hook that someone answers at once."""
    found: dict[str, Any] = boss.client.post("hooks", "permission", body=told(*what))
    return found


def test_policy_answers_at_once_and_the_ledger_names_the_rule(remuda: Commands, boss: RunningBoss) -> None:
    write_policy(boss)
    allowed = hooked(boss, "Bash", {"command": "git status; ls -l"})
    assert allowed["output"]["hookSpecificOutput"]["decision"] == {"behavior": "allow"}
    denied = hooked(boss, "Write", WRITE)["output"]["hookSpecificOutput"]["decision"]
    assert denied == {"behavior": "deny", "message": "nothing below /srv is yours"}
    ledger = {one["tool"]: one for one in boss.client.get("approvals")["approvals"]}
    assert (ledger["Bash"]["by"], ledger["Write"]["by"]) == ("policy: look around", "policy: not there")
    until(lambda: not boss.waiting(), "a queue without them")
    with asking(boss, "Bash", {"command": "git status; rm -rf ~"}):
        assert [item["reason"] for item in boss.waiting()] == ["permission"]


def test_policy_in_a_dry_run_only_says_what_it_would_do(remuda: Commands, boss: RunningBoss) -> None:
    write_policy(boss, f"dry_run = true\n{POLICY}")
    with asking(boss, "Bash", {"command": "git status"}):
        (one,) = boss.client.get("approvals")["approvals"]
        noted = until(lambda: boss.client.get("approvals", one["id"])["detail"].get("policy"), "a note")
        assert noted == {"decision": "allow", "rule": "look around", "dry_run": True}
        assert "look around would allow this (dry run)" in remuda("approvals", one["id"]).out


def test_status_and_doctor_report_rules_and_notices_that_are_not_in_force(
    remuda: Commands, boss: RunningBoss
) -> None:
    assert "rules" not in remuda("status").out
    write_policy(boss, f"dry_run = true\n{POLICY}")
    notices = boss.folder.path / "notify.toml"
    notices.write_text("[[to]]\ndesktop = true\n")
    assert "rules      2 in a dry run, by " in (told_of := remuda("status").out)
    assert "notices    to 1 receiver, by " in told_of
    write_policy(boss, "[[rule]]\ntools = 'Bash'\n")
    notices.write_text("thresholds = 1\n")
    wrong = remuda("status").out
    assert re.search(r"rules      ignored: .*policy\.toml: rule 1: unknown key 'tools'", wrong)
    assert re.search(r"notices    ignored: .*notify\.toml: unknown key 'thresholds'", wrong)
    examined = remuda("doctor").out
    assert "the boss's rules are ignored: " in examined
    assert "the boss's notices are ignored: " in examined


def test_policy_check_says_what_would_be_decided_and_what_is_wrong(
    remuda: Commands, boss: RunningBoss, tmp_path: Path
) -> None:
    assert "every request needs a human" in remuda("policy", "check").out
    with asking(boss, "Bash", {"command": "git status"}):
        write_policy(boss, f"dry_run = true\n{POLICY}")  # else it may be answered before it is shown
        head, _, row = remuda("policy", "check").out.splitlines()
        assert head.endswith("policy.toml: 2 rules, dry run")
        assert row.split()[1:5] == ["Bash", "allow", "look", "around"]
    found = json.loads(remuda("policy", "check", "--dry-run", "--json").out)
    assert [(one["decision"], one["was"]) for one in found["requests"]] == [("allow", "deny by api")]
    assert "policy file /nowhere not found" in remuda.refused("policy", "check", "--file", "/nowhere", code=2)
    write_policy(boss, "[[rule]]\ndecision = 'allow'\ntools = 'Bash'\n")
    assert "rule 1: unknown key 'tools'" in remuda.refused("policy", "check", code=2)
    with asking(boss, "Bash", {"command": "ls"}):  # nothing is decided by what is not right
        assert len(boss.waiting()) == 1
