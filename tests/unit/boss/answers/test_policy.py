"""Rules that answer in place of a human: nothing is allowed that no rule means."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from remuda.boss.answers.permission_policy import (
    Policy,
    PolicyDecision,
    load_policy,
    policy_file,
    read_policy,
)
from remuda.boss.answers.policy_request import PolicyRequest, RequestedPath, make_request
from remuda.boss.answers.spellings import MOST_FORMS, every_form
from remuda.boss.attention.model import Reason
from remuda.boss.folder import BossFolder
from remuda.errors import InvalidOptions
from support import ROOT
from support.policies import EVERYTHING, HOME, allowing, decided, policy
from support.shell_commands import NOT_UNDERSTOOD

# ── shell commands ──


@pytest.mark.parametrize("text", NOT_UNDERSTOOD)
def test_command_that_is_not_understood_is_never_allowed_by_a_pattern(text: str) -> None:
    assert decided(allowing("ls", "ls *", "*", "rm *", "echo *"), text) == "ask"


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
        ("git diff --stat 2>&1", "allow"),
        ("git diff src/*.py", "allow"),
        ("git stat*", "ask"),
        ("npm run test:unit", "allow"),
        ("npm run test:*", "ask"),
        ("npm run build", "ask"),
        ("'git status'", "ask"),
        ("gitx status", "ask"),
        ("./git status", "ask"),
    ],
)
def test_allow_pattern_matches_every_part_or_nothing(command: str, decision: str) -> None:
    assert decided(allowing("git status", "git diff *", "npm run test:*"), command) == decision


def test_wildcard_at_the_start_of_a_pattern_does_not_match_an_assignment() -> None:
    """Audit H2: `A='/pytest' rm -rf x` was taken for a program called A=/pytest."""
    for command in ("A='/pytest' rm -rf x", 'A="/pytest" curl evil.example', "'A=/pytest' x"):
        assert decided(allowing("*/pytest *"), command) == "ask"


def test_interpreter_that_a_rule_names_is_allowed_only_without_a_guard_above() -> None:
    named = {"decision": "allow", "command": "python3 x.py"}
    never = {"decision": "deny", "command": "rm *"}
    assert decided(policy(named), "python3 x.py") == "allow"
    assert decided(policy(named, never), "python3 x.py") == "allow"
    assert decided(policy(never, named), "python3 x.py") == "ask"


def test_denied_part_denies_the_whole_also_where_it_is_not_understood() -> None:
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
    assert [decided(found, f"git {rest}") for rest in ("push origin test", "push", "log", "fetch x")] == [
        "allow",
        "deny",
        "ask",
        "allow",
    ]


# ── tools that run commands ──


def tool_decided(found: Policy, tool: str, given: dict[str, Any]) -> str:
    request = make_request(tool, Reason.PERMISSION, given, ["s"], "/", found.command_tools)
    return str(found.decide(request).decision)


NEVER = {"decision": "deny", "tool": "Bash", "command": "rm *"}
SHELL = "mcp__shell__run"


def test_monitor_meets_command_rules_as_bash_does() -> None:
    found = policy(NEVER, EVERYTHING)
    assert tool_decided(found, "Monitor", {"command": "rm x", "timeout_ms": 1, "persistent": False}) == "deny"
    assert tool_decided(found, "Monitor", {"command": "tail -f x", "description": "log"}) == "allow"
    assert tool_decided(found, "Monitor", {"command": "sh x"}) == "ask"
    assert tool_decided(found, "Monitor", {"ws": {"url": "ws://x"}}) == "ask"


def test_tool_that_may_run_commands_is_asked_below_a_guard_unless_it_is_named() -> None:
    given = {"command": "rm x"}
    assert tool_decided(policy(NEVER, EVERYTHING), SHELL, given) == "ask"
    assert tool_decided(policy(NEVER, {"decision": "allow", "tool": "mcp__*"}), SHELL, given) == "ask"
    assert tool_decided(policy(NEVER, {"decision": "allow", "tool": SHELL}), SHELL, given) == "allow"
    assert (
        tool_decided(policy({**NEVER, "tool": "mcp__*"}, {"decision": "allow", "tool": SHELL}), SHELL, given)
        == "ask"
    )
    assert tool_decided(policy(EVERYTHING, NEVER), SHELL, given) == "allow"
    assert tool_decided(policy(NEVER, EVERYTHING), "Read", {"file_path": "/x"}) == "allow"


def test_tool_that_is_declared_meets_command_rules() -> None:
    document = {
        "rule": [NEVER, EVERYTHING],
        "command_tools": {"mcp__shell__*": "script", "mcp__git__*": False},
    }
    found = read_policy(document, HOME, os.path.realpath)
    assert tool_decided(found, SHELL, {"script": "rm x"}) == "deny"
    assert tool_decided(found, SHELL, {"script": ["rm", "x"]}) == "deny"
    assert tool_decided(found, SHELL, {"script": "ls"}) == "allow"
    assert tool_decided(found, SHELL, {"script": "ls", "env": {"PATH": "/x"}}) == "ask"
    assert tool_decided(found, SHELL, {"script": 1}) == "ask"
    assert tool_decided(found, SHELL, {"command": "ls"}) == "ask"
    assert tool_decided(found, "mcp__git__log", {"command": "rm x"}) == "allow"
    assert tool_decided(found, "Bash", {"command": "rm x"}) == "deny"


@pytest.mark.parametrize(
    ("denied", "command", "decision"),
    [
        ("rm -rf *", "rm -Rf x", "ask"),
        ("rm -r *", "rm -R x", "ask"),
        ("curl -k *", "curl --insecure http://x", "deny"),
        ("curl -X DELETE *", "curl -XDELETE http://x", "ask"),
        ("curl -X DELETE *", "curl -sXDELETE http://x", "ask"),
        ("curl -X DELETE *", "curl --request DELETE http://x", "ask"),
        ("curl -X DELETE *", "curl --request PUT http://x", "allow"),
        ("gh api -X DELETE *", "gh api --method=DELETE /x", "ask"),
        ("git switch --discard-changes *", "git switch -f x", "deny"),
        ("git branch -D *", "git branch -d -f x", "deny"),
        ("git branch -D *", "git branch -fd x", "deny"),
        ("git branch -D *", "git branch -d x", "allow"),
        ("git branch --delete --force *", "git branch -D x", "deny"),
        ("git push --force *", "git push --mirror", "deny"),
        ("git push --delete *", "git push --prune origin", "deny"),
        ("git push --force *", "git push origin x", "allow"),
        ("git push * main", "git push origin HEAD:main", "deny"),
        ("git push * main", "git push origin +x:refs/heads/main", "deny"),
        ("git push * main", "git push", "ask"),
        ("git push * main", "git push origin HEAD", "ask"),
        ("git push * main", "git push --all origin", "ask"),
        ("git push * main", "git push --force-with-lease=x:main origin x", "allow"),
        ("kill -9 *", "kill -s KILL 1", "deny"),
        ("kill -9 *", "kill -SIGKILL 1", "deny"),
        ("pkill -KILL *", "pkill --signal=9 x", "deny"),
        ("kill -9 *", "kill -15 1", "allow"),
    ],
)
def test_other_spelling_of_a_denied_command_is_not_allowed(denied: str, command: str, decision: str) -> None:
    rule = {"decision": "deny", "tool": "Bash", "command": denied}
    assert decided(policy(rule, EVERYTHING), command) == decision


@pytest.mark.parametrize(
    "command",
    [
        *(f"kill {' '.join(f'-{number}' for number in range(1, 31))} 1", "git push " + "--all " * 500),
        "git branch " + "-dDmMcCf " * 300,
        "npx " * 900 + "x",
        "uv run " * 500 + "x",
    ],
)
def test_command_with_many_spellings_is_decided(command: str) -> None:
    """All orders of thirty signals, or ever more branches, would take forever."""
    rule = {"decision": "deny", "tool": "Bash", "command": "kill -9 *"}
    assert decided(policy(rule, EVERYTHING), command)
    assert len(every_form(tuple(command.split()))) < 2 * MOST_FORMS


@pytest.mark.parametrize(
    "command",
    [
        "git log --format=%G?",
        "git show --pretty='format:%h %+GK'",
        "git stash list --format=%GS",
        "git for-each-ref --format='%(signature)'",
        "git branch --sort=signature",
        "curl -s --url @addresses",
    ],
)
def test_value_that_runs_a_program_or_writes_files_is_asked(command: str) -> None:
    """git checks a signature with gpg. curl 8.13 saves what it finds at the addresses in a file."""
    rule = {"decision": "deny", "tool": "Bash", "command": "gpg *"}
    assert decided(policy(rule, EVERYTHING), command) == "ask"


# ── paths ──


@pytest.mark.parametrize(
    "field",
    [
        *("filePath", "absolute_path", "uri", "file_paths", "new_path", "dest", "targetDir"),
        *("filepath", "FILE_PATH", "filePATH", "pathname", "outfile", "workdir", "directories", "folderName"),
    ],
)
def test_path_in_a_field_of_any_name_counts(field: str) -> None:
    denied = policy({"decision": "deny", "path": "/secret"}, {"decision": "allow", "tool": "*"})
    assert tool_decided(denied, "mcp__files__read", {field: "/secret/k"}) == "deny"
    allowed = policy({"decision": "allow", "path": "/work"})
    assert tool_decided(allowed, "mcp__files__move", {"path": "/work/a", field: "/secret/k"}) == "ask"
    assert tool_decided(allowed, "mcp__files__move", {"path": "/work/a", field: "/work/b"}) == "allow"


@pytest.mark.parametrize("path", [" /secret/k", "file:///secret/k", "/secret/k\n"])
def test_path_that_a_tool_may_take_for_another_is_asked(path: str) -> None:
    denied = policy({"decision": "deny", "path": "/secret"}, {"decision": "allow", "tool": "*"})
    assert tool_decided(denied, "Read", {"file_path": path}) == "ask"


@pytest.mark.parametrize("given", [{"url": "file:///secret/k"}, {"items": [{"link": "FILE:/secret/k"}]}])
def test_address_of_a_file_counts_in_a_field_of_any_name(given: dict[str, Any]) -> None:
    denied = policy({"decision": "deny", "path": "/secret"}, EVERYTHING)
    assert tool_decided(denied, "mcp__browser__open", given) == "ask"
    assert tool_decided(denied, "mcp__browser__open", {"url": "https://x.example/secret/k"}) == "allow"
    assert tool_decided(denied, "Write", {"file_path": "/x", "content": "file: x\nmode: y\n"}) == "allow"


@pytest.mark.parametrize(
    ("given", "decision"),
    [
        ({"args": ["/secret/k"]}, "deny"),
        ({"location": "/secret/k"}, "deny"),
        ({"to": "~/../../secret/k"}, "deny"),
        ({"/secret/k": True}, "deny"),
        ({"items": [{"at": "../../../../../../../secret/k"}]}, "deny"),
        ({"args": [" /secret/k"]}, "ask"),
        ({"args": ["/secret/k\n"]}, "ask"),
        ({"path": "/"}, "ask"),
        ({"root": "/", "name": "secret/k"}, "ask"),
        ({"query": "a / b", "pattern": "*.py"}, "allow"),
        ({"path": "/work/a"}, "allow"),
    ],
)
def test_every_text_of_a_foreign_tool_that_may_be_a_path_is_one(given: dict[str, Any], decision: str) -> None:
    denied = policy({"decision": "deny", "path": "/secret"}, EVERYTHING)
    assert tool_decided(denied, "mcp__files__read", given) == decision
    assert tool_decided(denied, "LS", {"path": "/"}) == "ask"
    assert tool_decided(denied, "Write", {"file_path": "/work/a", "content": "/secret"}) == "allow"


@pytest.mark.parametrize("path", ["/Secret/k", "/SECRET", "/re\u0301sume\u0301/k"])
def test_path_that_a_disk_may_take_for_a_denied_one_is_asked(path: str) -> None:
    """Disks of macOS do not tell upper from lower case, nor an accent from a letter with one."""
    denied = policy({"decision": "deny", "path": ["/secret", "/r\u00e9sum\u00e9"]}, EVERYTHING)
    assert tool_decided(denied, "Read", {"file_path": path}) == "ask"
    assert tool_decided(denied, "Read", {"file_path": f"/other{path}"}) == "allow"


def test_allow_rule_needs_every_path_of_a_tool_and_a_deny_rule_one(tmp_path: Path) -> None:
    """Audit B: NotebookEdit with an allowed file_path and another notebook_path was allowed."""
    inside, outside = str(tmp_path / "work" / "a"), "/etc/passwd"
    allow = policy({"decision": "allow", "path": str(tmp_path / "work")})
    deny = policy({"decision": "deny", "path": "/etc"}, EVERYTHING)
    for given in (
        {"file_path": inside, "notebook_path": outside},
        {"path": inside, "file_path": outside},
        {"paths": [inside, outside]},
        {"edits": [{"file_path": inside}, {"file_path": outside}]},
        {"source": inside, "destination": outside},
    ):
        assert tool_decided(allow, "NotebookEdit", given) == "ask", given
        assert tool_decided(deny, "NotebookEdit", given) == "deny", given
    assert tool_decided(allow, "NotebookEdit", {"file_path": inside, "notebook_path": inside}) == "allow"
    for odd in ({"path": 1}, {"path": inside, "file_path": ["a", {}]}, {"path": "~\0/a"}, {"path": {"a": 1}}):
        assert tool_decided(allow, "Read", odd) == "ask"
        assert tool_decided(deny, "Read", odd) == "ask"


def test_place_that_a_pattern_of_glob_or_grep_reaches_counts(tmp_path: Path) -> None:
    """Audit B: Glob with an allowed path and the pattern /etc/** was allowed."""
    work = str(tmp_path)
    allow = policy({"decision": "allow", "path": work})
    deny = policy({"decision": "deny", "path": "/etc"}, EVERYTHING)
    assert tool_decided(allow, "Glob", {"path": work, "pattern": "**/*.py"}) == "allow"
    for glob in ("*.{ts,tsx}", "{.github,src}/**", "./src/{a,b}.py"):
        assert tool_decided(allow, "Grep", {"path": work, "pattern": "/etc/.*", "glob": glob}) == "allow"
    for pattern, decision in (("/etc/**", "deny"), ("/etc/passwd", "deny"), ("/e*/passwd", "ask")):
        assert tool_decided(allow, "Glob", {"path": work, "pattern": pattern}) == "ask", pattern
        assert tool_decided(deny, "Glob", {"path": work, "pattern": pattern}) == decision, pattern
    # Braces and brackets can make `..` or an absolute path: seen with glob 13 for Node.
    braces = (".{.,}/etc/*", "{,x}/etc/*", ".{./etc,}/*", "{a/.,b}.{./etc,}", "{.,x}./etc", ".[.]/etc")
    for odd in ("../../etc/*", "{/etc,a}/*", "{a,~}/*", 1, "a\\b", *braces):
        for tool, key in (("Glob", "pattern"), ("Grep", "glob")):
            assert tool_decided(allow, tool, {"path": work, key: odd}) == "ask", odd
            assert tool_decided(deny, tool, {"path": work, key: odd}) == "ask", odd


