"""Messages for a kept session under test: put into its inbox, and followed by their receipts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from remuda.agents.claude.screen import read_composer, read_trust_choice
from remuda.errors import NotSafe, WaitTimeout
from remuda.inbox.journal import Inbox
from remuda.inbox.receipts import FINAL, Trace, follow, trace
from remuda.keeper.client import KeeperClient
from remuda.testing.loopback_model import LoopbackModel, Request
from support.commands import Commands
from support.keeper import Kept, until, until_equal
from support.watcher import PATIENCE, Watcher


class Post:
    """A session's inbox; `watcher` is a human at its keys."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept
        self.folder = kept.paths.inbox
        self.inbox = Inbox(self.folder)
        self.client = kept.hello()
        self.watcher = Watcher(kept.hello())

    def put(self, prompt: str, **options: Any) -> str:
        return self.inbox.put(prompt, **options).id

    def put_held(self, prompt: str, why: str, **options: Any) -> str:
        """Put it, and wait until delivery waits for this reason."""
        message = self.put(prompt, **options)
        self.held(why)
        return message

    def put_until(self, prompt: str, stage: str, **options: Any) -> str:
        """Put it, and wait for this stage."""
        message = self.put(prompt, **options)
        self.reached(message, stage)
        return message

    def send(self, prompt: str, **options: Any) -> Trace:
        """Put it, and follow it to its end."""
        return self.ended(self.put(prompt, **options))

    def run(self, *prompts: str, **options: Any) -> None:
        """Send each, one after the other; all are answered."""
        for prompt in prompts:
            found = self.send(prompt, **options)
            assert found.stage == "acked", found

    def ended(self, message: str, timeout: float | None = None) -> Trace:
        try:
            *_, last = follow(self.folder, message, PATIENCE if timeout is None else timeout)
        except WaitTimeout as error:
            held = self.client.describe()["delivery"]["held"]
            raise WaitTimeout(f"{error}; held: {held!r}; on the screen: {self.lines()}") from error
        return last

    def reached(self, message: str, stage: str, count: int = 1) -> Trace:
        """As soon as its receipts hold this stage, this many times."""
        for found in follow(self.folder, message, PATIENCE):
            if stages(found).count(stage) >= count:
                return found
        raise AssertionError(f"{message} ended without {stage}: {trace(self.folder, message)}")

    def trace(self, message: str) -> Trace:
        found = trace(self.folder, message)
        assert found is not None
        return found

    def held(self, why: str) -> None:
        """Wait until delivery says that it waits, for this reason."""

        def reason() -> bool:
            return why in (self.client.describe()["delivery"]["held"] or "")

        until(reason, f"delivery held: {why!r}")

    def lines(self) -> list[str]:
        lines: list[str] = self.client.request("screen")["lines"]
        return lines

    def draft(self) -> str:
        """What stands in the composer, as the keeper reads it."""
        styled: list[str] = self.client.request("screen", styled=True)["lines"]
        return read_composer(self.lines(), lambda y: styled[y].encode()).text


def stages(found: Trace) -> list[str]:
    """Its steps, less those of a lease that was given back because the session was just not ready."""
    kept: list[str] = []
    for one in found.steps:
        if one.get("reason") == "the session was no longer ready":
            assert kept.pop() == "written"
        else:
            kept.append(str(one["stage"]))
    return kept


def step(found: Trace, stage: str) -> dict[str, Any]:
    """The last receipt of this stage."""
    return next(one for one in reversed(found.steps) if one["stage"] == stage)


def phase(post: Post) -> str:
    """Whether it is awake or asleep, or on its way."""
    return str(post.client.describe()["sleep"]["phase"])


def why_awake(client: KeeperClient) -> str:
    """Ask it to sleep. Returns why it may not; empty if it does from here on."""
    try:
        client.request("sleep")
    except NotSafe as error:
        return str(error)
    return ""


