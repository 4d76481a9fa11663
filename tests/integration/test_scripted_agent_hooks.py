"""The scripted agent's hooks: which run, how, and what their answers do; its dialogs and permissions."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from remuda.testing.scripted_agent.probe import SCRIPTED, Probe

Start = Callable[..., Probe]
QUESTION = {"question": "Which color?", "header": "Color", "multiSelect": False}
OPTIONS = [{"label": "Red", "description": "r"}, {"label": "Blue", "description": "b"}]
ASK = "TOOL " + json.dumps(
    {"name": "AskUserQuestion", "input": {"questions": [{**QUESTION, "options": OPTIONS}]}}
)
PLAN = 'TOOL {"name":"ExitPlanMode","input":{"plan":"# My plan"}}'


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


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home/.claude").mkdir(parents=True)
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project/.claude").mkdir(parents=True)
    return tmp_path / "project"


@pytest.fixture
def start(home: Path, project: Path) -> Iterator[Start]:
    """Starts the agent in manual mode and waits until it is ready; ``wait=False`` does not."""
    with ExitStack() as stack:

        def run(*flags: str, env: dict[str, str] | None = None, wait: bool = True, **given: Any) -> Probe:
            variables = {
                "HOME": str(home),
                "PATH": os.environ["PATH"],
                "MOCK_DIALOG_GUARD": "0",
                **(env or {}),
            }
            mode = [] if "--permission-mode" in flags else ["--permission-mode", "manual"]
            probe = Probe(SCRIPTED, *mode, *flags, home=home, project=project, env=variables, **given)
            stack.enter_context(probe)
            if wait:
                probe.ready()
            return probe

        yield run


def command(line: str, **more: object) -> dict[str, object]:
    return {"type": "command", "command": line, **more}


def saying(answer: object, **more: object) -> dict[str, object]:
    """A hook that prints this JSON."""
    return command(f"cat > /dev/null; printf '%s' '{json.dumps(answer)}'", **more)


def specific(event: str, **fields: object) -> dict[str, object]:
    return saying({"hookSpecificOutput": {"hookEventName": event, **fields}})


def ruling(**decision: object) -> dict[str, list[dict[str, object]]]:
    return {"PermissionRequest": [specific("PermissionRequest", decision=decision)]}


def user_texts(agent: Probe) -> list[str]:
    found = []
    for line in agent.transcript():
        if line["type"] == "user":
            content = line["message"]["content"]
            found += (
                [content] if isinstance(content, str) else [b["text"] for b in content if b["type"] == "text"]
            )
    return found


def results(agent: Probe) -> list[dict[str, Any]]:
    """The lines with a tool's result."""
    return [line for line in agent.transcript() if "toolUseResult" in line]


def write_settings(folder: Path, hooks: dict[str, list[dict[str, object]]], **more: object) -> None:
    groups = {event: [{"hooks": listed}] for event, listed in hooks.items()}
    (folder / ".claude/settings.json").write_text(json.dumps({"hooks": groups, **more}))


# --- which hooks run


def test_hooks_of_all_sources_run_at_the_same_time(
    start: Start, home: Path, project: Path, tmp_path: Path
) -> None:
    sources = ("user", "project", "given")
    here = " && ".join(f"[ -e '{tmp_path}/{source}-came' ]" for source in sources)

    def meeting(source: str) -> dict[str, object]:
        """A hook that ends well only once all have begun."""
        line = f"cat > /dev/null; touch '{tmp_path}/{source}-came'; until {here}; do sleep 0.02; done"
        return command(f"{line}; touch '{tmp_path}/{source}-met'", timeout=25)

    write_settings(home, {"Stop": [meeting("user")]})
    write_settings(project, {"Stop": [meeting("project")]})
    agent = start(hooks={"Stop": [meeting("given")]})
    agent.turn("hello")
    (summary,) = [line for line in agent.transcript() if line.get("subtype") == "stop_hook_summary"]
    assert summary["hookCount"] == 4
    assert [source for source in sources if (tmp_path / f"{source}-met").exists()] == list(sources)


def test_identical_commands_of_two_sources_run_once(start: Start, home: Path, tmp_path: Path) -> None:
    line = f"echo x >> '{tmp_path / 'runs'}'"
    write_settings(home, {"Stop": [command(line)]})
    agent = start(hooks={"Stop": [command(line)]})
    agent.turn("hello")
    assert (tmp_path / "runs").read_text() == "x\n"


