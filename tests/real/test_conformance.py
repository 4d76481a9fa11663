"""The scripted agent against the real program: the same keys, and what a supervisor sees of both.

Each step of a scenario is played on both; what was observed in it must be equal. Where the two are known to
differ, it is named here, at the top, and nowhere else.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from remuda.testing.scripted_agent.probe import SCRIPTED, Probe
from support.real_sessions import MakeCli

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

# Lines of the real transcript that are about the program's own business. The scripted agent writes none.
HELPER_LINES = frozenset({"api-request", "api-request-shape", "api-request-blob", "atis-latch", "cost-state"})
# Attachments that carry what the real program tells the model of its surroundings.
HELPER_ATTACHMENTS = frozenset(
    (
        *("environment", "model", "deferred_tools_delta", "agent_listing_delta", "skill_listing", "date"),
        *(
            "session_context",
            "remote_session_change",
            "prompt_snapshot",
            "total_tokens_reminder",
            "hook_success",
        ),
    )
)
# Lines whose number and place depend on when the real program found time to write them.
LOOSE_LINES = frozenset(
    (
        *("mode", "permission-mode", "last-prompt", "file-history-snapshot", "tools-used", "informational"),
        "queue-operation",
    )
)
# Events that come by the clock: when a dialog, or an idle program, has waited for some seconds.
CLOCK_EVENTS = frozenset({"Notification"})
# The scripted agent talks to no other session, and says so by leaving these out of its registry entry.
NOT_IN_REGISTRY = frozenset(
    {"peerProtocol", "peerFeatures", "pidDomain", "asksForConvertedSkills", "messagingSocketPath"}
)

Step: TypeAlias = Callable[["Play"], None]
Hooks: TypeAlias = dict[str, list[dict[str, Any]]]


@dataclass(slots=True)
class Observed:
    """What one step left to be seen."""

    events: list[str] = field(default_factory=list)
    payload_keys: dict[str, list[str]] = field(default_factory=dict)
    answers: list[str] = field(default_factory=list)
    displayed: list[tuple[str, bool]] = field(default_factory=list)
    lines: list[tuple[str, ...]] = field(default_factory=list)
    queue: list[str] = field(default_factory=list)
    line_keys: dict[tuple[str, ...], list[str]] = field(default_factory=dict)
    statuses: list[tuple[str | None, str | None]] = field(default_factory=list)
    landmarks: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Place:
    """How much of a program's files was observed: hooks, and lines of each conversation."""

    hooks: int = 0
    lines: Mapping[str, int] = field(default_factory=dict)


