"""Ends of a call that are not the agent's answer."""

from __future__ import annotations

from remuda.errors import RemudaError


class CallFailed(RemudaError):
    """The call did not come to an end of the agent's own: nothing was answered, and nothing was refused."""

    code = "CALL_FAILED"
    exit_name = "INVALID_OPTIONS"


class AgentRefused(RemudaError):
    """The CLI ended before it took the prompt, and said why. `claude -p` ends with 1 then, and so do we."""

    code = "AGENT_REFUSED"
    exit_name = "FAILED"
