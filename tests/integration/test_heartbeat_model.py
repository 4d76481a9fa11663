"""Random scripts of an inbox's life: decisions, files and exit codes are those of heartbeat-stop.

The documented differences aside: see docs/reference/inbox.md. The model is in `heartbeat_model`.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from remuda.proctree import descendants
from support.counts import HEARTBEAT_SCRIPTS
from support.heartbeat_model import IDLE, Heartbeat, Mode, Policy
from support.hooks import HOOK
from support.keeper import until

# A process that runs the program for each line of standard input, in a child of its own: an interpreter that
# starts takes ten times as long as the tick.
SERVER = f"""
import json, os, signal, sys
sys.path.insert(0, {str(HOOK.parents[2])!r})
from remuda.inbox import stop_hook
for line in sys.stdin:
    ask = json.loads(line)
    if not (pid := os.fork()):
        signal.alarm(30)  # a tick that waits fails, and does not hang
        for fd, name in ((0, "in"), (1, "out"), (2, "err")):
            os.dup2(os.open(ask["files"] + name, os.O_RDWR | os.O_CREAT), fd)
        sys.argv = ["/usr/bin/heartbeat-stop", *ask["words"]]
        try:
            stop_hook.main()
        except SystemExit as end:
            sys.stderr.flush()
            os._exit(end.code or 0)
        os._exit(70)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-c", SERVER]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


LINES = (
    b"plain\n",
    b"  with blanks around \t\r\n",
    b'"a JSON string\\nof two lines \\u2603"\n',
    b'"never closed\n',
    b'{"text": "an object", "n": [1, 2]}\n',
    b"[1, 2]\n",
    b"\n",
    b" \t \r\n",
    b"\n\n\n",
    b"not \xff\xfe UTF-8 \xc3\n",
    b"bells \x07 and \x1b[31m colours\n",
    "snow \u2603 and \U0001f600\n".encode(),
    b"x" * 5000 + b"\n",
    b"torn: no end of line",
)


BAD_WORDS = (
    (("--mode", "nap"), 2, True),
    (("--idle-interval", "soon"), 2, True),
    (("--idle-interval", "-1"), 2, True),
    (("--no-such-flag",), 2, True),
    (("recover", "--on-orphan", "keep"), 2, True),
    (("drain",), 2, True),
    ((), 1, False),
    (("recover",), 1, False),
)
"""Words, the exit code, and whether the inbox is named."""


