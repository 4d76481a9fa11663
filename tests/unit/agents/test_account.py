"""The account of a session: a rate limit holds all sessions with the same credential, and no other."""

from __future__ import annotations

import pytest

from remuda.agents import find_agent

_KEYS = {
    "codex": ("OPENAI_API_KEY", {"CODEX_HOME": "/other"}),
    "opencode": ("ANTHROPIC_API_KEY", {"XDG_DATA_HOME": "/other"}),
    "copilot": ("COPILOT_PROVIDER_API_KEY", {"COPILOT_PROVIDER_BASE_URL": "http://gateway"}),
}


@pytest.mark.parametrize("agent", _KEYS)
def test_account_is_the_same_for_the_same_home_service_and_credential(agent: str) -> None:
    prompts = find_agent(agent).prompts
    assert prompts is not None
    key, elsewhere = _KEYS[agent]
    env = {"HOME": "/h", key: "sk-secret", "PATH": "/bin", "TERM": "xterm"}
    name = prompts.account(env)
    assert name == prompts.account({**env, "PATH": "/usr/bin", "TMUX_PANE": "%1"})
    assert "secret" not in name
    others = [{**env, "HOME": "/other"}, {**env, **elsewhere}, {**env, key: "sk-other"}, {"HOME": "/h"}]
    accounts = {name, *(prompts.account(other) for other in others)}
    assert len(accounts) == 1 + len(others)
    assert not accounts & {one.account(env) for a in _KEYS if a != agent and (one := find_agent(a).prompts)}
