"""The boss's queue as the commands see it: over its socket."""

from __future__ import annotations

import os

from remuda.boss.client import BossClient
from remuda.boss.guide import Guide, Item


class AskedQueue:
    def __init__(self, boss: BossClient | None = None) -> None:
        self.boss = boss or BossClient()

    def waiting(self) -> list[Item]:
        found: list[Item] = self.boss.get("queue")["items"]
        return found

    def skip(self, number: str, cooldown: float | None) -> Item:
        body = {} if cooldown is None else {"cooldown": cooldown}
        found: Item = self.boss.post("queue", number, "skip", body=body)
        return found


def make_guide(client: str | None = None) -> Guide:
    """For the user's own tmux client, or the one named."""
    return Guide(AskedQueue(), os.environ, client)