def test_user_hook_added_while_it_runs_counts_for_the_next_turn(
    start: Start, home: Path, tmp_path: Path
) -> None:
    agent = start()
    agent.turn("hello")
    write_settings(home, {"Stop": [command(f"touch '{tmp_path / 'ran'}'")]})
    agent.turn("again")
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("flags", [["--bare"], ["--safe-mode"]])
def test_flag_silences_all_hooks(start: Start, flags: list[str]) -> None:
    agent = start(*flags, "hello", wait=False)
    agent.terminal.wait_for(b"REPLY#1 to: hello")
    agent.settle()
    assert agent.hooks == []


def test_user_setting_silences_all_hooks(start: Start, home: Path) -> None:
    write_settings(home, {}, disableAllHooks=True)
    agent = start("hello", wait=False)
    agent.terminal.wait_for(b"REPLY#1 to: hello")
    agent.settle()
    assert agent.hooks == []


def test_setting_sources_leave_only_given_hooks(start: Start, home: Path, tmp_path: Path) -> None:
    write_settings(home, {"Stop": [command(f"touch '{tmp_path / 'ran'}'")]})
    agent = start("--setting-sources", "")
    agent.turn("hello")
    assert not (tmp_path / "ran").exists()


def test_matcher_picks_the_tool(start: Start, tmp_path: Path) -> None:
    groups = [
        {"matcher": name, "hooks": [command(f"touch '{tmp_path / name[:4]}'")]}
        for name in ("Bash", "Write|Edit")
    ]
    agent = start(hooks={"PreToolUse": groups})
    agent.turn("RUNBASH echo hi")
    assert [name for name in ("Bash", "Writ") if (tmp_path / name).exists()] == ["Bash"]


