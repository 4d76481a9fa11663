"""A session in a git worktree of its own: made, set up, shown, resumed, and removed if nothing is lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from remuda import Session
from remuda.errors import EXIT_CODES, InvalidOptions, NotSafe
from remuda.keeper.worktree import Worktree, find_losses, remove_worktree
from support.boss_whole import CommandedBoss
from support.commands import COMMAND, Commands
from support.heimdall_client import PATIENCE
from support.keeper import until

USAGE, BAD, REFUSED = (EXIT_CODES[name] for name in ("INVALID_OPTIONS", "INVALID_INPUT", "REFUSED"))
WAIT = ("--", "sleep", "600")


class Repo:
    """A repository with one commit, and sessions that start in it."""

    def __init__(self, remuda: Commands, name: str = "proj") -> None:
        self.remuda = remuda
        self.path = remuda.home / name
        self.path.mkdir()
        remuda.cwd = self.path
        self.git("init", "-q", "-b", "main")
        (self.path / "src").mkdir()
        (self.path / "src" / "a.txt").write_text("one\n")
        (self.path / ".gitignore").write_text("*.secret\nnode_modules/\n")
        self.commit(self.path, "begin")

    def git(self, *words: str, at: Path | None = None) -> str:
        own = ("-c", "user.name=n", "-c", "user.email=e@x", "-c", "protocol.file.allow=always")
        run = ["git", *own, *words]
        return subprocess.run(run, cwd=at or self.path, check=True, capture_output=True, text=True).stdout

    def commit(self, at: Path, text: str) -> None:
        self.git("add", "-A", at=at)
        self.git("commit", "-qm", text, at=at)

    def tree(self, name: str) -> Path:
        return self.remuda.home / "proj.worktrees" / name

    def start(self, name: str, flag: str = "--worktree") -> Path:
        self.remuda.start(name, flag, *WAIT)
        return self.tree(name)

    def branches(self) -> list[str]:
        return self.git("branch", "--format=%(refname:short)").split()


@pytest.fixture
def repo(remuda: Commands) -> Repo:
    return Repo(remuda)


def configure(remuda: Commands, *lines: str) -> None:
    folder = remuda.home / ".config" / "remuda"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "remuda.toml").write_text("\n".join(lines))


def test_session_runs_in_a_worktree_shows_its_changes_and_leaves_nothing(repo: Repo) -> None:
    remuda = repo.remuda
    tree = repo.start("fix")
    shown = remuda.json("show", "fix")
    assert shown["cwd"] == str(tree)
    assert repo.git("branch", "--show-current", at=tree).strip() == "fix"
    (tree / "src" / "a.txt").write_text("two\n")
    (tree / "new\x1b[31m.txt").write_text("evil\x1b[31m\n")
    out = remuda("show", "fix", "--changes").out
    assert "2 files changed on fix" in out
    assert "-one" in out
    assert "+two" in out
    assert "\x1b" not in out
    repo.commit(tree, "work")
    files = remuda.json("show", "fix", "--changes")["changes"]["files"]
    assert {one["status"] for one in files} == {"modified", "added"}  # also what is committed since
    remuda("kill", "fix")
    remuda("start", "fix", "--resume", "--detach")
    assert remuda.json("show", "fix")["cwd"] == str(tree)
    assert "worktree" in remuda("show", "fix").out
    done = remuda("kill", "fix", "--remove-worktree").out
    assert "branch 'fix' stays" in done
    assert not tree.parent.exists()
    assert repo.branches() == ["fix", "main"]
    assert "has no worktree" in remuda.refused("kill", "fix", "--remove-worktree", code=USAGE)
    assert "does not exist" in remuda.refused("start", "fix", "--resume", "--detach", code=BAD)


def test_changes_begin_where_the_worktree_did_whatever_the_clock_says(
    repo: Repo, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2038-01-01T00:00:00Z")
    (repo.path / "later").write_text("of tomorrow")
    repo.commit(repo.path, "of tomorrow")
    (repo.start("w") / "mine").write_text("x\n")
    boss = CommandedBoss(home, repo.remuda)
    try:
        boss.start()
        until(lambda: boss.ask("GET", "/v1/sessions/w").status == 200, "the session")
        by_page = boss.ask("GET", "/v1/sessions/w/changes").json["files"]
    finally:
        boss.close()
    by_show = repo.remuda.json("show", "w", "--changes")["changes"]["files"]
    assert [one["path"] for one in by_page] == [one["path"] for one in by_show] == ["mine"]


def test_worktree_without_work_takes_its_branch_with_it(repo: Repo) -> None:
    tree = repo.start("idle")
    repo.remuda("kill", "idle")
    assert "'idle' had no commits" in repo.remuda("kill", "idle", "--remove-worktree").out  # also when ended
    assert not tree.exists()
    assert repo.branches() == ["main"]
    assert repo.start("idle").is_dir()  # so that the name can be used again
    repo.remuda("kill", "idle", "--remove-worktree")


def test_branch_that_is_checked_out_elsewhere_stays(repo: Repo) -> None:
    tree = repo.start("fix")
    repo.git("checkout", "-q", "-b", "other", at=tree)
    repo.git("checkout", "-q", "fix")
    assert "branch 'fix' stays" in repo.remuda("kill", "fix", "--remove-worktree").out
    assert repo.git("log", "--format=%s").strip() == "begin"


def test_removal_that_was_killed_before_its_end_is_finished_by_the_next(repo: Repo) -> None:
    tree = repo.start("fix")
    repo.remuda("kill", "fix")
    repo.git("worktree", "remove", str(tree))
    assert "'fix' had no commits" in repo.remuda("kill", "fix", "--remove-worktree").out
    assert repo.branches() == ["main"]
    assert repo.start("fix").is_dir()
    repo.remuda("kill", "fix", "--remove-worktree")


@pytest.mark.parametrize("wait", ["; sleep 600", ""], ids=["in-the-checkout", "at-some-moment"])
def test_start_that_is_interrupted_leaves_no_branch_without_a_session(repo: Repo, wait: str) -> None:
    remuda, begun = repo.remuda, repo.remuda.home / "begun"
    (remuda.home / ".gitconfig").write_text(f'[filter "slow"]\n\tsmudge = "touch {begun}{wait}; cat"\n')
    (repo.path / ".gitattributes").write_text("slow.txt filter=slow\n")
    (repo.path / "slow.txt").write_text("x")
    repo.commit(repo.path, "a filter")
    command = [*COMMAND, "start", "fix", "--worktree", "--detach", *WAIT]
    start = subprocess.Popen(command, cwd=repo.path, env=remuda.env, start_new_session=True)
    until(begun.exists, "the checkout")
    os.killpg(start.pid, signal.SIGINT)  # as Ctrl-C does
    assert start.wait(PATIENCE) == 130 or not wait
    is_there = not wait and "fix" in remuda("ls").out
    assert repo.branches() == (["fix", "main"] if is_there else ["main"])
    assert repo.tree("fix").exists() == is_there


def test_repository_whose_git_looks_at_another_folder_is_refused(repo: Repo) -> None:
    repo.git("config", "extensions.worktreeConfig", "true")
    repo.git("config", "core.worktree", str(repo.path))
    refused = repo.remuda("start", "fix", "--worktree", *WAIT, code=BAD).err
    assert "core.worktree in" in refused
    assert repo.branches() == ["main"]
    assert not repo.tree("fix").exists()


def test_worktree_of_a_submodule_is_next_to_its_working_folder(repo: Repo) -> None:
    remuda = repo.remuda
    outer = remuda.home / "outer"
    repo.git("init", "-q", "-b", "main", str(outer))
    repo.git("submodule", "-q", "add", str(repo.path), "mod", at=outer)
    configure(remuda, """worktree_setup = 'echo "$REMUDA_REPOSITORY" > where'""")
    remuda.cwd = outer / "mod"
    remuda.start("a", "--worktree", *WAIT)
    tree = outer / "mod.worktrees" / "a"
    until((tree / "where").exists, "the set-up command")
    until(lambda: (tree / "where").read_text() == f"{outer / 'mod'}\n", "the folder of the submodule")
    remuda.cwd = tree  # from a worktree of it, too
    remuda.start("b", "--worktree", *WAIT)
    assert (outer / "mod.worktrees" / "b" / "src" / "a.txt").exists()


def test_branches_are_made_checked_out_and_refused(repo: Repo) -> None:
    remuda = repo.remuda
    repo.git("branch", "old/one")
    tree = repo.start("a", "--worktree=old/one")
    assert repo.git("branch", "--show-current", at=tree).strip() == "old/one"
    repo.start("b", "--worktree=topic/new")
    # From a worktree the place is the same; in a folder of the repository the session starts there.
    remuda.cwd = tree / "src"
    assert repo.start("c") == repo.tree("c")
    assert remuda.json("show", "c")["cwd"] == str(repo.tree("c") / "src")
    refused = {
        "--worktree=main": "branch 'main' is checked out in",
        "--worktree=old/one": "branch 'old/one' is checked out in",
        "--worktree=-f": "cannot name a branch",
        "--worktree=a..b": "cannot name a branch",
        "--worktree=@{-1}": "cannot name a branch",
        "--worktree=HEAD": "cannot name a branch",
        "--worktree=a\nb": "cannot name a branch",
    }
    for flag, why in refused.items():
        assert why in remuda.refused("start", "d", "--detach", flag, *WAIT, code=USAGE)
    assert "git made no worktree" in remuda.refused(
        "start", "d", "--detach", "--worktree=main/x", *WAIT, code=BAD
    )
    repo.git("update-ref", "refs/remotes/origin/far", "HEAD")
    for branch in ("old/one", "far"):  # without the '=' it would be a prompt
        assert f"write --worktree={branch};" in remuda.refused(
            "start", "d", "--detach", "--worktree", branch, "--agent", "demo", code=USAGE
        )
    repo.git("branch", "d")
    assert "branch 'd' exists already" in remuda.refused(
        "start", "d", "--detach", "--worktree", *WAIT, code=USAGE
    )
    assert not repo.tree("d").exists()
    assert "main/x" not in repo.branches()
    with pytest.raises(InvalidOptions, match="does not go with --resume"):
        Session.start("a", worktree=True, resume=True, folder=remuda.sessions)
    remuda("kill", "a", "b", "c", "--remove-worktree")
    assert "old/one" in repo.branches()
    assert "topic/new" not in repo.branches()


def test_bad_places_are_refused_and_nothing_is_left(repo: Repo, tmp_path: Path) -> None:
    remuda = repo.remuda
    repo.tree("x").mkdir(parents=True)
    (repo.tree("x") / "file").write_text("mine")
    assert "exists already" in remuda.refused("start", "x", "--detach", "--worktree", *WAIT, code=BAD)
    assert (repo.tree("x") / "file").read_text() == "mine"
    repo.tree("y").symlink_to("/nowhere")
    assert "exists already" in remuda.refused("start", "y", "--detach", "--worktree", *WAIT, code=BAD)
    remuda("start", "z", "--detach", "--worktree", "--", "no-such-program", code=127)
    assert repo.branches() == ["main"]
    assert not repo.tree("z").exists()
    remuda.cwd = tmp_path
    assert "needs a git repository" in remuda.refused(
        "start", "x", "--detach", "--worktree", *WAIT, code=USAGE
    )
    empty = tmp_path / "empty"
    empty.mkdir()
    repo.git("init", "-q", at=empty)
    remuda.cwd = empty
    assert "has no commit yet" in remuda.refused("start", "x", "--detach", "--worktree", *WAIT, code=USAGE)
    remuda.cwd = repo.path
    remuda.start("plain", *WAIT)
    assert "has no worktree" in remuda.refused("kill", "plain", "--remove-worktree", code=USAGE)
    assert "does not go with --all" in remuda.refused("kill", "--all", "--remove-worktree", code=USAGE)
    assert "already running" in remuda.refused(
        "start", "plain", "--detach", "--worktree", *WAIT, code=EXIT_CODES["SESSION_EXISTS"]
    )


def test_set_up_command_runs_once_before_the_agent_and_its_output_is_kept(repo: Repo) -> None:
    remuda = repo.remuda
    folder = remuda.home / "trees of {repo}"
    configure(
        remuda,
        f"worktree_folder = '{remuda.home}/trees of {{repo}}'",
        'worktree_setup = \'\'\'echo setting up in "$PWD" for "$REMUDA_REPOSITORY"',
        "mkdir node_modules; test -e ok.secret'''",
        "worktree_disposable = 'node_modules'",
    )
    tree = remuda.home / "trees of proj" / "w"
    assert not folder.exists()
    program = [
        sys.executable,
        "-c",
        "import os, time; print('agent', os.environ.get('REMUDA_REPOSITORY')); time.sleep(600)",
    ]
    remuda("start", "w", "--worktree", "--detach", "--", *program)
    until(lambda: "the set-up command failed with exit code 1" in remuda("logs", "w").out, "its failure")
    assert "agent" not in remuda("logs", "w").out.replace("the agent was not started", "")
    # It is tried again until it has succeeded, and not after that.
    (tree / "ok.secret").write_text("x")
    (tree / "node_modules").rmdir()
    remuda("start", "w", "--resume", "--detach")
    until(lambda: "agent None" in remuda("logs", "w").out, "the agent")
    assert remuda("logs", "w").out.count(f"setting up in {tree} for {repo.path}") >= 1
    remuda("kill", "w")
    remuda("start", "w", "--resume", "--detach")
    until(lambda: "agent None" in remuda("logs", "w").out, "the agent")
    assert "ignored files: ok.secret" in remuda.refused("kill", "w", "--remove-worktree", code=REFUSED)
    assert remuda.json("show", "w")["alive"]  # nothing was ended
    (tree / "ok.secret").unlink()
    remuda("kill", "w", "--remove-worktree")
    assert not tree.exists()


Lose = Callable[[Repo, Path], object]


def _detached(repo: Repo, tree: Path) -> None:
    repo.git("checkout", "-q", "--detach", at=tree)
    (tree / "b").write_text("b")
    repo.commit(tree, "on no branch")


def _left_detached(repo: Repo, tree: Path) -> None:
    _detached(repo, tree)
    repo.git("checkout", "-q", tree.name, at=tree)


def _nested(repo: Repo, tree: Path, where: str = "sub") -> None:
    (tree / where).mkdir(parents=True)
    repo.git("init", "-q", at=tree / where)


def _submodule(repo: Repo, tree: Path) -> None:
    repo.git("submodule", "add", "-q", str(repo.path), "mod", at=tree)
    repo.commit(tree, "with a submodule")


def _merge(repo: Repo, tree: Path) -> None:
    for at, text in ((tree, "ours"), (repo.path, "theirs")):
        (at / "src" / "a.txt").write_text(text)
        repo.commit(at, text)
    subprocess.run(
        ["git", "-c", "user.name=n", "-c", "user.email=e", "merge", "main"], cwd=tree, capture_output=True
    )
    repo.git("checkout", "--ours", "src/a.txt", at=tree)
    repo.git("add", "-A", at=tree)


def _hide(repo: Repo, tree: Path) -> None:
    repo.git("update-index", "--assume-unchanged", "src/a.txt", at=tree)
    (tree / "src" / "a.txt").write_text("hidden")


def _replace(repo: Repo, tree: Path) -> None:
    (tree / ".git").unlink()
    repo.git("init", "-q", at=tree)


def _lock(repo: Repo, tree: Path) -> None:
    repo.git("worktree", "lock", "--reason", "why not", str(tree))


def _own_ref(repo: Repo, tree: Path) -> None:
    repo.git("update-ref", "refs/worktree/x", "HEAD", at=tree)


def _other_session(repo: Repo, tree: Path) -> None:
    repo.remuda.start("other", "--cwd", str(tree / "src"), *WAIT)


def _look_away(repo: Repo, tree: Path) -> None:
    (tree / "k.secret").write_text("x")
    repo.git("config", "extensions.worktreeConfig", "true")
    repo.git("config", "--worktree", "core.worktree", str(repo.path), at=tree)


LOSSES: dict[str, tuple[str, Lose]] = {
    "changed": ("changed files: src/a.txt", lambda _, tree: (tree / "src" / "a.txt").write_text("x")),
    "new": ("new files: n", lambda _, tree: (tree / "n").write_text("x")),
    "ignored": ("ignored files: k.secret", lambda _, tree: (tree / "k.secret").write_text("x")),
    "detached": ("commits on no branch", _detached),
    "left": ("commits on no branch", _left_detached),
    "nested": ("repositories of their own: sub", _nested),
    "deep": ("own: node_modules/x", lambda repo, tree: _nested(repo, tree, "node_modules/x")),
    "submodule": ("repositories of their own: mod", _submodule),
    "locked": ("it is locked: why not", _lock),
    "merge": ("a merge is not finished", _merge),
    "hidden": ("asked to ignore changes of: src/a.txt", _hide),
    "replaced": ("its .git belongs to another repository", _replace),
    "ref": ("refs of this worktree alone", _own_ref),
    "session": ("session 'other' runs there", _other_session),
    "unreadable": ("cannot be checked", lambda _, tree: (tree / ".git").write_text("garbage")),
    "away": ("git looks at another folder there", _look_away),
    "gone": ("its folder is gone ('git worktree prune' in ", lambda _, tree: shutil.rmtree(tree)),
    "moved": ("git does not list it", lambda repo, tree: repo.git("worktree", "move", str(tree), f"{tree}2")),
}


def test_nothing_that_would_be_lost_is_removed(repo: Repo) -> None:
    for what, (why, lose) in LOSSES.items():
        tree = repo.tree(what)
        repo.git("worktree", "add", "-q", "-b", what, str(tree))
        own, commit = (repo.git("rev-parse", one, at=tree).strip() for one in ("--absolute-git-dir", "HEAD"))
        made = Worktree(str(tree), str(repo.path), str(repo.path / ".git"), own, what, commit, True)
        (tree / "node_modules").mkdir()
        (tree / "node_modules" / "big").write_text("x")
        assert find_losses(made, what, repo.remuda.sessions, "") == ["ignored files: node_modules/"]
        assert find_losses(made, what, repo.remuda.sessions, "*.tmp node_modules") == []
        shutil.rmtree(tree / "node_modules")
        lose(repo, tree)
        before = sorted(str(one) for one in tree.rglob("*"))
        found = find_losses(made, what, repo.remuda.sessions, "node_modules")
        assert any(why in one for one in found), (what, found)
        with pytest.raises(NotSafe):
            remove_worktree(made, what, repo.remuda.sessions, "node_modules")
        assert sorted(str(one) for one in tree.rglob("*")) == before


def test_commits_stashes_and_amended_commits_outlive_the_worktree(repo: Repo) -> None:
    tree = repo.start("w")
    (tree / "b").write_text("first")
    repo.commit(tree, "first")
    first = repo.git("rev-parse", "HEAD", at=tree).strip()
    (tree / "b").write_text("second")
    repo.git("commit", "-qa", "--amend", "-m", "second", at=tree)
    (tree / "b").write_text("stashed")
    repo.git("stash", at=tree)
    repo.remuda("kill", "w", "--remove-worktree")
    assert repo.git("show", "w:b") == "second"
    assert repo.git("show", "stash@{0}:b") == "stashed"
    assert first in repo.git("reflog", "show", "--format=%H", "w")


def test_hooks_and_filters_of_a_hostile_repository_do_not_run(repo: Repo) -> None:
    ran = repo.remuda.home / "ran"
    hook = f'#!/bin/sh\necho "$0" >> {ran}\ncat\n'
    for name in ("post-checkout", "reference-transaction", "post-index-change", "pre-commit"):
        path = repo.path / ".git" / "hooks" / name
        path.write_text(hook)
        path.chmod(0o755)
    evil = repo.remuda.home / "evil"
    evil.write_text(hook)
    evil.chmod(0o755)
    (repo.path / ".gitattributes").write_text("*.txt filter=evil diff=evil\n")
    repo.commit(repo.path, "attributes")
    for key in (
        "filter.evil.smudge",
        "filter.evil.clean",
        "filter.evil.process",
        "core.fsmonitor",
        "diff.evil.textconv",
        "core.sshCommand",
        "core.pager",
        "diff.external",
    ):
        repo.git("config", key, str(evil))
    ran.unlink()
    tree = repo.start("w")
    assert (tree / "src" / "a.txt").read_text() == "one\n"
    (tree / "src" / "a.txt").write_text("two\n")
    assert "+two" in repo.remuda("show", "w", "--changes").out
    assert "changed files" in repo.remuda.refused("kill", "w", "--remove-worktree", code=REFUSED)
    (tree / "src" / "a.txt").write_text("one\n")
    repo.remuda("kill", "w", "--remove-worktree")
    assert not ran.exists(), ran.read_text()


def test_worktree_of_a_bare_repository_and_of_a_remote_branch(repo: Repo) -> None:
    remuda = repo.remuda
    repo.git("branch", "feature")
    bare = remuda.home / "bare.git"
    repo.git("clone", "-q", "--bare", str(repo.path), str(bare))
    linked = remuda.home / "linked"
    repo.git("worktree", "add", "-q", str(linked), "main", at=bare)
    remuda.cwd = linked
    remuda.start("b", "--worktree", *WAIT)
    assert (remuda.home / "bare.worktrees" / "b" / "src" / "a.txt").exists()
    remuda("kill", "b", "--remove-worktree")
    clone = remuda.home / "clone"
    repo.git("clone", "-q", str(repo.path), str(clone))
    remuda.cwd = clone
    remuda.start("r", "--worktree=feature", *WAIT)
    tree = remuda.home / "clone.worktrees" / "r"
    assert repo.git("rev-parse", "--abbrev-ref", "feature@{upstream}", at=tree).strip() == "origin/feature"
    remuda("kill", "r", "--remove-worktree")
    assert not os.path.lexists(tree)
