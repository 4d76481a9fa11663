"""`remuda hooks` and `remuda stop-hook` as a user runs them, the installed hook as Claude Code runs it."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import remuda as package
from support.commands import Commands

PATIENCE = 30.0
CAP = "CLAUDE_CODE_STOP_HOOK_BLOCK_CAP"
LOCAL = "settings.local.json"
PROGRAM = Path(package.__file__).parent / "inbox" / "stop.py"
# Of everything that a user may have in there: order, odd spacing, escapes, big numbers and hooks of others.
THEIRS = """{
    "model": "opus",
    "permissions": {"allow": ["Bash(git *)"], "defaultMode": "plan"},
    "weird é \\ud83d\\ude00": [1, 2.5, 12345678901234567890, null, {"deep": {}}],
    "env": {"A": "1"},
    "hooks": {
        "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "true"}]}],
        "Stop": [{"hooks": [{"type": "command", "command": "heartbeat-stop --inbox x"}]}]
    },
    "zlast": true
}
"""


@pytest.fixture
def box(remuda: Commands) -> Path:
    """A folder for an inbox whose name needs quoting."""
    folder = remuda.cwd / "it's a $HOME; `box`"
    folder.mkdir()
    return folder


@pytest.fixture
def settings(remuda: Commands) -> Path:
    """The project's, for one user."""
    path = remuda.cwd / ".claude" / LOCAL
    path.parent.mkdir()
    return path


def read(path: Path) -> dict[str, Any]:
    found = json.loads(path.read_text())
    assert isinstance(found, dict)
    return found


def installed(path: Path) -> list[str]:
    """The commands of the Stop hooks in a file."""
    groups = read(path).get("hooks", {}).get("Stop", [])
    return [hook["command"] for group in groups for hook in group["hooks"]]


def run_hook(remuda: Commands, command: str, payload: str = "{}") -> subprocess.CompletedProcess[str]:
    """By a shell, with the payload on standard input."""
    return subprocess.run(
        ["sh", "-c", command], input=payload, env=remuda.env, cwd="/", capture_output=True, text=True,
        timeout=PATIENCE, check=False,
    )  # fmt: skip


def findings(remuda: Commands) -> list[str]:
    found: list[dict[str, str]] = json.loads(remuda("doctor", "--json").out)
    return [f"{one['level']} {one['what']}: {one['fix']}" for one in found if "hook" in one["what"]]


# ── install ──


def test_hooks_install_writes_a_hook_that_hands_out_the_inbox(remuda: Commands, box: Path) -> None:
    said = remuda("hooks", "install", "--inbox", str(box)).out
    path = remuda.cwd / ".claude" / LOCAL
    (command,) = installed(path)
    assert command in said
    assert f'{sys.executable} -I -S "$h"' in command
    (group,) = read(path)["hooks"]["Stop"]
    assert group == {"hooks": [{"type": "command", "command": command, "timeout": 600}]}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (box / "inbox.jsonl").write_text('"first\\nof two"\nsecond\n')
    reasons = [json.loads(run_hook(remuda, command).stdout)["reason"] for _ in range(2)]
    assert reasons == ["first\nof two", "second"]
    done = run_hook(remuda, command)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_hooks_install_passes_on_mode_wait_and_signal_file(remuda: Commands, box: Path) -> None:
    more = ("--mode", "persist", "--wait", "900", "--signal-file", "done")
    remuda("hooks", "install", "--inbox", str(box), *more)
    path = remuda.cwd / ".claude" / LOCAL
    assert installed(path)[0].endswith(f"--mode persist --wait 900 --signal-file {remuda.cwd}/done")
    assert read(path)["hooks"]["Stop"][0]["hooks"][0]["timeout"] > 900


def test_hooks_install_keeps_all_else_in_the_file(remuda: Commands, box: Path, settings: Path) -> None:
    settings.write_text(THEIRS)
    settings.chmod(0o640)
    remuda("hooks", "install", "--inbox", str(box))
    found, theirs = read(settings), json.loads(THEIRS)
    assert list(found) == list(theirs)
    assert found["hooks"]["Stop"].pop()["hooks"][0]["command"].startswith("h=")
    assert found["env"].pop(CAP) == "0"
    assert found == theirs
    assert settings.read_text().startswith('{\n    "model": "opus",\n    "permissions": {\n        "allow"')
    assert stat.S_IMODE(settings.stat().st_mode) == 0o640
    assert os.listdir(settings.parent) == [LOCAL]