def test_hook_environment_names_session_and_process_and_has_no_terminal(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "env"
    agent = start(
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


def test_exec_form_hook_runs_without_a_shell(start: Start, tmp_path: Path) -> None:
    agent = start(hooks={"Stop": [command("touch", args=[str(tmp_path / "a b; c")])]})
    agent.turn("hello")
    assert (tmp_path / "a b; c").exists()


def test_hook_that_takes_too_long_fails_open(start: Start) -> None:
    agent = start(hooks={"Stop": [command('sleep 60; echo \'{"decision":"block"}\'', timeout=0.3)]})
    agent.turn("hello")
    assert agent.count("Stop") == 1


def test_async_hook_is_not_waited_for(start: Start, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    line = f"cat > /dev/null; cat '{gate}'; touch '{tmp_path / 'late'}'"
    agent = start(hooks={"Stop": [command(line, **{"async": True})]})
    agent.turn("hello")
    assert not (tmp_path / "late").exists()
    gate.write_bytes(b"")
    agent.until((tmp_path / "late").exists, "the late hook")


# --- http hooks


def test_http_hook_gets_the_payload_and_its_headers(start: Start, endpoint: Endpoint) -> None:
    hook = endpoint.hook(headers={"Authorization": "Bearer $ONE ${TWO} $NOPE"}, allowedEnvVars=["ONE", "TWO"])
    listed = {event: [hook] for event in ("SessionStart", "UserPromptSubmit", "Stop")}
    agent = start(env={"ONE": "tok1", "TWO": "two", "NOPE": "secret"}, hooks=listed)
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
    start: Start, endpoint: Endpoint, status: int, answer: bytes
) -> None:
    endpoint.status, endpoint.answer = status, answer
    agent = start(hooks={"Stop": [endpoint.hook()]})
    agent.turn("hello")
    assert agent.count("Stop") == 1


def test_http_hook_behind_a_proxy_never_arrives(start: Start, endpoint: Endpoint) -> None:
    agent = start(env={"HTTP_PROXY": "http://127.0.0.1:9"}, hooks={"Stop": [endpoint.hook()]})
    agent.turn("hello")
    assert endpoint.received == []
    spared = start(
        env={"HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1,localhost"},
        hooks={"Stop": [endpoint.hook()]},
        wait=False,
    )
    spared.wait_for_status("idle")
    spared.turn("hello")
    assert endpoint.events == ["Stop"]


def test_http_hook_outside_loopback_is_not_called(start: Start, endpoint: Endpoint) -> None:
    # An address that would reach the endpoint, but is not a loopback one.
    url = endpoint.url.replace("127.0.0.1", "0.0.0.0")
    agent = start(hooks={"Stop": [{"type": "http", "url": url}]})
    agent.turn("hello")
    assert endpoint.received == []


def test_http_block_of_a_stop_is_taken(start: Start, endpoint: Endpoint) -> None:
    endpoint.answer = b'{"decision":"block","reason":"over http"}'
    agent = start(env={"CLAUDE_CODE_STOP_HOOK_BLOCK_CAP": "1"}, hooks={"Stop": [endpoint.hook()]})
    agent.paste("hello")
    agent.wait_for_hook("Stop", 2)
    agent.settle()
    assert user_texts(agent)[:2] == ["hello", "Stop hook feedback:\nover http"]


# --- Stop


def test_blocked_stop_goes_on_with_the_reason(start: Start, tmp_path: Path) -> None:
    block = json.dumps({"decision": "block", "reason": "/clear\ttab"})
    once = f"cat > /dev/null; mkdir '{tmp_path / 'once'}' && cat <<'END'\n{block}\nEND\ntrue"
    agent = start(hooks={"Stop": [command(once)]})
    agent.paste("first")
    first, second = agent.wait_for_hook("Stop"), agent.wait_for_hook("Stop", 2)
    agent.settle()
    assert (first["stop_hook_active"], second["stop_hook_active"]) == (False, True)
    assert first["prompt_id"] == second["prompt_id"]
    assert agent.count("UserPromptSubmit") == agent.count("SessionStart") == 1
    meta = [line for line in agent.transcript() if line.get("isMeta") and line["type"] == "user"]
    assert [line["message"]["content"] for line in meta] == ["Stop hook feedback:\n/clear\ttab"]


def test_exit_code_2_blocks_with_stderr_behind_the_command(start: Start) -> None:
    line = "cat > /dev/null; echo not yet >&2; exit 2"
    agent = start(env={"CLAUDE_CODE_STOP_HOOK_BLOCK_CAP": "1"}, hooks={"Stop": [command(line)]})
    agent.paste("hello")
    agent.wait_for_hook("Stop", 2)
    agent.settle()
    assert user_texts(agent)[1] == f"Stop hook feedback:\n[{line}]: not yet"


@pytest.mark.parametrize(("cap", "stops"), [("", 9), ("2", 3), ("abc", 9)])
def test_blocks_in_a_row_are_capped(start: Start, cap: str, stops: int) -> None:
    block = saying({"decision": "block", "reason": "more"})
    agent = start(env={"CLAUDE_CODE_STOP_HOOK_BLOCK_CAP": cap} if cap else {}, hooks={"Stop": [block]})
    agent.paste("hello")
    agent.terminal.wait_for(b"overriding and ending turn")
    agent.settle()
    assert agent.count("Stop") == stops
    assert agent.turn("again")["stop_hook_active"] is False


@pytest.mark.parametrize("cap", ["0", "-1"])
def test_cap_of_zero_never_overrides(start: Start, cap: str) -> None:
    block = saying({"decision": "block", "reason": "more"})
    agent = start(env={"CLAUDE_CODE_STOP_HOOK_BLOCK_CAP": cap}, hooks={"Stop": [block]})
    agent.paste("hello")
    agent.wait_for_hook("Stop", 15)
    agent.type("\x1b")
    agent.settle()
    assert b"overriding" not in agent.terminal.output


def test_escape_cancels_a_waiting_stop_hook(start: Start, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    agent = start(hooks={"Stop": [command(f"echo $$ > '{pid_file}'; sleep 300")]})
    agent.paste("hello")
    agent.until(lambda: pid_file.exists() and pid_file.read_text(), "the hook")
    agent.terminal.wait_for(b"running Stop hook")
    assert agent.status == "busy"
    agent.type("\x1b")
    agent.settle()
    pid = int(pid_file.read_text())
    agent.until(lambda: not Path(f"/proc/{pid}").exists(), "the end of the hook")
    assert user_texts(agent)[-1] == "[Request interrupted by user]"


# --- UserPromptSubmit and SessionEnd


def test_blocked_prompt_is_not_sent(start: Start) -> None:
    agent = start(hooks={"UserPromptSubmit": [saying({"decision": "block", "reason": "no way"})]})
    agent.paste("hello")
    agent.terminal.wait_for(b"UserPromptSubmit operation blocked by hook:")
    agent.settle()
    assert agent.count("Stop") == 0
    assert agent.transcript() == []


@pytest.mark.parametrize(("seconds", "granted", "finishes"), [(60, None, False), (2.5, 30, True)])
def test_session_end_hook_is_cut_short_unless_granted_time(
    start: Start, tmp_path: Path, seconds: float, granted: int | None, finishes: bool
) -> None:
    more = {} if granted is None else {"timeout": granted}
    agent = start(hooks={"SessionEnd": [command(f"sleep {seconds}; touch '{tmp_path / 'done'}'", **more)]})
    agent.paste("/exit")
    assert agent.wait_for_exit() == 0
    assert (tmp_path / "done").exists() is finishes


# --- permission


def ask_for_touch(agent: Probe, name: str = "made") -> None:
    agent.paste(f"RUNBASH touch {name}")
    agent.wait_for_status("waiting")
    agent.wait_for_hook("PermissionRequest")
    agent.until(lambda: "Tab to amend" in agent.screen(), "the dialog, to its last line")


def test_permission_dialog_is_told_by_hook_registry_title_and_screen(start: Start) -> None:
    agent = start()
    ask_for_touch(agent)
    assert agent.entry["waitingFor"] == "permission prompt"
    assert agent.titles[-1] == "✳ Claude Code"
    asked = agent.wait_for_hook("PermissionRequest")
    assert asked["tool_input"] == {"command": "touch made", "description": "x"}
    assert [found["type"] for found in asked["permission_suggestions"]] == ["addDirectories", "setMode"]
    shown = agent.screen()
    assert " ❯ 1. Yes" in shown
    assert "   4. No" in shown
    assert " Bash command" in shown


@pytest.mark.parametrize("keys", ["1", "2", "3", "\r"])
def test_key_that_accepts_runs_the_tool(start: Start, project: Path, keys: str) -> None:
    agent = start()
    ask_for_touch(agent)
    agent.answer(keys)
    stop = agent.wait_for_hook("Stop")
    assert stop["last_assistant_message"] == "REPLY#2 to: tool_result (Bash completed with no output)"
    assert (project / "made").exists()
    assert stop["permission_mode"] == ("auto" if keys == "3" else "default")
    loose = ("MessageDisplay", "SessionStart", "Notification")
    order = [event for event in agent.events if event not in loose]
    assert order == [
        "UserPromptSubmit",
        "PreToolUse",
        "PermissionRequest",
        "PostToolUse",
        "PostToolBatch",
        "Stop",
    ]


def test_second_row_is_not_asked_about_again(start: Start) -> None:
    agent = start()
    ask_for_touch(agent)
    agent.answer("2")
    agent.wait_for_hook("Stop")
    agent.settle()
    agent.turn("RUNBASH touch other")
    assert agent.count("PermissionRequest") == 1


@pytest.mark.parametrize("keys", ["4", "\x1b", "\x1b[A\r"])
def test_key_that_rejects_ends_the_turn_without_stop(start: Start, project: Path, keys: str) -> None:
    agent = start()
    ask_for_touch(agent)
    agent.answer(keys)
    agent.settle()
    assert not (project / "made").exists()
    assert "Stop" not in agent.events
    assert user_texts(agent)[-1] == "[Request interrupted by user for tool use]"
    (line,) = results(agent)
    assert (line["toolUseResult"], line["toolDenialKind"]) == ("User rejected tool use", "user-rejected")
    assert agent.turn("hello")["last_assistant_message"] == "REPLY#2 to: hello"


def test_keys_in_the_first_moment_of_a_dialog_are_dropped(start: Start, project: Path) -> None:
    agent = start(env={"MOCK_DIALOG_GUARD": "60000"})
    ask_for_touch(agent)
    agent.type("1\r\x1b")
    with pytest.raises(TimeoutError):
        agent.until(lambda: agent.status != "waiting", "an answer", timeout=0.5)
    assert not (project / "made").exists()


def test_letters_do_nothing_in_a_dialog(start: Start) -> None:
    agent = start()
    ask_for_touch(agent)
    agent.type("yn9")
    with pytest.raises(TimeoutError):
        agent.until(lambda: agent.status != "waiting", "an answer", timeout=0.5)


def test_prompt_pasted_into_the_dialog_approves_it_and_is_lost(start: Start, project: Path) -> None:
    agent = start()
    ask_for_touch(agent)
    agent.answer("\x1b[200~a prompt from somewhere\x1b[201~\r")
    agent.wait_for_hook("Stop")
    agent.settle()
    assert (project / "made").exists()
    assert agent.count("UserPromptSubmit") == 1
    assert "a prompt from somewhere" not in agent.screen()


def test_notification_follows_when_nobody_answers(start: Start) -> None:
    agent = start(env={"MOCK_TIME_SCALE": "0.01"})
    ask_for_touch(agent)
    told = agent.wait_for_hook("Notification")
    assert (told["notification_type"], told["message"]) == (
        "permission_prompt",
        "Claude needs your permission",
    )


def test_idle_notification_follows_a_turn(start: Start) -> None:
    agent = start(env={"MOCK_TIME_SCALE": "0.01"})
    agent.turn("hello")
    told = agent.wait_for_hook("Notification")
    assert (told["notification_type"], told["message"]) == ("idle_prompt", "Claude is waiting for your input")


def test_permission_hook_allows_with_changed_input(start: Start, project: Path) -> None:
    agent = start(hooks=ruling(behavior="allow", updatedInput={"command": "touch changed"}))
    agent.turn("RUNBASH touch made")
    assert [path.name for path in project.glob("*") if path.is_file()] == ["changed"]
    (line,) = results(agent)
    assert line["permissionDecision"]["source"] == "hook"


def test_permission_hook_denies_with_exactly_its_message(start: Start) -> None:
    agent = start(hooks=ruling(behavior="deny", message="not now"))
    assert agent.turn("RUNBASH touch made")["last_assistant_message"] == "REPLY#2 to: tool_result not now"
    (line,) = results(agent)
    assert line["message"]["content"][0]["is_error"] is True


def test_permission_hook_that_interrupts_ends_the_turn(start: Start, project: Path) -> None:
    agent = start(hooks=ruling(behavior="deny", message="halt", interrupt=True))
    agent.paste("RUNBASH touch made")
    agent.wait_for_hook("PermissionRequest")
    agent.settle()
    assert not (project / "made").exists()
    assert "Stop" not in agent.events
    assert user_texts(agent)[-1] == "[Request interrupted by user for tool use]"


def test_permission_hook_can_add_a_rule(start: Start) -> None:
    rules = [{"toolName": "Bash", "ruleContent": "touch:*"}]
    added = [{"type": "addRules", "rules": rules, "behavior": "allow", "destination": "session"}]
    agent = start(hooks=ruling(behavior="allow", updatedPermissions=added))
    agent.turn("RUNBASH touch one")
    agent.turn("RUNBASH touch two")
    assert agent.count("PermissionRequest") == 1


def test_answer_by_hand_comes_before_a_slow_hook(start: Start, project: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    deny = json.dumps(
        {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": {"behavior": "deny"}}}
    )
    agent = start(hooks={"PermissionRequest": [command(f"cat '{gate}'; printf '%s' '{deny}'")]})
    ask_for_touch(agent)
    agent.answer("1")
    agent.wait_for_hook("Stop")
    assert (project / "made").exists()
    gate.write_bytes(b"")


@pytest.mark.parametrize("decision", ["deny", "allow"])
def test_pre_tool_use_hook_decides_without_a_dialog(start: Start, project: Path, decision: str) -> None:
    hook = specific("PreToolUse", permissionDecision=decision, permissionDecisionReason="nope")
    agent = start(hooks={"PreToolUse": [hook]})
    stop = agent.turn("RUNBASH touch made")
    assert (project / "made").exists() is (decision == "allow")
    assert agent.count("PermissionRequest") == 0
    if decision == "deny":
        assert stop["last_assistant_message"] == "REPLY#2 to: tool_result PreToolUse:Bash hook error: nope"


def test_failing_tool_is_told_as_failure(start: Start) -> None:
    agent = start()
    stop = agent.turn("RUNBASH ls nowhere")
    failed = agent.wait_for_hook("PostToolUseFailure")
    assert failed["error"].startswith("Exit code 2")
    assert failed["is_interrupt"] is False
    assert agent.count("PostToolUse") == 0
    assert stop["last_assistant_message"].startswith("REPLY#2 to: tool_result Exit code 2")


@pytest.mark.parametrize(
    ("flags", "asks"),
    [
        (["--permission-mode", "auto"], False),
        (["--permission-mode", "acceptEdits"], False),
        (["--permission-mode", "plan"], True),
        (["--allowedTools", "Write"], False),
        (["--allowedTools", "Write(/elsewhere/*)"], True),
    ],
)
def test_mode_and_rules_decide_whether_a_write_is_asked_about(
    start: Start, project: Path, flags: list[str], asks: bool
) -> None:
    agent = start(*flags)
    agent.paste("TOOL " + json.dumps({"name": "Write", "input": {"file_path": "w.txt", "content": "hey"}}))
    if asks:
        agent.wait_for_hook("PermissionRequest")
        agent.wait_for_status("waiting")
    else:
        agent.wait_for_hook("Stop")
        assert (project / "w.txt").read_text() == "hey"
        assert agent.count("PermissionRequest") == 0


def test_denied_tool_is_refused(start: Start, project: Path) -> None:
    agent = start("--disallowedTools", "Bash", "--permission-mode", "bypassPermissions")
    stop = agent.turn("RUNBASH touch made")
    assert "Permission to use Bash has been denied" in stop["last_assistant_message"]
    assert not (project / "made").exists()


def test_edit_and_read_work_on_files(start: Start, project: Path) -> None:
    (project / "f.txt").write_text("one two\n")
    agent = start("--permission-mode", "acceptEdits")
    change = {"file_path": str(project / "f.txt"), "old_string": "two", "new_string": "three"}
    agent.turn("TOOL " + json.dumps({"name": "Edit", "input": change}))
    stop = agent.turn("TOOL " + json.dumps({"name": "Read", "input": {"file_path": str(project / "f.txt")}}))
    assert "one three" in stop["last_assistant_message"]
    assert agent.wait_for_hook("PostToolUse", 2)["tool_response"]["file"]["numLines"] == 2


def test_auto_mode_dialog_blocks_without_a_hook(start: Start) -> None:
    agent = start("--permission-mode", "auto", env={"MOCK_AUTO_MODE_DIALOG": "1"})
    agent.paste("RUNBASH touch made")
    agent.wait_for_status("waiting")
    assert agent.entry["waitingFor"] == "dialog open"
    assert agent.count("PermissionRequest") == 0
    agent.answer("\r")
    agent.wait_for_hook("Stop")


# --- questions and plans


def test_question_is_answered_by_a_digit(start: Start) -> None:
    agent = start()
    agent.paste(ASK)
    agent.wait_for_status("waiting")
    assert agent.entry["waitingFor"] == "input needed"
    assert "permission_suggestions" not in agent.wait_for_hook("PermissionRequest")
    agent.answer("2")
    answer = agent.wait_for_hook("Stop")["last_assistant_message"]
    assert answer == 'REPLY#2 to: tool_result Your questions have been answered: "Which color?"="Blue". Yo'
    assert agent.wait_for_hook("PostToolUse")["tool_response"]["answers"] == {"Which color?": "Blue"}


def test_prompt_pasted_into_a_question_becomes_its_answer(start: Start) -> None:
    agent = start()
    agent.paste(ASK)
    agent.wait_for_status("waiting")
    agent.answer("\x1b[200~my own words\x1b[201~\r")
    agent.wait_for_hook("Stop")
    assert agent.wait_for_hook("PostToolUse")["tool_input"]["answers"] == {"Which color?": "my own words"}


def test_question_escaped_ends_the_turn(start: Start) -> None:
    agent = start()
    agent.paste(ASK)
    agent.wait_for_status("waiting")
    agent.answer("\x1b")
    agent.settle()
    assert "Stop" not in agent.events


def test_question_is_answered_by_a_hook_with_answers_only(start: Start) -> None:
    answered = {"questions": [QUESTION], "answers": {"Which color?": "Green"}}
    agent = start(hooks=ruling(behavior="allow", updatedInput=answered))
    assert "Green" in agent.turn(ASK)["last_assistant_message"]


def test_plan_stays_open_for_a_bare_allow(start: Start) -> None:
    agent = start("--permission-mode", "plan", hooks=ruling(behavior="allow"))
    agent.paste(PLAN)
    agent.wait_for_hook("PermissionRequest")
    with pytest.raises(TimeoutError):
        agent.until(lambda: agent.status != "waiting", "an answer", timeout=0.7)
    assert agent.wait_for_hook("PermissionRequest")["tool_input"] == {}
    agent.answer("1")
    stop = agent.wait_for_hook("Stop")
    assert stop["permission_mode"] == "default"
    assert "User has approved exiting plan mode" in stop["last_assistant_message"]


def test_plan_is_left_by_a_hook_with_input(start: Start) -> None:
    mode = [{"type": "setMode", "mode": "acceptEdits", "destination": "session"}]
    agent = start(
        "--permission-mode", "plan", hooks=ruling(behavior="allow", updatedInput={}, updatedPermissions=mode)
    )
    assert agent.turn(PLAN)["permission_mode"] == "acceptEdits"