def test_search_above_a_denied_place_is_asked_and_one_without_a_path_is_in_its_folder() -> None:
    deny = policy({"decision": "deny", "path": "/srv/app/secret"}, EVERYTHING)

    def decide(cwd: str, given: dict[str, Any]) -> str:
        request = make_request("Grep", Reason.PERMISSION, {"pattern": "x", **given}, ["s"], cwd)
        return str(deny.decide(request).decision)

    assert decide("/srv/app", {}) == "ask"
    assert decide("/srv/app/secret", {}) == "deny"
    assert decide("/srv/app", {"path": "secret/a"}) == "deny"
    assert decide("/srv/app", {"path": "src"}) == "allow"


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/proc/self/cwd/key",
            "/proc/thread-self/cwd/key",
            "/dev/fd/../cwd/key",
            "/dev/stdin",
            "/proc/1/root/key",
        ),
        *("/x/../proc/self/cwd/key", "link/cwd/key", "//proc//self/cwd/key"),
    ],
)
def test_path_through_a_process_is_not_known_and_asked(tmp_path: Path, path: str) -> None:
    (tmp_path / "link").symlink_to("/proc/self")
    denied = policy({"decision": "deny", "path": "/secret"}, EVERYTHING)
    assert in_folder(denied, "Read", path, tmp_path) == "ask"
    assert in_folder(denied, "Read", "/proc/cpuinfo", tmp_path) == "allow"