def test_hooks_install_again_changes_nothing(remuda: Commands, box: Path, settings: Path) -> None:
    settings.write_text(THEIRS)
    remuda("hooks", "install", "--inbox", str(box))
    before = settings.read_bytes(), settings.stat().st_ino
    assert "already installed" in remuda("hooks", "install", "--inbox", str(box / "inbox.jsonl")).out
    assert (settings.read_bytes(), settings.stat().st_ino) == before


def test_hooks_install_with_another_mode_updates_the_hook(remuda: Commands, box: Path) -> None:
    remuda("hooks", "install", "--inbox", str(box))
    assert "updated" in remuda("hooks", "install", "--inbox", str(box), "--mode", "persist").out
    (command,) = installed(remuda.cwd / ".claude" / LOCAL)
    assert command.endswith("--mode persist")


def test_hooks_install_of_a_second_inbox_keeps_the_first_and_says_so(remuda: Commands, box: Path) -> None:
    remuda("hooks", "install", "--inbox", str(box))
    said = remuda("hooks", "install", "--inbox", "other.jsonl").out
    assert f"also drain {box}/inbox.jsonl" in said
    assert len(installed(remuda.cwd / ".claude" / LOCAL)) == 2


def test_hooks_install_for_a_file_in_a_folder_that_is_not_there_makes_the_folder(remuda: Commands) -> None:
    remuda("hooks", "install", "--inbox", "inbox/inbox.jsonl")
    assert (remuda.cwd / "inbox").stat().st_mode & 0o777 == 0o700
    assert "already installed" in remuda("hooks", "install", "--inbox", "inbox").out


def test_hooks_install_for_a_folder_that_is_not_there_drains_what_is_put_into_it(remuda: Commands) -> None:
    remuda("hooks", "install", "--inbox", "run")
    remuda("inbox", "put", "--inbox", "run", "look at it")
    (command,) = installed(remuda.cwd / ".claude" / LOCAL)
    done = subprocess.run(
        ["sh", "-c", command], env=remuda.env, input=b"", capture_output=True, timeout=PATIENCE, check=True
    )
    assert json.loads(done.stdout)["reason"] == "look at it"
    assert (remuda.cwd / "run").stat().st_mode & 0o777 == 0o700
    assert "already installed" in remuda("hooks", "install", "--inbox", "run").out
    assert "removed" in remuda("hooks", "uninstall", "--inbox", "run").out


@pytest.mark.parametrize("text", ["{bad", "[]"])
def test_hooks_show_reports_settings_that_cannot_be_read(remuda: Commands, box: Path, text: str) -> None:
    remuda("hooks", "install", "--inbox", str(box))
    settings = remuda.cwd / ".claude" / LOCAL
    settings.write_text(text)
    done = remuda("hooks", "show", code=1)
    assert done.out.startswith("nothing installed")
    assert f"{LOCAL} is not a JSON object, so none of its hooks run; fix the file" in done.err
    assert any(f"{LOCAL} is not a JSON object" in one for one in findings(remuda))


def test_hooks_install_writes_through_a_link(remuda: Commands, box: Path, settings: Path) -> None:
    (remuda.home / "dotfiles.json").write_text("{}")
    settings.symlink_to(remuda.home / "dotfiles.json")
    remuda("hooks", "install", "--inbox", str(box))
    assert settings.is_symlink()
    assert installed(remuda.home / "dotfiles.json")


@pytest.mark.parametrize(
    ("where", "path"),
    [
        (["--user"], ".claude/settings.json"),
        ([], "cwd/.claude/settings.local.json"),
        (["--local"], "cwd/.claude/settings.local.json"),
        (["--project"], "cwd/.claude/settings.json"),
        (["--settings", "deep/own.json"], "cwd/deep/own.json"),
    ],
)
def test_hooks_install_uses_the_named_settings_file(
    remuda: Commands, box: Path, where: list[str], path: str
) -> None:
    remuda("hooks", "install", "--inbox", str(box), *where)
    assert [str(one.relative_to(remuda.home)) for one in remuda.home.rglob("*.json")
            if "hooks" in read(one)] == [path]  # fmt: skip


