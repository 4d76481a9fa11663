"""Claude Code at a usage limit of its account: nothing is sent until it ends, and that is shown."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli
from remuda.testing.script import Fail, Reply
from support.boss import KEPT, RunningBoss
from support.keeper import Start, until
from support.messages import Post, prompts, step
from support.real_sessions import keep

pytestmark = pytest.mark.real

# Made up. With a key of the API the CLI knows no such limits.
SUBSCRIBED = {"ANTHROPIC_API_KEY": "", "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-made-up"}
HOURS = 2 * 3600


@pytest.fixture
def boss(home: Path) -> Iterator[RunningBoss]:
    with RunningBoss(home, (KEPT,)) as one:
        yield one


def limit(reset: int) -> Reply:
    """As claude.ai refuses a request beyond a plan."""
    headers = {
        "anthropic-ratelimit-unified-status": "rejected",
        "anthropic-ratelimit-unified-reset": str(reset),
        "anthropic-ratelimit-unified-representative-claim": "five_hour",
        "anthropic-ratelimit-unified-overage-status": "rejected",
    }
    return Reply((Fail(429, "rate_limit_error", "This would exceed your limit.", headers),))


def test_usage_limit_of_a_plan_is_waited_for_to_its_end_and_shown(
    cli: RealCli, start: Start, model: LoopbackModel, home: Path, boss: RunningBoss
) -> None:
    post = Post(keep(start, cli, env=SUBSCRIBED))
    reset = int(time.time()) + HOURS
    model.next(limit(reset))
    refused = post.put("hello")
    nacked = step(post.reached(refused, "nacked"), "nacked")
    assert reset - 1 < nacked["due"] < reset + 66  # the CLI would go on by itself after that
    behind = post.put_held("of the same account", "the account has reached its rate limit")
    (found,) = boss.client.get("queue")["limits"]
    assert (found["messages"], found["sessions"]) == (2, [post.kept.name])
    assert reset - 1 < found["until"] < reset + 66
    assert found["reason"].startswith("You've hit your limit · resets ")

    def known_end() -> float:
        """The queue may have the session before it has the end of the limit."""
        limited = [one["detail"] for one in boss.waiting() if one["reason"] == "limited"]
        return float(limited[0].get("until", 0)) if limited else 0.0

    assert reset - 60 <= until(known_end, "the end of the limit in the queue") <= reset
    (account,) = (home / "accounts").glob("*.json")
    account.write_text(json.dumps({"until": time.time() + 1, "reason": "almost over"}))
    assert post.ended(behind).stage == "acked"
    assert prompts(model) == ["hello", "of the same account"]
