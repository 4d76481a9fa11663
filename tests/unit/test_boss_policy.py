"""Rules that answer in place of a human: nothing is allowed that no rule means."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.boss.answers.automatic import make_request
from remuda.boss.answers.policy import Decision, Policy, Request, read_policy
from remuda.boss.answers.policy_file import load_policy, policy_file
from remuda.boss.answers.shell import matches, may_match, split_command
from remuda.boss.attention.model import Reason
from remuda.boss.folder import BossFolder
from remuda.errors import InvalidOptions

HOME = "/home/me"
BASH = shutil.which("bash") or "/bin/sh"


def policy(*rules: dict[str, Any]) -> Policy:
    return read_policy({"rule": list(rules)}, HOME)


def allowing(*commands: str) -> Policy:
    return policy({"decision": "allow", "tool": "Bash", "command": list(commands)})


def bash(command: str, **more: Any) -> Request:
    return Request("Bash", command=command, **more)


def decided(found: Policy, command: str) -> str:
    return str(found.decide(bash(command)).decision)


# ── shell commands ──


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("git status", [("git", "status")]),
        ("  git\tstatus  ", [("git", "status")]),
        ("a && b || c; d | e", [("a",), ("b",), ("c",), ("d",), ("e",)]),
        ("a&&b", [("a",), ("b",)]),
        ("a\nb\n", [("a",), ("b",)]),
        ("a;", [("a",)]),
        ("a &&\n b", [("a",), ("b",)]),
        ("echo 'x; rm -rf ~' \"a b\"", [("echo", "x; rm -rf ~", "a b")]),
        ("echo 'a'\"b\"c", [("echo", "abc")]),
        ("grep 'a$b`c\\'", [("grep", "a$b`c\\")]),
        ("ls ü", [("ls", "ü")]),
    ],
)
def test_command_is_taken_apart(text: str, parts: list[tuple[str, ...]]) -> None:
    assert split_command(text) == parts


UNCLEAR = [
    "git status > x",
    "git status >> x",
    "git status < x",
    "git status 2>&1",
    "git status & rm x",
    "git status &",
    "git status |& sh",
    "git status $(rm x)",
    "git status `rm x`",
    'git status "$(rm x)"',
    'git status "`rm x`"',
    "git status $X",
    "git status ${X}",
    "git status $'\\n'",
    'git status "$X"',
    "git status <(rm x)",
    "(git status)",
    "{ git status; }",
    "git {status,log}",
    "git stat*",
    "git statu?",
    "git statu[s]",
    "git\\ status",
    "git status \\\n rm",
    "X=1 git status",
    "PATH+=:. git status",
    "! git status",
    "if git status; then rm x; fi",
    "time git status",
    "git status # rm",
    "git status 'unended",
    'git status "unended',
    "git status &&",
    "git status |",
    "&& git status",
    "git status ;; git status",
    "git status\r rm x",
    "git status\x00",
    "git\xa0status",
    "git status \u202e",
    "''",
    "",
    "   ",
    'echo "a!b"',
]


@pytest.mark.parametrize("text", UNCLEAR)
def test_what_is_not_plain_is_not_understood_and_never_allowed_by_a_command(text: str) -> None:
    assert split_command(text) is None
    assert decided(allowing("git status", "git *", "*", "rm *", "echo *"), text) == "ask"


@pytest.mark.parametrize(
    ("command", "decision"),
    [
        ("git status", "allow"),
        ("git status -s", "ask"),
        ("git  status", "allow"),
        ("'git' \"status\"", "allow"),
        ("git", "ask"),
        ("git status; rm -rf ~", "ask"),
        ("git status && rm -rf ~", "ask"),
        ("git status || rm -rf ~", "ask"),
        ("git status | sh", "ask"),
        ("git status\nrm -rf ~", "ask"),
        ("rm -rf ~; git status", "ask"),
        ("git status; git diff a b", "allow"),
        ("git diff", "allow"),
        ("git diff --stat", "allow"),
        ("npm run test:unit", "allow"),
        ("npm run build", "ask"),
        ("'git status'", "ask"),
        ("gitx status", "ask"),
    ],
)
def test_allow_pattern_matches_every_part_or_nothing(command: str, decision: str) -> None:
    assert decided(allowing("git status", "git diff *", "npm run test:*"), command) == decision


def test_denied_part_denies_the_whole_also_where_it_is_not_plain() -> None:
    found = policy(
        {"decision": "allow", "tool": "Bash", "command": "git *"},
        {"decision": "deny", "tool": "Bash", "command": "rm *"},
    )
    for command in ("rm x", "git status; rm x", "X=1 rm $HOME", "echo $(rm x)", "if true; then rm x; fi"):
        assert decided(found, command) == "deny", command
    assert decided(found, "git rm x") == "allow"


def test_first_rule_that_fits_decides() -> None:
    found = policy(
        {"decision": "allow", "command": "git push origin test"},
        {"decision": "deny", "command": "git push *"},
        {"decision": "ask", "tool": "Bash", "command": "git log *"},
        {"decision": "allow", "tool": "Bash"},
    )
    assert [decided(found, f"git {rest}") for rest in ("push origin test", "push", "log", "fetch $X")] == [
        "allow",
        "deny",
        "ask",
        "allow",
    ]


_WORD = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=8)


@given(st.lists(_WORD, min_size=1, max_size=4))
def test_quoted_words_come_back_as_they_were(words: list[str]) -> None:
    text = shlex.join(words)
    found = split_command(text)
    assert found is None or found == [tuple(words)]


_LONG = ["git", "status", "rm", "&&", "||", "$(", "-s", "X=1", "if", "[[", "  ", "git status"]
_PIECES = st.sampled_from([*_LONG, *" ;&|\n\t'\"\\$`(){}<>*#!=~\ré"])


@given(st.lists(_PIECES, max_size=8).map("".join))
def test_nothing_is_allowed_but_the_words_that_were_meant(text: str) -> None:
    """However it is written: what is allowed has only parts that are `git status` and nothing else."""
    if decided(allowing("git status"), text) == "allow":
        parts = split_command(text)
        assert parts is not None
        assert set(parts) == {("git", "status")}


@settings(max_examples=40, deadline=None)
@given(st.lists(_PIECES, min_size=1, max_size=6).map("".join))
def test_shell_runs_what_was_understood_and_nothing_more(text: str) -> None:
    """A shell with nothing but two functions of these names: each call that it makes is one of our parts."""
    if (parts := split_command(text)) is None:
        return
    names = {part[0] for part in parts}
    if not names <= {"git", "rm"} or "status" in names:
        return
    script = 'say() { printf "%s\\0" "$@"; printf "\\036"; }\n'
    script += 'git() { say git "$@" >&3; }\nrm() { say rm "$@" >&3; }\n' + text
    done = subprocess.run(
        [BASH, "-c", f"exec 3>&1 >/dev/null 2>&1\n{script}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        env={"PATH": "/nonexistent", "HOME": "~"},
        timeout=20,
    )
    calls = [tuple(call.split("\0")[:-1]) for call in done.stdout.decode().split("\x1e")[:-1]]
    assert set(calls) <= set(parts), (text, calls)


@given(st.lists(_PIECES, max_size=8).map("".join))
def test_what_matches_exactly_also_may_match(text: str) -> None:
    parts = split_command(text) or []
    if any(matches(part, ("rm", "*")) and not set("'\";|&\n") & set(text) for part in parts):
        assert may_match(text, ("rm", "*"))


# ── everything else ──


def test_tool_path_folder_and_session() -> None:
    found = policy(
        {"decision": "allow", "tool": ["Read", "Gr*"], "path": ["~/work", "/srv/*/docs"]},
        {"decision": "allow", "tool": "Edit", "folder": "~/work/**/x", "session": "ci-*"},
    )

    def decide(tool: str, **more: Any) -> str:
        return str(found.decide(Request(tool, **more)).decision)

    assert decide("Read", path="/home/me/work") == "allow"
    assert decide("Read", path="/home/me/work/a/b") == "allow"
    assert decide("Grep", path="/srv/a/docs/x") == "allow"
    assert decide("Read", path="/srv/a/b/docs") == "ask"
    assert decide("Read", path="/home/me/workshop") == "ask"
    assert decide("Read", path="/home/me/work/../.ssh") == "ask"
    assert decide("Read", path="work") == "ask"
    assert decide("Read") == "ask"
    assert decide("Write", path="/home/me/work/a") == "ask"
    assert decide("Edit", folder="/home/me/work/a/b/x/y", session=("id", "ci-1")) == "allow"
    assert decide("Edit", folder="/home/me/work/a/b/x", session=("id", "work")) == "ask"
    assert decide("Edit", session=("ci-1",)) == "ask"


def test_question_is_for_a_human_and_a_plan_must_be_named() -> None:
    everything = policy({"decision": "allow", "tool": "*"})
    assert everything.decide(Request("Read")).decision is Decision.ALLOW
    assert everything.decide(Request("ExitPlanMode", Reason.PLAN)).decision is Decision.ASK
    named = policy({"decision": "allow", "tool": ["ExitPlanMode", "AskUserQuestion"]})
    assert named.decide(Request("ExitPlanMode", Reason.PLAN)).decision is Decision.ALLOW
    assert named.decide(Request("AskUserQuestion", Reason.QUESTION)).decision is Decision.ASK


def test_command_that_asks_for_more_than_itself_is_asked(tmp_path: Path) -> None:
    given = {"command": "git status", "dangerouslyDisableSandbox": True}
    request = make_request("Bash", Reason.PERMISSION, given, ["s", None], str(tmp_path))
    assert allowing("git status").decide(request).decision is Decision.ASK
    request = make_request("Bash", Reason.PERMISSION, {"command": "git status"}, ["s"], str(tmp_path))
    assert allowing("git status").decide(request).decision is Decision.ALLOW


def test_path_is_where_its_links_lead(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "link").symlink_to(tmp_path / "secret")
    found = policy({"decision": "allow", "tool": "Read", "path": str(tmp_path / "work")})

    def decide(path: str) -> str:
        request = make_request("Read", Reason.PERMISSION, {"file_path": path}, ["s"], str(tmp_path))
        return str(found.decide(request).decision)

    assert [decide(one) for one in ("work/a", "work/link/a", "work/../secret/a", "work/link/../a")] == [
        "allow",
        "ask",
        "ask",
        "ask",
    ]


@pytest.mark.parametrize(
    "document",
    [
        {"rules": []},
        {"dry_run": "yes"},
        {"rule": {}},
        {"rule": ["x"]},
        {"rule": [{}]},
        {"rule": [{"decision": "maybe", "tool": "Bash"}]},
        {"rule": [{"decision": "allow"}]},
        {"rule": [{"decision": "allow", "tools": "Bash"}]},
        {"rule": [{"decision": "allow", "tool": []}]},
        {"rule": [{"decision": "allow", "tool": 1}]},
        {"rule": [{"decision": "allow", "command": "git 'x"}]},
        {"rule": [{"decision": "allow", "command": " "}]},
        {"rule": [{"decision": "allow", "path": "work"}]},
        {"rule": [{"decision": "allow", "tool": "x", "message": "no"}]},
        {"rule": [{"decision": "deny", "message": 1}]},
        {"rule": [{"decision": "deny", "name": 1}]},
    ],
)
def test_what_is_no_policy_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptions):
        read_policy(document, HOME)


def test_file_is_found_read_and_must_be_ours_alone(tmp_path: Path) -> None:
    folder = BossFolder(tmp_path / "boss")
    folder.path.mkdir()
    other = tmp_path / "config" / "remuda" / "policy.toml"
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    own = folder.path / "policy.toml"
    assert policy_file(folder, environ) == own
    assert load_policy(own) == Policy()
    other.parent.mkdir(parents=True)
    other.write_text('[[rule]]\ndecision = "deny"\nname = "never"\n')
    other.chmod(0o644)
    assert policy_file(folder, environ) == other
    assert [rule.name for rule in load_policy(other).rules] == ["never"]
    own.write_text("rule = 1")
    own.chmod(0o600)
    assert policy_file(folder, environ) == own
    with pytest.raises(InvalidOptions, match=r"policy\.toml"):
        load_policy(own)
    other.chmod(0o666)
    with pytest.raises(InvalidOptions, match="written by others"):
        load_policy(other)


def test_policy_of_the_guide_is_right() -> None:
    text = (Path(__file__).parents[2] / "docs" / "approvals.md").read_text()
    (block,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    found = read_policy(tomllib.loads(block), HOME)
    assert [str(rule.decision) for rule in found.rules] == ["allow", "allow", "deny"]
    assert decided(found, "git status && git diff --stat") == "allow"
    assert decided(found, "sudo ls") == "deny"
