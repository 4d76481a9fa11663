"""Try an agent, one promise after another. It runs in a process of its own, in the environment of the bench.

Sessions, `print` and the pool are used as any user does. Two lanes run at the same time, after the first
message: what is tried in one session, and the rest.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from remuda.agents import find_agent
from remuda.agents.prompting import ComposerKind, PromptProtocol
from remuda.agents.self_test import Hazard, SelfTest
from remuda.errors import EXIT_CODES, RemudaError, SpawnFailed, WaitTimeout
from remuda.inbox.receipts import Trace
from remuda.keeper.client import KeeperClient
from remuda.pool.client import Client
from remuda.session import Session
from remuda.testing.loopback_model import LoopbackModel, Request
from remuda.testing.script import ToolResult
from remuda.wire import connection as wire
from remuda.wire.connection import ClientConnection

from .promises import (
    NO_TIME,
    REFUSED,
    SESSIONS,
    TIME_OVER,
    PromiseResult,
    PromiseVerdict,
    find_promise,
    offered,
)
from .results import find_binary

T = TypeVar("T")
_POLL_INTERVAL = 0.1
_WATCH_SECONDS = 1.0
"""How long to watch that nothing happens."""
_SLOWER = 6.0
"""Seconds that the first message may take longer than the next.

2.1.240 of Claude Code loses the first Enter, and it was pressed again after 10 s.
"""
_TIMES_SLOWER = 5.0
"""On a busy machine it may take that many times as long. opencode's took 9.9 s, and the next one 2.4 s."""
_ENOUGH = 10.0
"""A step that took this many times as long as the start and the first message had enough time.

With a load of 29 on two cores opencode took 60 s for those two, and its pool did not answer within 37 s.
"""
_PRESS_INTERVAL = 3.0
"""An agent may drop what is typed in the first moments of a dialog."""
_WORDS = 12
_PRINTS = 5
_PRINTS_AT_ONCE = 2
_EXACT = 'one "two" \\n $HOME `id` <b>\n  indented äöü 漢字 🐎\n\nend of it'


class Broken(Exception):
    """A promise does not hold; the text says what was seen."""


class OutOfTime(Broken):
    """It was not seen within the limit of a step."""


class Unsafe(Broken):
    """A promise about safety does not hold, and that was seen.

    Sessions are refused for it. So anything else, such as a wait that took too long, makes it not known.
    """


class NotKnown(Exception):
    """It could not be tried; the text says why."""


def texts_sent(requests: Sequence[Request], mark: str) -> list[str]:
    """Return the user's texts with this mark that the model got to answer: one if it ran once.

    A turn that ran twice has another conversation before it the second time. A request that is only sent
    again has the same, and counts once.
    """
    turns = dict.fromkeys(
        tuple(one.user_texts) for one in requests if isinstance(one.said, str) and mark in one.prompt
    )
    return [text for texts in turns for text in texts if mark in text]


def _is_timeout(error: Exception) -> bool:
    timed_out = isinstance(error, RemudaError) and error.exit_code == EXIT_CODES["TIMEOUT"]
    return timed_out or isinstance(error, OutOfTime)


