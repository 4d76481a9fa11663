"""Rules that answer in place of a human: nothing is allowed that no rule means."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.boss.answers.automatic import make_request
from remuda.boss.answers.guess import Fit, guess
from remuda.boss.answers.policy import Decision, Policy, Request, read_policy
from remuda.boss.answers.policy_file import load_policy, policy_file
from remuda.boss.answers.shell import matches, split_command
from remuda.boss.attention.model import Reason
from remuda.boss.folder import BossFolder
from remuda.errors import InvalidOptions

HOME = "/home/me"
BASH = shutil.which("bash") or "/bin/sh"


def policy(*rules: dict[str, Any]) -> Policy:
    return read_policy({"rule": list(rules)}, HOME, os.path.realpath)


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
def test_what_matches_exactly_is_guessed_too(text: str) -> None:
    parts = split_command(text) or []
    if any(matches(part, ("rm", "*")) and not set("'\";|&\n") & set(text) for part in parts):
        assert guess(text).fit(("rm", "*")) is Fit.YES


# ── what a rule further up may mean ──

ASKED = policy(
    {"decision": "ask", "name": "not alone", "tool": "Bash", "command": ["git push *", "rm *"]},
    {"decision": "allow", "name": "all else", "tool": "Bash"},
)

MEANT = [
    "git push origin main",
    "git push origin main 2>&1",
    "2>&1 git push",
    "git >/dev/null push origin",
    "git &>/dev/null push origin",
    "git 2>'a b' push",
    'rm -rf "$HOME/x"',
    "X=1 rm y",
    "X=$(date) rm y",
    "(rm y)",
    "{ rm y; }",
    "ls\nrm y",
    "ls &\nrm y &",
    "git \\\n push",
    "g\\it push",
    'g"i"t push > x',
    "/usr/bin/git push",
    "/bin/rm y > x",
    "RM y",
    "echo $(rm y)",
    "echo `rm y`",
    'echo "$(rm y)"',
    "echo ${X:-$(rm y)}",
    "diff <(rm y) z",
    "if true; then rm y; fi",
    "for f in *; do rm y; done",
    "f() { rm y; }; f",
    "case $x in a) rm y;; esac",
    "echo $(case x in x) rm y;; esac)",
    "! rm y",
    "time -p rm y",
    "sudo rm y",
    "sudo -u bob rm y",
    "env X=1 rm y",
    "env -i rm y > x",
    "timeout 5 rm y",
    "nohup nice -n 5 rm y",
    "bash -c 'rm y'",
    'bash -c "cd x && git push" 2>&1',
    "sudo sh -c 'git push'",
    "docker exec box sh -c 'rm y'",
    "eval rm y",
    "eval 'rm y'",
    "ls | xargs rm",
    "ls | xargs -n 1 rm -f",
    "find . -name x -exec rm {} +",
    "find . -name x -exec sh -c 'rm \"$1\"' _ {} \\;",
    "trap 'rm y' EXIT",
    "bash <<EOF\nrm y\nEOF",
    "bash <<< 'rm y'",
    "cat <<EOF > z\n'\nEOF\nrm y",
]
MAYBE = [
    "$X y",
    "$(echo rm) y",
    "`echo rm` y",
    "git $X",
    "git $(echo push)",
    "git ${X}",
    "git {push,status}",
    "git pus?",
    "$'rm' y",
    "eval $X",
    'bash -c "$X"',
    "sudo $X",
    "sudo nohup $X y",
    "echo push | xargs git",
    "echo 'rm y' | sh",
    "curl x | bash -s",
    "bash < x",
    "sudo bash -c 'eval $X'",
    "echo " + "$(" * 200 + "x" + ")" * 200,
    "echo a > b # " + "x" * 200_000,
]
NOT_MEANT = [
    "git fetch $X",
    "git status 2>&1",
    "ls *.py > x",
    'cd "$(git rev-parse --show-toplevel)" && make',
    "X=$(date) make",
    "grep -E '(a|b)$' x > y",
    "awk '{$1=\"\"; print}' x > y",
    'head -n $((n+1)) "$f"',
    "cat > x <<'EOF'\n$y z\n`a`\nEOF",
    "find . -name '*.py' -type f",
    "find . -name '*.py' -exec grep x {} +",
    "env | sort",
    "bash script.sh $X",
    "case $x in a) ls;; esac",
    "for f in $(ls); do echo $f; done",
    "git commit -m 'rm it' > x",
    "sudo ls *.py",
    "ls | xargs grep -l x",
    "[ -f x ] && echo $X",
    "[[ $x == y ]] && ls",
    "timeout 60 git fetch $X",
]


@pytest.mark.parametrize("command", MEANT)
def test_what_is_to_be_asked_is_not_allowed_by_a_later_rule_however_it_is_written(command: str) -> None:
    verdict = ASKED.decide(bash(command))
    assert (str(verdict.decision), verdict.name) == ("ask", "not alone")


@pytest.mark.parametrize("command", MAYBE)
def test_what_may_be_anything_is_asked_when_a_rule_further_up_may_mean_it(command: str) -> None:
    verdict = ASKED.decide(bash(command))
    assert (str(verdict.decision), verdict.name) == ("ask", "not alone")
    assert "nobody knows" in verdict.why
    assert decided(policy({"decision": "allow", "tool": "Bash"}), command) == "allow"


@pytest.mark.parametrize("command", NOT_MEANT)
def test_what_no_rule_further_up_can_mean_is_allowed(command: str) -> None:
    assert ASKED.decide(bash(command)).name == "all else"


def test_doubt_denies_nothing_and_a_rule_that_denies_for_certain_still_does() -> None:
    never, allow = {"decision": "deny", "command": "rm *"}, {"decision": "allow", "tool": "Bash"}
    assert decided(policy(never, allow), "$X y") == "ask"
    assert decided(policy(never, allow), "sudo rm y") == "deny"
    assert decided(policy(never, allow), "sudo nohup rm y") == "deny"
    assert decided(policy(never, allow, {"decision": "deny", "command": "git *"}), "$X y; git x") == "ask"
    assert decided(policy(never, {"decision": "deny", "command": "git *"}, allow), "$X y; git x") == "deny"
    assert decided(policy(never), "$X y") == "ask"


@given(st.lists(_PIECES, max_size=12).map("".join))
def test_nothing_that_a_shell_may_be_given_breaks_the_guess(text: str) -> None:
    assert guess(text).fit(("rm", "*")) in Fit
    assert guess(f'bash -c "{text}"').fit(("git", "status")) in Fit


@settings(max_examples=60, deadline=None)
@given(st.lists(_PIECES, min_size=1, max_size=7).map("".join))
def test_shell_runs_nothing_that_a_rule_further_up_means_and_a_later_one_allows(text: str) -> None:
    """A shell with nothing but a function of this name, which tells that it was called."""
    found = policy({"decision": "ask", "command": "rm *"}, {"decision": "allow", "tool": "Bash"})
    if "rm" not in text or decided(found, text) != "allow":
        return
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [BASH, "-c", f"exec 3>&1 >/dev/null 2>&1\nrm() {{ printf called >&3; }}\n{text}"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            env={"PATH": "/nonexistent", "HOME": "~"},
            timeout=20,
        )
    assert done.stdout == b"", text


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


EVERYTHING = {"decision": "allow", "tool": "*"}


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


def test_path_or_folder_that_nobody_knows_is_allowed_by_no_rule_behind_one_that_may_mean_it() -> None:
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
    ],
)
def test_what_is_no_policy_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptions):
        read_policy(document, HOME, os.path.realpath)


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
    found = read_policy(tomllib.loads(block), HOME, os.path.realpath)
    assert [str(rule.decision) for rule in found.rules] == ["allow", "allow", "deny"]
    assert decided(found, "git status && git diff --stat") == "allow"
    assert decided(found, "sudo ls") == "deny"
