"""Which of the agent's processes a hook belongs to.

The view of agents starts an empty conversation again in another process, and one more in reserve. Both have
our hooks, and both report that they start. Which of them is ours now shows when it is given a prompt; the
other may start after that.
"""

from __future__ import annotations

from collections.abc import Callable

from remuda.agents.events import ConversationStarted, Report
from remuda.frozen import replaced
from remuda.proctree import is_alive


class AgentProcessFilter:
    """Only the hook that reports a start says which process it is of."""

    def __init__(self, lives: Callable[[int], bool] = is_alive) -> None:
        self._lives = lives
        self._agent: int | None = None
        self._started: dict[str | None, int] = {}

    def starts_another(self, report: Report) -> bool:
        """Whether an agent starts next to the one we keep: it is not ours before it reports more."""
        if report.pid is None:
            return False
        is_new = self._agent is not None and report.pid != self._agent and _is_startup(report)
        if is_new and self._agent is not None and self._lives(self._agent):
            self._started[report.session_id] = report.pid
            return True
        self._agent = report.pid
        return False

    def attributed(self, report: Report) -> Report:
        """The report with its process, when it is the first of such an agent: that is ours from now on."""
        pid = self._started.pop(report.session_id, None)
        if pid is None:
            return report
        self._agent = pid
        return replaced(report, pid=pid)


def _is_startup(report: Report) -> bool:
    return any(isinstance(event, ConversationStarted) and event.how == "startup" for event in report.events)
