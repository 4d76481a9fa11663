"""The queue inside a real tmux: the status line, the keys, the popup, and the lines that put them there."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from remuda.boss import key as key_program
from remuda.cli.queue_keys import READ
from support.commands import Commands
from support.keeper import until
from support.queue_bench import List, Ranch

# ── the status line ──


def test_segment_shows_down_empty_and_waiting_differently(down: Ranch) -> None:
    assert down("segment", "--plain") == "✗ down"
    assert down.json("segment") == {"up": False, "waiting": None, "age": None}
    down("up", "--detach", "--port", "0")
    try:
        assert down("segment", "--plain") == ""
        assert down.json("segment") == {"up": True, "waiting": 0, "age": None}
        down.waits("engine", down.api, 700)
        down.waits("pager", down.docs, 70)
        assert down("segment", "--plain") == "⚠ 2 11m"
        assert down("segment") == "#[fg=yellow,bold]⚠ 2 11m#[default]"
        found = down.json("segment")
        assert (found["up"], found["waiting"]) == (True, 2)
        assert 690 < found["age"] < 1000
    finally:
        down("down", "--force")


# ── keys ──


@pytest.fixture
def keyed(ranch: Ranch) -> Ranch:
    """With our keys in the server."""
    ranch("hooks", "install", "--tmux", "--yes")
    ranch.bench.run("set-option", "-g", "status-interval", "1")
    return ranch


def press(ranch: Ranch, key: bytes) -> None:
    """Behind the prefix."""
    ranch.person.press(b"\x02" + key)


def test_keys_lead_through_the_queue_and_back(keyed: Ranch) -> None:
    keyed.waits("engine", keyed.api, 700)
    keyed.waits("pager", keyed.docs, 300)
    until(lambda: "⚠ 2 11m".encode() in keyed.person.seen, "the status line")
    press(keyed, b"\t")
    until(lambda: keyed.at() == keyed.api, "the first")
    until(lambda: b"engine (stopped) in work:1.0; 1 more" in keyed.person.seen, "the message")
    press(keyed, b"S")
    until(lambda: keyed.at() == keyed.docs, "the second")
    until(lambda: b"skipped engine; pager (stopped) in docs:0.0" in keyed.person.seen, "the message")
    press(keyed, b"B")
    until(lambda: keyed.at() == keyed.home, "the way back")
    press(keyed, b"B")
    until(lambda: b"no pane to return to" in keyed.person.seen, "the message")


def test_key_with_an_empty_queue_or_without_a_boss_says_so(keyed: Ranch) -> None:
    press(keyed, b"\t")
    until(lambda: b"no agent is waiting" in keyed.person.seen, "the message")
    keyed("down", "--force")
    for key in (b"\t", b"g"):
        keyed.person.seen.clear()
        press(keyed, key)
        until(lambda: b"the boss is not running" in keyed.person.seen, "the message")
    until(lambda: "✗ down".encode() in keyed.person.seen, "the status line")
    assert keyed.at() == keyed.home
    keyed("up", "--detach", "--port", "0")


def test_key_opens_a_popup_in_which_one_is_chosen(keyed: Ranch) -> None:
    keyed.waits("engine", keyed.api, 700)
    keyed.waits("pager", keyed.docs, 300, message="Which colour?")
    press(keyed, b"g")
    until(lambda: b"Enter go" in keyed.person.seen, "the list")
    keyed.person.press(b"j")
    until(lambda: b"Which colour?" in keyed.person.seen, "what it says")
    keyed.person.press(b"\r")
    until(lambda: keyed.at() == keyed.docs, "the one chosen")


def test_popup_of_a_key_asks_the_boss_of_that_key(keyed: Ranch) -> None:
    # The server's environment leads to another; the key's own line says which is meant.
    other = {**keyed.env, "REMUDA_HOME": str(keyed.remuda.home / "other")}
    keyed.remuda("up", "--detach", "--port", "0", env=other)
    try:
        keyed.bench.run("set-environment", "-g", "REMUDA_HOME", other["REMUDA_HOME"])
        keyed.waits("engine", keyed.api, 700)
        press(keyed, b"g")
        until(lambda: b"engine is done" in keyed.person.seen, "what the first says")
        keyed.person.press(b"\r")
        until(lambda: keyed.at() == keyed.api, "the one chosen")
    finally:
        keyed.remuda("down", "--force", env=other)


def test_key_reports_what_a_boss_without_tmux_cannot(down: Ranch) -> None:
    down("hooks", "install", "--tmux", "--yes")
    down.remuda("up", "--detach", "--port", "0", env={**down.env, "PATH": "/nonexistent"})
    try:
        down.waits("engine", down.api, 700)
        press(down, b"\t")
        until(lambda: b"tmux not found" in down.person.seen, "the message")
        down.person.seen.clear()
        token = down.remuda.home / "boss" / "token"
        token.write_text("x" * 43)
        for key in (b"B", b"g"):
            press(down, key)
            until(lambda: b"token" in down.person.seen, "the message")
            down.person.seen.clear()
        assert down.at() == down.home
    finally:
        down("down", "--force")


# ── popup ──


def test_list_in_a_terminal_shows_the_queue_and_puts_off(ranch: Ranch) -> None:
    ranch.waits("engine", ranch.api, 700)
    ranch.waits("gone", "%99", 300)
    ranch.waits("lathe", "%98", 200)
    ranch.waits("pager", ranch.docs, 100)
    popup = List(ranch)
    popup.press("2")
    popup.shows("is not in a tmux pane")
    popup.press("k", "s")
    popup.shows_no("engine")
    popup.press("z")
    popup.shows_no("gone")
    popup.press("d")
    popup.shows_no("lathe")
    items = {one["session_id"]: one for one in ranch.json("queue", "--all")["items"]}
    assert set(items) == {"id-engine", "id-gone", "id-pager"}
    assert items["id-gone"]["snooze_until"] > time.time() + 300
    popup.press("q")
    ranch.bench.until(lambda seen: seen.panes[popup.pane].is_dead, "its end")


@pytest.mark.parametrize(("key", "behavior"), [("a", "allow"), ("n", "deny")])
def test_popup_answers_what_is_asked_for_while_it_is_open(ranch: Ranch, key: str, behavior: str) -> None:
    popup = List(ranch)
    payload = {"session_id": "id-engine", "hook_event_name": "PermissionRequest", "cwd": "/src/engine"}
    asks = {**payload, "tool_name": "Bash", "tool_input": {"command": "make release"}}
    with ThreadPoolExecutor(1) as beside:
        hook = beside.submit(ranch.boss.post, "hooks", "permission", body={"payload": asks}, timeout=60.0)
        popup.shows("make release", "a allow")
        time.sleep(READ)
        for second in ("x", "y"):
            popup.press(key, "y")  # at once: for nothing
            popup.shows(f"{behavior} this?")
            assert not hook.done()
            popup.press(second)
            popup.shows_no("this?")
        assert hook.result()["output"]["hookSpecificOutput"]["decision"]["behavior"] == behavior
    popup.shows("no agent is waiting", {"allow": "allowed", "deny": "denied"}[behavior], but="sending")
    (approval,) = ranch.boss.get("approvals")["approvals"]
    assert (approval["by"], approval["answer"]["behavior"]) == ("api: popup", behavior)


def test_popup_does_not_allow_a_plan_that_it_cannot_show(ranch: Ranch) -> None:
    popup = List(ranch)
    ranch.waits("engine", ranch.api, 700, kind="asked", reason="plan", tool="ExitPlanMode", input={})
    popup.shows("ExitPlanMode")
    time.sleep(READ)
    popup.press("a")
    popup.shows("only in the agent's terminal")


def test_popup_follows_a_boss_that_ends_and_comes_back(ranch: Ranch) -> None:
    popup = List(ranch)
    ranch("down", "--force")
    popup.shows("the boss is not running")
    ranch("up", "--detach", "--port", "0")
    ranch.waits("engine", ranch.api, 700)
    popup.shows("engine", but="not running")


def test_popup_without_a_terminal_or_a_client_is_an_error(ranch: Ranch) -> None:
    assert "needs a terminal" in ranch("popup", "--inside", code=4)
    assert "no client nobody" in ranch("popup", "--client", "nobody", code=4)


def test_queue_i_without_a_terminal_or_with_other_forms_is_an_error(ranch: Ranch) -> None:
    assert "needs a terminal; in a script use 'remuda queue --json'" in ranch("queue", "-i", code=4)
    for words in (["--json"], ["--watch"], ["--history"], ["--all"]):
        assert "cannot be combined with" in ranch("queue", "-i", *words, code=2)


# ── hooks … --tmux ──


def test_hooks_install_tmux_is_shown_first_merged_and_exactly_undone(down: Ranch) -> None:
    conf = down.remuda.home / ".tmux.conf"
    conf.write_bytes(b"set -g mouse on # \xff")
    assert "pass --yes" in down.remuda("hooks", "install", "--tmux", code=2, env=down.env).err
    assert "+bind-key -T prefix N " in down("hooks", "install", "--tmux", "--next", "N", "--dry-run")
    assert conf.read_bytes() == b"set -g mouse on # \xff"
    assert down.json("hooks", "show", "--tmux") == {"files": [], "keys": []}
    shown = down("hooks", "install", "--tmux", "--next", "N", "--popup", "", "--yes")
    assert "+bind-key -T prefix N " in shown
    assert "changed ~/.tmux.conf\nalso changed the running tmux server" in shown
    assert conf.read_bytes().startswith(b"set -g mouse on # \xff\n# >>> remuda")
    assert down.json("hooks", "show", "--tmux") == {"files": [str(conf)], "keys": ["B", "N", "S"]}
    again = down("hooks", "install", "--tmux", "--next", "N", "--popup", "", "--yes")
    assert again.startswith("~/.tmux.conf: already installed; nothing to change")
    assert "-bind-key -T prefix N " in down("hooks", "uninstall", "--tmux", "--dry-run")
    assert down.json("hooks", "show", "--tmux")["keys"] == ["B", "N", "S"]
    down("hooks", "uninstall", "--tmux", "--yes")
    assert conf.read_bytes() == b"set -g mouse on # \xff"
    assert down.json("hooks", "show", "--tmux") == {"files": [], "keys": []}
    assert "not installed; nothing to change" in down("hooks", "uninstall", "--tmux", "--yes")


def test_hooks_install_tmux_reports_keys_that_are_taken(down: Ranch) -> None:
    down.bench.run("bind-key", "S", "list-buffers")
    shown = down("hooks", "install", "--tmux", "--yes", "--conf", str(down.remuda.home / "mine.conf"))
    assert "note: this replaces the binding of prefix S: bind-key -T prefix S list-buffers" in shown
    shown = down("hooks", "uninstall", "--tmux", "--yes", "--conf", str(down.remuda.home / "mine.conf"))
    assert "\nremoved ~/mine.conf\n" in shown
    assert not (down.remuda.home / "mine.conf").exists()
    assert "list-buffers" in down.bench.run("list-keys", "-T", "prefix", "S")


def test_hooks_install_tmux_without_a_server_or_without_tmux(remuda: Commands) -> None:
    nowhere = {"TMUX_TMPDIR": str(remuda.home)}
    done = remuda("hooks", "install", "--tmux", "--yes", env=nowhere)
    assert "changed ~/.tmux.conf" in done.out
    assert "running tmux server" not in done.out
    assert "no tmux server is running" in remuda("hooks", "show", "--tmux", env=nowhere).out
    missing = remuda.refused("hooks", "install", "--tmux", "--yes", code=127, env={"PATH": "/nonexistent"})
    assert "tmux not found" in missing


def test_key_is_compiled_once_and_imports_nothing_slow(remuda: Commands) -> None:
    command = [
        sys.executable,
        "-I",
        "-S",
        "-X",
        "importtime",
        "-v",
        str(Path(key_program.__file__)),
        "segment",
    ]
    subprocess.run(command, env=remuda.env, capture_output=True, check=True)
    done = subprocess.run(command, env=remuda.env, capture_output=True, text=True, check=True)
    assert re.search(r"key_press\.\S+\.pyc matches \S+/key_press\.py", done.stderr)
    imported = set(re.findall(r"^import time: .*\| +(\S+)$", done.stderr, re.MULTILINE))
    assert imported.isdisjoint({"os", "re", "json", "typing", "socket", "importlib", "pathlib", "site"})
