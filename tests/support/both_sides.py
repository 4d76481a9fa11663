"""A permission request that an agent's terminal shows: decided over HTTP, and the other way round."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from remuda.keeper.client import KeeperClient
from support.boss import RunningBoss
from support.commands import Commands
from support.keeper import until
from support.watcher import Watcher


def open_approval(boss: RunningBoss) -> dict[str, Any]:
    def look() -> dict[str, Any]:
        found = boss.client.get("approvals", state="open")["approvals"]
        return found[0] if found else {}

    return until(look, "a request in the ledger")


def is_too_late(boss: RunningBoss, approval: str) -> None:
    """Check that a request is closed, and that a decision over HTTP is refused."""
    until(lambda: boss.client.get("approvals", approval)["state"] == "ended", "the end of the request")
    late = boss.ask("POST", f"/v1/approvals/{approval}/answer", {"behavior": "deny"})
    assert (late.status, late.json["error"]["code"]) == (409, "ALREADY_ANSWERED")
    assert "it was decided in the terminal" in late.json["error"]["message"]


def decide_from_both_sides(
    remuda: Commands, boss: RunningBoss, prompt: Callable[[str], str], folder: Path, dialog: str, key: bytes
) -> None:
    """Decide two requests of the session `work`. `dialog` is drawn while one is open; `key` allows there."""

    def is_shown() -> bool:
        return dialog in remuda("screen", "work").out

    remuda("send", "work", prompt(f"touch {folder}/by-http"))
    request = open_approval(boss)
    until(is_shown, "the dialog")
    path = f"/v1/approvals/{request['id']}/answer"
    assert boss.ask("POST", path, {"behavior": "allow"}).status == 200
    until(lambda: not is_shown(), "the end of the dialog")
    until((folder / "by-http").exists, "what was allowed over HTTP")

    remuda("send", "work", prompt(f"touch {folder}/by-hand"))
    request = open_approval(boss)
    with KeeperClient.connect("work", remuda.sessions) as client:
        watcher = Watcher(client)
        until(is_shown, "the dialog")
        while is_shown():  # codex drops keys that come while it draws the dialog
            watcher.press(key)
    until((folder / "by-hand").exists, "what was allowed by hand")
    is_too_late(boss, request["id"])
