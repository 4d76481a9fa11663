"""What is dangerous in codex, on the real binary: each is avoided, or said."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from remuda import Session
from remuda.proctree import descendants
from remuda.testing.loopback_model import Gate, LoopbackModel
from remuda.testing.real_cli.codex import RealCodex
from remuda.testing.script import Fail, Hold, Reply, Text
from support.codex import MakeCodex, call, end_shared_server, escalated, keep, press_until_gone
from support.keeper import Start, event_named, until
from support.messages import CHAIN, Post, check_account_waits, prompts, stages, step

pytestmark = pytest.mark.real


def test_two_sessions_share_no_server_and_no_environment(
    codex: RealCodex, start: Start, model: LoopbackModel
) -> None:
    one = keep(
        start, codex, name="one", env={"MARK": "of-one", "LOOPBACK_KEY": "sk-key-of-session-one-000000"}
    )
    assert stages(one.send("first")) == CHAIN
    # Without a sandbox: the cached binary has no bubblewrap beside it.
    two = keep(start, codex, "-s", "danger-full-access", name="two", env={"MARK": "of-two"})
    assert stages(two.send("RUNBASH echo it is $MARK")) == CHAIN
    assert "it is of-two" in model.main_requests[-1].texts[-1][1]
    keys = {request.headers["authorization"].split()[-1] for request in model.main_requests}
    assert keys == {"sk-key-of-session-one-000000", codex.env["LOOPBACK_KEY"]}
    assert {request.headers["originator"] for request in model.main_requests} == {"codex-tui"}
    servers = [check_own_server(post) for post in (one, two)]
    assert servers[0] != servers[1]


def check_own_server(post: Post) -> int:
    """Its terminal is attached to a server of ours, on a socket of ours. Return the pid of that server."""
    record = json.loads(post.kept.paths.record.read_text())
    path = post.kept.paths.scratch / "s"
    terminal, server = (words_of(record[key]) for key in ("child_pid", "companion_pid"))
    assert terminal[terminal.index("--remote") + 1] == f"unix://{path}"
    assert server[server.index("--listen") + 1] == f"unix://{path}"
    assert record["companion_pid"] in descendants(post.kept.keeper_pid)
    return int(record["companion_pid"])


def words_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


@pytest.mark.soak(only=True)  # the server that terminals share copies its package of 320 MB first
def test_session_beside_the_server_that_plain_terminals_share_has_a_server_of_its_own(
    codex: RealCodex, start: Start, model: LoopbackModel
) -> None:
    codex.make_package()
    shell, prompt = ("-s", "danger-full-access"), "RUNBASH echo it is $MARK"

    def runs_with() -> str:
        return model.main_requests[-1].texts[-1][1]

    try:
        with codex.open_terminal(*shell, env={"MARK": "of-plain"}) as plain:
            until(codex.daemon_socket.exists, "the server that all terminals share")
            plain.wait_for(b"loopback-model")
            post = keep(start, codex, *shell, env={"MARK": "of-ours"})
            assert stages(post.send(prompt)) == CHAIN
            assert "it is of-ours" in runs_with()
            check_own_server(post)
            ours = post.client.describe()["conversation"]["session_id"]
            shared = asyncio.run(call(str(codex.daemon_socket), "thread/loaded/list"))["data"]
            assert shared
            assert ours not in shared
            # What ours is kept from: the next plain terminal runs with the environment of the first.
            before = len(model.main_requests)
            with codex.open_terminal(*shell, prompt, env={"MARK": "of-the-next"}):
                until(lambda: len(model.main_requests) >= before + 2, "its command")
                assert "it is of-plain" in runs_with()
    finally:
        end_shared_server(codex)


def test_a_turn_of_a_user_and_ours_never_mix(codex: RealCodex, start: Start, model: LoopbackModel) -> None:
    post = keep(start, codex)
    post.watcher.settled("idle")
    with model.hold() as gate:
        post.watcher.paste("typed by a user")
        gate.wait_reached()
        post.watcher.until("thinking", source="hook")  # the first turn of a thread is seen too
        message = post.put_held("ours", "the session is thinking")
    assert stages(post.ended(message)) == CHAIN
    assert prompts(model) == ["typed by a user", "ours"]
    post.watcher.press(b"a draft that stays")
    post.watcher.until_shows("a draft that stays")
    drafted = post.put_held("beside a draft", "a draft is in the composer")
    post.watcher.press(b"\x15")  # the user deletes it
    assert stages(post.ended(drafted)) == CHAIN
    assert prompts(model)[-1] == "beside a draft"
    refused = post.send("/new", command=True)
    assert refused.stage == "dead"
    assert "only at its terminal" in step(refused, "dead")["reason"]


def begin_new(post: Post) -> None:
    """Begin a new conversation at the terminal, as a user does. Returns when the session is in it."""
    before = post.client.describe()["conversation"]["session_id"]
    post.watcher.until_shows("Worked for")  # codex refuses /new while the terminal shows a turn
    post.watcher.press(b"/new")
    post.watcher.until_shows("start a new chat")
    post.watcher.press(b"\r")
    until(lambda: post.client.describe()["conversation"]["session_id"] != before, "the new conversation")


def test_a_new_conversation_of_the_user_gets_the_next_message(
    codex: RealCodex, start: Start, model: LoopbackModel
) -> None:
    post = keep(start, codex)
    assert stages(post.send("the secret is TANGERINE")) == CHAIN
    begin_new(post)
    assert stages(post.send("which secret?")) == CHAIN
    assert b"TANGERINE" not in model.main_requests[-1].raw


def test_title_that_comes_late_leads_to_no_other_conversation_and_resume_of_the_user_does(
    codex: RealCodex, start: Start, model: LoopbackModel
) -> None:
    gate = Gate()
    title = Reply((Hold(gate), Text('{"title": "Of the first one"}')))
    model.when(lambda request: not request.is_main and "TANGERINE" in request.prompt, title)
    post = keep(start, codex)
    assert stages(post.send("the secret is TANGERINE")) == CHAIN
    first = post.client.describe()["conversation"]["session_id"]
    with gate:
        gate.wait_reached()
        begin_new(post)
    path = str(post.kept.paths.scratch / "s")
    until(lambda: asyncio.run(call(path, "thread/read", threadId=first))["thread"]["name"], "the title")
    assert stages(post.send("which secret?")) == CHAIN
    assert b"TANGERINE" not in model.main_requests[-1].raw
    post.watcher.until_shows("REPLY#1 to: which secret?")
    post.watcher.press(b"/resume")
    post.watcher.until_shows("resume a saved chat")
    post.watcher.press(b"\r")
    post.watcher.until_shows("Resume a previous session")
    post.watcher.press(b"Of the first")
    post.watcher.until_shows("1 / 1 ")
    press_until_gone(post, b"\r", "Resume a previous session")
    until(lambda: post.client.describe()["conversation"]["session_id"] == first, "the first conversation")
    assert stages(post.send("which secret now?")) == CHAIN
    assert b"TANGERINE" in model.main_requests[-1].raw


@pytest.mark.shows("a rate limit gives the message back for later")
def test_a_limit_is_kept_for_the_account_and_opens_no_trap(
    codex: RealCodex, start: Start, model: LoopbackModel
) -> None:
    post = keep(start, codex)
    used = {"x-codex-primary-used-percent": "97", "x-codex-primary-window-minutes": "300"}
    model.next(Reply((Fail(429, "usage_limit_reached", "limit", {"retry-after": "7200", **used}),)))
    message = post.put_until("limit me", "nacked")
    nacked = step(post.trace(message), "nacked")
    assert 6000 < nacked["due"] - nacked["at"] < 7800
    assert post.client.describe()["state"] == "limited"
    # Enter would switch to another model there. A call, as ours, leaves the dialog and the model as they are.
    post.watcher.until_shows("Approaching rate limits")
    path, thread = str(post.kept.paths.scratch / "s"), post.client.describe()["conversation"]["session_id"]
    asyncio.run(start_turn(path, thread, "beside the dialog", "of another client"))
    until(lambda: prompts(model)[-1] == "beside the dialog", "its request")
    assert {request.model for request in model.main_requests} == {"loopback-model"}
    post.watcher.until_shows("› 1. Switch to")
    other = keep(start, codex, name="other")
    other.watcher.settled("idle")
    check_account_waits(post, message, other)


def test_trust_is_given_only_with_the_users_word(
    make_codex: MakeCodex, start: Start, model: LoopbackModel
) -> None:
    codex = make_codex(trust=False)
    config = codex.home / ".codex" / "config.toml"
    post = keep(start, codex)
    message = post.put_held("hello", "the agent asks whether this folder is trusted")
    assert "trust_level" not in config.read_text()
    post.client.request("kill")
    assert post.kept.keeper.ended()
    again = keep(start, codex, resume=True, trust=True)
    assert stages(again.ended(message)) == CHAIN
    assert "trust_level" in config.read_text()
    assert prompts(model) == ["hello"]


def test_a_paste_into_the_permission_dialog_is_not_ours(
    codex: RealCodex, start: Start, model: LoopbackModel, tmp_path: Path
) -> None:
    """A message that waits is not typed: Enter in the dialog allows the command, and the text is lost."""
    post = keep(start, codex)
    client = post.kept.hello()
    client.request("watch")
    asking = post.put(escalated(f"touch {tmp_path}/made"))
    event_named(client, "ask", tool="Bash")
    waiting = post.put("yes\n")
    post.watcher.until_shows("Would you like to run")
    assert stages(post.trace(waiting)) == ["accepted"]
    press_until_gone(post, b"\x1b", "Would you like to run")
    assert step(post.ended(asking), "ended")["end"] == "interrupted"
    found = post.ended(waiting)
    assert (stages(found), step(found, "written")["transport"]) == (CHAIN, "call")
    assert not (tmp_path / "made").exists()
    assert json.dumps(prompts(model)).count("yes") == 1
    asking = post.put(escalated(f"touch {tmp_path}/made"))
    post.watcher.until_shows("Would you like to run")
    post.watcher.press(b"\x1b[200~typed by a user\x1b[201~")
    press_until_gone(post, b"\r", "Would you like to run")
    assert stages(post.ended(asking)) == CHAIN
    assert (tmp_path / "made").exists()
    assert "typed by a user" not in json.dumps(prompts(model))


async def start_turn(path: str, thread: str, text: str, message_id: str) -> str:
    """Start a turn as another client does. Return the id of the turn that is answered."""
    given = {"input": [{"type": "text", "text": text}], "clientUserMessageId": message_id}
    return str((await call(path, "turn/start", threadId=thread, **given))["turn"]["id"])


def test_call_during_a_turn_is_added_to_it_and_an_id_runs_twice(
    codex: RealCodex, start: Start, model: LoopbackModel
) -> None:
    """Why a message waits for rest, and why a lost call is searched before it is called again."""
    post = keep(start, codex)
    assert stages(post.send("first")) == CHAIN
    path, thread = str(post.kept.paths.scratch / "s"), post.client.describe()["conversation"]["session_id"]
    with model.hold() as gate:
        held = post.put("held")
        gate.wait_reached()
        ours = step(post.reached(held, "submitted"), "submitted")["prompt_id"]
        assert asyncio.run(start_turn(path, thread, "of another client", "other")) == ours
    assert stages(post.ended(held)) == CHAIN
    turns = set()
    for _ in range(2):
        post.watcher.until("idle", source="hook")
        turns.add(asyncio.run(start_turn(path, thread, "twice", "same-id")))
        until(lambda: prompts(model)[-1] == "twice", "its request")
        until(lambda: post.client.describe()["state"] == "idle", "its end")
        assert stages(post.send("in between")) == CHAIN
    assert len(turns) == 2
    assert [text for text in prompts(model) if text == "twice"] == ["twice", "twice"]


def test_interrupt_without_a_turn_leaves_it_running(
    codex: RealCodex, start: Start, model: LoopbackModel
) -> None:
    """One Ctrl-C in an empty composer would end codex."""
    post = keep(start, codex)
    assert stages(post.send("first")) == CHAIN
    assert Session(post.kept.paths.name, folder=post.kept.paths.folder).interrupt() is None
    assert stages(post.send("second")) == CHAIN
    assert prompts(model) == ["first", "second"]
