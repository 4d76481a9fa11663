"""What the boss relies on and no one documents, asked of the real CLI: a test for each question.

docs/why/claude-code.md has the answers in a table.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli
from remuda.testing.scripted_agent.probe import Probe, whole_records
from support.boss import RunningBoss
from support.commands import Commands
from support.keeper import until, until_equal
from support.messages import prompts
from support.pane_agent import AgentPane, install_hooks
from support.real_sessions import PLAN, QUESTION, MakeCli, hurried
from support.tmux_attention import TmuxBench

pytestmark = pytest.mark.real

MANUAL = ("--permission-mode", "default")
IN_PLAN = ("--permission-mode", "plan")
SOURCES = ("remuda.boss.evidence.spool:Spool", "remuda.boss.evidence.reconcile:Reconcile")


def call(tool: dict[str, Any]) -> str:
    return f"TOOL {json.dumps(tool)}"


def probed(cli: RealCli, *flags: str) -> Probe:
    return Probe(cli.argv(), *flags, home=cli.home, project=cli.project, env=cli.env)


def refuse(agent: Probe, shown: str) -> None:
    """Refuse what a dialog asks, once it is there: before that the key would mean something else."""
    agent.wait_for_status("waiting")
    agent.until(lambda: shown in agent.screen(), "the dialog")
    agent.answer("\x1b")


# ── hooks ──


def test_notification_tells_later_what_other_hooks_tell_and_alone_of_a_dialog_in_plan_mode(
    make_cli: MakeCli,
) -> None:
    cases = {
        "permission": (MANUAL, "RUNBASH touch made", "PermissionRequest", "permission_prompt"),
        "question": (MANUAL, call(QUESTION), "PermissionRequest", "permission_prompt"),
        "plan": (IN_PLAN, call(PLAN), "PermissionRequest", "permission_prompt"),
        "finished": (MANUAL, "hello", "Stop", "idle_prompt"),
        "unchecked": (IN_PLAN, "RUNBASH touch made", None, "permission_prompt"),
    }
    with ExitStack() as stack:
        # Side by side: the CLI waits six seconds before it says that it waits.
        probes = {
            name: stack.enter_context(probed(hurried(make_cli()), *case[0])) for name, case in cases.items()
        }
        for name, (_, prompt, _, _) in cases.items():
            probes[name].ready()
            probes[name].paste(prompt)
        for name, (_, _, hook, kind) in cases.items():
            told = probes[name].wait_for_hook("Notification")
            assert told["notification_type"] == kind, name
            seen = ("PermissionRequest", "Stop", "Notification")
            events = [event for event in probes[name].events if event in seen]
            assert events == [hook, "Notification"] if hook else ["Notification"], name


@pytest.mark.parametrize("written", [True, False])
def test_plan_is_told_to_hooks_and_transcript_when_its_file_is_written(cli: RealCli, written: bool) -> None:
    with probed(cli, *IN_PLAN) as agent:
        agent.ready()
        agent.turn("hello")
        told: dict[str, Any] = {}
        if written:
            agent.until(lambda: _plan_files(agent), "the plan's file in the transcript")
            path = Path(_plan_files(agent)[0])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("# first this\n")
            told = {"plan": "# first this\n", "planFilePath": str(path)}
        agent.paste(call(PLAN))
        assert agent.wait_for_hook("PermissionRequest")["tool_input"] == told
        agent.until(lambda: _plans(agent), "the call in the transcript")
        assert _plans(agent) == [told or PLAN["input"]]
        refuse(agent, "Here is Claude's plan" if written else "Exit plan mode?")


def _plan_files(agent: Probe) -> list[str]:
    attached = [line["attachment"] for line in agent.transcript() if "attachment" in line]
    return [one["planFilePath"] for one in attached if "planFilePath" in one]


def _plans(agent: Probe) -> list[dict[str, Any]]:
    said = [line["message"]["content"] for line in agent.transcript() if line["type"] == "assistant"]
    return [one["input"] for blocks in said for one in blocks if one.get("name") == "ExitPlanMode"]


def test_stop_is_told_at_the_end_of_a_turn_and_neither_on_an_error_nor_on_an_interrupt(cli: RealCli) -> None:
    with probed(cli, *MANUAL) as agent:
        agent.ready()
        told = agent.turn("hello")
        assert told["last_assistant_message"] == "REPLY#1 to: hello"
        assert {"permission_mode", "effort", "stop_hook_active", "background_tasks"} <= told.keys()
        assert told["session_crons"] == []
        assert "400" in agent.turn("err 400", "StopFailure")["last_assistant_message"]
        agent.paste("SLOW 30 never mind")
        agent.until(lambda: "↓" in agent.screen(), "the first words")
        agent.type("\x1b")
        agent.until(lambda: _interrupts(agent) == 1, "the interrupt in the transcript")
        agent.settle()
        agent.paste("RUNBASH touch made")
        refuse(agent, "Do you want to proceed?")
        agent.until(lambda: _interrupts(agent) == 2, "the refusal in the transcript")
        agent.settle()
        asked, prompted = agent.wait_for_hook("PermissionRequest"), agent.wait_for_hook("UserPromptSubmit", 4)
        assert asked["prompt_id"] == prompted["prompt_id"]
        agent.turn("good bye")
        ends = [event for event in agent.events if event in ("Stop", "StopFailure", "PermissionDenied")]
        assert ends == ["Stop", "StopFailure", "Stop"]


def _interrupts(agent: Probe) -> int:
    return json.dumps(agent.transcript()).count("[Request interrupted by user")


def test_transcript_holds_the_whole_call_while_its_dialog_is_open(cli: RealCli) -> None:
    with probed(cli, *MANUAL) as agent:
        agent.ready()
        calls: list[tuple[str, str, Any, str]] = [
            ("RUNBASH touch made", "Bash", {"command": "touch made"}, "Do you want to proceed?"),
            (call(QUESTION), "AskUserQuestion", QUESTION["input"], "Which colour?"),
        ]
        for prompt, name, given, shown in calls:
            agent.paste(prompt)
            agent.wait_for_status("waiting")
            agent.until(lambda: _open_calls(agent), "an open call in the transcript")
            (found,) = _open_calls(agent)
            assert found["name"] == name
            assert {key: found["input"].get(key) for key in given} == given
            refuse(agent, shown)
            agent.until(lambda: not _open_calls(agent), "the call's end in the transcript")
            agent.settle()


def _open_calls(agent: Probe) -> list[dict[str, Any]]:
    contents = [record["message"]["content"] for record in agent.transcript() if "message" in record]
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    over = {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"}
    return [block for block in blocks if block["type"] == "tool_use" and block["id"] not in over]


def test_permission_prompt_tool_is_given_the_call_and_its_answer_is_a_text(
    cli: RealCli, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    server = {
        "command": sys.executable,
        "args": [str(Path(__file__).with_name("mcp_permission.py")), str(log)],
    }
    config = json.dumps({"mcpServers": {"s": server}})
    flags = ("--mcp-config", config, "--permission-prompt-tool", "mcp__s__leave", *MANUAL)
    assert cli.run_print("RUNBASH touch made", *flags).returncode == 0
    denied = cli.run_print("RUNBASH touch other", *flags)
    assert (denied.returncode, denied.stdout) == (0, "REPLY#2 to: tool_result not that one\n")
    assert [path.name for path in cli.project.iterdir()] == ["edited"]
    for asked, command in zip(whole_records(log), ("touch made", "touch other"), strict=True):
        assert asked.keys() == {"tool_name", "input", "tool_use_id"}
        assert (asked["tool_name"], asked["input"]["command"]) == ("Bash", command)


# ── panes ──


@pytest.fixture
def boss(home: Path, remuda: Commands, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningBoss]:
    """It is closed before the commands are, who take what they find for a session's."""
    monkeypatch.setenv("TMUX_TMPDIR", str(home))
    one = RunningBoss(home, SOURCES)
    yield one
    one.close()


