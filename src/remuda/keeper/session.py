"""One kept session: the program, its screen, its state, and those who watch.

Everything happens in the keeper's one loop, in this order for each read of the terminal: the bytes go to
the watchers, then into the screen, and what the screen answers goes back to the program. A watcher that
joins or catches up is painted between two reads, so that it sees nothing twice and misses nothing.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from remuda.agents.state import Evidence, Source, State, Vote
from remuda.agents.timing import Classifier, make_classifier
from remuda.paths import SessionPaths
from remuda.terminal.asciicast import Recorder
from remuda.terminal.history_format import Ring, plain_text
from remuda.terminal.pty import Pty
from remuda.terminal.reports import count_cursor_answers
from remuda.terminal.screen import Screen
from remuda.untrusted import one_line
from remuda.wire.frames import SHORT_BYTES
from remuda.wire.messages import SHORT_OUTPUT, Status

from .child import Child, Keyboard
from .cleanliness import ProcessTracker
from .fanout import LargeEvents, Outlet, OutputFrame
from .feeder import Feeder
from .restart import KILLED
from .size import SizeKeeper, check_policy, check_size
from .spec import SessionSpec

if TYPE_CHECKING:
    from remuda.agents.attention import Event

    from .history import History

log = logging.getLogger("remuda.keeper.session")

# An agent reports soon after its start. Until then the timing of its output says nothing.
_BEFORE_GUESSING = 10.0

_PLAIN = ("simple", "none")
_LAST_CHARACTERS = 4096
# In JSON a character has up to six bytes (twelve beyond the first plane), and a frame 1 MiB.
_SHOWN_CHARACTERS = 1 << 16

Listener = Callable[[dict[str, Any]], None]


class HookSubscription(NamedTuple):
    """Which hooks a boss of 0.1 wants as they are, and which of their fields it does not use."""

    names: frozenset[str]
    without: frozenset[str] = frozenset()


class Session:
    def __init__(self, spec: SessionSpec, pty: Pty, screen: Screen | None, classifier: Classifier) -> None:
        self._loop = asyncio.get_running_loop()
        self.spec = spec
        self._screen = screen
        self._thread = threading.current_thread()
        self._feeder = Feeder(self._feed) if screen is not None else None
        self.started_at = time.time()
        self.end_reason = "exited"
        self.recorder: Recorder | None = None
        self.history_file: History | None = None
        self.on_kill: Callable[[], None] | None = None
        """Called when a user asks for the end, before anything is ended."""
        self.on_exit: Callable[[int], Awaitable[bool]] | None = None
        """Called when the program has ended by itself. Returns whether another one runs in its place."""
        self.on_tell: Listener | None = None
        """Called with each event for clients, except tools and agent events."""
        self.end_asked = asyncio.Event()
        """Set when the session is to end."""
        self.is_silent = False
        """Whether output is dropped: the last screen of a session that falls asleep stays."""
        self.wake_error = ""
        """Why a session that is asleep could not be woken."""
        self._restart_bytes = b""
        self.came_up = False
        """Whether it was ever in a state after `starting`."""
        self._classifier = classifier
        self._timing_timer: asyncio.TimerHandle | None = None
        self._ring = Ring(spec.scrollback_bytes)
        self._sizes = SizeKeeper(check_policy(spec.size_policy), (spec.cols, spec.rows))
        self._outlets: set[Outlet] = set()
        self._listeners: set[Listener] = set()
        self._tool_listeners: set[Listener] = set()
        self._event_listeners: set[Listener] = set()
        self._hook_listeners: dict[Listener, HookSubscription] = {}
        self.large_events = LargeEvents()
        self.processes = ProcessTracker()
        self._unnoted: list[bytes] = []
        self._afterwards = afterwards(self._loop)
        self._title = ""
        self.cursor_queries = 0
        self.last_typist = 0
        """The client whose size counts. Cached: it is needed for every key."""
        self._ending: asyncio.Task[None] | None = None
        self.title_listeners: list[Callable[[str], None]] = []
        self.output_listeners: list[Callable[[], None]] = []
        self.evidence = Evidence.starting(self.now())
        if spec.agent in _PLAIN:
            # It reports nothing, and a silent program is idle from the start.
            self.vote([Vote(Source.TIMING, classifier.state, self.now(), "silence")])
            self._guess_from = 0.0
        else:
            self._guess_later()
        self.child = Child(pty, self._took, kill_group=spec.kill_group)
        self.keyboard = Keyboard(self.child)

    def now(self) -> float:
        return self._loop.time()

    # ── output ──

    def _took(self, data: bytes) -> bool:
        """Pass output on. Returns whether it was an echo, which the session itself processes `afterwards`."""
        if self.is_silent:
            return False
        if self._restart_bytes:
            data, self._restart_bytes = self._restart_bytes + data, b""
        if self._outlets:
            # A program that sends a sequence may wait for an answer.
            if len(data) < SHORT_BYTES and b"\x1b" not in data:
                frame = SHORT_OUTPUT[len(data)] + data
                for outlet in self._outlets:
                    outlet.echo(frame, data)
                if not self._unnoted:
                    self._afterwards(self.settle)
                self._unnoted.append(data)
                return True
            output = OutputFrame(data)
            for outlet in self._outlets:
                outlet.offer(output)
        self.settle()
        self._note(data)
        return False

    def settle(self) -> None:
        """Process output that was passed on as an echo."""
        if self._unnoted:
            pieces = self._unnoted[:]
            self._unnoted.clear()
            for piece in pieces:  # one by one: the ring drops complete pieces
                self._note(piece)

    def _note(self, data: bytes) -> None:
        self._ring.append(data)
        if self.recorder is not None:
            self.recorder.output(data)
        if self._feeder is not None:
            self._feeder.feed(data)
        if self.history_file is not None:
            self.history_file.output(data)
        self._timed(len(data))
        for listener in self.output_listeners:
            listener()

    @property
    def has_screen(self) -> bool:
        return self._screen is not None

    @property
    def screen(self) -> Screen | None:
        """Return the screen with all output so far."""
        self.settle()
        if self._feeder is not None:
            self._feeder.settle()
        return self._screen

    def _feed(self, data: bytes) -> None:
        """Feed the screen: small output here, large output in the feeder's thread."""
        screen = self._screen
        assert screen is not None
        screen.feed(data)
        replies = screen.take_replies()
        title = screen.title if b"\x07" in data or b"\x1b" in data else self._title
        if replies or title != self._title:
            if threading.current_thread() is self._thread:
                self._heard(replies, title)
            else:
                self._loop.call_soon_threadsafe(self._heard, replies, title)

    def _heard(self, replies: bytes, title: str) -> None:
        if replies:
            self.child.write(replies)
            self.cursor_queries += count_cursor_answers(replies)
        if title != self._title:
            self._title = title
            for listener in self.title_listeners:
                listener(title)

    def _timed(self, size_bytes: int) -> None:
        now_ms = int(self.now() * 1000)
        self._classifier.record(size_bytes, now_ms)
        self._vote_timing(now_ms)

    def _tick(self) -> None:
        self._timing_timer = None
        now_ms = int(self.now() * 1000)
        self._classifier.tick(now_ms)
        self._vote_timing(now_ms)

    def _guess_later(self) -> None:
        """Let byte timing count from then on, also if the agent prints nothing more."""
        self._guess_from = self.now() + _BEFORE_GUESSING
        self._timing_timer = self._loop.call_at(self._guess_from + 0.001, self._tick)

    def _vote_timing(self, now_ms: int) -> None:
        known = self.evidence.votes.get(Source.TIMING)
        state = self._classifier.state
        if self.now() >= self._guess_from and (known is None or known.state is not state):
            self.vote(
                [Vote(Source.TIMING, state, self.now(), "output" if state is not State.IDLE else "silence")]
            )
        # One timer, never moved while output flows: when it fires it looks at the clock again.
        if self._timing_timer is None and (due := self._classifier.next_tick_ms(now_ms)) is not None:
            self._timing_timer = self._loop.call_at(due / 1000 + 0.001, self._tick)

    # ── state ──

    def vote(self, votes: Iterable[Vote]) -> None:
        for vote in votes:
            before = self.evidence.verdict
            has_changed, verdict = self.evidence.record(vote), self.evidence.verdict
            if has_changed:
                self.came_up |= verdict.state not in (State.STARTING, State.DEAD)
                log.info(
                    "%s -> %s (%s: %s)", before.state, verdict.state, verdict.source.label, verdict.detail
                )
                self.tell({"event": "state", **self.state_document()})
            elif verdict.source is not before.source:
                self.tell({"event": "source", **self.state_document()})

    def state_document(self) -> dict[str, Any]:
        verdict = self.evidence.verdict
        return {
            "state": verdict.state.value,
            "source": verdict.source.label,
            "detail": one_line(verdict.detail),
            "since": round(time.time() - (self.now() - verdict.since), 3),
            "age": round(self.now() - verdict.since, 3),
            "dissent": [vote.source.label for vote in self.evidence.dissent()],
            **({"wake_error": one_line(self.wake_error)} if self.wake_error else {}),
        }

    def status(self) -> Status:
        """Heimdall's short answer."""
        verdict, now = self.evidence.verdict, self.now()
        alive = self.is_asleep or not self.child.exited.done()
        idle_ms = int((now - self.child.last_read) * 1000)
        if self.spec.classifier == "none" and self.spec.agent in _PLAIN:
            return Status(self.child.pid, idle_ms, alive, 0x00, 0)
        return Status(
            self.child.pid, idle_ms, alive, verdict.state.wire_byte, int((now - verdict.since) * 1000)
        )

    # ── watchers ──

    def add_outlet(self, outlet: Outlet) -> None:
        self._outlets.add(outlet)

    def discard_outlet(self, outlet: Outlet) -> None:
        self._outlets.discard(outlet)

    def add_listener(
        self,
        listener: Listener,
        *,
        tools: bool = False,
        agent_events: bool = False,
        hooks: HookSubscription | None = None,
    ) -> None:
        """Report events to `listener`; with `tools` also input and output of the agent's tools.

        `agent_events` adds what the agent's hooks mean for the attention queue, `hooks` their payloads.
        """
        self._listeners.add(listener)
        if tools:
            self._tool_listeners.add(listener)
        if agent_events:
            self._event_listeners.add(listener)
        if hooks is not None:
            self._hook_listeners[listener] = hooks

    def discard_listener(self, listener: Listener) -> None:
        self._listeners.discard(listener)
        self._tool_listeners.discard(listener)
        self._event_listeners.discard(listener)
        self._hook_listeners.pop(listener, None)

    def tell(self, document: dict[str, Any]) -> None:
        if self.on_tell is not None:
            self.on_tell(document)
        for listener in list(self._listeners):
            listener(document)

    def tell_whole(self, document: dict[str, Any]) -> None:
        """Report an event that may be larger than a frame: clients can fetch it."""
        if self._listeners:
            self.tell(self.large_events.shorten(document))

    def tell_shown(self, text: str) -> None:
        """Report text of an answer, in pieces that fit into a frame."""
        if text and self._tool_listeners:
            self.tell_tool({"event": "shown", "text": text})
        for start in range(0, len(text), _SHOWN_CHARACTERS):
            piece = {"event": "shown", "text": text[start : start + _SHOWN_CHARACTERS]}
            for listener in self._listeners - self._tool_listeners:
                listener(piece)

    def tell_tool(self, document: dict[str, Any]) -> None:
        if self._tool_listeners:
            shortened = self.large_events.shorten(document)
            for listener in list(self._tool_listeners):
                listener(shortened)

    @property
    def has_event_listeners(self) -> bool:
        return bool(self._event_listeners)

    def tell_agent_event(self, event: Event) -> None:
        document = {
            "event": "agent",
            "kind": str(event.kind),
            "session_id": event.session_id,
            "at": event.at,
            "source": event.source.label,
            "id": event.id,
            "facts": dict(event.facts),
        }
        shortened = self.large_events.shorten(document)
        for listener in list(self._event_listeners):
            listener(shortened)

    def tell_hook(self, name: str, payload: Mapping[str, Any], at: float) -> None:
        """Report a raw hook to a boss of 0.1, which parses hooks itself, and to a self-test."""
        for listener, wanted in list(self._hook_listeners.items()):
            if name in wanted.names:
                wanted_fields = {key: value for key, value in payload.items() if key not in wanted.without}
                listener(
                    self.large_events.shorten(
                        {"event": "hook", "name": name, "at": at, "payload": wanted_fields}
                    )
                )

    def history(self) -> bytes:
        """Return the raw ring, for a client that knows nothing else."""
        self.settle()
        return self._ring.snapshot()

    def paint(self) -> bytes:
        """Return the current screen; without an emulator, a cleared terminal and the raw ring."""
        if self.screen is not None:
            return self.screen.paint()
        return b"\x1bc" + self._ring.snapshot()

    def keep_history(self, paths: SessionPaths) -> None:
        """Write the program's output to the disk from now on. Call it before the first read."""
        spec = self.spec
        if spec.ephemeral:
            return
        from .history import History, remove_history  # a call of `print` does without it

        if spec.history_bytes:
            paint = self._paint_noted
            self.history_file = History(paths, spec.history_bytes, self.size, paint, resume=spec.resume)
        else:
            remove_history(paths)

    def _paint_noted(self) -> bytes:
        """Return a picture of the screen after exactly the output that the history has."""
        if self._feeder is None or self._screen is None:
            return b""
        self._feeder.settle()
        return self._screen.paint()

    # ── size ──

    @property
    def size(self) -> tuple[int, int]:
        return self._sizes.size

    def size_document(self) -> dict[str, Any]:
        cols, rows = self._sizes.size
        return {"event": "resized", "cols": cols, "rows": rows}

    def client_size(self, client: int, cols: int, rows: int) -> None:
        self.last_typist = 0
        self._apply_size(self._sizes.size, self._sizes.wish(client, check_size(cols, rows)))

    def client_typed(self, client: int) -> None:
        self.last_typist = client
        self.tell({"event": "typed", "client": client})
        self._apply_size(self._sizes.size, self._sizes.typed(client))

    def client_gone(self, client: int) -> None:
        self.last_typist = 0
        self._apply_size(self._sizes.size, self._sizes.gone(client))

    def set_size(self, cols: int, rows: int) -> None:
        self.last_typist = 0
        self._apply_size(self._sizes.size, self._sizes.command(check_size(cols, rows)))

    def _apply_size(self, before: tuple[int, int], after: tuple[int, int]) -> None:
        if before == after:
            return
        self.settle()
        self.child.resize(*after)
        if self.screen is not None:
            self.screen.resize(*after)
        if self.recorder is not None:
            self.recorder.resized(*after)
        if self.history_file is not None:
            self.history_file.resized(*after)
        log.info("resized to %dx%d", *after)
        self.tell(self.size_document())

    # ── sleep ──

    @property
    def is_asleep(self) -> bool:
        return self.evidence.verdict.state is State.ASLEEP

    def become(self, state: State, detail: str) -> None:
        """Begin with new evidence: that of a process that has ended does not count for the next one."""
        if self._timing_timer is not None:
            self._timing_timer.cancel()
            self._timing_timer = None
        log.info("%s -> %s (%s)", self.evidence.verdict.state, state, detail)
        self.evidence = Evidence.of_process(state, self.now(), detail)
        self.tell({"event": "state", **self.state_document()})

    def begin_again(self, pty: Pty, screen_setup: bytes) -> None:
        """Go on with a new program. Modes that the one before set end with its first output."""
        self.child.close()
        self.child = Child(pty, self._took, kill_group=self.spec.kill_group)
        self.keyboard.connect(self.child)
        self._classifier = make_classifier(
            self.spec.classifier, self.spec.idle_threshold_ms, self.spec.debounce_ms
        )
        self.came_up, self.is_silent, self.wake_error = False, False, ""
        self._title, self._restart_bytes = "", b"\x1bc\x1b]0;\x07" + screen_setup
        self.become(State.STARTING, "woken")
        self._guess_later()

    # ── the end ──

    def kill(self, grace: float | None = None, reason: str = KILLED) -> None:
        """Begin to end the program and its processes. A second call may shorten the grace."""
        grace = self.spec.kill_grace if grace is None else grace
        if reason == KILLED and self.on_kill is not None:
            self.on_kill()
        self.end_asked.set()
        if self._ending is None:
            self.end_reason = reason
            self._ending = self._loop.create_task(self.child.end(grace))
        else:
            self.child.hasten(grace)

    @property
    def is_ending(self) -> bool:
        """Whether its program has ended, or was asked to."""
        return self._ending is not None or (self.child.exited.done() and not self.is_asleep)

    async def ended(self) -> int:
        """Return the exit code when the program is gone and all its output has been passed on."""
        while True:
            code = await asyncio.shield(self.child.exited)
            await self.child.drained()
            if self._ending is not None or self.on_exit is None or not await self.on_exit(code):
                break
        self.tell(self._last_words(code))
        if self._ending is None and self.child.died_of is not None and self.spec.agent not in _PLAIN:
            # The tools of a killed agent would run on, and nothing would stop them.
            self.kill(reason=f"died of signal {self.child.died_of}")
        if self._ending is not None:
            await self._ending
        if self._timing_timer is not None:
            self._timing_timer.cancel()
        self._classifier.set_dead()
        self.vote([Vote(Source.PROCESS, State.DEAD, self.now(), f"exit code {code}")])
        return code

    def _last_words(self, code: int) -> dict[str, Any]:
        """Report that the program has ended. When its processes have ended too, the connection is closed."""
        screen = self.screen
        lines = screen.lines() if screen is not None else plain_text(self._ring.snapshot()).splitlines()
        text = "\n".join(line.rstrip() for line in lines if line.strip())
        return {
            "event": "exited",
            "code": code,
            "signal": self.child.died_of,
            "last_output": text[-_LAST_CHARACTERS:],
        }

    def close(self) -> None:
        self.child.close()
        if self.recorder is not None:
            self.recorder.close()
        if self._feeder is not None and self._screen is not None:
            self._feeder.close()
            self._screen.close()


def afterwards(loop: asyncio.AbstractEventLoop) -> Callable[[Callable[[], None]], object]:
    """Return a function that schedules a callback to run once, when it is quiet, before timers and tasks."""
    left_over: list[Any] | None = getattr(loop, "left_over", None)
    return loop.call_soon if left_over is None else left_over.append
