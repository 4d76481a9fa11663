"""Policies for tests, and what they decide on a command."""

from __future__ import annotations

import os
from typing import Any

from remuda.boss.answers.permission_policy import (
    Policy,
    read_policy,
)
from remuda.boss.answers.policy_request import PolicyRequest

HOME = "/home/me"
EVERYTHING = {"decision": "allow", "tool": "*"}


def policy(*rules: dict[str, Any]) -> Policy:
    return read_policy({"rule": list(rules)}, HOME, os.path.realpath)


def allowing(*commands: str) -> Policy:
    return policy({"decision": "allow", "tool": "Bash", "command": list(commands)})


def bash(command: str, **more: Any) -> PolicyRequest:
    return PolicyRequest("Bash", command=command, **more)


def decided(found: Policy, command: str) -> str:
    return str(found.decide(bash(command)).decision)