Open = Callable[..., AgentPane]


@pytest.fixture
def panes(remuda: Commands, cli: RealCli, boss: RunningBoss, tmux: TmuxBench) -> Open:
    """Opens the CLI in a pane of its own, with the boss's hooks."""
    install_hooks(remuda, cli.home / ".claude" / "settings.json")
    boss.start()

    def opened(*flags: str) -> AgentPane:
        return AgentPane(tmux, boss, cli.argv(*flags), cli.env, cli.project, pane=_new_pane(tmux, cli))

    return opened


def _new_pane(tmux: TmuxBench, cli: RealCli) -> str:
    """Empty for the first, which comes with the server."""
    words = ("new-window", "-dP", "-F", "#{pane_id}", "-c", str(cli.project), "/bin/sh")
    return tmux.run(*words) if tmux.server else ""


def test_every_hook_has_its_pane_and_session_in_its_environment(
    cli: RealCli, tmux: TmuxBench, tmp_path: Path, boss: RunningBoss
) -> None:
    command = f"cat > /dev/null; env > {tmp_path}/$$ && mv {tmp_path}/$$ {tmp_path}/$CLAUDE_CODE_ENTRYPOINT"
    hooks = {"SessionStart": [{"hooks": [{"type": "command", "command": command}]}]}
    settings = cli.home / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"hooks": hooks}))
    for entrypoint, flags in (("cli", [*MANUAL, "hello"]), ("sdk-cli", ["-p", "hello"])):
        agent = AgentPane(tmux, boss, cli.argv(*flags), cli.env, cli.project, pane=_new_pane(tmux, cli))
        agent.until_shows("REPLY#1")
        found = _variables(tmp_path / entrypoint)
        assert found["TMUX_PANE"] == agent.id
        assert found["TMUX"].startswith(tmux.address.path)
        _until_written(cli, found["CLAUDE_CODE_SESSION_ID"])
        assert found["CLAUDECODE"] == "1"
        assert int(found["CLAUDE_PID"])
        assert Path(found["CLAUDE_ENV_FILE"]).parent.is_dir()
        assert Path(found["CLAUDE_PROJECT_DIR"]).samefile(cli.project)


