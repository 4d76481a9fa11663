"""`doctor --agent` on programs that are not Claude Code, and what `start` and `show` say of a result."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from remuda.self_test.promises import PROMISES
from support.commands import Commands
from support.print_calls import scripted_agent, write_program


@pytest.fixture
def env(remuda: Commands) -> dict[str, str]:
    """A PATH with the scripted agent as `claude`."""
    program = scripted_agent(remuda.home)
    return {"PATH": f"{program.parent}:{remuda.env['PATH']}"}


def test_start_that_fails_ends_the_test_and_shows_the_words_of_the_program(
    remuda: Commands, tmp_path: Path
) -> None:
    bad = write_program(tmp_path / "bad", "#!/bin/sh\necho 'unknown option: --settings'\nexit 1\n")
    said = remuda("doctor", "--agent", "claude", "--binary", str(bad), code=1).out
    assert "does not hold it starts" in said
    assert "unknown option: --settings" in said
    assert "0 holds, 1 does not hold" in said
    again = json.loads(remuda("doctor", "--agent", "claude", "--binary", str(bad), "--json", code=1).out)
    assert [one["promise"] for one in again["outcomes"]] == ["start"]
    assert again["words"] == ["unknown option: --settings"]


@pytest.mark.parametrize("agent", ["codex", "opencode", "copilot"])
def test_start_that_fails_shows_the_words_of_any_agent(remuda: Commands, tmp_path: Path, agent: str) -> None:
    bad = write_program(tmp_path / "bad", "#!/bin/sh\necho 'unknown option here'\nexit 1\n")
    found = json.loads(remuda("doctor", "--agent", agent, "--binary", str(bad), "--json", code=1).out)
    assert [(one["promise"], one["verdict"]) for one in found["outcomes"]] == [("start", "does not hold")]
    assert found["words"] == ["unknown option here"]


@pytest.mark.soak(only=True)  # it takes the default limit, which is 45 s
def test_default_limit_is_kept_and_what_was_not_tried_is_not_known(remuda: Commands, tmp_path: Path) -> None:
    """Each turn takes 8 s."""
    agent = f'exec {sys.executable} -P -m remuda.testing.scripted_agent "$@"'
    slow = write_program(tmp_path / "claude", f"#!/bin/sh\nexport MOCK_DELAY_STOP=8000\n{agent}\n")
    found = json.loads(remuda("doctor", "--agent", "claude", "--binary", str(slow), "--json", code=1).out)
    verdicts = {one["promise"]: (one["verdict"], one["detail"]) for one in found["outcomes"]}
    assert [*verdicts] == [one.key for one in PROMISES if one.key != "calls"]
    for key in ("draft", "resume", "hooks"):
        assert verdicts[key] == ("not known", "the time was over before it was tried")
    assert found["seconds"] < 45 + 15 + 10  # what the bench takes at most to end everything


def test_wrong_options_are_refused_with_what_to_do(remuda: Commands) -> None:
    assert "offers no self-test" in remuda("doctor", "--agent", "demo", code=2).err
    assert "--binary PATH" in remuda("doctor", "--agent", "claude", "--binary", "/no/where", code=127).err
    assert "need --agent" in remuda("doctor", "--timeout", "3", code=2).err


def test_start_and_show_say_what_is_known_and_refuse_what_is_not_safe(
    remuda: Commands, env: dict[str, str]
) -> None:
    never = "this version of Claude Code was never tried here"
    assert never in remuda("start", "one", "--detach", "--agent", "claude", env=env).err
    assert never in remuda("show", "one", env=env).out
    assert never in remuda("doctor", env=env).out
    assert never not in remuda("start", "two", "--detach", "--agent", "demo", env=env).err
    result = keep_result(remuda, env, "print")
    assert (
        "'print' answers five times" in remuda("start", "three", "--detach", "--agent", "claude", env=env).err
    )
    assert (
        "'print' answers five times" in json.loads(remuda("show", "one", "--json", env=env).out)["self_test"]
    )
    result.unlink()
    result = keep_result(remuda, env, "dialog")
    refused = remuda("start", "four", "--detach", "--agent", "claude", env=env, code=8).err
    assert "a message could answer a permission dialog" in refused
    assert str(result.parent) in refused
    assert "four" not in remuda("ls", "--all", env=env).out


def test_every_way_to_start_an_agent_refuses_what_is_not_safe(remuda: Commands, env: dict[str, str]) -> None:
    remuda("start", "one", "--detach", "--agent", "claude", env=env)
    remuda("start", "ended", "--detach", "--agent", "claude", env=env)
    remuda("kill", "ended", env=env)
    keep_result(remuda, env, "dialog")
    why = "a message could answer a permission dialog"
    for words, code in (
        (("start", "ended", "--resume", "--detach"), 8),
        (("resume", "ended"), 8),
        (("print", "hello"), 2),
        (("print", "--backend", "stream", "hello"), 2),
        (("ask", "hello"), 2),
        (("run", "hello"), 2),
    ):
        assert why in remuda(*words, env=env, code=code).err, words
    done = subprocess.run(
        [sys.executable, "-c", _PYTHON],
        env={**remuda.env, **env},
        cwd=remuda.cwd,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["NOT_SAFE"] * 5, done.stdout
    assert (
        "NOT_SAFE"
        not in remuda("start", "plain", "--detach", "--agent", "simple", "--", "sleep", "60", env=env).err
    )
    assert {one["name"] for one in json.loads(remuda("ls", "--json", env=env).out)} == {"one", "plain"}


_PYTHON = """
import asyncio
from remuda import AsyncSession, Client, Session
from remuda.errors import RemudaError
from remuda.keeper.record import SessionRecord
from remuda.mcp.caller import caller_of
from remuda.mcp.tools import AgentTools
from remuda.paths import SessionPaths, sessions_folder

async def request(backend):
    async with Client(backend=backend) as client:
        await client.run("hello")

def by_agent():
    record = SessionRecord.load(SessionPaths(sessions_folder(), "one").record)
    asyncio.run(AgentTools(lambda: caller_of(record)).call("start", {"name": "a", "agent": "claude"}))

for start in (
    lambda: Session.start("a", agent="claude"),
    lambda: asyncio.run(AsyncSession.start("a", agent="claude")),
    lambda: asyncio.run(request("stream")),
    lambda: asyncio.run(request("terminal")),
    by_agent,
):
    try:
        start()
        print("started")
    except RemudaError as error:
        print(error.code)
"""


def keep_result(remuda: Commands, env: dict[str, str], broken: str) -> Path:
    """Store a result in which one promise does not hold."""
    program = (
        "import sys; from remuda.self_test.results import *\nfrom remuda.tried_program import *\n"
        "from remuda.self_test.promises import *\n"
        "binary = find_binary('claude')\n"
        "broken = PromiseResult(find_promise(sys.argv[1]), PromiseVerdict.FAILS, 'seen')\n"
        "about = ('claude', 'Claude Code', '9.9', digest_of(binary), str(binary), stamp_of(binary))\n"
        "result = SelfTestResult(*about, 0.0, '', '', (broken,))\n"
        "save(result)\n"
        "print(result_path('claude', result.digest))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, broken],
        env={**remuda.env, **env},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return Path(done.stdout.strip())
