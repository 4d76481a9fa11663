"""The real opencode with a home of its own: no account, no network but a model on loopback."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ..offline import is_offline, proxies_closed
from .bench import API_KEY, NetworkReachableError, bench_environment
from .fetch import binary_of

_MODEL = "anthropic/claude-sonnet-4-5"


class OpencodeCli:
    """The pinned binary with a fresh HOME and project below ``folder``, talking to the model at ``base_url``.

    It asks for permission to run commands. ``settings`` are laid over those of the bench.
    """

    def __init__(self, folder: Path, base_url: str, **settings: Any) -> None:
        if not is_offline() and not proxies_closed(os.environ):
            raise NetworkReachableError(
                "the real CLI runs offline only: `make test`, or `python -m remuda.testing.offline -- CMD`"
            )
        self.folder = folder.resolve()
        self.binary = binary_of("opencode")
        self.home, self.project = self.folder / "home", self.folder / "project"
        for one in (self.project, self.home / ".config" / "opencode", self.folder / "tmp"):
            one.mkdir(parents=True)
        made = {
            "autoupdate": False,
            "share": "disabled",
            "model": _MODEL,
            "provider": {"anthropic": {"options": {"baseURL": f"{base_url}/v1", "apiKey": API_KEY}}},
            "permission": {"bash": "ask"},
            **settings,
        }
        (self.home / ".config" / "opencode" / "opencode.json").write_text(json.dumps(made))
        variables = bench_environment(self.home, self.folder / "tmp")
        self.env = {
            **variables,
            "PATH": f"{self.binary.parent}{os.pathsep}{variables['PATH']}",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
        }
