"""The real opencode with a home of its own: no account, no network but a model on loopback."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from .bench import RealCli, plan_of
from .fetch import binary_of


class OpencodeCli(RealCli):
    """The pinned binary with a fresh HOME and project below ``folder``, talking to the model at ``base_url``.

    It asks for permission to run commands. ``settings`` are laid over those of the bench.
    """

    plan = plan_of("opencode")

    def __init__(self, folder: Path, base_url: str, **settings: Any) -> None:
        super().__init__(folder, base_url, binary=binary_of("opencode"))
        (path,) = self.plan.files(self._place)
        path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
        self.env["PATH"] = f"{self.binary.parent}{os.pathsep}{self.env['PATH']}"
