"""A queue of those who wait, with a real boss and a real tmux, and a person in front of it."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

from remuda.boss.client import BossClient
from remuda.cli.waiting import BossQueue
from remuda.tmux.panes import capture
from support.commands import COMMAND, Commands
from support.keeper import until
from support.tmux_attention import Person, TmuxBench

STAY = "exec sleep 1000"


class Ranch:
    """Sessions `work` (windows of two panes and of one) and `docs`, one person in `work`, and a boss."""

    def __init__(self, tmux: TmuxBench, remuda: Commands) -> None:
        self.bench = tmux
        self.remuda = remuda
        tmux.start("work", "docs")
        tmux.run("split-window", "-d", "-t", "work:0", STAY)
        tmux.run("new-window", "-d", "-t", "work:1", STAY)
        self.person = tmux.person("work")
        self.home = tmux.pane("work:0.0").id
        self.api, self.docs = tmux.pane("work:1").id, tmux.pane("docs").id
        # Servers of other tests are none of ours.
        self.env = {
            "TMUX_TMPDIR": str(tmux.folder),
            "TMUX": f"{tmux.address.path},1,0",
            "TMUX_PANE": self.home,
        }
        self.boss = BossClient()
        self.queue = BossQueue(self.boss)

    def __call__(self, *words: str, code: int = 0) -> str:
        """As the person types it in his first pane."""
        done = self.remuda(*words, code=code, env=self.env)
        return (done.out or done.err).removesuffix("\n")

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--json"))

    def waits(
        self, who: str, pane: str | None, age: float = 100.0, kind: str = "stopped", **facts: Any
    ) -> None:
        told = {"cwd": f"/src/{who}", "message": f"{who} is done", **facts}
        where = {"pane": pane, "tmux": self.bench.address.path} if pane else {}
        event = {"kind": kind, "session_id": f"id-{who}", "at": time.time() - age, "facts": told | where}
        self.boss.post("events", body={"events": [event]})

    def remuda_words(self) -> list[str]:
        """How a shell in a pane runs it."""
        return ["env", f"REMUDA_HOME={self.remuda.home}", *COMMAND]

    def follow(self, *words: str) -> subprocess.Popen[bytes]:
        self.remuda.env |= self.env
        return self.remuda.begin(*words)

    def at(self, person: Person | None = None) -> str:
        return self.bench.client(person or self.person).pane_id


def keep(ranch: Ranch, name: str) -> None:
    """An agent in a kept session, that has answered and waits for more."""
    ranch.remuda.start(name, "--agent", "demo")
    ranch.remuda("send", name, "are you there?", "--wait")
    until(lambda: [one for one in ranch.queue.waiting() if one["session"]["name"] == name], "its place")


class List:
    """The list, in a pane of its own."""

    def __init__(
        self, ranch: Ranch, *words: str, env: str = "LINES=99 COLUMNS=333", first: str = "Enter"
    ) -> None:
        self.pane = ranch.bench.pane("work:0.1").id
        self._tmux = ranch.bench
        # Variables of whoever started the server say nothing of this pane.
        command = " ".join([f"exec env {env}", *ranch.remuda_words(), *(words or ("popup", "--inside"))])
        self._tmux.run("set-option", "-p", "-t", self.pane, "remain-on-exit", "on")
        self._tmux.run("respawn-pane", "-k", "-t", self.pane, command)
        self.shows(first)

    def press(self, *keys: str) -> None:
        self._tmux.run("send-keys", "-t", self.pane, *keys)

    def shown(self) -> str:
        return "\n".join(capture(self._tmux.tmux, self.pane))

    def shows(self, *words: str, but: str | None = None) -> None:
        """Until it shows all of them, and not that one."""

        def look() -> bool:
            seen = self.shown()
            return all(word in seen for word in words) and (but is None or but not in seen)

        try:
            until(look, f"{words}")
        except AssertionError as error:
            raise AssertionError(f"{error}; the list shows\n{self.shown()}") from None

    def shows_no(self, word: str) -> None:
        self.shows(but=word)