class Script:
    """One folder, used at random; every step is done to the model too, and the two are compared."""

    def __init__(self, server: subprocess.Popen[str], folder: Path, seed: int) -> None:
        self.server, self.folder, self.seed = server, folder, seed
        self.random = random.Random(seed)
        self.model = Heartbeat()
        self.story: list[str] = []
        self.retries: dict[str, int] = {}
        self.io = folder.parent / f"{folder.name}."
        folder.mkdir()

    def path(self, name: str) -> Path:
        return self.folder / name

    def play(self) -> None:
        if self.random.random() < 0.2:
            self.tick_without_an_inbox()
        steps = [self.put] * 4 + [self.tick] * 8 + [self.late_put] * 4 + [self.recover] * 2
        steps += [
            self.next_cycle,
            self.lose_responded,
            self.lose_in_flight,
            self.lose_offset,
            self.bad_offset,
            self.bad_flight,
            self.bad_words,
        ]
        for _ in range(self.random.randint(6, 14)):
            self.random.choice(steps)()
        for _ in range(3):
            self.tick()

    def run(self, *words: str, payload: str = "", named: bool = True) -> tuple[int, str, str]:
        self.begin(*words, payload=payload, named=named)
        return self.result()

    def begin(self, *words: str, payload: str = "", named: bool = True) -> None:
        Path(f"{self.io}in").write_text(payload)
        for name in ("out", "err"):
            Path(f"{self.io}{name}").write_text("")
        inbox = ["--inbox", str(self.path("inbox.jsonl"))] if named else []
        ask = {"files": str(self.io), "words": [*words, *inbox]}
        assert self.server.stdin is not None
        self.server.stdin.write(json.dumps(ask) + "\n")
        self.server.stdin.flush()

    def result(self) -> tuple[int, str, str]:
        assert self.server.stdout is not None
        code = int(self.server.stdout.readline())
        return code, Path(f"{self.io}out").read_text(), Path(f"{self.io}err").read_text()

    # ── steps ──

    def put(self) -> None:
        data = b"".join(self.random.choice(LINES) for _ in range(self.random.randint(1, 3)))
        self.story.append(f"put {data[:60]!r}")
        with self.path("inbox.jsonl").open("ab") as inbox:
            inbox.write(data)
        self.model.inbox = (self.model.inbox or b"") + data
        quiet = time.time() - 60  # what has no end is whole once nothing was written for a while
        os.utime(self.path("inbox.jsonl"), (quiet, quiet))

    def tick(self) -> None:
        mode: Mode = self.random.choice(["drain", "persist"])
        with_signal, payload = (
            self.random.random() < 0.5,
            self.random.choice(["", "{}", '{"session_id": "s"}']),
        )
        words = ["--mode", mode, "--idle-interval", self.random.choice(["0", "0.01"])]
        words += ["--signal-file", str(self.path("signal"))] if with_signal else []
        self.story.append(f"tick {mode} {with_signal} {payload}")
        code, out, err = self.run(*words, payload=payload)
        failed = self.model.responded and self.model.flight is None
        reason = self.model.tick(mode, with_signal=with_signal)
        said = {"decision": "block", "reason": reason}
        assert (code, json.loads(out) if out else None) == (0, None if reason is None else said), self.told(
            err
        )
        assert out.endswith("}") or not out
        assert ("inconsistent state" in err) == failed, self.told(err)
        self.compare()

    def late_put(self) -> None:
        """What comes while a tick waits is its decision, as if it had been there before."""
        if deepcopy(self.model).tick("persist", with_signal=False) != IDLE:
            return
        line = self.random.choice([line for line in LINES if line.strip() and line.endswith(b"\n")])
        self.story.append(f"late put {line[:60]!r}")
        self.begin("--mode", "persist", "--idle-interval", "20")
        until(self.waits, "a tick that waits")
        with self.path("inbox.jsonl").open("ab") as inbox:
            inbox.write(line)
        self.model.inbox = (self.model.inbox or b"") + line
        code, out, err = self.result()
        reason = self.model.tick("persist", with_signal=False)
        assert (code, json.loads(out)) == (0, {"decision": "block", "reason": reason}), self.told(err)
        self.compare()

    def waits(self) -> bool:
        """Whether the child of the server watches the folder."""
        for pid in descendants(self.server.pid):
            with suppress(OSError):
                files = Path(f"/proc/{pid}/fd").iterdir()
                if any(os.readlink(one) == str(self.folder) for one in files):
                    return True
        return False

    def recover(self, *policies: Policy) -> None:
        policy: Policy = self.random.choice(policies or ("retry", "deadletter", "drop"))
        flight = self.model.flight
        if policy == "retry" and flight is not None:
            # After ten attempts ours gives an entry up.
            self.retries[flight.raw] = self.retries.get(flight.raw, 0) + 1
            policy = "retry" if self.retries[flight.raw] < 5 else "drop"
        self.story.append(f"recover {policy}")
        code, out, err = self.run("recover", "--on-orphan", policy)
        wanted = f"heartbeat-stop recover: {self.model.recover(policy)}\n"
        assert (code, out) == (0, ""), self.told(err)
        assert err.endswith(wanted), self.told(err)
        self.compare()

    def next_cycle(self) -> None:
        """As a launcher for mail does it: recover, empty the inbox, begin at byte 0."""
        self.recover("drop")
        self.story.append("new cycle")
        self.path("inbox.jsonl").write_bytes(b"")
        self.path(".inbox-offset").write_text("0")
        self.model.inbox, self.model.offset = b"", 0
        self.put()

    def lose_responded(self) -> None:
        self.story.append("lose .responded")
        self.path(".responded").unlink(missing_ok=True)
        self.model.responded = False

    def lose_in_flight(self) -> None:
        """What is left says that something was answered, and not what: both let the agent stop."""
        if not self.model.responded:
            return
        self.story.append("lose .in-flight")
        self.path(".in-flight").unlink(missing_ok=True)
        self.model.flight = None
        self.tick()
        self.recover()

    def lose_offset(self) -> None:
        if self.model.flight is None or not self.model.responded:
            return
        self.story.append("lose .inbox-offset")
        self.path(".inbox-offset").unlink(missing_ok=True)
        self.model.offset = None
        self.tick()

    def bad_offset(self) -> None:
        """With nothing in flight a recovery does not read it."""
        if self.model.flight is not None:
            return
        before = self.model.offset
        self.path(".inbox-offset").write_text("six")
        self.story.append("bad offset")
        code, _, err = self.run("recover")
        assert (code, err) == (0, f"heartbeat-stop recover: {self.model.recover('drop')}\n"), self.told(err)
        if before is None:
            self.path(".inbox-offset").unlink()
        else:
            self.path(".inbox-offset").write_text(f" {before}\n")
        self.compare()

    def bad_flight(self) -> None:
        """Alone: ours restores it from a file of its own, which is a documented difference."""
        if self.model.flight is not None or self.path(".inbox-lease.json").exists():
            return
        flight, garbage = (
            self.path(".in-flight"),
            self.random.choice(["", "{not JSON", "[]", '{"raw_line": 1}']),
        )
        flight.write_text(garbage)
        self.story.append(f"bad .in-flight {garbage}")
        code, out, err = self.run("recover")
        assert (code, out, flight.read_text()) == (1, "", garbage), self.told(err)
        flight.unlink()
        self.compare()

    def bad_words(self) -> None:
        words, wanted, named = self.random.choice(BAD_WORDS)
        self.story.append(f"bad words {words}")
        code, out, err = self.run(*words, named=named)
        assert (code, out, bool(err)) == (wanted, "", True), self.told(err)
        self.compare()

    def tick_without_an_inbox(self) -> None:
        self.path(".inbox-offset").write_text("six")
        self.tick()
        self.path(".inbox-offset").unlink()

    # ── comparing ──

    def compare(self) -> None:
        model = self.model
        theirs = {
            "inbox": model.inbox,
            "offset": model.place(model.offset),
            "in flight": None if model.flight is None else (*self._place(model), model.flight.id),
            "responded": model.responded,
            "dead": [(one.start, one.end, one.raw, one.id) for one in model.dead],
            "signal": model.signal,
        }
        assert self.ours() == theirs, self.told()

    @staticmethod
    def _place(model: Heartbeat) -> tuple[Any, ...]:
        assert model.flight is not None
        return model.flight.start, model.flight.end, model.flight.raw

    def ours(self) -> dict[str, Any]:
        inbox, offset = self.path("inbox.jsonl"), self.path(".inbox-offset")
        flight, letters = self.path(".in-flight"), self.path(".dead-letter.jsonl")
        text = offset.read_text().strip() if offset.exists() else "0"
        place = self.model.place(int(text)) if text.isdecimal() else self.model.place(self.model.offset)
        return {
            "inbox": inbox.read_bytes() if inbox.exists() else None,
            "offset": place,
            "in flight": _entry(flight.read_text()) if flight.exists() else None,
            "responded": self.path(".responded").exists(),
            "dead": [_entry(line) for line in letters.read_text().splitlines()] if letters.exists() else [],
            "signal": self.path("signal").exists(),
        }

    def told(self, err: str = "") -> str:
        return f"seed {self.seed}: {err}\n" + "\n".join(self.story)


def _entry(line: str) -> tuple[Any, ...]:
    found = json.loads(line)
    return found["start_offset"], found["end_offset"], found["raw_line"], found["entry_id"]


@pytest.mark.soak
@pytest.mark.parametrize("part", range(3))
def test_random_scripts_have_the_decisions_files_and_codes_of_heartbeat_stop(
    server: subprocess.Popen[str], tmp_path: Path, part: int
) -> None:
    for seed in range(part, HEARTBEAT_SCRIPTS, 3):
        Script(server, tmp_path / str(seed), seed).play()
