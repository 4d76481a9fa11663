"""What the user wrote for the boss, rules and receivers of notices; shared by `status` and `doctor`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from remuda.boss.answers.permission_policy import load_policy, policy_file
from remuda.boss.folder import BossFolder
from remuda.boss.notices.notification import load_settings, notify_file
from remuda.errors import InvalidOptions

from .common import short_path


class Written(NamedTuple):
    name: str
    text: str
    is_right: bool


def written_files() -> Iterator[Written]:
    """Those that are there. One that is not right does nothing, which nobody would notice."""
    folder = BossFolder.default()
    for name, path, count in (
        ("rules", policy_file(folder, os.environ), _rules),
        ("notices", notify_file(folder, os.environ), _receivers),
    ):
        if not path.exists():
            continue
        try:
            yield Written(name, f"{count(path)}, by {short_path(str(path))}", True)
        except InvalidOptions as error:
            yield Written(name, f"ignored: {error}", False)


def _rules(path: Path) -> str:
    policy = load_policy(path)
    return f"{len(policy.rules)}{' in a dry run' if policy.dry_run else ''}"


def _receivers(path: Path) -> str:
    found = len(load_settings(path).receivers)
    return f"to {found} receiver{'s' if found != 1 else ''}" if found else "to no receiver"
