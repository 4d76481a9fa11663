"""Answer the marked agent: decide its request, reply, or put it off.

A decision takes two keys, and only what was on the screen long enough to be read can be decided.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rich.text import Text

from remuda.boss.client import BossClient
from remuda.cli.output import unstyled
from remuda.cli.permission_request import (
    ANSWER_TIMEOUT,
    edited_input,
    meant,
    outcome,
    question_lines,
    questions_of,
    why_refused,
)
from remuda.cli.queue_keys import PUT_OFF
from remuda.errors import RemudaError
from remuda.untrusted import one_line

from .model import Document, Row

if TYPE_CHECKING:
    from .app import DashApp

_MORE = {"allow": "always", "deny": "message"}
_MORE_KEYS = {"allow": "A: always in this conversation", "deny": "m: with a message"}


class Answers:
    """Asks through the app, sends to the boss in threads, and says what came of it."""

    def __init__(self, app: DashApp) -> None:
        self._app = app
        self._confirm: tuple[float, str, str, Document] | None = None
        """What the next key confirms: when it was asked, behavior, id of the request, more of the body."""

    @property
    def asks(self) -> bool:
        """Whether the next key confirms something."""
        return self._confirm is not None

    def forget(self) -> None:
        """Drop the question: something else is on the screen in its place."""
        self._confirm = None

    # ── decisions ──

    def decide(self, behavior: str) -> None:
        request = self._decidable(behavior)
        if request is None:
            return
        if behavior == "allow" and (questions := questions_of(request)):
            self._ask(str(request["id"]), list(questions), {})
            return
        more = "" if why_refused(request, _MORE[behavior]) else f" {_MORE_KEYS[behavior]},"
        self._ask_to_confirm(behavior, request, {}, f"{behavior} this? y: yes,{more} any other key: no")

    def edit(self) -> None:
        """Open the input in the user's editor, and ask whether to allow the edited one."""
        request = self._decidable("allow")
        if request is not None and (why := why_refused(request, "edit")):
            self._app.say(why)
        elif request is not None:
            edited = self._app.outside(lambda: edited_input(dict(request)))
            if edited is not None:
                body = {"updated_input": edited}
                words = "allow with the edited input? y: yes, any other key: no"
                self._ask_to_confirm("allow", request, body, words)

    def _decidable(self, behavior: str) -> Document | None:
        """Return the request of the marked agent if it can be decided now; else say why not."""
        self._app.show_request()
        request, why = self._app.board.request, self._app.why_not(behavior)
        self._app.say(why)
        return None if why else request

    def _ask_to_confirm(self, behavior: str, request: Document, body: Document, words: str) -> None:
        self._app.say(words)
        self._confirm = (time.monotonic(), behavior, str(request["id"]), body)

    def confirm(self, key: str, at: float) -> None:
        """Take the key after the question. `at`: when it was pressed."""
        assert self._confirm is not None
        (asked_at, behavior, request_id, body), self._confirm = self._confirm, None
        request = self._app.board.request
        if at < asked_at:  # text that was pasted may hold both keys
            self._app.say("nothing was decided: the keys came at once")
        elif request is None or str(request["id"]) != request_id:
            self._app.say("this request is no longer open")
        elif key == "y":
            self._send(request_id, {"behavior": behavior, **body})
        elif key in "Am" and not body and (why := why_refused(request, _MORE[behavior])):
            self._app.say(why)
        elif key == "A" and behavior == "allow" and not body:
            self._send(request_id, {"behavior": behavior, "always": True})
        elif key == "m" and behavior == "deny":
            self._app.open_line(
                "Deny with this message",
                lambda text: self._send(request_id, {"behavior": "deny", "message": text}),
            )
        else:
            self._app.say("nothing was decided")

    def _ask(self, request_id: str, questions: list[Mapping[str, Any]], answers: dict[str, Any]) -> None:
        """Ask the user for the next answer, and send all after the last."""
        if len(answers) == len(questions):
            self._send(request_id, {"behavior": "allow", "answers": answers})
            return
        question = questions[len(answers)]

        def take(text: str) -> None:
            answers[str(len(answers) + 1)] = meant(question, text)
            self._ask(request_id, questions, answers)

        form = "your own words"
        if question.get("options"):
            form = (
                f"{'numbers, separated by commas' if question.get('multiSelect') else 'a number'}, or {form}"
            )
        above = Text(unstyled("\n".join(question_lines(question))))
        self._app.open_line(f"Answer {len(answers) + 1} of {len(questions)}: {form}", take, above)

    def _send(self, request_id: str, body: Document) -> None:
        def send() -> str:
            decided = BossClient().post(
                "approvals", request_id, "answer", body={"by": "dashboard", **body}, timeout=ANSWER_TIMEOUT
            )
            return _decision_text(decided)

        self._app.board.leave()
        self._app.say("sending the decision …")
        self._beside(send)

    def say_who_decided(self, request_id: str) -> None:
        """Say who decided a request that was on the screen."""

        def read() -> str | None:
            decided = BossClient().get("approvals", request_id)
            return None if decided["state"] == "open" else _decision_text(decided)

        self._beside(read, is_asked=False)

    # ── all else ──

    def reply(self) -> None:
        row = self._app.board.marked
        if row is not None:  # what is typed is for this agent, wherever the mark is then
            self._app.open_line(f"Reply to {row.label}", lambda text: self._reply(row, text))

    def _reply(self, row: Row, text: str) -> None:
        def send() -> str:
            body = {"text": text}
            done = BossClient().post("sessions", row.key, "reply", body=body, timeout=ANSWER_TIMEOUT)
            return f"{row.label}: message {done['stage']}" + (f", {done['note']}" if done.get("note") else "")

        self._app.say(f"sending to {row.label} …")
        self._beside(send)

    def put_off(self, action: str) -> None:
        row = self._app.board.marked
        if (why := self._app.board.why_not_put_off()) or row is None or row.item is None:
            self._app.say(why)
            return
        item_id, words = str(row.item["id"]), _PUT_OFF_WORDS[action]
        self._app.board.leave()

        def send() -> str:
            BossClient().post("queue", item_id, action, body=PUT_OFF[action])
            return f"{row.label} {words}"

        self._beside(send)

    def _beside(self, what: Callable[[], str | None], *, is_asked: bool = True) -> None:
        """Do in a thread what may wait for the boss, and say what it returns; errors if the user asked."""

        def run() -> None:
            try:
                note = what()
            except RemudaError as error:
                note = str(error) if is_asked else None
            if note is not None:
                self._app.soon(self._app.say, note)

        threading.Thread(target=run, name="answer", daemon=True).start()


_PUT_OFF_WORDS = {
    "skip": "goes to the end of the queue, in 30 seconds",
    "snooze": "is snoozed for 10 minutes",
    "dismiss": "is dismissed until it waits for something new",
}


def _decision_text(decided: Document) -> str:
    return f"{one_line(str(decided['tool']))}: {outcome(dict(decided))}"
