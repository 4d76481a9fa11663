"""What a notice says of a request, and what it offers: only what it shows completely can be allowed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from remuda.boss.attention.model import Approval, BossSession, Item, Reason
from remuda.boss.notices import ntfy
from remuda.boss.notices.buttons import offer, question_text
from remuda.boss.notices.notification import Notice, NoticeButton, words
from remuda.boss.notices.notify_file import read_settings
from remuda.errors import InvalidOptions

ALLOW, DENY = {"behavior": "allow"}, {"behavior": "deny"}


def request(given: dict[str, Any], reason: str = "permission", tool: str = "Bash") -> Approval:
    return Approval("a1", "s", Reason(reason), tool, given, 1000.0)


def offered(approval: Approval) -> dict[str, Any]:
    return {one.label: one.answer for one in offer(approval)[1]}


def question(*labels: str, text: str = "Which index?", **more: Any) -> dict[str, Any]:
    return {"question": text, "options": [{"label": one} for one in labels], **more}


def asking(*questions: object) -> Approval:
    return request({"questions": list(questions)}, "question", "AskUserQuestion")


# ── permissions and plans ──


def test_request_that_is_shown_completely_can_be_allowed() -> None:
    assert offer(request({"command": "touch made"}))[0] == "Bash: touch made"
    assert offered(request({"command": "touch made"})) == {"Allow": ALLOW, "Deny": DENY}
    refused = replace(request({"command": "touch made"}), refuses={"allow": "only in its terminal"})
    assert offer(refused)[0] == "Only in its terminal."
    assert offered(refused) == {"Deny": DENY}
    assert offered(replace(asking(question("Red", "Blue")), refuses={"allow": "no"})) == {}
    text, _ = offer(request({"command": "make\ntest", "timeout": 5}))
    assert text == "Bash\ncommand: make\ntest\ntimeout: 5"
    assert offered(request({"plan": "1. look\n2. leap"}, "plan", "ExitPlanMode")) == {
        "Approve": ALLOW,
        "Send back": DENY,
    }


@pytest.mark.parametrize(
    "command",
    [
        "true # " + "x" * 300 + "; evil",
        "true" + "\n" * 9 + "evil",
        "true\n\n\nevil",
        "true" + " " * 40 + "; evil",
        "true\u202e; evil",
        "true\u200b; evil",
        "true\x1b[8m; evil",
        "true\u00a0; evil",
        "true\u2028; evil",
        "true\r; evil",
        "true\ud800; evil",
    ],
)
def test_request_that_can_hide_something_can_only_be_denied_or_opened(command: str) -> None:
    for given in ({"command": command}, {"command": "true", "more": command}, {command: "true"}):
        text, _ = offer(request(given))
        assert offered(request(given)) == {"Deny": DENY}
        assert text.endswith("(Cut. Open it to read the rest and to allow it.)")
        assert len(text) < 400
        assert not {"\x1b", "\u202e", "\u200b", "\r", "\u2028", "\ud800"} & {*text}
    assert offered(request({"command": "x"}, tool=command)) == {"Deny": DENY}


def test_request_that_nothing_shows_can_only_be_denied() -> None:
    assert offered(request({}, "plan", "ExitPlanMode")) == {"Send back": DENY}
    assert offered(request({"command": "x"}, tool="")) == {"Deny": DENY}


# ── questions ──


def test_options_of_a_question_are_its_buttons_and_all_are_in_the_text() -> None:
    text, buttons = offer(asking(question("SQLite", "Tantivy", "Lucene", "None")))
    assert text == "Which index?\n1. SQLite\n2. Tantivy\n3. Lucene\n4. None"
    assert [one.label for one in buttons] == ["SQLite", "Tantivy", "Lucene"]
    assert buttons[1].answer == {"behavior": "allow", "answers": {"1": "Tantivy"}}


def test_long_label_is_cut_with_its_number_and_answers_completely() -> None:
    long = "x" * 50
    (button, _) = offer(asking(question(long, "no")))[1]
    assert (button.label, button.answer["answers"]) == ("1. " + "x" * 36 + "…", {"1": long})


@pytest.mark.parametrize(
    "approval",
    [
        asking(question("a", "b"), question("c", "d")),
        asking(question("a", "b", multiSelect=True)),
        asking(question("a", "a")),
        asking(question("a", "")),
        asking(question("a", "x" * 61)),
        asking(question("a", "b\u202e")),
        asking(question("a", "b\nc")),
        asking(question("a", text="x" * 301)),
        asking(question("a", text="b\u200b")),
        asking(question(*(f"{number}" + "x" * 55 for number in range(40)))),
        asking(question()),
        asking(),
        asking("nonsense", 7),
        asking({"question": 1, "options": "none"}),
        request({"questions": "none"}, "question"),
    ],
)
def test_question_that_is_not_one_simple_choice_is_opened(approval: Approval) -> None:
    text, buttons = offer(approval)
    assert buttons == ()
    assert len(text) <= 600
    assert text.isprintable() or "\n" in text


def test_hostile_question_is_bounded_and_printable() -> None:
    hostile = "\x1b]0;x\x07\u202e" + "x" * 10_000
    text = question_text([question(*[hostile] * 100, text=hostile), *[question(hostile)] * 100])
    assert len(text) <= 600
    assert not {"\x1b", "\x07", "\u202e"} & {*text}


# ── words ──


def test_every_field_of_a_notice_is_bounded_and_all_but_the_message_are_one_line() -> None:
    hostile = "a\r\nX-Evil: 1\x1b[2J\u202e" + "x" * 10_000
    item = Item("i", "s", Reason.PERMISSION, 1.0, hostile, {"tool": hostile, "waiting_for": hostile})
    found = words(item, BossSession("s", name=None, cwd="/srv/" + hostile), "http://l", "http://p")
    assert max(map(len, found.values())) <= 300
    assert not {"\r", "\x1b", "\u202e"} & {*"".join(found.values())}
    assert not any("\n" in value for name, value in found.items() if name != "message")


def test_question_has_its_options_in_the_message_of_every_receiver() -> None:
    item = Item("i", "s", Reason.QUESTION, 1.0, "Which?", {"options": [question("Red", "Blue")]})
    assert words(item, None)["message"] == "Which index?\n1. Red\n2. Blue"


# ── ntfy ──


def ntfy_receiver(**more: Any) -> Any:
    (receiver,) = read_settings({"to": [{"ntfy": "https://ntfy.example.net/top_ic", **more}]}).receivers
    return receiver


def notice(*actions: NoticeButton, opened: str = "http://boss/open") -> Notice:
    item = Item("i1", "s", Reason.PERMISSION, 1.0, "Bash: ls -la secret")
    return Notice(words(item, BossSession("s", name="work")), "i1", "Bash: ls -la secret", opened, actions)


def test_ntfy_gets_its_buttons_as_posts_and_open_last() -> None:
    made = ntfy.document(ntfy_receiver(), notice(NoticeButton("Allow", "http://boss/1", json.dumps(ALLOW))))
    assert (made["topic"], made["title"], made["click"]) == ("top_ic", "work: permission", "http://boss/open")
    allow, opened = made["actions"]
    assert (allow["action"], allow["method"], allow["clear"]) == ("http", "POST", True)
    assert json.loads(allow["body"]) == ALLOW
    assert opened == {"action": "view", "label": "Open", "url": "http://boss/open"}
    assert ntfy.server_of(ntfy_receiver()) == "https://ntfy.example.net/"
    assert ntfy.clear_address(ntfy_receiver(), "i1") == (
        f"https://ntfy.example.net/top_ic/{made['sequence_id']}/clear"
    )


def test_ntfy_has_three_buttons_and_a_tap_on_the_notice_opens_it() -> None:
    made = ntfy.document(ntfy_receiver(), notice(*(NoticeButton(one, one, "{}") for one in "abc")))
    assert [one["label"] for one in made["actions"]] == ["a", "b", "c"]
    assert made["click"] == "http://boss/open"


def test_ntfy_without_details_says_neither_who_nor_what() -> None:
    made = json.dumps(ntfy.document(ntfy_receiver(details=False), notice()))
    assert "An agent waits: permission" in made
    assert "work" not in made
    assert "secret" not in made


@pytest.mark.parametrize(
    "table",
    [
        {"ntfy": "ntfy.sh/x"},
        {"ntfy": "https://ntfy.sh"},
        {"ntfy": "https://ntfy.sh/"},
        {"ntfy": "https://ntfy.sh/a/b"},
        {"ntfy": "https://ntfy.sh/a?x=1"},
        {"ntfy": "https://ntfy.sh/a#x"},
        {"ntfy": "https://me:SECRET@ntfy.sh/a"},
        {"ntfy": "https://ntfy.sh/" + "a" * 65},
        {"ntfy": 7},
        {"ntfy": "https://ntfy.sh/a", "url": "http://x"},
        {"ntfy": "https://ntfy.sh/a", "body": "{message}"},
        {"ntfy": "https://ntfy.sh/a", "buttons": 1},
        {"ntfy": "https://ntfy.sh/a", "details": "no"},
        {"url": "http://x", "buttons": False},
    ],
)
def test_wrong_ntfy_receiver_is_refused(table: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptions) as refused:
        read_settings({"to": [table]})
    assert "SECRET" not in str(refused.value)