def _until_written(cli: RealCli, conversation: str) -> None:
    until(lambda: conversation in {path.stem for path in cli.transcripts()}, "its transcript")


def _variables(path: Path) -> dict[str, str]:
    until(path.exists, f"{path.name}'s environment")
    lines = path.read_text().splitlines()
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def test_session_keeps_its_id_when_resumed_and_gets_another_when_cleared_or_forked(
    boss: RunningBoss, panes: Open
) -> None:
    first = panes(*MANUAL)
    first.until_shows("for shortcuts")
    first.prompt("hello")
    begun = first.session("stopped")["id"]
    first.prompt("/clear")
    until(lambda: first.session("started")["id"] != begun, "another conversation in its pane")
    until(lambda: boss.waiting() == [], "an empty queue")
    first.prompt("hello again")
    cleared = first.session("stopped")["id"]
    fork = panes(*MANUAL, "--resume", cleared, "--fork-session", "and here")
    forked = fork.session("stopped")["id"]
    assert len({begun, cleared, forked}) == 3
    again = panes(*MANUAL, "--resume", begun, "and there")
    assert again.session("stopped")["id"] == begun
    expected = {cleared: first.id, forked: fork.id, begun: again.id}
    until_equal(
        lambda: {one["session_id"]: one["session"]["pane"] for one in boss.waiting()}, expected, "all"
    )


def test_reply_of_many_lines_reaches_the_model_as_it_is(
    model: LoopbackModel, remuda: Commands, panes: Open
) -> None:
    pane = panes(*MANUAL)
    pane.until_shows("for shortcuts")
    texts = [
        "two\nlines",
        "  blanks before it\n\n\nand between\n    indented",
        "$HOME `id` #{pane_id} #(id) %5 'quoted' \"twice\" \\n;",
        "é 日本語 👩‍👩‍👧 ❤️\nand a second line",
        "\n".join(f"line {number} of a long one, ending in a semicolon;" for number in range(80)),
    ]
    for number, text in enumerate(texts):
        pane.session("started" if number == 0 else "stopped")
        remuda("reply", pane.id, text, "--wait")
    assert prompts(model) == texts


@pytest.mark.parametrize(
    ("prompt", "shown"),
    [
        ("RUNBASH touch made", "Auto mode can't check actions"),
        (call(PLAN), "Exit plan mode?"),
        (call(QUESTION), "Which colour?"),
    ],
    ids=["unchecked", "plan", "question"],
)
def test_dialog_of_any_kind_gets_no_key_of_a_reply(
    model: LoopbackModel, remuda: Commands, panes: Open, prompt: str, shown: str
) -> None:
    pane = panes(*IN_PLAN)
    pane.session("started")
    pane.until_shows("plan mode on")
    pane.prompt(prompt)
    pane.until_shows(shown)
    pane.session("waiting")
    for reply in ("1", "y", "text\nof two lines"):
        assert "is not idle: waiting" in remuda.refused("reply", pane.id, reply, code=8)
    pane.session("waiting")
    assert shown in pane.shown()
    assert len(prompts(model)) == 1


def test_trust_dialog_gets_no_key_of_a_reply(
    make_cli: MakeCli, remuda: Commands, boss: RunningBoss, tmux: TmuxBench
) -> None:
    cli = make_cli(trust=False)
    boss.start()
    pane = AgentPane(tmux, boss, cli.argv(*MANUAL), cli.env, cli.project)
    pane.until_shows("No, exit")
    assert "not found" in remuda.refused("reply", pane.id, "yes", code=3)
    assert "No, exit" in pane.shown()
    assert cli.running()