class Play:
    """One program, driven through a scenario."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.seen = Observed()
        self._begin = Place()
        self._end = Place()

    def act(self, step: Step) -> None:
        """Play a step."""
        self.seen = Observed()
        step(self)

    def mark(self) -> None:
        """Further observations begin behind what was last observed; what came since belongs to them."""
        self._begin = self._end

    def observed(self) -> Observed:
        """What the step has left so far. Files may lag behind: ask again."""
        noted = Observed(statuses=self.seen.statuses, landmarks=self.seen.landmarks)
        hooks = self.probe.hooks
        sessions = list(dict.fromkeys(payload["session_id"] for payload in hooks))
        lines = {session: self.probe.transcript(session) for session in sessions}
        _take_hooks(noted, hooks[self._begin.hooks :])
        for session in sessions:
            for line in lines[session][self._begin.lines.get(session, 0) :]:
                _take_line(noted, line)
        self._end = Place(len(hooks), {session: len(lines[session]) for session in sessions})
        return noted

    def turn(self, prompt: str, ends_with: str = "Stop") -> None:
        self.probe.turn(prompt, ends_with)
        self.note_status("idle")

    def note_status(self, status: str) -> None:
        """Wait for a status of the registry, and note what it says then."""
        entry = self.probe.wait_for_status(status)
        self.seen.statuses.append((entry.get("status"), entry.get("waitingFor")))

    def landmark(self, pattern: str) -> None:
        """Wait until the screen shows something."""
        self.probe.until(
            lambda: re.search(pattern, self.probe.screen(), re.MULTILINE), f"{pattern!r} on the screen"
        )
        self.seen.landmarks.append(pattern)


def _take_hooks(seen: Observed, payloads: Iterable[Mapping[str, Any]]) -> None:
    for payload in payloads:
        event = payload["hook_event_name"]
        if event in CLOCK_EVENTS:
            continue
        seen.payload_keys[event] = sorted(payload)
        if event == "MessageDisplay":
            seen.displayed.append((payload["delta"], payload["final"]))
        else:
            seen.events.append(event)
        if "last_assistant_message" in payload:
            seen.answers.append(payload["last_assistant_message"])
    seen.displayed.sort()


def _take_line(seen: Observed, line: Mapping[str, Any]) -> None:
    kind = line["type"]
    attached = line.get("attachment", {}).get("type", "")
    if kind == "queue-operation":
        seen.queue.append(line["operation"])
    detail = line.get("subtype") or attached
    if {kind, detail} & LOOSE_LINES or kind in HELPER_LINES or attached in HELPER_ATTACHMENTS:
        return
    name = (kind, detail, *_block_types(line))
    message = line.get("message", {})
    keys = [
        *line,
        *(f"message.{key}" for key in message),
        *(f"usage.{key}" for key in message.get("usage", {})),
    ]
    seen.lines.append(name)
    seen.line_keys[name] = sorted(keys)


def _block_types(line: Mapping[str, Any]) -> tuple[str, ...]:
    content = line.get("message", {}).get("content", ())
    return ("str",) if isinstance(content, str) else tuple(block["type"] for block in content)


# --- the steps


def start(play: Play) -> None:
    play.probe.ready()
    play.note_status("idle")
    play.landmark(r"^❯")
    play.landmark(r"⏸ manual mode on")


def plain_turn(play: Play) -> None:
    play.turn("plain hello")
    play.landmark(r"^❯ plain hello")
    play.landmark(r"^● REPLY#1 to: plain hello")
    play.landmark(r"^✻ \S+ for \d+s · done \d+:\d\d [AP]M")


def ask(play: Play, prompt: str) -> None:
    asked = play.probe.count("PermissionRequest")
    play.probe.paste(prompt)
    play.probe.wait_for_hook("PermissionRequest", asked + 1)
    play.note_status("waiting")


def open_permission(play: Play, name: str) -> None:
    ask(play, f"RUNBASH touch {name}")
    for pattern in (
        r"^ Bash command",
        r"^ Do you want to proceed\?",
        r"^ ❯ 1\. Yes$",
        r"^   4\. No$",
        r"^ Esc to cancel",
    ):
        play.landmark(pattern)


def tool_turn(play: Play) -> None:
    stops = play.probe.count("Stop")
    open_permission(play, "made")
    play.probe.answer("1")
    play.probe.wait_for_hook("Stop", stops + 1)
    play.probe.settle()
    play.landmark(r"^● REPLY#\d+ to: tool_result \(Bash completed with no output\)")


def rejected_tool_turn(play: Play) -> None:
    open_permission(play, "unwanted")
    play.probe.answer("4")
    play.probe.settle()
    play.landmark(r"Interrupted · What should Claude do instead\?")


def pasted_approval(play: Play) -> None:
    stops = play.probe.count("Stop")
    open_permission(play, "by-accident")
    play.probe.answer("\x1b[200~a prompt from somewhere\x1b[201~\r")
    play.probe.wait_for_hook("Stop", stops + 1)
    play.probe.settle()


def question(play: Play) -> None:
    stops = play.probe.count("Stop")
    options = '"options":[{"label":"Red","description":"r"},{"label":"Blue","description":"b"}]'
    asked = f'{{"question":"Which color?","header":"Color","multiSelect":false,{options}}}'
    ask(play, f'TOOL {{"name":"AskUserQuestion","input":{{"questions":[{asked}]}}}}')
    play.landmark(r"❯ 1\. Red")
    play.probe.answer("2")
    play.probe.wait_for_hook("Stop", stops + 1)
    play.probe.settle()


def failing_tool(play: Play) -> None:
    play.turn("RUNBASH ls nowhere")


def api_error(play: Play) -> None:
    play.turn("err 400", "StopFailure")
    play.landmark(r"^● API Error: 400 fake error 400")


def interrupt(play: Play) -> None:
    play.probe.paste("SLOW 20 words")
    play.probe.wait_for_status("busy")
    play.landmark(r"esc to interrupt")
    play.landmark(r"↓ [1-9]\d* tokens")
    play.probe.type("\x1b")
    play.note_status("idle")
    play.landmark(r"Interrupted · What should Claude do instead\?")


def interrupt_before_the_first_word(play: Play) -> None:
    prompts = play.probe.count("UserPromptSubmit")
    play.probe.paste("THINK 30 deep")
    play.probe.wait_for_hook("UserPromptSubmit", prompts + 1)
    play.landmark(r"\(\d+s")
    play.probe.type("\x1b")
    play.probe.settle()
    play.landmark(r"^❯\s+THINK 30 deep")
    play.probe.type("\x15")
    play.landmark(r"^❯\s*$")


def shell_command(play: Play) -> None:
    play.turn("!echo from-the-shell")
    play.landmark(r"^! echo from-the-shell")


def unknown_command(play: Play) -> None:
    play.probe.paste("/unknown foo")
    play.landmark(r"^● Unknown command: /unknown")
    play.probe.settle()


def merged_prompts(play: Play) -> None:
    prompts, stops = play.probe.count("UserPromptSubmit"), play.probe.count("Stop")
    play.probe.paste("THINK 25 first")  # seconds: long enough for the hooks of two more prompts
    play.probe.wait_for_hook("UserPromptSubmit", prompts + 1)
    # A prompt that is queued before the turn has begun has its hook only after it (once in some 20 runs).
    play.probe.wait_for_status("busy")
    play.landmark(r"esc to interrupt")
    for number, prompt in enumerate(("second", "third"), 2):
        play.probe.paste(prompt)
        play.probe.wait_for_hook("UserPromptSubmit", prompts + number)
    play.probe.wait_for_hook("Stop", stops + 2)
    play.probe.settle()


def clear(play: Play) -> None:
    before = play.probe.entry["sessionId"]
    starts = play.probe.count("SessionStart")
    play.probe.paste("/clear")
    started = play.probe.wait_for_hook("SessionStart", starts + 1)
    play.probe.until(lambda: play.probe.entry.get("sessionId") == started["session_id"], "the new session")
    play.probe.settle()
    assert started["session_id"] != before


def turn_after_clear(play: Play) -> None:
    play.turn("after clear")


def leave(play: Play) -> None:
    play.probe.paste("/exit")
    assert play.probe.wait_for_exit() == 0
    assert play.probe.wait_for_hook("SessionEnd", 2)["reason"] == "prompt_input_exit"
    assert play.probe.entry == {}


# --- both programs


@dataclass(frozen=True, slots=True)
class Both:
    real: Play
    scripted: Play

    def compare(self, *steps: Step) -> None:
        """Play the steps on both; what is observed of each must become equal in a while."""
        for step in steps:
            self.real.act(step)
            self.scripted.act(step)
            with suppress(TimeoutError):
                self.real.probe.until(lambda: not self._differences(), "equality")
            if different := self._differences():
                pytest.fail(f"in step {step.__name__}:\n" + "\n".join(different), pytrace=False)
            self.real.mark()
            self.scripted.mark()

    def _differences(self) -> list[str]:
        real, scripted = asdict(self.real.observed()), asdict(self.scripted.observed())
        # Of the keys by event or line, only those that differ are worth reading.
        for keys in ("payload_keys", "line_keys"):
            common = [name for name, found in real[keys].items() if scripted[keys].get(name) == found]
            for name in common:
                del real[keys][name], scripted[keys][name]
        different = [name for name in real if real[name] != scripted[name]]
        return [f"{name}\n    real:     {real[name]}\n    scripted: {scripted[name]}" for name in different]


MakeBoth: TypeAlias = Callable[..., Both]


@pytest.fixture
def make_both(make_cli: MakeCli, tmp_path: Path) -> Iterator[MakeBoth]:
    """Starts both; ``hooks`` and ``env`` are added for each of them."""
    with ExitStack() as stack:

        def make(
            *, trust: bool = True, hooks: Hooks | None = None, env: Mapping[str, str] | None = None
        ) -> Both:
            cli = make_cli(trust=trust)
            home, project = tmp_path / "home", tmp_path / "project"
            home.mkdir()
            project.mkdir()
            # An empty trust store: the scripted agent asks, as the real program does.
            projects = {str(project.resolve()): {"hasTrustDialogAccepted": True}} if trust else {}
            (home / ".claude.json").write_text(json.dumps({"projects": projects}))
            flags = ("--permission-mode", "manual")
            variables = {**cli.env, **(env or {})}
            real = Probe(
                (str(cli.binary),), *flags, home=cli.home, project=cli.project, env=variables, hooks=hooks
            )
            stack.enter_context(real)
            variables["HOME"] = str(home)
            scripted = Probe(SCRIPTED, *flags, home=home, project=project, env=variables, hooks=hooks)
            stack.enter_context(scripted)
            return Both(Play(real), Play(scripted))

        yield make


@pytest.fixture
def both(make_both: MakeBoth) -> Both:
    return make_both()


def saying(event: str, answer: object) -> Hooks:
    """A hook that prints this JSON."""
    return {event: [{"type": "command", "command": f"cat > /dev/null; printf '%s' '{json.dumps(answer)}'"}]}


def deciding(event: str, **fields: object) -> Hooks:
    return saying(event, {"hookSpecificOutput": {"hookEventName": event, **fields}})


def test_main_scenario_is_observed_alike_on_both(both: Both) -> None:
    both.compare(start, plain_turn, tool_turn, api_error, interrupt, clear, turn_after_clear, leave)

    def titles() -> list[list[str]]:
        return [_title_phases(play.probe.titles) for play in (both.real, both.scripted)]

    with suppress(TimeoutError):  # the last is read a moment after the end
        both.real.probe.until(lambda: titles()[0] == titles()[1], "the same titles")
    assert titles()[0] == titles()[1]


@pytest.mark.soak(only=True)  # 80 s
def test_corners_are_observed_alike_on_both(both: Both) -> None:
    both.compare(
        start,
        rejected_tool_turn,
        plain_turn_after_rejection,
        pasted_approval,
        question,
        failing_tool,
        interrupt_before_the_first_word,
        shell_command,
        unknown_command,
        merged_prompts,
    )


def plain_turn_after_rejection(play: Play) -> None:
    play.turn("plain hello")


def test_blocked_stop_is_observed_alike_on_both(make_both: MakeBoth) -> None:
    block = saying("Stop", {"decision": "block", "reason": "go on"})
    both = make_both(hooks=block, env={"CLAUDE_CODE_STOP_HOOK_BLOCK_CAP": "2"})

    def blocked_turn(play: Play) -> None:
        play.probe.paste("hello")
        play.probe.wait_for_hook("Stop", 3)
        play.landmark(r"^● A hook blocked the turn from ending 3 consecutive times")
        play.probe.settle()

    both.compare(start, blocked_turn)


@pytest.mark.parametrize(
    "hooks",
    [
        deciding("PermissionRequest", decision={"behavior": "deny", "message": "not now"}),
        deciding("PermissionRequest", decision={"behavior": "allow"}),
        deciding("PreToolUse", permissionDecision="deny", permissionDecisionReason="nope"),
        deciding("PreToolUse", permissionDecision="allow"),
    ],
    ids=["permission denied", "permission allowed", "use denied", "use allowed"],
)
def test_hook_that_decides_is_observed_alike_on_both(make_both: MakeBoth, hooks: Hooks) -> None:
    def decided_turn(play: Play) -> None:
        play.turn("RUNBASH touch made")

    make_both(hooks=hooks).compare(start, decided_turn)


def test_hook_that_interrupts_is_observed_alike_on_both(make_both: MakeBoth) -> None:
    def interrupted_turn(play: Play) -> None:
        play.probe.paste("RUNBASH touch made")
        play.probe.wait_for_hook("PermissionRequest")
        play.landmark(r"Interrupted · What should Claude do instead\?")
        play.probe.settle()

    decision = {"behavior": "deny", "message": "halt", "interrupt": True}
    make_both(hooks=deciding("PermissionRequest", decision=decision)).compare(start, interrupted_turn)


def test_blocked_prompt_is_observed_alike_on_both(make_both: MakeBoth) -> None:
    def refused_prompt(play: Play) -> None:
        play.probe.paste("hello")
        play.landmark(r"^● UserPromptSubmit operation blocked by hook:")
        play.landmark(r"^  Original prompt: hello")
        play.probe.settle()

    make_both(hooks=saying("UserPromptSubmit", {"decision": "block", "reason": "no"})).compare(
        start, refused_prompt
    )


@pytest.mark.parametrize(("keys", "code"), [("\r", 1), ("\x1b", 0), ("\x1b[200~a prompt\x1b[201~\r", 1)])
def test_trust_dialog_refuses_alike(make_both: MakeBoth, keys: str, code: int) -> None:
    both = make_both(trust=False)
    for play in (both.real, both.scripted):
        play.landmark(r"^ ❯ No, exit")
        play.landmark(r"^   Yes, I trust this folder")
        play.landmark(r"Enter to confirm · Esc to cancel")
        process = play.probe.terminal.process
        play.probe.terminal.wait_for(b"\x1b[c")
        play.probe.insist(keys, partial(_has_ended, process))
        assert play.probe.wait_for_exit() == code
        assert play.probe.hooks == []


def test_trust_dialog_is_accepted_alike(make_both: MakeBoth) -> None:
    both = make_both(trust=False)
    for play in (both.real, both.scripted):
        play.landmark(r"^ ❯ No, exit")
        _choose(play.probe, "Yes, I trust this folder")
        play.probe.type("\r")
    both.compare(start, plain_turn)


def test_start_bytes_come_in_the_same_order(both: Both) -> None:
    marks = (
        *(
            b"\x1b7\x1b[r\x1b8\x1b[?25h",
            b"\x1b[?2004h\x1b[?2031h\x1b[?1004h",
            b"\x1b]0;",
            b"\x1b[?1049h\x1b[2J\x1b[H",
        ),
        *(
            b"\x1b[?1000h\x1b[?1002h\x1b[?1003h\x1b[?1006h",
            b"\x1b[>0q",
            b"\x1b[?u",
            b"\x1b]7501;?\x07",
            b"\x1b[c",
        ),
    )
    for play in (both.real, both.scripted):
        output = play.probe.terminal.wait_for(b"\x1b[c")
        places = [output.find(mark) for mark in marks]
        assert -1 not in places
        assert places == sorted(places)


def test_registry_entries_have_the_same_keys(both: Both) -> None:
    for play in (both.real, both.scripted):
        play.probe.ready()

    def extra() -> set[str]:
        return set(both.real.probe.entry) - set(both.scripted.probe.entry)

    # It adds to its entry while it comes up.
    both.real.probe.until(lambda: extra() >= NOT_IN_REGISTRY, f"{NOT_IN_REGISTRY} in its entry")
    assert extra() == NOT_IN_REGISTRY
    assert set(both.scripted.probe.entry) <= set(both.real.probe.entry)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_ends_both_with_the_same_code_and_reason(both: Both, number: signal.Signals) -> None:
    ends = []
    for play in (both.real, both.scripted):
        play.probe.ready()
        play.probe.turn("hello")
        play.probe.terminal.process.send_signal(number)
        ends.append((play.probe.wait_for_exit(), play.probe.wait_for_hook("SessionEnd")["reason"]))
    assert ends[0] == ends[1]


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is not None


def _shows(probe: Probe, text: str) -> bool:
    return text in probe.screen()


def _choose(probe: Probe, row: str) -> None:
    """Move down to a row until it stays: the real dialog undoes what is pressed in its first moment."""
    is_chosen = partial(_shows, probe, f"❯ {row}")
    while True:
        probe.insist("\x1b[B", is_chosen)
        try:
            probe.until(lambda: not is_chosen(), "a change of mind", timeout=1.0)
        except TimeoutError:
            return


def _title_phases(titles: list[str]) -> list[str]:
    """Idle or busy, each change once."""
    phases = ["busy" if title[:1] in "◐◑" and title else title for title in titles]
    return [phase for index, phase in enumerate(phases) if not index or phase != phases[index - 1]]
