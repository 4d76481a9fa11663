"""Where codex keeps its files, and whose account it uses. Reads its configuration, and nothing else."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remuda.digest import sha256
from remuda.durable import read_regular
from remuda.untrusted import as_object


def codex_home(env: Mapping[str, str]) -> Path:
    return Path(env.get("CODEX_HOME") or Path(env.get("HOME") or "/", ".codex"))


def sessions_folder(env: Mapping[str, str]) -> Path:
    return codex_home(env) / "sessions"


def find_rollout(env: Mapping[str, str], thread_id: str) -> Path | None:
    """Return the file of a conversation: codex sorts them into folders by date."""
    if not thread_id or "/" in thread_id or "*" in thread_id:
        return None
    return next(iter(sessions_folder(env).glob(f"*/*/*/rollout-*-{thread_id}.jsonl")), None)


def read_config(env: Mapping[str, str]) -> dict[str, Any]:
    """Return the user's configuration; empty if it cannot be read."""
    try:
        return tomllib.loads(read_regular(codex_home(env) / "config.toml").decode())
    except (OSError, ValueError):
        return {}


def account(env: Mapping[str, str]) -> str:
    """Return a digest of home, service and the source of the credential."""
    config = read_config(env)
    provider = str(config.get("model_provider", "openai"))
    service = as_object(as_object(config.get("model_providers")).get(provider))
    key = str(service.get("env_key") or "OPENAI_API_KEY")
    source = f"{key}={env[key]}" if env.get(key) else "file"
    return sha256(f"{codex_home(env)}\0{provider}\0{service.get('base_url', '')}\0{source}".encode())[:24]