# ── everything else ──


def test_tool_path_folder_and_session() -> None:
    found = policy(
        {"decision": "allow", "tool": ["Read", "Gr*"], "path": ["~/work", "/srv/*/docs"]},
        {"decision": "allow", "tool": "Edit", "folder": "~/work/**/x", "session": "ci-*"},
    )

    def decide(tool: str, path: str = "", folder: str = "", **more: Any) -> str:
        paths = (RequestedPath(path, path),) if path else ()
        where = RequestedPath(folder, folder) if folder else None
        return str(found.decide(PolicyRequest(tool, paths=paths, folder=where, **more)).decision)

    assert decide("Read", path="/home/me/work") == "allow"
    assert decide("Read", path="/home/me/work/a/b") == "allow"
    assert decide("Grep", path="/srv/a/docs/x") == "allow"
    assert decide("Read", path="/srv/a/b/docs") == "ask"
    assert decide("Read", path="/home/me/workshop") == "ask"
    assert decide("Read") == "ask"
    assert decide("Write", path="/home/me/work/a") == "ask"
    assert decide("Edit", folder="/home/me/work/a/b/x/y", session=("id", "ci-1")) == "allow"
    assert decide("Edit", folder="/home/me/work/a/b/x", session=("id", "work")) == "ask"
    assert decide("Edit", session=("ci-1",)) == "ask"


