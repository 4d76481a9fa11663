"""codex with a home of its own, talking to the loopback model."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from remuda.proctree import send_signal
from remuda.testing.offline import is_offline, proxies_closed

from .bench import NetworkReachableError, PlainTerminal, RealCli
from .fetch import binary_of

API_KEY = "sk-remuda-bench-made-up-key-000000000000"
"""Made up; it is only ever sent to loopback."""


class RealCodex:
    """The pinned codex with a fresh HOME and project below ``folder``, on the model at ``base_url``."""

    def __init__(self, folder: Path, base_url: str, *, trust: bool = True) -> None:
        if not is_offline() and not proxies_closed(os.environ):
            raise NetworkReachableError(
                "the real CLI runs offline only: `make test`, or `python -m remuda.testing.offline -- CMD`"
            )
        self.folder = folder.resolve()
        self.binary = binary_of("codex")
        self.home = self._made("home")
        self.project = self._made("project")
        for name in ("refs", "objects"):  # `codex exec` runs only in a repository, unless it is told to
            (self.project / ".git" / name).mkdir(parents=True)
        (self.project / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        self.env = {
            "PATH": f"{self._program_folder()}:{os.environ.get('PATH', os.defpath)}",
            "HOME": str(self.home),
            "TMPDIR": str(self._made("tmp")),
            "SHELL": "/bin/sh",
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "LOOPBACK_KEY": API_KEY,
        }
        self.configure(base_url, trusted=[self.project] if trust else [])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def configure(self, base_url: str, *, trusted: list[Path], more: str = "") -> None:
        """Write its configuration; `more` is added before the first table."""
        trust = "\n".join(f'[projects."{path.resolve()}"]\ntrust_level = "trusted"' for path in trusted)
        config = self.home / ".codex" / "config.toml"
        config.parent.mkdir(exist_ok=True)
        config.write_text(
            f'model = "loopback-model"\nmodel_provider = "loopback"\ncheck_for_update_on_startup = false\n{more}\n'
            f'[model_providers.loopback]\nname = "loopback"\nbase_url = "{base_url}/v1"\n'
            'wire_api = "responses"\nenv_key = "LOOPBACK_KEY"\nrequest_max_retries = 1\nstream_max_retries = 1\n'
            f"[analytics]\nenabled = false\n{trust}\n"
        )

    def argv(self, *words: str) -> list[str]:
        return [str(self.binary), *words]

    def open_terminal(
        self, *words: str, env: Mapping[str, str] | None = None, columns: int = 100, rows: int = 30
    ) -> PlainTerminal:
        """Start the TUI in the project as a user does, on a terminal that answers no queries."""
        return PlainTerminal(
            self.argv(*words), cwd=self.project, env={**self.env, **(env or {})}, columns=columns, rows=rows
        )

    def rollouts(self) -> list[Path]:
        """Return the files of its conversations, oldest first."""
        return sorted((self.home / ".codex" / "sessions").rglob("rollout-*.jsonl"))

    running = RealCli.running
    settle = RealCli.settle

    def close(self) -> None:
        """Kill what still runs."""
        while running := self.running():  # type: ignore[misc]  # shares what is true of any CLI with a home
            for pid in running:
                send_signal(pid, signal.SIGKILL)
            if not self.settle():  # type: ignore[misc]
                break

    def _made(self, name: str) -> Path:
        path = self.folder / name
        path.mkdir(parents=True)
        return path

    def _program_folder(self) -> Path:
        """Return a folder with the program under the name that users call."""
        folder = self._made("bin")
        (folder / "codex").symlink_to(self.binary)
        return folder