def test_hooks_install_honours_the_moved_config_folder(remuda: Commands, box: Path) -> None:
    moved = remuda.home / "moved"
    remuda("hooks", "install", "--inbox", str(box), "--user", env={"CLAUDE_CONFIG_DIR": str(moved)})
    assert installed(moved / "settings.json")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"hooks": {}', "is not valid JSON"),
        ('{"a": 1, "a": 2}', "is not valid JSON: 'a' appears twice"),
        ('{"a": NaN}', "is not valid JSON"),
        ("// a comment\n{}", "is not valid JSON"),
        ("[]", "is not a JSON object"),
        ('{"hooks": []}', "settings.local.json: 'hooks' must be an object; fix it first"),
        ('{"hooks": {"Stop": {}}}', "settings.local.json: 'Stop' must be a list; fix it first"),
        ('{"env": 3}', "settings.local.json: 'env' must be an object; fix it first"),
        ('{"n": 1e999}', "a number that is too large"),
        ('{"a": "\xff"}'.encode("latin-1"), "is not UTF-8"),
    ],
)
def test_hooks_install_refuses_a_file_that_it_cannot_read_and_leaves_it(
    remuda: Commands, box: Path, settings: Path, content: str | bytes, said: str
) -> None:
    data = content if isinstance(content, bytes) else content.encode()
    settings.write_bytes(data)
    assert said in remuda.refused("hooks", "install", "--inbox", str(box), code=2)
    assert settings.read_bytes() == data
    assert os.listdir(settings.parent) == [LOCAL]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--inbox", "no/such/inbox.jsonl"], "does not exist; mkdir -p"),
        (["--inbox", "no/such"], "does not exist; mkdir -p"),
        (["--inbox", "run", "--signal-file", "no/.done"], "does not exist; mkdir -p"),
        ([], "nothing to install; give --inbox PATH, --boss or --tmux"),
        (["--inbox", ".", "--boss"], "cannot be combined; give one of them"),
        (["--tmux", "--boss"], "cannot be combined; give one of them"),
        (["--inbox", ".", "--user", "--project"], "--user and --project select different files"),
        (["--inbox", ".", "--mode", "often"], "'often' is not one of"),
        (["--inbox", ".", "--signal-file", os.fsdecode(b"\xff")], "cannot hold a path that is not UTF-8"),
    ],
)
def test_hooks_install_of_a_bad_command_line_is_refused(
    remuda: Commands, words: list[str], said: str
) -> None:
    assert said in remuda.refused("hooks", "install", *words, code=2)
    assert os.listdir(remuda.cwd) == []


# ── the installed hook ──


def imports(remuda: Commands, command: str) -> set[str]:
    lines = run_hook(remuda, command).stderr.splitlines()
    return {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}


def test_installed_hook_is_compiled_once_and_imports_nothing_slow(remuda: Commands, box: Path) -> None:
    remuda("hooks", "install", "--inbox", str(box))
    (command,) = installed(remuda.cwd / ".claude" / LOCAL)
    run_hook(remuda, command)
    verbose = run_hook(remuda, command.replace(" -I -S ", " -I -S -v ")).stderr
    assert re.search(r"stop_hook\.\S+\.pyc matches \S+/stop_hook\.py", verbose)
    imported = imports(remuda, command.replace(" -I -S ", " -I -S -X importtime "))
    floor = imports(remuda, f"{sys.executable} -I -S -X importtime -c pass")
    assert imported - floor <= {"errno", "fcntl", "select", "_json", "_sha256", "_sha2", "_signal"}


def test_installed_hook_whose_program_is_gone_blocks_nothing(remuda: Commands, box: Path) -> None:
    remuda("hooks", "install", "--inbox", str(box))
    (command,) = installed(remuda.cwd / ".claude" / LOCAL)
    gone = command.replace(str(PROGRAM), "/gone/remuda/inbox/stop.py")
    done = run_hook(remuda, gone)
    assert (done.returncode, done.stdout) == (1, "")  # 2 would be a block


# ── uninstall ──