class Trial:
    """One run. `report` gets each outcome as soon as it is known, from any thread."""

    def __init__(
        self,
        agent: str,
        plan: SelfTest,
        folders: Sequence[Path],
        model: LoopbackModel,
        report: Callable[[PromiseResult], None],
        time_limit: float,
    ) -> None:
        self._agent = agent
        self._plan = plan
        self._offered = offered(plan)
        self._project, *self._untrusted = folders
        self._model = model
        self._report = report
        self._deadline = time.monotonic() + time_limit
        self._step_limit = time_limit / 3
        self.first_took = 0.0
        """Seconds of the start and the first message; 0 before these."""
        prompts = find_agent(agent).prompts
        assert prompts is not None, f"agent {agent!r} takes no prompts"
        self._prompts: PromptProtocol = prompts
        self._sessions: list[Session] = []
        self._hooks: set[str] = set()
        self.words: list[str] = []
        """What the agent printed last, if it did not start."""

    def run(self) -> None:
        """Try all promises; none after a start that failed."""
        try:
            if self.attempt("start", self._start):
                self.attempt("first_message", self._first_message)
                others = threading.Thread(target=self._others, daemon=True)
                others.start()
                self._in_session()
                others.join(max(0.0, self._deadline - time.monotonic()))
        finally:
            for session in self._sessions:
                with suppress(RemudaError, OSError, EOFError):
                    session.kill(grace=0.0)

    def _in_session(self) -> None:
        plan = self._plan
        self._try_all(
            ("exact", self._exact),
            ("sources", self._sources),
            ("bang", partial(self._hazards, plan.bang)),
            ("slash", partial(self._hazards, plan.slash)),
            ("tool", self._tool),
            ("api_error", self._api_error),
            ("interrupt", self._interrupt),
            ("dialog", self._dialog),
            ("compact", partial(self._command, plan.compact)),
            ("clear", self._clear),
            ("draft", self._draft),
            ("resume", self._resume),
            ("hooks", self._all_hooks),
        )

    def _others(self) -> None:
        self._try_all(
            ("calls", self._calls),
            ("trust", self._trust),
            ("pool_stream", partial(self._pool, "stream")),
            ("pool_terminal", partial(self._pool, "terminal")),
            ("print", self._print),
        )

    def _try_all(self, *tried: tuple[str, Callable[[], str]]) -> None:
        for key, function in tried:
            if key in self._offered:
                self.attempt(key, function)

    def attempt(self, key: str, function: Callable[[], str]) -> bool:
        """Report what is found of one promise. Return whether it holds."""
        began = time.monotonic()
        try:
            self._limit()
            detail, verdict = function(), PromiseVerdict.HOLDS
        except NotKnown as error:
            detail, verdict = str(error), PromiseVerdict.UNKNOWN
        except (Broken, RemudaError, OSError, EOFError, ValueError, subprocess.SubprocessError) as error:
            detail, verdict = str(error) or type(error).__name__, PromiseVerdict.FAILS
            if find_promise(key).safety and not isinstance(error, Unsafe):
                verdict = PromiseVerdict.UNKNOWN
            elif time.monotonic() >= self._deadline:
                detail, verdict = TIME_OVER, PromiseVerdict.UNKNOWN
            elif _is_timeout(error):
                detail += f" ({time.monotonic() - began:.0f} s, limit {self._step_limit:.0f} s)"
                verdict = PromiseVerdict.SLOW if self._step_limit < _ENOUGH * self.first_took else verdict
        took = time.monotonic() - began
        if key in ("start", "first_message"):
            self.first_took += took
        self._report(PromiseResult(find_promise(key), verdict, detail, took))
        return verdict is PromiseVerdict.HOLDS

    # ── time ──

    def _limit(self) -> float:
        """Return the seconds that a step may take. Raises `NotKnown` if no time is left."""
        if (left := self._deadline - time.monotonic()) <= 0:
            raise NotKnown(NO_TIME)
        return min(left, self._step_limit)

    def _until(self, look: Callable[[], T], what: str) -> T:
        deadline = time.monotonic() + self._limit()
        while not (seen := look()):
            if time.monotonic() > deadline:
                raise OutOfTime(f"{what} did not come")
            time.sleep(_POLL_INTERVAL)
        return seen

    # ── one session ──

    def _begin(self, name: str, cwd: Path, **options: Any) -> Session:
        command = [find_agent(self._agent).default_argv[0], *self._plan.arguments]
        session = Session.start(
            name,
            [] if options.get("resume") else command,
            agent=self._agent,
            cwd=cwd,
            env=self._plan.variables,
            draft_patience=1.0,
            cols=120,
            rows=40,
            timeout=self._limit(),
            **options,
        )
        self._sessions.append(session)
        return session

    def _start(self) -> str:
        try:
            self._main = self._begin(SESSIONS[0], self._project)
        except SpawnFailed as error:  # its server ended: the reason has its last words
            self.words = error.message.partition(": ")[2].splitlines()
            raise
        try:
            self._client = self._watch(self._main)
            self._until(lambda: self._rests(self._main), "the composer")
        except Broken:
            self._keep_words()
            raise
        except (RemudaError, EOFError, OSError) as error:
            with suppress(Broken):  # the keeper closes its connections before it has ended
                self._until(lambda: not self._main.alive, "its end")
            self._keep_words()
            raise Broken("it ended before it was ready") from error
        return "the composer was found on its screen"

    def _keep_words(self) -> None:
        lines: list[str] = []
        with suppress(RemudaError, OSError):
            lines = self._main.screen() if self._main.alive else self._main.history(100)
        self.words = [line.rstrip() for line in lines if line.strip()][-_WORDS:]

    def _watch(self, session: Session) -> KeeperClient:
        """Note the hooks of a session, and return a connection to type into it."""
        watching = session.attach(read_only=True)
        watching.request("watch", hooks=list(self._plan.hooks), without=[])
        threading.Thread(target=self._note_hooks, args=(watching,), daemon=True).start()
        return session.attach()

    def _note_hooks(self, client: KeeperClient) -> None:
        with suppress(EOFError, OSError), client:
            while True:
                for event in client.receive(None):
                    if isinstance(event, wire.EventReceived) and event.document.get("event") == "hook":
                        self._hooks.add(str(event.document.get("name")))

    def _press(self, keys: bytes) -> None:
        self._client.send(ClientConnection.input(keys))

    def _rests(self, session: Session) -> bool:
        if session.status()["state"] not in ("idle", "interrupted", "error"):
            return False
        with session.attach(read_only=True) as client:
            return self._composer(client)[0] is ComposerKind.EMPTY

    def _composer(self, client: KeeperClient) -> tuple[ComposerKind, str]:
        styled: list[str] = client.request("screen", styled=True)["lines"]
        found = self._prompts.composer(client.request("screen")["lines"], lambda y: styled[y].encode())
        return found.kind, found.text

    def _deliver(self, session: Session, text: str, **options: Any) -> Trace:
        """Send a message that has to be answered, and return its receipt."""
        ended = session.wait(session.send(text, **options).id, self._limit())
        if ended.stage != "acked":
            raise Broken(f"a message was not answered: {ended.stage}, {ended.reason}")
        return ended

    # ── promises of a session ──

    def _first_message(self) -> str:
        took = []
        for text in ("the first message", "the next message"):
            began = time.monotonic()
            self._deliver(self._main, text)
            took.append(time.monotonic() - began)
        seen = f"{took[0]:.1f} s, the next one {took[1]:.1f} s"
        if took[0] > took[1] + max(_SLOWER, _TIMES_SLOWER * took[1]):
            raise Broken(seen)
        return seen

    def _exact(self) -> str:
        self._deliver(self._main, _EXACT)
        self._deliver(self._main, "what comes after")  # one that runs twice has run twice by now
        sent = texts_sent(self._model.main_requests, "end of it")
        if sent != [_EXACT]:
            raise Unsafe(f"the model got {sent!r}")
        return "four lines, with quotes and other scripts"

    def _sources(self) -> str:
        def missing() -> list[str]:
            votes = {str(vote["source"]) for vote in self._main.status(explain=True)["votes"]}
            return [name for name in self._plan.sources if name not in votes]

        deadline = time.monotonic() + min(self._limit(), 5.0)
        while (absent := missing()) and time.monotonic() < deadline:
            time.sleep(_POLL_INTERVAL)
        degraded = [str(one) for one in self._main.status()["degraded"]]
        if absent or degraded:
            raise Broken("; ".join([f"nothing from {name}" for name in absent] + degraded))
        return ", ".join(self._plan.sources)

    def _hazards(self, hazards: Sequence[Hazard]) -> str:
        for hazard in hazards:
            conversation = self._main.status()["conversation"].get("session_id")
            before = len(self._model.main_requests)
            # Not by `send`, which refuses most of them before the keeper does.
            ended = self._main.wait(self._main.inbox.put(hazard.prompt).id, self._limit())
            came = [
                one
                for one in self._model.main_requests[before:]
                if hazard.prompt.strip("\u200b\u2060") in one.prompt
            ]
            if self._main.status()["conversation"].get("session_id") != conversation:
                raise Unsafe(f"{hazard.prompt!r} began another conversation")
            if (made := self._project / "PWNED").exists():
                made.unlink()
                raise Unsafe(f"{hazard.prompt!r} ran as a command")
            refused = ended.stage == "dead" and not came
            arrived = ended.stage == "acked" and bool(came)
            if not (arrived if hazard.arrives else refused):
                raise Broken(f"{hazard.prompt!r} is {ended.stage}: {ended.reason}")
        self._deliver(self._main, "still there after all of them")
        return f"{len(hazards)} prompts"

    def _tool(self) -> str:
        self._deliver(self._main, self._plan.tool_prompt(self._plan.allowed_command))
        results = [one.said.text for one in self._model.main_requests if isinstance(one.said, ToolResult)]
        if not any("remuda-tool" in text for text in results):
            raise Broken(f"the model got {results!r:.200}")
        self._deliver(self._main, self._plan.tool_prompt(self._plan.failing_command))
        return "one that succeeds and one that fails"

    def _api_error(self) -> str:
        ended = self._main.wait(self._main.send("err 400", max_attempts=1).id, self._limit())
        if ended.stage != "dead" or "400" not in ended.reason:
            raise Broken(f"the receipt says {ended.stage}: {ended.reason}")
        self._deliver(self._main, "after the error")
        return ended.reason

    def _interrupt(self) -> str:
        sent = self._main.send("SLOW 60 until it is interrupted")
        self._until(lambda: texts_sent(self._model.main_requests, "until it is interrupted"), "the request")
        self._until(lambda: self._main.status()["state"] in ("thinking", "streaming"), "its work")
        done = self._main.interrupt(self._limit())
        ended = self._main.wait(sent.id, self._limit())
        if done is None or done.fate != "interrupted" or ended.stage != "dead":
            raise Broken(f"the receipt says {ended.stage}: {ended.reason}")
        self._deliver(self._main, "after the interrupt")
        return "the next message is delivered"

    def _dialog(self) -> str:
        made = self._project / "not-allowed"
        asking = self._main.send(self._plan.tool_prompt(f"touch {made.name}"))
        self._until(self._dialog_is_open, "the permission dialog")
        waiting = self._main.send("after the dialog")
        time.sleep(_WATCH_SECONDS)
        if made.exists() or not self._dialog_is_open():
            raise Unsafe("the dialog was answered by a message")
        self._dismiss()
        self._main.wait(asking.id, self._limit())
        ended = self._main.wait(waiting.id, self._limit())
        if made.exists():
            raise Unsafe("the tool ran without permission")
        if ended.stage != "acked":
            raise Broken(f"the message that waited is {ended.stage}: {ended.reason}")
        return "the message is delivered after it"

    def _dialog_is_open(self) -> bool:
        return self._prompts.dialog(self._main.screen()) is not None

    def _dismiss(self) -> None:
        deadline, pressed = time.monotonic() + self._limit(), 0.0
        while self._dialog_is_open():
            if time.monotonic() > deadline:
                raise NotKnown("the dialog could not be closed")
            if time.monotonic() > pressed + _PRESS_INTERVAL:
                self._press(self._plan.dismiss)
                pressed = time.monotonic()
            time.sleep(_POLL_INTERVAL)

    def _command(self, command: str) -> str:
        if command in self._plan.refused_commands:
            return self._refusal(command)
        self._deliver(self._main, command, command=True)
        self._deliver(self._main, f"after {command[1:]}")
        return command

    def _refusal(self, command: str) -> str:
        # Not by `send`, which refuses some of them before the keeper does.
        ended = self._main.wait(self._main.inbox.put(command, command=True).id, self._limit())
        if ended.stage != "dead" or not ended.reason:
            raise Broken(f"{command} is {ended.stage}: {ended.reason}")
        return REFUSED + ended.reason.removeprefix(REFUSED)

    def _clear(self) -> str:
        if self._plan.clear in self._plan.refused_commands:
            return self._refusal(self._plan.clear)
        self._deliver(self._main, "the word is mustang")
        self._command(self._plan.clear)
        last = [one for one in self._model.main_requests if one.prompt == f"after {self._plan.clear[1:]}"][-1]
        if any("the word is mustang" in text for _, text in last.texts):
            raise Broken("the conversation was not cleared")
        return self._plan.clear

    def _draft(self) -> str:
        draft = "half a thought"
        # The last key is not text: after text the keeper waits 10 s until it must have been drawn completely.
        self._press(f"{draft}s".encode())
        self._until(lambda: self._composer(self._client)[1] == f"{draft}s", "the draft in the composer")
        self._press(b"\x7f")
        self._until(lambda: self._composer(self._client)[1] == draft, "the draft in the composer")
        self._deliver(self._main, "a message that meets a draft")
        if texts_sent(self._model.main_requests, "meets a draft") != ["a message that meets a draft"]:
            raise Broken("the message and the draft were mixed")
        self._until(lambda: self._composer(self._client)[1] == draft, "the draft after the message")
        return "it is back in the composer"

    def _resume(self) -> str:
        self._client.close()
        self._main.kill(grace=2.0)
        self._main = self._begin(SESSIONS[0], self._project, resume=True)
        self._client = self._watch(self._main)
        self._deliver(self._main, "do you remember it")
        asked = [one for one in self._model.main_requests if "do you remember it" in one.prompt]
        if not any("meets a draft" in text for _, text in asked[-1].texts):
            raise Broken("the earlier messages are not in the conversation")
        return "the earlier messages are in it"

    def _all_hooks(self) -> str:
        missing = [name for name in self._plan.hooks if name not in self._hooks]
        if missing:
            raise Broken(f"missing: {', '.join(missing)}")
        return ", ".join(self._plan.hooks)

    # ── the others ──

    def _calls(self) -> str:
        binary = find_binary(self._agent)
        assert binary is not None, "it was started before"
        with tempfile.TemporaryDirectory() as folder:
            missing = self._plan.missing_calls(binary, Path(folder))
        if missing:
            raise Broken(f"missing: {', '.join(missing)}")
        return "by its own description"

    def _trust(self) -> str:
        waiting = self._begin(SESSIONS[1], self._untrusted[0])
        self._until(lambda: self._prompts.trust_choice(waiting.screen()) is not None, "the trust dialog")
        waiting.send("not before the user agrees")
        time.sleep(_WATCH_SECONDS)
        came = texts_sent(self._model.main_requests, "not before the user")
        if came or self._prompts.trust_choice(waiting.screen()) is None:
            raise Unsafe("the dialog was answered without your word")
        waiting.kill(grace=0.0)
        trusted = self._begin(SESSIONS[2], self._untrusted[1], trust=True)
        self._deliver(trusted, "the user agreed")
        trusted.kill(grace=0.0)
        return "it is answered with --trust only"

    def _print(self) -> str:
        # Each call starts an agent, and much of a start is waiting: two at a time.
        with ThreadPoolExecutor(_PRINTS_AT_ONCE) as calls:
            counted = set(calls.map(self._print_once, range(_PRINTS)))
        if len(counted) != 1 or 0 in next(iter(counted)):
            raise Broken(f"tokens in and out differ from call to call: {sorted(counted)}")
        return "{} tokens in, {} out, each time".format(*counted.pop())

    def _print_once(self, number: int) -> tuple[int, int]:
        """Return the tokens in and out of one call."""
        words = [sys.executable, "-P", "-m", "remuda", "print", "--agent", self._agent]
        words += ["--output-format", "json", f"print number {number}"]
        try:
            done = subprocess.run(
                words,
                capture_output=True,
                text=True,
                cwd=self._project,
                timeout=self._limit(),
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise OutOfTime(f"call number {number + 1} did not end") from error
        if done.returncode:
            raise Broken(f"exit code {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}")
        result = json.loads(done.stdout)
        if f"print number {number}" not in str(result.get("result")):
            raise Broken(f"the answer was {result.get('result')!r:.200}")
        usage = result.get("usage") or {}
        return usage.get("input_tokens") or 0, usage.get("output_tokens") or 0

    def _pool(self, backend: Any) -> str:
        texts = [f"the secret of {backend}", f"another request to {backend}"]

        async def main() -> None:
            options: dict[str, Any] = {"agent": self._agent, "backend": backend, "cwd": self._project}
            async with Client(**options, spawn_timeout=self._limit()) as client:
                for text in texts:
                    result = await client.run(text, timeout=self._limit())
                    if text not in result.text:
                        raise Broken(f"the answer was {result.text!r:.200}")

        async def limited() -> None:
            try:
                await asyncio.wait_for(main(), self._limit())
            except TimeoutError as error:
                raise WaitTimeout("it did not answer in time") from error

        asyncio.run(limited())
        asked = [one for one in self._model.main_requests if texts[1] in one.prompt]
        if not asked or any(texts[0] in text for _, text in asked[-1].texts):
            raise Broken("a request could see the one before it")
        return "two requests"
