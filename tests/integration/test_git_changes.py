"""Changes of a git folder: what is shown, and that a cloned repository runs nothing."""

from __future__ import annotations

import asyncio
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from remuda.boss import git_changes
from remuda.boss.git_changes import find_changes
from remuda.boss.http.figure_routes import get_changes
from remuda.boss.http.route import ApiRequest

ENV = {
    **os.environ,
    "GIT_AUTHOR_NAME": "n",
    "GIT_AUTHOR_EMAIL": "e@example.com",
    "GIT_COMMITTER_NAME": "n",
    "GIT_COMMITTER_EMAIL": "e@example.com",
}


def git(folder: Path, *words: str, at: int = 1000) -> None:
    env = {**ENV, "GIT_AUTHOR_DATE": f"@{at} +0000", "GIT_COMMITTER_DATE": f"@{at} +0000"}
    subprocess.run(["git", *words], cwd=folder, env=env, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "kept").write_text("1\n2\n3\n")
    (folder / "gone").write_text("x\n")
    (folder / "moved").write_text("".join(f"line {number}\n" for number in range(20)))
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    return folder


def files(found: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    return {one["path"]: (one["status"], one["added"], one["removed"]) for one in found["files"]}


def test_all_kinds_of_changes_are_shown_with_their_diffs(project: Path) -> None:
    (project / "kept").write_text("1\n2\nthree\n")
    (project / "gone").unlink()
    git(project, "mv", "moved", "new place")
    (project / "binary").write_bytes(b"\0\1")
    (project / "link").symlink_to("/etc/passwd")
    (project / "fresh\nname").write_text("<script>\n")
    found = find_changes(str(project), "head", 0.0)
    assert (found["repository"], found["branch"], found["note"]) == (str(project), "main", None)
    shown = files(found)
    assert shown["kept"] == ("modified", 1, 1)
    assert shown["gone"] == ("deleted", 0, 1)
    assert shown["new place"][0] == "renamed"
    assert shown["fresh\nname"] == ("untracked", 1, 0)
    by_path = {one["path"]: one for one in found["files"]}
    assert by_path["kept"]["diff"] == "@@ -1,3 +1,3 @@\n 1\n 2\n-3\n+three\n"
    assert by_path["new place"]["old_path"] == "moved"
    assert by_path["binary"]["binary"] is True
    assert by_path["link"]["diff"] is None  # what it points to is not in the folder


def test_base_is_the_last_commit_before_the_session_began(project: Path) -> None:
    (project / "kept").write_text("committed\n")
    git(project, "commit", "-qam", "second", at=2000)
    assert files(find_changes(str(project), "head", 1500.0)) == {}
    assert files(find_changes(str(project), "start", 1500.0)) == {"kept": ("modified", 1, 3)}
    assert files(find_changes(str(project), "start", 2500.0)) == {}
    git(project, "checkout", "-qb", "topic")
    (project / "more").write_text("x\n")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "third", at=3000)
    assert files(find_changes(str(project), "merge_base", 0.0)) == {"more": ("added", 1, 0)}
    assert len(files(find_changes(str(project), "start", 10.0))) == 4  # before the first commit: everything


def test_folder_without_a_repository_or_without_a_commit(tmp_path: Path) -> None:
    assert find_changes(str(tmp_path), "start", 0.0)["note"] == "its folder is not in a git repository"
    assert find_changes(str(tmp_path / "missing"), "start", 0.0)["note"] == "its folder does not exist"
    assert find_changes(None, "start", 0.0)["note"] == "the folder of this agent is not known"
    git(tmp_path, "init", "-q")
    (tmp_path / "a").write_text("x\n")
    assert files(find_changes(str(tmp_path), "start", 0.0)) == {"a": ("untracked", 1, 0)}


def test_repository_that_configures_programs_runs_none_of_them(project: Path, tmp_path: Path) -> None:
    """Each of these ran at least once with a plain `git status` or `git diff`."""
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\necho "$0 $*" >> {ran}\ncat\n')
    program.chmod(0o755)
    for key in (
        *("core.fsmonitor", "diff.external", "core.pager", "pager.diff", "core.sshCommand", "core.editor"),
        *("diff.evil.command", "diff.evil.textconv", "core.alternateRefsCommand", "gpg.program"),
        *("filter.evil.clean", "filter.evil.smudge", "filter.ev=il.clean", "core.askPass"),
    ):
        git(project, "config", key, str(program))
    git(project, "config", "filter.process.process", str(program))
    git(project, "config", "filter.evil.required", "true")
    hooks = project / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-index-change", "fsmonitor-watchman", "reference-transaction", "pre-auto-gc"):
        (hooks / name).write_bytes(program.read_bytes())
        (hooks / name).chmod(0o755)
    (project / ".gitattributes").write_text(
        "kept filter=evil diff=evil\ngone filter=ev=il\nmoved filter=process\n"
    )
    for name in ("kept", "gone", "moved"):
        (project / name).write_text("changed\n")
    subprocess.run(["git", "diff", "--stat"], cwd=project, env=ENV, check=False, capture_output=True)
    assert ran.exists()  # the trap works
    ran.unlink()
    for base in ("start", "head", "merge_base"):
        found = find_changes(str(project), base, 5000.0)
        assert found["note"] is None
        assert files(found)["kept"] == ("modified", 1, 3)
    assert not ran.exists(), ran.read_text()


