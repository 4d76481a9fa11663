"""A boss with a budget, and what becomes of a session that is over it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from remuda.boss.folder import BossFolder
from support.boss import KEPT, USAGE, RunningBoss
from support.commands import Commands
from support.keeper import until
from support.messages import Post, stages

SOURCES = (
    KEPT,
    USAGE,
    "remuda.boss.evidence.spending:Spending",
)


def limit(folder: BossFolder, *lines: str) -> None:
    folder.path.mkdir(parents=True, exist_ok=True)
    (folder.path / "budget.toml").write_text("\n".join(["[[limit]]", *lines, ""]))


@contextmanager
def boss_with_limit(home: Path, *lines: str) -> Iterator[RunningBoss]:
    limit(BossFolder(home / "boss"), *lines)
    with RunningBoss(home, SOURCES) as boss:
        yield boss


def item(boss: RunningBoss, name: str) -> dict[str, Any] | None:
    waiting = (one for one in boss.waiting() if one["reason"] == "budget")
    return next((one for one in waiting if one["session"]["name"] == name), None)


def paused(boss: RunningBoss, name: str) -> dict[str, Any]:
    return until(lambda: item(boss, name) or {}, f"'{name}' in the queue with reason budget")


def show_pause(post: Post, home: Path, *, tokens: int = 5) -> None:
    """Pass a limit with one message; the next one waits until a human allows more."""
    remuda, name = Commands(home), post.kept.name
    with boss_with_limit(home, f"output_tokens = {tokens}", "step = 1000") as boss:
        post.run("hello")
        request = paused(boss, name)["detail"]["ask"]
        held = post.put_held("more", "budget 'output tokens per session'")
        assert stages(post.trace(held)) == ["accepted"]
        remuda("approve", name, "--yes")
        assert post.ended(held).stage == "acked"
        assert boss.client.get("approvals", request)["by"] == "api: command line"
