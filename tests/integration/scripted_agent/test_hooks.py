"""The scripted agent's hooks: which run, how, and what their answers do."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from support.agents import Start, command, saying, texts


class Endpoint:
    """A loopback server that keeps what hooks sent and answers them all alike."""

    def __init__(self) -> None:
        self.received: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.status, self.answer = 200, b"{}"
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                endpoint.received.append((dict(self.headers), json.loads(body)))
                self.send_response(endpoint.status)
                self.send_header("Content-Length", str(len(endpoint.answer)))
                self.end_headers()
                self.wfile.write(endpoint.answer)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def hook(self, **more: object) -> dict[str, object]:
        return {"type": "http", "url": self.url, **more}

    @property
    def events(self) -> list[str]:
        return [body["hook_event_name"] for _, body in self.received]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint()
    yield server
    server.close()


def write_settings(folder: Path, hooks: dict[str, list[dict[str, object]]], **more: object) -> None:
    groups = {event: [{"hooks": listed}] for event, listed in hooks.items()}
    (folder / ".claude/settings.json").write_text(json.dumps({"hooks": groups, **more}))


# --- which hooks run


def test_hooks_of_all_sources_run_at_the_same_time(
    ready: Start, home: Path, project: Path, tmp_path: Path
) -> None:
    sources = ("user", "project", "given")
    here = " && ".join(f"[ -e '{tmp_path}/{source}-came' ]" for source in sources)

    def meeting(source: str) -> dict[str, object]:
        """A hook that ends well only once all have begun."""
        line = f"cat > /dev/null; touch '{tmp_path}/{source}-came'; until {here}; do sleep 0.02; done"
        return command(f"{line}; touch '{tmp_path}/{source}-met'", timeout=25)

    write_settings(home, {"Stop": [meeting("user")]})
    write_settings(project, {"Stop": [meeting("project")]})
    agent = ready(hooks={"Stop": [meeting("given")]})
    agent.turn("hello")
    (summary,) = [line for line in agent.transcript() if line.get("subtype") == "stop_hook_summary"]
    assert summary["hookCount"] == 4
    assert [source for source in sources if (tmp_path / f"{source}-met").exists()] == list(sources)


def test_identical_commands_of_two_sources_run_once(ready: Start, home: Path, tmp_path: Path) -> None:
    line = f"echo x >> '{tmp_path / 'runs'}'"
    write_settings(home, {"Stop": [command(line)]})
    agent = ready(hooks={"Stop": [command(line)]})
    agent.turn("hello")
    assert (tmp_path / "runs").read_text() == "x\n"


def test_user_hook_added_while_it_runs_counts_for_the_next_turn(
    ready: Start, home: Path, tmp_path: Path
) -> None:
    agent = ready()
    agent.turn("hello")
    write_settings(home, {"Stop": [command(f"touch '{tmp_path / 'ran'}'")]})
    agent.turn("again")
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("flags", [["--bare"], ["--safe-mode"]])
def test_flag_silences_all_hooks(start: Start, flags: list[str]) -> None:
    agent = start(*flags, "hello")
    agent.terminal.wait_for(b"REPLY#1 to: hello")
    agent.settle()
    assert agent.hooks == []


def test_user_setting_silences_all_hooks(start: Start, home: Path) -> None:
    write_settings(home, {}, disableAllHooks=True)
    agent = start("hello")
    agent.terminal.wait_for(b"REPLY#1 to: hello")
    agent.settle()
    assert agent.hooks == []


def test_setting_sources_leave_only_given_hooks(ready: Start, home: Path, tmp_path: Path) -> None:
    write_settings(home, {"Stop": [command(f"touch '{tmp_path / 'ran'}'")]})
    agent = ready("--setting-sources", "")
    agent.turn("hello")
    assert not (tmp_path / "ran").exists()


def test_matcher_picks_the_tool(ready: Start, tmp_path: Path) -> None:
    groups = [
        {"matcher": name, "hooks": [command(f"touch '{tmp_path / name[:4]}'")]}
        for name in ("Bash", "Write|Edit")
    ]
    agent = ready(hooks={"PreToolUse": groups})
    agent.turn("RUNBASH echo hi")
    assert [name for name in ("Bash", "Writ") if (tmp_path / name).exists()] == ["Bash"]


def test_hook_environment_names_session_and_process_and_has_no_terminal(ready: Start, tmp_path: Path) -> None:
    log = tmp_path / "env"
    agent = ready(
        hooks={"Stop": [command(f"env > '{log}'; test -t 0 -o -t 1 -o -t 2 && echo TTY >> '{log}'")]}
    )
    stop = agent.turn("hello")
    lines = log.read_text().splitlines()
    assert "TTY" not in lines
    variables = dict(line.partition("=")[::2] for line in lines if "=" in line)
    assert variables["CLAUDE_CODE_SESSION_ID"] == stop["session_id"]
    assert variables["CLAUDE_PID"] == str(agent.terminal.process.pid)
    assert variables["CLAUDE_PROJECT_DIR"] == stop["cwd"]
    assert variables["CLAUDE_CODE_ENTRYPOINT"] == "scripted"
    assert (variables["CLAUDECODE"], variables["CLAUDE_EFFORT"]) == ("1", "medium")


def test_exec_form_hook_runs_without_a_shell(ready: Start, tmp_path: Path) -> None:
    agent = ready(hooks={"Stop": [command("touch", args=[str(tmp_path / "a b; c")])]})
    agent.turn("hello")
    assert (tmp_path / "a b; c").exists()


def test_hook_that_takes_too_long_fails_open(ready: Start) -> None:
    agent = ready(hooks={"Stop": [command('sleep 60; echo \'{"decision":"block"}\'', timeout=0.3)]})
    agent.turn("hello")
    assert agent.count("Stop") == 1


def test_async_hook_is_not_waited_for(ready: Start, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    line = f"cat > /dev/null; cat '{gate}'; touch '{tmp_path / 'late'}'"
    agent = ready(hooks={"Stop": [command(line, **{"async": True})]})
    agent.turn("hello")
    assert not (tmp_path / "late").exists()
    gate.write_bytes(b"")
    agent.until((tmp_path / "late").exists, "the late hook")


# --- http hooks


def test_http_hook_gets_the_payload_and_its_headers(ready: Start, endpoint: Endpoint) -> None:
    hook = endpoint.hook(headers={"Authorization": "Bearer $ONE ${TWO} $NOPE"}, allowedEnvVars=["ONE", "TWO"])
    listed = {event: [hook] for event in ("SessionStart", "UserPromptSubmit", "Stop")}
    agent = ready(env={"ONE": "tok1", "TWO": "two", "NOPE": "secret"}, hooks=listed)
    agent.turn("hello")
    assert endpoint.events == ["UserPromptSubmit", "Stop"], "SessionStart never comes over http"
    headers, body = endpoint.received[0]
    assert headers["Authorization"] == "Bearer tok1 two "
    assert headers["Content-Type"] == "application/json"
    assert body["prompt"] == "hello"


@pytest.mark.parametrize(
    ("status", "answer"),
    [(500, b"{}"), (302, b"{}"), (204, b""), (200, b"no json"), (404, b'{"decision":"block"}')],
)
def test_http_hook_that_fails_lets_the_turn_end(
    ready: Start, endpoint: Endpoint, status: int, answer: bytes
) -> None:
    endpoint.status, endpoint.answer = status, answer
    agent = ready(hooks={"Stop": [endpoint.hook()]})
    agent.turn("hello")
    assert agent.count("Stop") == 1


def test_http_hook_behind_a_proxy_never_arrives(ready: Start, endpoint: Endpoint) -> None:
    agent = ready(env={"HTTP_PROXY": "http://127.0.0.1:9"}, hooks={"Stop": [endpoint.hook()]})
    agent.turn("hello")
    assert endpoint.received == []
    spared = ready(
        env={"HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1,localhost"},
        hooks={"Stop": [endpoint.hook()]},
    )
    spared.turn("hello")
    assert endpoint.events == ["Stop"]


def test_http_hook_outside_loopback_is_not_called(ready: Start, endpoint: Endpoint) -> None:
    # An address that would reach the endpoint, but is not a loopback one.
    url = endpoint.url.replace("127.0.0.1", "0.0.0.0")
    agent = ready(hooks={"Stop": [{"type": "http", "url": url}]})
    agent.turn("hello")
    assert endpoint.received == []


def test_http_block_of_a_stop_is_taken(ready: Start, endpoint: Endpoint) -> None:
    endpoint.answer = b'{"decision":"block","reason":"over http"}'
    agent = ready(env={"CLAUDE_CODE_STOP_HOOK_BLOCK_CAP": "1"}, hooks={"Stop": [endpoint.hook()]})
    agent.paste("hello")
    agent.wait_for_hook("Stop", 2)
    agent.settle()
    assert texts(agent, "user")[:2] == ["hello", "Stop hook feedback:\nover http"]


# --- Stop


def test_blocked_stop_goes_on_with_the_reason(ready: Start, tmp_path: Path) -> None:
    block = json.dumps({"decision": "block", "reason": "/clear\ttab"})
    once = f"cat > /dev/null; mkdir '{tmp_path / 'once'}' && cat <<'END'\n{block}\nEND\ntrue"
    agent = ready(hooks={"Stop": [command(once)]})
    agent.paste("first")
    first, second = agent.wait_for_hook("Stop"), agent.wait_for_hook("Stop", 2)
    agent.settle()
    assert (first["stop_hook_active"], second["stop_hook_active"]) == (False, True)
    assert first["prompt_id"] == second["prompt_id"]
    assert agent.count("UserPromptSubmit") == agent.count("SessionStart") == 1
    meta = [line for line in agent.transcript() if line.get("isMeta") and line["type"] == "user"]
    assert [line["message"]["content"] for line in meta] == ["Stop hook feedback:\n/clear\ttab"]


def test_exit_code_2_blocks_with_stderr_after_the_command(ready: Start) -> None:
    line = "cat > /dev/null; echo not yet >&2; exit 2"
    agent = ready(env={"CLAUDE_CODE_STOP_HOOK_BLOCK_CAP": "1"}, hooks={"Stop": [command(line)]})
    agent.paste("hello")
    agent.wait_for_hook("Stop", 2)
    agent.settle()
    assert texts(agent, "user")[1] == f"Stop hook feedback:\n[{line}]: not yet"


@pytest.mark.parametrize(("cap", "stops"), [("", 9), ("2", 3), ("abc", 9)])
def test_blocks_in_a_row_are_capped(ready: Start, cap: str, stops: int) -> None:
    block = saying({"decision": "block", "reason": "more"})
    agent = ready(env={"CLAUDE_CODE_STOP_HOOK_BLOCK_CAP": cap} if cap else {}, hooks={"Stop": [block]})
    agent.paste("hello")
    agent.terminal.wait_for(b"overriding and ending turn")
    agent.settle()
    assert agent.count("Stop") == stops
    assert agent.turn("again")["stop_hook_active"] is False


@pytest.mark.parametrize("cap", ["0", "-1"])
def test_cap_of_zero_never_overrides(ready: Start, cap: str) -> None:
    block = saying({"decision": "block", "reason": "more"})
    agent = ready(env={"CLAUDE_CODE_STOP_HOOK_BLOCK_CAP": cap}, hooks={"Stop": [block]})
    agent.paste("hello")
    agent.wait_for_hook("Stop", 15)
    agent.type("\x1b")
    agent.settle()
    assert b"overriding" not in agent.terminal.output


def test_escape_cancels_a_waiting_stop_hook(ready: Start, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    agent = ready(hooks={"Stop": [command(f"echo $$ > '{pid_file}'; sleep 300")]})
    agent.paste("hello")
    agent.until(lambda: pid_file.exists() and pid_file.read_text(), "the hook")
    agent.terminal.wait_for(b"running Stop hook")
    assert agent.status == "busy"
    agent.type("\x1b")
    agent.settle()
    pid = int(pid_file.read_text())
    agent.until(lambda: not Path(f"/proc/{pid}").exists(), "the end of the hook")
    assert texts(agent, "user")[-1] == "[Request interrupted by user]"


# --- UserPromptSubmit and SessionEnd


def test_blocked_prompt_is_not_sent(ready: Start) -> None:
    agent = ready(hooks={"UserPromptSubmit": [saying({"decision": "block", "reason": "no way"})]})
    agent.paste("hello")
    agent.terminal.wait_for(b"UserPromptSubmit operation blocked by hook:")
    agent.settle()
    assert agent.count("Stop") == 0
    assert agent.transcript() == []


@pytest.mark.parametrize(("seconds", "granted", "finishes"), [(60, None, False), (2.5, 30, True)])
def test_session_end_hook_is_cut_short_unless_granted_time(
    ready: Start, tmp_path: Path, seconds: float, granted: int | None, finishes: bool
) -> None:
    more = {} if granted is None else {"timeout": granted}
    agent = ready(hooks={"SessionEnd": [command(f"sleep {seconds}; touch '{tmp_path / 'done'}'", **more)]})
    agent.paste("/exit")
    assert agent.wait_for_exit() == 0
    assert (tmp_path / "done").exists() is finishes
