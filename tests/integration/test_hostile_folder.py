"""What a cloned folder brings along runs nothing: modules, Python's start-up files, configuration files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import remuda
from support.commands import Commands, Done
from support.print_calls import scripted_agent

SOURCES = Path(remuda.__file__).parent
PROGRAM = Path(sys.executable).with_name("remuda")
MODULES = (
    "json click asyncio select shlex subprocess signal tomllib socket logging sitecustomize usercustomize"
)


class HostileFolder:
    """A working folder in which every file tells when it is run."""

    def __init__(self, path: Path, commands: Commands) -> None:
        self.path = path
        self.commands = commands
        self._ran = path / "RAN"
        code = f"open({str(self._ran)!r}, 'a').write(__file__ + '\\n')\n"
        (path / "remuda").mkdir()
        for name in ("remuda/__init__", "remuda/__main__", *MODULES.split()):
            (path / f"{name}.py").write_text(code)
        for name in ("work", ".tmux.conf", ".env"):
            (path / name).write_text(f"echo $0 >> {self._ran}\n")
        (path / "pyproject.toml").write_text("[tool.remuda]\nboss = 1\n")
        for name in ("policy.toml", "notify.toml", "config.toml"):
            (path / name).write_text("not toml: reading it is an error")

    def __call__(self, *words: str, code: int = 0, **env: str) -> Done:
        """Run the installed program here; with `python -m remuda` the user would import this folder."""
        done = subprocess.run(
            [str(PROGRAM), *words],
            cwd=self.path,
            env={**self.commands.env, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == code, (words, done)
        return Done(done.stdout, done.stderr)

    def what_ran(self) -> str:
        return self._ran.read_text() if self._ran.exists() else ""


@pytest.fixture
def hostile(tmp_path: Path, remuda: Commands) -> HostileFolder:
    return HostileFolder(tmp_path, remuda)


def test_hostile_folder_sessions_print_and_doctor_run_nothing_of_it(hostile: HostileFolder) -> None:
    hostile("start", "work", "--detach", "--agent", "demo")
    hostile("send", "work", "--wait", "hello")
    hostile("kill", "work")
    agent = scripted_agent(hostile.commands.home)
    for backend in ("terminal", "stream"):
        hostile("print", "--claude-binary", str(agent), "--backend", backend, "hello")
    hostile("doctor", "--json")
    assert hostile.what_ran() == ""


def test_hostile_folder_boss_runs_nothing_of_it(hostile: HostileFolder) -> None:
    hostile("up", "--detach", "--port", "0", TMUX_TMPDIR=str(hostile.commands.home))
    try:
        hostile("queue", "--json")
        hostile("policy", "check")
    finally:
        hostile("down", "--force")
    assert hostile.what_ran() == ""


def test_hostile_folder_demo_runs_nothing_of_it(hostile: HostileFolder) -> None:
    hostile("demo", "--fast")
    assert hostile.what_ran() == ""


@pytest.mark.parametrize("variable", ["BASH_ENV", "CLAUDE_CONFIG_DIR", "PYTHONSTARTUP"])
def test_hostile_folder_config_that_names_a_variable_is_refused(
    variable: str, hostile: HostileFolder
) -> None:
    (hostile.path / "remuda.toml").write_text(f'session_env_var = "{variable}"\n')
    done = hostile("start", "work", "--detach", "--", "bash", "-c", "true", code=2)
    assert "'session_env_var'" in done.err
    assert "--config" in done.err
    assert hostile.what_ran() == ""


def test_sources_every_python_that_is_started_ignores_its_working_folder() -> None:
    # `remuda.testing` is for those who test: it starts pip and the scripted agent by hand.
    started = re.compile(r'sys\.executable, *"(.*?)"')
    flags = {
        f"{path.relative_to(SOURCES)}: {found[1]}"
        for path in SOURCES.rglob("*.py")
        if path.relative_to(SOURCES).parts[0] != "testing"
        for found in started.finditer(path.read_text())
    }
    assert len(flags) >= 5
    assert not [one for one in flags if not one.endswith((": -P", ": -I"))]


@pytest.mark.parametrize("is_foreign", [True, False])
def test_planted_configuration_stops_no_command_that_starts_nothing(
    hostile: HostileFolder, is_foreign: bool
) -> None:
    hostile("start", "work", "--agent", "demo")
    planted = hostile.path / "remuda.toml"
    planted.write_text('[[env]]\nname = "PATH"\nvalue = "."\n')
    if is_foreign:
        if os.getuid() != 0:
            pytest.skip("NOT TESTED: only root can give a file away")
        os.chown(planted, 65534, 65534)
    for words in (
        ["ls"],
        ["show", "work"],
        ["status", "work"],
        ["messages"],
        ["logs", "work"],
        ["send", "work", "x"],
    ):
        assert hostile(*words).err == "", words
    if is_foreign:
        assert "belongs to another user" in hostile("start", "more", "--", "cat").err
    else:
        assert "'env'" in hostile("start", "more", "--", "cat", code=2).err
        assert "started" in hostile("start", "more", "--config", "/dev/null", "--", "cat").out
    hostile("kill", "--all", "--yes")
