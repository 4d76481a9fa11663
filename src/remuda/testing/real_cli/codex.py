"""codex with a home of its own, talking to the loopback model."""

from __future__ import annotations

from pathlib import Path

from .bench import RealCli, plan_of
from .fetch import binary_of


class RealCodex(RealCli):
    """The pinned codex with a fresh HOME and project below ``folder``, on the model at ``base_url``."""

    plan = plan_of("codex")

    def __init__(self, folder: Path, base_url: str, *, trust: bool = True) -> None:
        super().__init__(folder, base_url, trust=trust, binary=binary_of("codex"))
        programs = self._made("bin")
        (programs / "codex").symlink_to(self.binary)
        self.env["PATH"] = f"{programs}:{self.env['PATH']}"

    def rollouts(self) -> list[Path]:
        """Return the files of its conversations, oldest first."""
        return sorted((self.home / ".codex" / "sessions").rglob("rollout-*.jsonl"))
