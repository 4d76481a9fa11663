"""Trail Boss's own clients against our boss: an address with a token of its own, and what they are told.

They are shell scripts around curl and jq that look at no status, so they are played as such.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from support.boss import RunningBoss
from support.commands import Commands

HOOK = {"session_id": "abc", "hook_event_name": "Stop", "cwd": "/srv", "last_assistant_message": "hi"}
STUCK = {
    "type": "stuck",
    "sessionId": "tmux-%9-1735689600000",
    "paneId": "%9",
    "reason": "stopped",
    "message": "$ ",
    "timestamp": 1735689600000,
}


def addresses(remuda: Commands, *more: str) -> dict[str, str]:
    """What a shell has after it evaluated the lines."""
    lines = remuda("hooks", "show", "--trail-boss", *more).out
    script = f"{lines}\nprintenv TRAILBOSS_URL TRAILBOSS_COLLECTOR_URL TRAILBOSS_DAEMON_URL"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True, timeout=30)
    return dict(zip(("url", "collector", "daemon"), done.stdout.split(), strict=True))


def curl(url: str, *words: str) -> Any:
    """As its scripts call it: what comes is taken for the answer, whatever the status."""
    done = subprocess.run(["curl", "-s", *words, url], capture_output=True, timeout=30, check=True)
    return json.loads(done.stdout)


def post(url: str, document: object, *words: str) -> Any:
    return curl(url, "-X", "POST", "--data-binary", json.dumps(document), *words)


def test_its_clients_work_with_the_printed_addresses(remuda: Commands, boss: RunningBoss) -> None:
    found = addresses(remuda)
    url = found["url"]
    assert curl(f"{url}/queue") == {"items": [], "count": 0}
    assert post(found["collector"], HOOK, "-H", "X-Tmux-Pane: %7") == {"ok": True}
    assert post(found["daemon"], STUCK) == {"ok": True}
    assert curl(f"{url}/status") == {"status": "ok", "stuckCount": 2}
    assert [one["pane_id"] for one in curl(f"{url}/queue")["items"]] == ["%9", "%7"]
    assert curl(f"{url}/next")["paneId"] == "%9"
    assert curl(f"{url}/skip", "-X", "POST")["paneId"] == "%7"


def test_its_variables_that_are_not_read_are_named_with_what_to_use(
    remuda: Commands, boss: RunningBoss
) -> None:
    secret = "8f3a"
    names = ("TRAILBOSS_DATA_DIR", "TRAILBOSS_AUTO_JUMP", "TELEGRAM_CHAT_ID", "NOTIFY_THRESHOLD")
    env = dict.fromkeys(names, secret)
    for said in (remuda("boss", "up", "--detach", env=env).err, remuda("doctor", env=env, code=0).out):
        words = " ".join(said.split())
        assert "TRAILBOSS_DATA_DIR: Trail Boss reads this, Remuda does not" in words
        assert "set REMUDA_HOME instead" in words
        assert "run 'remuda skip --next'" in words
        assert "TELEGRAM_CHAT_ID, NOTIFY_THRESHOLD: not used" in words
        assert "set TELEGRAM_CHAT_ID and TELEGRAM_PROXY_URL" in words
        assert secret not in said
    chat = {"TELEGRAM_CHAT_ID": "42", "TELEGRAM_PROXY_URL": f"http://127.0.0.1:9/{secret}"}
    told = remuda("doctor", env=chat).out
    assert "TELEGRAM_CHAT_ID: notices go to http://127.0.0.1:9" in " ".join(told.split())
    assert secret not in told
    (remuda.home / "boss" / "notify.toml").write_text("")
    assert "TELEGRAM_CHAT_ID: not used" in " ".join(remuda("doctor", env=chat).out.split())
    read = {"TRAILBOSS_URL": "http://127.0.0.1:1", "TRAILBOSS_OPT_IN_PREFIX": "@"}
    assert "Trail Boss" not in remuda("doctor", env=read).out


def test_its_token_opens_nothing_else_and_ours_in_a_path_only_takes_events(
    remuda: Commands, boss: RunningBoss
) -> None:
    own = addresses(remuda)["url"].rpartition("/")[2]
    assert own != boss.token
    file = boss.folder.trail_token
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for path in ("/v1/queue", "/v1/health", "/v1/approvals", "/metrics", "/v1/openapi.json"):
        assert boss.ask("GET", f"/t/{own}{path}", token=None).status == 401
        assert boss.ask("GET", path, token=own).status == 401
    hooks = {"payload": HOOK}
    for path in ("/v1/hooks", "/v1/events", "/v1/hooks/permission"):
        assert boss.ask("POST", f"/t/{own}{path}", hooks, token=None).status == 401
    for method, path in (("GET", "/next"), ("GET", "/queue"), ("GET", "/status"), ("POST", "/skip")):
        assert boss.ask(method, f"/t/{boss.token}{path}", token=None).status == 401
        assert boss.ask(method, f"/t/{own}{path}", token=None).status == 200
        assert boss.ask(method, path, token=own).status == 401
    assert boss.ask("POST", f"/t/{boss.token}/event", HOOK, {"X-Tmux-Pane": "%1"}, token=None).status == 200
    assert own not in boss.folder.log.read_text()
    assert boss.token not in boss.folder.log.read_text()


def test_renewed_token_is_the_only_one_that_is_taken(remuda: Commands, boss: RunningBoss) -> None:
    before = addresses(remuda)["url"]
    assert addresses(remuda)["url"] == before
    after = addresses(remuda, "--renew")["url"]
    assert curl(f"{after}/status")["status"] == "ok"
    assert "error" in curl(f"{before}/status")
    boss.folder.trail_token.chmod(0o644)
    os.utime(boss.folder.trail_token)
    assert "error" in curl(f"{after}/status")
    boss.folder.trail_token.unlink()
    assert "error" in curl(f"{after}/status")
    assert "error" in curl(f"http://127.0.0.1:{boss.port}/t//status")


@pytest.mark.parametrize("token", ["", "/t/wrong", "/t/" + "x" * 43, "main"])
def test_refused_client_never_learns_that_all_is_clear(served: RunningBoss, token: str) -> None:
    url = f"http://127.0.0.1:{served.port}{f'/t/{served.token}' if token == 'main' else token}"
    queue = curl(f"{url}/queue")
    assert queue["count"] == len(queue["items"]) == 1
    assert "token" in queue["items"][0]["last_message"]
    for words in (["/next"], ["/skip", "-X", "POST"]):
        found = curl(f"{url}{words[0]}", *words[1:])
        assert (found["paneId"], "token" in found["reason"]) == (None, True)
    status = curl(f"{url}/status")
    assert "token" in status["error"]
    assert status.keys() == {"error"}
    code = ["-o", "/dev/null", "-w", "%{http_code}"]
    assert curl(f"{url}/queue", *code) == 401


def test_wrong_token_and_no_token_have_words_of_their_own(served: RunningBoss) -> None:
    none = served.ask("GET", "/v1/queue", token=None).json["error"]
    wrong = served.ask("GET", "/v1/queue", token="x" * 43).json["error"]
    assert none["code"] == wrong["code"] == "UNAUTHORIZED"
    assert none["message"].startswith("no token; ")
    assert "is wrong" in wrong["message"]
    in_path = [served.ask("GET", f"/t/{one}/next", token=None).json for one in (served.token, "y" * 43)]
    assert in_path[0] == in_path[1]


def test_our_own_commands_distinguish_a_boss_that_refuses_from_an_empty_queue(
    remuda: Commands, boss: RunningBoss
) -> None:
    boss.folder.token.write_text("x" * 43)
    for words in (["queue"], ["agents"], ["next"], ["status"]):
        assert "token" in remuda.refused(*words, code=8)
    assert remuda("segment", "--plain").out == "✗ down\n"
    assert remuda.json("segment") == {"up": False, "waiting": None, "age": None}


ASKED = {
    "session_id": "abc",
    "hook_event_name": "PermissionRequest",
    "tool_name": "Bash",
    "tool_input": {"command": "rm -rf build"},
}


def allow_in(boss: RunningBoss, folder: Path) -> None:
    path = boss.folder.path / "policy.toml"
    path.write_text(f"[[rule]]\nname = 'here'\ndecision = 'allow'\ntool = 'Bash'\nfolder = '{folder}'\n")
    path.chmod(0o600)


def test_no_event_of_its_clients_moves_a_request_to_where_a_rule_allows_it(
    remuda: Commands, boss: RunningBoss, tmp_path: Path
) -> None:
    collector = addresses(remuda)["collector"]
    asks = {"payload": {**ASKED, "cwd": "/srv"}, "id": "one", "at": time.time(), "wait": 0.5}
    first = boss.client.post("hooks", "permission", body=asks)
    moved = {**HOOK, "hook_event_name": "SessionStart", "source": "compact", "cwd": str(tmp_path)}
    assert post(collector, moved, "-H", "X-Tmux-Pane: %7") == {"ok": True}
    allow_in(boss, tmp_path)
    again = boss.client.post("hooks", "permission", body=asks)
    assert (again["approval"], again["state"], again["output"]) == (first["approval"], "open", None)
    here = {"payload": {**ASKED, "cwd": str(tmp_path), "session_id": "def"}, "wait": 10}
    assert boss.client.post("hooks", "permission", body=here)["state"] == "answered"


def test_request_that_its_clients_make_up_is_decided_by_no_rule(
    remuda: Commands, boss: RunningBoss, tmp_path: Path
) -> None:
    """Such a request, for the session of another folder, would answer the one that it looks like."""
    allow_in(boss, tmp_path)
    made_up = {**ASKED, "cwd": str(tmp_path), "permission_suggestions": [{"type": "setMode"}]}
    assert post(addresses(remuda)["collector"], made_up, "-H", "X-Tmux-Pane: %7") == {"ok": True}
    (forged,) = boss.client.get("approvals", state="open")["approvals"]
    real = boss.client.post("hooks", "permission", body={"payload": {**ASKED, "cwd": "/srv"}, "wait": 0.5})
    assert (real["state"], real["output"]) == ("open", None)
    (found,) = boss.client.get("approvals", state="open")["approvals"]
    assert found["id"] == real["approval"] != forged["id"]
    assert (found["suggestions"], found["detail"]["cwd"]) == ([], "/srv")
