"""What Claude Code makes of a permission given for always, and of input that its tools do not have."""

from __future__ import annotations

import json
from typing import Any

import pytest

from remuda.testing.real_cli import RealCli
from support.keeper import Start, until
from support.messages import Post
from support.real_sessions import keep

pytestmark = pytest.mark.real


class Asked(Post):
    """A session whose permissions are given by the test."""

    def call(self, tool: str, given: dict[str, Any], **answer: Any) -> bool:
        """Let the agent call a tool, and see the turn to its end. Returns whether it was asked for."""
        message = self.put("TOOL " + json.dumps({"name": tool, "input": given}))

        def seen() -> list[dict[str, Any]] | bool:
            asks: list[dict[str, Any]] = self.client.request("asks")["asks"]
            return asks or self.trace(message).stage == "acked"

        if isinstance(asks := until(seen, "a request or the end"), list):
            self.client.request("answer", id=asks[0]["id"], **answer)
        assert self.ended(message).stage == "acked"
        return isinstance(asks, list)

    def bash(self, command: str, **answer: Any) -> bool:
        return self.call("Bash", {"command": command}, **(answer or {"behavior": "deny"}))


def test_always_of_a_command_with_a_star_allows_no_other_command(cli: RealCli, start: Start) -> None:
    post = Asked(keep(start, cli, "--permission-mode", "default", asks=True))
    always = {"behavior": "allow", "always": True}
    # Without one it holds for that command, and for no other.
    assert post.bash("chmod 600 plain", **always)
    assert not post.bash("chmod 600 plain")
    assert post.bash("chmod 600 plain more")
    # As a rule, '*' would stand for any text and ':*' for any more words.
    assert post.bash("chmod 600 a*", **always)
    assert post.bash("chmod 600 abc")
    assert post.bash("chmod 600 a b c")
    assert post.bash("chmod 601 x:*", **always)
    assert post.bash("chmod 601 x yyy")
    assert post.bash("chmod 400 s", **always, input={"command": "chmod 602 b*"})
    assert post.bash("chmod 602 bcd")


def test_tool_input_with_a_field_that_the_tool_does_not_have_is_refused_by_the_cli(
    cli: RealCli, start: Start
) -> None:
    """So no path can hide in one: the schemas are strict. Glob and Grep are not there at all (2.1.325)."""
    post = Asked(keep(start, cli, "--permission-mode", "default", asks=True))
    target = cli.project / "made.txt"
    given = {"file_path": str(target), "content": "x", "path": "/allowed"}
    assert not post.call("Write", given)
    assert not post.call("NotebookEdit", {"notebook_path": "/x.ipynb", "new_source": "", "file_path": "/y"})
    assert not target.exists()