def test_hooks_uninstall_leaves_the_file_as_it_was(remuda: Commands, box: Path, settings: Path) -> None:
    settings.write_text(THEIRS)
    before = settings.read_bytes()
    remuda("hooks", "install", "--inbox", str(box))
    said = remuda("hooks", "uninstall").out
    assert f"removed from ~/cwd/.claude/{LOCAL}: the hook for {box}/inbox.jsonl\n" in said
    assert settings.read_bytes() == before


def test_hooks_uninstall_keeps_the_users_own_cap(remuda: Commands, box: Path, settings: Path) -> None:
    settings.write_text(json.dumps({"env": {CAP: "0"}}))
    remuda("hooks", "install", "--inbox", str(box))
    remuda("hooks", "uninstall")
    assert read(settings) == {"env": {CAP: "0"}}


def test_hooks_install_keeping_the_cap_sets_none(remuda: Commands, box: Path) -> None:
    remuda("hooks", "install", "--inbox", str(box), "--keep-cap")
    assert "env" not in read(remuda.cwd / ".claude" / LOCAL)


def test_hooks_uninstall_of_one_inbox_leaves_the_other(remuda: Commands, box: Path, settings: Path) -> None:
    for inbox in (str(box), "other.jsonl"):
        remuda("hooks", "install", "--inbox", inbox)
    remuda("hooks", "uninstall", "--inbox", "other.jsonl")
    (left,) = installed(settings)
    assert str(PROGRAM) in left
    assert "other.jsonl" not in left
    assert read(settings)["env"] == {CAP: "0"}
    remuda("hooks", "uninstall")
    assert not settings.exists()


def test_hooks_uninstall_takes_a_hook_out_of_a_group_of_others(remuda: Commands, settings: Path) -> None:
    ours = {
        "type": "command",
        "command": f"/usr/bin/python3 -I -S {PROGRAM.with_name('stop_hook.py')} --inbox i",
    }
    other = {"type": "command", "command": "python3 my/stop_hook.py --inbox i"}
    settings.write_text(json.dumps({"hooks": {"Stop": [{"matcher": "", "hooks": [other, ours]}]}}))
    remuda("hooks", "uninstall")
    assert read(settings) == {"hooks": {"Stop": [{"matcher": "", "hooks": [other]}]}}


@pytest.mark.parametrize(
    "content", [None, "{}", THEIRS, '{"hooks": 3}', '{"hooks": {"Stop": [3, {"hooks": 3}]}}']
)
def test_hooks_uninstall_without_ours_changes_nothing(
    remuda: Commands, settings: Path, content: str | None
) -> None:
    if content is not None:
        settings.write_text(content)
    said = remuda("hooks", "uninstall").out
    assert said == f"no inbox hook in ~/cwd/.claude/{LOCAL}; 'remuda setup --show' lists what is installed\n"
    assert (settings.read_text() if settings.exists() else None) == content


def test_hooks_uninstall_of_a_broken_file_is_refused(remuda: Commands, settings: Path) -> None:
    settings.write_text("{")
    remuda.refused("hooks", "uninstall", code=2)
    assert settings.read_text() == "{"


# ── show, and doctor ──


def test_hooks_show_lists_ours_wherever_they_apply(remuda: Commands, box: Path) -> None:
    remuda("hooks", "install", "--inbox", str(box))
    remuda("hooks", "install", "--inbox", "other.jsonl", "--user", "--mode", "persist")
    user, project = json.loads(remuda("hooks", "show", "--json").out)
    assert (user["inbox"], user["mode"], user["state"]) == (f"{remuda.cwd}/other.jsonl", "persist", "ok")
    assert (project["inbox"], project["mode"], project["problems"]) == (f"{box}/inbox.jsonl", "drain", [])
    assert project["settings"] == f"{remuda.cwd}/.claude/{LOCAL}"
    assert (project["interpreter"], project["program"]) == (sys.executable, str(PROGRAM))
    said = remuda("hooks", "show", "--user").out
    assert said == f"{remuda.cwd}/other.jsonl  persist  in ~/.claude/settings.json\n"


def test_hooks_show_of_none_says_so(remuda: Commands) -> None:
    here = "in the settings that apply here; install with: remuda setup"
    assert remuda("hooks", "show").out == f"nothing installed {here}\n"
    assert remuda("hooks", "show", "--inbox").out == f"no inbox hook {here} inbox --inbox PATH\n"
    assert json.loads(remuda("hooks", "show", "--json").out) == []