def test_question_is_for_a_human_and_a_plan_must_be_named() -> None:
    everything = policy({"decision": "allow", "tool": "*"})
    assert everything.decide(PolicyRequest("Read")).decision is PolicyDecision.ALLOW
    assert everything.decide(PolicyRequest("ExitPlanMode", Reason.PLAN)).decision is PolicyDecision.ASK
    named = policy({"decision": "allow", "tool": ["ExitPlanMode", "AskUserQuestion"]})
    assert named.decide(PolicyRequest("ExitPlanMode", Reason.PLAN)).decision is PolicyDecision.ALLOW
    assert named.decide(PolicyRequest("AskUserQuestion", Reason.QUESTION)).decision is PolicyDecision.ASK


def test_command_that_asks_for_more_than_itself_is_asked(tmp_path: Path) -> None:
    given = {"command": "git status", "dangerouslyDisableSandbox": True}
    request = make_request("Bash", Reason.PERMISSION, given, ["s", None], str(tmp_path))
    assert allowing("git status").decide(request).decision is PolicyDecision.ASK
    request = make_request("Bash", Reason.PERMISSION, {"command": "git status"}, ["s"], str(tmp_path))
    assert allowing("git status").decide(request).decision is PolicyDecision.ALLOW


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


def in_folder(found: Policy, tool: str, path: str, cwd: Path | None) -> str:
    request = make_request(tool, Reason.PERMISSION, {"file_path": path}, ["s"], str(cwd) if cwd else None)
    return str(found.decide(request).decision)


