"""Copilot with a home of its own, talking to the loopback model."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from .bench import RealCli, plan_of
from .fetch import binary_of


class RealCopilot(RealCli):
    """The pinned copilot with a fresh HOME and project below ``folder``, on the model at ``base_url``."""

    plan = plan_of("copilot")

    def __init__(self, folder: Path, base_url: str, *, trust: bool = True) -> None:
        super().__init__(folder, base_url, trust=trust, binary=binary_of("copilot"))
        self.env["PATH"] = f"{self.binary.parent}{os.pathsep}{self.env['PATH']}"
        # It unpacks 300 MB there at its first start. Nothing else of the home is shared.
        self.env["XDG_CACHE_HOME"] = str(self.binary.parent / "unpacked")

    def events(self) -> list[dict[str, Any]]:
        """All records of all conversations."""
        found = sorted((self.home / ".copilot" / "session-state").glob("*/events.jsonl"))
        return [json.loads(line) for path in found for line in path.read_text().splitlines()]