def broken(command: str, **more: Any) -> dict[str, Any]:
    return {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": command}]}]}, **more}


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (
            broken(f"/gone/python -I -S {PROGRAM} --inbox /tmp/i", env={CAP: "0"}),
            "its interpreter /gone/python is gone",
        ),
        (
            broken("/bin/sh /gone/remuda/inbox/stop.py --inbox /tmp/i", env={CAP: "0"}),
            "its program /gone/remuda/inbox/stop.py is gone",
        ),
        (
            broken(f"{sys.executable} -I -S {PROGRAM} --inbox /tmp/i"),
            "sessions not started by Remuda drop a message after 8 blocked stops in a row",
        ),
        (
            broken(f"{sys.executable} -I -S {PROGRAM} --inbox /gone/i", env={CAP: "-1"}),
            "the folder of its inbox /gone/i is missing",
        ),
        (
            broken(f"{sys.executable} -I -S {PROGRAM} --inbox /tmp/i", env={CAP: "0"}, disableAllHooks=True),
            "the settings disable all hooks",
        ),
    ],
    ids=["interpreter", "program", "cap", "inbox", "disabled"],
)
def test_doctor_and_show_report_what_is_wrong_with_our_hook(
    remuda: Commands, settings: Path, document: dict[str, Any], problem: str
) -> None:
    settings.write_text(json.dumps(document))
    (shown,) = json.loads(remuda("hooks", "show", "--json", code=1).out)
    assert (shown["state"], shown["problems"]) == ("broken", [problem])
    assert problem in remuda("hooks", "show", code=1).out
    inbox = shown["inbox"]
    fix = f"remuda hooks install --inbox {inbox} --settings {settings}"
    assert findings(remuda) == [f"note Stop hook for {inbox} in {settings}: {problem}: {fix}"]


def test_doctor_finds_nothing_wrong_after_its_fix(remuda: Commands, settings: Path) -> None:
    settings.write_text(json.dumps(broken(f"/gone/python -I -S {PROGRAM} --inbox {remuda.cwd}/i")))
    assert len(findings(remuda)) == 2
    remuda("hooks", "install", "--inbox", f"{remuda.cwd}/i", "--settings", str(settings))
    assert findings(remuda) == [f"ok Stop hook for {remuda.cwd}/i in {settings}: "]


def test_doctor_reports_the_cap_for_heartbeat_stop(remuda: Commands, settings: Path) -> None:
    settings.write_text(json.dumps(broken("heartbeat-stop --inbox i")))
    (said,) = findings(remuda)
    assert said.startswith(f"note Stop hook heartbeat-stop in {settings}: sessions not started by Remuda")
    remuda.env[CAP] = "0"
    assert findings(remuda) == []


# ── remuda stop-hook ──


def test_stop_hook_through_remuda_is_the_same_program(remuda: Commands, box: Path) -> None:
    inbox = box / "inbox.jsonl"
    inbox.write_text("alpha\nbravo\n")
    said = [remuda("stop-hook", f"--inbox={inbox}").out, remuda("stop-hook", "--inbox", str(inbox)).out]
    assert said == ['{"decision":"block","reason":"alpha"}', '{"decision":"block","reason":"bravo"}']
    assert "ReQueued" in remuda("stop-hook", "recover", "--on-orphan", "retry", "--inbox", str(inbox)).err
    assert remuda("stop-hook", "--inbox", str(inbox)).out == '{"decision":"block","reason":"bravo"}'


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 1, "remuda stop-hook: --inbox is required\n"),
        (["--inbox", "i", "--mode", "often"], 2, "remuda stop-hook: invalid value 'often' for --mode"),
        (["--", "x"], 2, "remuda stop-hook: unexpected argument '--'"),
        (["recover", "--inbox", "i"], 0, "remuda stop-hook recover: NothingToRecover\n"),
    ],
)
def test_stop_hook_through_remuda_takes_its_words_untouched(
    remuda: Commands, words: list[str], code: int, said: str
) -> None:
    done = remuda("stop-hook", *words, code=code)
    assert done.out == ""
    assert done.err.startswith(said)