@pytest.mark.parametrize("decision", ["deny", "ask"])
def test_what_is_denied_or_asked_is_so_by_each_name_of_its_path(tmp_path: Path, decision: str) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "etc").symlink_to(tmp_path / "private")
    (tmp_path / "free").symlink_to(tmp_path / "open")
    by_link = ["etc/x", f"{tmp_path}/etc/x", f"/{tmp_path}//private/../etc/x"]
    patterns = {one: [*by_link, "private/x"] for one in ("etc", "private", "etc/../etc/", "/etc", "etc/*")}
    for pattern, paths in {**patterns, "e*": by_link, "et?": by_link}.items():
        found = policy({"decision": decision, "path": f"{tmp_path}/{pattern}"}, EVERYTHING)
        for path in paths:
            assert in_folder(found, "Edit", path, tmp_path) == decision, (pattern, path)
        assert in_folder(found, "Edit", "free/x", tmp_path) == "allow"
    found = policy({"decision": decision, "folder": str(tmp_path / "etc")}, EVERYTHING)
    for cwd in ("etc", "private"):
        assert in_folder(found, "Edit", "/x", tmp_path / cwd) == decision


def test_what_is_allowed_is_so_by_where_links_lead_alone(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "secret").mkdir()
    (tmp_path / "home").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "link").symlink_to(tmp_path / "secret")
    for pattern in ("home", "home/*", "home/**", "real"):
        found = policy({"decision": "allow", "path": f"{tmp_path}/{pattern}"})
        assert [in_folder(found, "Edit", f"{one}/x", tmp_path) for one in ("home", "real", "home/link")] == [
            "allow",
            "allow",
            "ask",
        ]
    found = policy({"decision": "allow", "tool": "Edit", "folder": str(tmp_path / "home")})
    assert in_folder(found, "Edit", "/x", tmp_path / "home") == "allow"