def stays_awake(post: Post, why: str) -> None:
    """Check that it stays awake for this reason, as soon as there is no other one."""
    until(lambda: why in why_awake(post.client), f"awake: {why!r}")
    assert phase(post) == "awake"


def put_to_sleep(post: Post) -> Post:
    """End its agent, as soon as that is allowed: its last record or its driver may need a moment."""
    until_equal(lambda: why_awake(post.client), "", "sleep")
    until_equal(lambda: phase(post), "asleep", "sleep")
    return post


def put_to_sleep_by_command(remuda: Commands, name: str) -> None:
    """As soon as it may sleep."""

    def look() -> bool:
        with KeeperClient.connect(name, remuda.sessions) as client:
            return not why_awake(client)

    until(look, f"{name} asleep")
    assert remuda("sleep", name).out == f"{name} is asleep\n"


def check_account_waits(limited: Post, message: str, other: Post) -> None:
    """Check that another session of the account waits as long as the one whose `message` met its limit."""
    due = step(limited.trace(message), "nacked")["due"]
    waiting = other.put_held("also waits", "the account has reached its rate limit")
    assert stages(other.trace(waiting)) == ["accepted"]
    until_times = [one.client.describe()["delivery"]["limited_until"] for one in (limited, other)]
    assert until_times[0] == until_times[1]
    assert abs(until_times[0] - due) < 10.0  # each is counted from when it was written


RECAP = "The user stepped away and is coming back."


def prompts(model: LoopbackModel) -> list[str]:
    """Every prompt that the agent sent, in order, as often as it ran.

    A request that is sent again counts once; a prompt that runs again has another conversation before it.
    Not what it asks by itself for a user who seems to come back, which it does now and then.
    """
    sent: list[str] = []
    last: list[str] = []
    for request in model.main_requests:
        if str(request.prompt).startswith(RECAP) or not isinstance(request.said, str):
            continue
        if request.user_texts != last:
            sent.append(request.prompt)
        last = request.user_texts
    return sent


def requests_with(model: LoopbackModel, text: str) -> Sequence[Request]:
    return [request for request in model.main_requests if text in request.prompt]


def check_ends(
    found: Mapping[str, Trace],
    killed: Counter[str],
    model: LoopbackModel,
    record_property: Callable[[str, object], None],
) -> None:
    """Check messages, by their texts, among which processes were killed, and record how they ended.

    Each ended once. A third was answered. If the model saw the text of another one again with a later prompt,
    the receipt says so.
    """
    ends = Counter(one.stage for one in found.values())
    for name, count in (*ends.items(), *killed.items()):
        record_property(name, count)
    for text, one in found.items():
        assert sum(stage in FINAL for stage in stages(one)) == 1, one
        assert (one.stage == "acked") == (one.answer is not None), one
        assert one.stage == "acked" or (one.stage == "dead" and one.reason), one
        if one.stage == "dead" and requests_after(model, text):
            assert step(one, "ended").get("in_conversation"), one
    assert ends["acked"] >= len(found) // 3, (ends, killed)


def requests_after(model: LoopbackModel, text: str) -> list[Request]:
    """Requests for other prompts that have this one in their conversation."""

    def has(request: Request) -> bool:
        return any(text in one for role, one in request.texts if role == "user")

    return [request for request in model.main_requests if request.prompt != text and has(request)]


CHAIN = ["accepted", "written", "submitted", "recorded", "ended", "acked"]


def choose_trust(post: Post) -> None:
    """As a human would: look which row is marked, move, look again, confirm when it stays."""
    stays = 0
    while stays < 3:
        time.sleep(0.4)  # for a human's eye; the dialog goes back to its default row once, after 0.13 s
        choice = read_trust_choice(post.lines())
        assert choice is not None
        stays = stays + 1 if choice.highlighted == choice.wanted else 0
        if not stays:
            post.watcher.press(b"\x1b[B" if choice.wanted > choice.highlighted else b"\x1b[A")
    post.watcher.press(b"\r")  # once: another one would be a line end in the composer
