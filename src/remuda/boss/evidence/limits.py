"""Accounts that have reached a limit, as the keepers tell each other: nothing is sent until it is over."""

from __future__ import annotations

from pathlib import Path

from remuda.turns.account import Account


def limits(folder: Path, now: float) -> list[dict[str, object]]:
    """Until when, and why; the one that lasts longest last. Deliveries go on by themselves then."""
    try:
        names = sorted(path.stem for path in folder.iterdir() if path.suffix == ".json")
    except OSError:
        return []
    found = []
    for name in names:
        account = Account(folder, name)
        if left := account.limited_for(now):
            found.append({"account": name[:8], "until": now + left, "reason": account.reason})
    return sorted(found, key=lambda one: float(str(one["until"])))