def test_path_or_folder_unknown_is_allowed_by_no_rule_after_one_that_may_match() -> None:
    for rule in ({"decision": "deny", "path": "/etc"}, {"decision": "ask", "folder": "/etc"}):
        for path in ("etc/x", "/et\0c", "/et\ud800c") if "path" in rule else ("/x",):
            assert in_folder(policy(rule, EVERYTHING), "Edit", path, None) == "ask", path
            assert in_folder(policy(EVERYTHING), "Edit", path, None) == "allow"


def test_rules_are_read_from_their_file_with_links_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    file = tmp_path / "policy.toml"
    file.write_text(f'[[rule]]\ndecision = "allow"\npath = "{tmp_path}/link"\n')
    file.chmod(0o600)
    assert in_folder(load_policy(file), "Edit", "link/x", tmp_path) == "allow"


@pytest.mark.parametrize(
    "document",
    [
        {"rule": [{"decision": "allow", "path": "/a\0b"}]},
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
        {"command_tools": ["Bash"]},
        {"command_tools": {"Bash": True}},
        {"command_tools": {"Bash": ""}},
    ],
)
def test_what_is_no_policy_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptions):
        read_policy(document, HOME, os.path.realpath)


@pytest.mark.parametrize(
    "text", ["a = " + "[" * 3000, "a = " + "1" * 5000, "a = \x00", "[[rule]]\ndecision = 1"]
)
def test_policy_file_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(InvalidOptions, match=r"policy\.toml"):
        load_policy(path)


def test_policy_file_that_is_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    os.mkfifo(path, 0o600)
    with pytest.raises(InvalidOptions, match="not a regular file"):
        load_policy(path)


def test_file_is_found_read_and_must_be_ours_alone(tmp_path: Path) -> None:
    folder = BossFolder(tmp_path / "boss")
    folder.path.mkdir()
    other = tmp_path / "config" / "remuda" / "policy.toml"
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    own = folder.path / "policy.toml"
    assert policy_file(folder, environ) == other, "the guide says to write this one"
    assert load_policy(other) == Policy()
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
    with pytest.raises(InvalidOptions, match="other users can write"):
        load_policy(other)


@pytest.mark.parametrize("page", ["reference/policy.md", "how-to/write-a-policy.md"])
def test_policy_of_the_guide_is_right(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    (block,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    found = read_policy(tomllib.loads(block), HOME, os.path.realpath)
    assert [str(rule.decision) for rule in found.rules] == ["allow", "allow", "deny"]
    assert decided(found, "git status && git diff --stat") == "allow"
    assert decided(found, "sudo ls") == "deny"