@pytest.mark.parametrize("name", [b"ev\xffil", b"", b"E v"], ids=["bytes", "empty", "words"])
def test_filter_of_any_name_is_not_run(project: Path, tmp_path: Path, name: bytes) -> None:
    ran = tmp_path / "ran"
    with open(project / ".git" / "config", "ab") as config:
        config.write(b'[filter "%s"]\n\tclean = "touch %s; cat"\n' % (name, os.fsencode(ran)))
    (project / ".gitattributes").write_bytes(b"kept filter=%s\n" % name)
    (project / "kept").write_text("changed\n")
    assert files(find_changes(str(project), "head", 0.0))["kept"] == ("modified", 1, 3)
    assert not ran.exists()


def test_worktree_in_another_repository_runs_no_filter_of_that(project: Path, tmp_path: Path) -> None:
    ran, outer = tmp_path / "ran", tmp_path / "outer"
    outer.mkdir()
    git(outer, "init", "-q")
    git(outer, "config", "core.worktree", str(project))
    git(project, "config", "filter.evil.clean", f"touch {ran}; cat")
    (project / ".gitattributes").write_text("kept filter=evil\n")
    (project / "kept").write_text("changed\n")
    assert files(find_changes(str(outer), "head", 0.0))["kept"] == ("modified", 1, 3)
    assert not ran.exists()


def test_repository_that_makes_git_wait_takes_no_thread_from_others(project: Path, tmp_path: Path) -> None:
    pipe, empty = tmp_path / "pipe", tmp_path / "empty"
    os.mkfifo(pipe)
    empty.touch()
    writer = os.open(pipe, os.O_RDWR)
    git(project, "config", "include.path", str(empty))
    config = project / ".git" / "config"
    config.write_text(config.read_text().replace(str(empty), str(pipe)))
    session = SimpleNamespace(cwd=str(project), first_seen=0.0, origin=None)
    parts: Any = SimpleNamespace(service=SimpleNamespace(session=lambda _name: session))

    async def ask() -> dict[str, Any]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        changes = asyncio.create_task(get_changes(parts, ApiRequest({"session": "a"})))
        await asyncio.sleep(0)
        await asyncio.to_thread(str)
        assert not changes.done()
        os.replace(empty, pipe)
        os.close(writer)
        document: dict[str, Any] = (await changes).document
        return document

    assert asyncio.run(ask())["note"] is None


def test_very_many_and_very_large_changes_are_cut(project: Path) -> None:
    (project / "kept").write_text("".join(f"{number} {'y' * 90}\n" for number in range(20_000)))
    for number in range(git_changes.MOST_FILES + 10):
        (project / f"new{number}").write_text("x\n")
    found = find_changes(str(project), "head", 0.0)
    assert found["cut"]
    assert len(found["files"]) == git_changes.MOST_FILES
    assert found["files"][0]["cut"]
    assert sum(len(one["diff"] or "") for one in found["files"]) <= git_changes.ALL_BYTES


def test_name_with_a_tab_moves_no_count_to_another_file(project: Path) -> None:
    for name, text in (("a\ttab", "1\n"), ("b", "1\n"), ("c", "\0")):
        (project / name).write_text(text)
    git(project, "add", "-A")
    git(project, "commit", "-qm", "more")
    for name, text in (("a\ttab", "1\n2\n"), ("b", "1\n2\n3\n"), ("c", "\0\0")):
        (project / name).write_text(text)
    found = find_changes(str(project), "head", 0.0)
    assert files(found) == {
        "a\ttab": ("modified", 1, 0),
        "b": ("modified", 2, 0),
        "c": ("modified", None, None),
    }
    assert [one["binary"] for one in found["files"]] == [False, False, True]
    assert found["files"][1]["diff"] == "@@ -1 +1,3 @@\n 1\n+2\n+3\n"


def test_many_warnings_of_git_do_not_stop_it(project: Path) -> None:
    """git warns of each file whose line ends it would change: more than a pipe holds."""
    folder = project / ("d" * 200)
    folder.mkdir()
    for number in range(400):
        (folder / f"{number}").write_text("1\n")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "many")
    git(project, "config", "core.autocrlf", "input")
    for number in range(400):
        (folder / f"{number}").write_bytes(b"1\r\n2\r\n")
    found = find_changes(str(project), "head", 0.0)
    assert (found["note"], found["files"][0]["added"]) == (None, 1)


def test_file_that_became_a_link_hides_no_diff(project: Path) -> None:
    (project / "a").write_text("1\n")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "more")
    for name in ("a", "moved"):
        (project / name).write_text("2\n")
    (project / "kept").unlink()
    (project / "kept").symlink_to("elsewhere")
    found = {one["path"]: one for one in find_changes(str(project), "head", 0.0)["files"]}
    assert {path: one["status"] for path, one in found.items()} == {
        "a": "modified",
        "kept": "type",
        "moved": "modified",
    }
    assert found["a"]["diff"] == "@@ -1 +1 @@\n-1\n+2\n"
    assert "-3\n@@ -0,0 +1 @@\n+elsewhere\n" in found["kept"]["diff"]
    assert found["moved"]["diff"].endswith("+2\n")


def test_name_that_looks_like_a_hunk_hides_no_diff(project: Path) -> None:
    (project / "x@@").write_text("1\n")
    git(project, "add", "-A")
    (project / "x@@").write_text("2\n")
    found = find_changes(str(project), "head", 0.0)
    assert [one["diff"] for one in found["files"]] == ["@@ -0,0 +1 @@\n+2\n"]
