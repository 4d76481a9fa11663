"""Make a git worktree for a session, and remove it if nothing would be lost.

git runs nothing of the repository here: see `remuda.git_command`. The branch of a worktree stays when the
worktree is removed, and so do its commits and what was stashed.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from remuda.config import Config
from remuda.durable import read_regular
from remuda.errors import FolderUnusable, InvalidOptions, NotSafe, RemudaError
from remuda.frozen import replaced
from remuda.git_command import NO_REPOSITORY, Git, GitFailed, without_filters
from remuda.paths import SessionPaths, known_names

from .claim import Claim, already_running, read_holder
from .record import SessionRecord
from .spec import SessionSpec
from .start import DEFAULT_START_TIMEOUT, Started, start_session

_QUICK = 30.0
_CHECKOUT = 600.0
"""Seconds. A large repository takes minutes to check out."""
_DONE = "remuda-set-up"
_UNFINISHED = {
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "BISECT_LOG": "a bisect",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
    "sequencer": "a sequence of commits",
}
_MOST_HEADS = 1000
_SHOWN = 5
_BRANCH = re.compile(r"[\w.+@=-][\w.+@=/-]*")
"""Words without what has a meaning in a pattern of git."""
_OBJECT = re.compile(r"[0-9a-f]{40,64}")


@dataclass(frozen=True, slots=True)
class Worktree:
    """A worktree that was made for a session."""

    path: str
    repository: str
    """The folder of the main worktree."""
    common: str
    """The repository's own git folder."""
    git_folder: str
    """The git folder of this worktree alone, which goes with it."""
    branch: str
    commit: str
    """Where it began."""
    made_branch: bool = False
    setup: str = ""
    """A shell command that must run in it before the agent."""

    def document(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def read(cls, document: object) -> Worktree | None:
        """Read what `document` made; None for anything else."""
        if not isinstance(document, Mapping):
            return None
        try:
            made = cls(**{one.name: document[one.name] for one in fields(cls)})
        except KeyError:
            return None
        texts = (getattr(made, one.name) for one in fields(cls) if one.name != "made_branch")
        return made if all(isinstance(text, str) for text in texts) else None


@dataclass(frozen=True, slots=True)
class _Entry:
    """One worktree, as git lists it."""

    path: str
    branch: str | None = None
    locked: str | None = None


def _list(git: Git) -> list[_Entry]:
    """Return all worktrees, the main one first."""
    text, is_cut = git.run("worktree", "list", "--porcelain", "-z")
    if is_cut:
        raise GitFailed("the repository has too many worktrees")
    entries = []
    for block in filter(None, text.split("\0\0")):
        lines = dict(line.partition(" ")[::2] for line in block.split("\0"))
        branch = lines.get("branch", "").removeprefix("refs/heads/") or None
        entries.append(_Entry(lines.get("worktree", ""), branch, lines.get("locked")))
    return entries


def _repository(common: str, seconds: float = _QUICK) -> Git:
    """Return git for the main repository. Its git folder is named, so that a bare one can be used too."""
    git = Git(common, time.monotonic() + seconds, git_dir=common)
    git.settings = without_filters(git, keep_own=True)
    return git


# ── make it ──


def start_in_worktree(
    spec: SessionSpec, branch: str, config: Config, timeout: float = DEFAULT_START_TIMEOUT
) -> Started:
    """Make a worktree of the repository at `spec.cwd`, and start the session there.

    `branch` is checked out, or made; empty for a new one with the name of the session. Raises
    `InvalidOptions` or `FolderUnusable`, and what `start_session` raises. Then the worktree is removed again.
    """
    paths = SessionPaths.of(spec.name, Path(spec.folder))
    if spec.resume:
        raise InvalidOptions(
            "--worktree does not go with --resume", hint="a session resumes in the folder that it had"
        )
    if read_holder(paths) is not None:
        raise already_running(paths)
    try:
        made, cwd = _make(spec.name, Path(spec.cwd), branch, config)
    except GitFailed as error:
        raise FolderUnusable(f"git made no worktree: {error}") from None
    try:
        return start_session(replaced(spec, cwd=cwd, worktree=made.document()), timeout)
    except (RemudaError, KeyboardInterrupt) as error:
        # Nothing ran in it, unless the set-up command did for a while.
        try:
            remove_worktree(made, spec.name, paths.folder, "")
        except RemudaError:
            if isinstance(error, RemudaError):
                error.hint = f"{error.hint + '; ' if error.hint else ''}its worktree is left at {made.path}"
        raise


def _make(name: str, cwd: Path, branch: str, config: Config) -> tuple[Worktree, str]:
    """Make the worktree. Return it, and the folder in it that `cwd` is in the repository."""
    git = Git(str(cwd), time.monotonic() + _CHECKOUT)
    try:
        top = git.run("rev-parse", "--show-toplevel")[0].removesuffix("\n")
    except GitFailed as error:
        why = f"{cwd} is not in one" if NO_REPOSITORY in str(error) else f"{cwd}: {error}"
        raise InvalidOptions(f"--worktree needs a git repository: {why}") from None
    git.settings = without_filters(git, keep_own=True)
    entries = _list(git)
    common = os.path.realpath(
        os.path.join(cwd, git.run("rev-parse", "--git-common-dir")[0].removesuffix("\n"))
    )
    main = _main_folder(git, top, common, entries[0].path)
    path = _place(name, main, config)
    new, branch = not branch, branch or name
    start, options = _start_point(git, branch, entries, new=new)
    try:
        # The branch comes last: git that is ended while it writes the files can leave the branch locked.
        git.run("worktree", "add", "--detach", "--", path, start, is_slow=True)
        inside = Git(path, git.deadline, git.settings)
        inside.run("checkout", *options, start, "--")
        own = os.path.realpath(inside.run("rev-parse", "--absolute-git-dir")[0].removesuffix("\n"))
        commit = inside.run("rev-parse", "HEAD")[0].strip()
        if not _is_whole(inside, path):
            raise GitFailed(f"core.worktree in {common}/config names another folder; unset it")
        made = Worktree(path, main, common, own, branch, commit, bool(options), config.worktree_setup or "")
        below = os.path.join(path, os.path.relpath(os.path.realpath(cwd), os.path.realpath(top)))
        return made, os.path.normpath(below) if os.path.isdir(below) else path
    except (GitFailed, KeyboardInterrupt):
        _undo(git, path, branch if options else None, start)
        raise


def _main_folder(git: Git, top: str, common: str, listed: str) -> str:
    """Return the folder of the main worktree. Where the git folder is not in it, as that of a submodule, git
    lists the git folder instead.
    """
    if not _same(listed, common):
        return listed
    if _same(git.run("rev-parse", "--absolute-git-dir")[0].removesuffix("\n"), common):
        return top
    named = git.line("config", "core.worktree")
    return os.path.normpath(os.path.join(common, named)) if named else listed


def _place(name: str, main: str, config: Config) -> str:
    """Return where the worktree will be. Raises `FolderUnusable` if something is there."""
    repo = os.path.basename(main).removesuffix(".git") or "repository"
    folder = os.path.expanduser(config.worktree_folder.replace("{repo}", repo))
    path = os.path.join(os.path.abspath(os.path.join(main, folder)), name)
    if os.path.lexists(path):
        raise FolderUnusable(
            f"{path} exists already",
            hint=f"'remuda start {name} --resume' goes on there if it is the worktree of '{name}'; else "
            "choose another name, or move it away",
        )
    return path


def _start_point(git: Git, branch: str, entries: list[_Entry], *, new: bool) -> tuple[str, list[str]]:
    """Return what to check out, and the options that make a branch of it; none for a branch that exists."""
    is_name = not branch.startswith("-") and branch != "HEAD" and "\0" not in branch
    if not is_name or not _succeeds(git, "check-ref-format", f"refs/heads/{branch}"):
        raise InvalidOptions(f"{branch!r} cannot name a branch", hint="give another: --worktree=BRANCH")
    exists = git.line("rev-parse", "--verify", "-q", f"refs/heads/{branch}^{{commit}}") is not None
    if exists and new:
        raise InvalidOptions(
            f"branch '{branch}' exists already", hint=f"--worktree={branch} checks it out; or give another"
        )
    for one in entries:
        if one.branch == branch:
            raise InvalidOptions(
                f"branch '{branch}' is checked out in {one.path}", hint="give another: --worktree=BRANCH"
            )
    if exists:
        return branch, []
    remote = git.run("for-each-ref", "--format=%(refname)", f"refs/remotes/*/{branch}")[0].split()
    if not new and len(remote) == 1:
        return remote[0], ["--track", "-b", branch]
    commit = git.line("rev-parse", "--verify", "-q", "HEAD^{commit}")
    if commit is None:
        raise InvalidOptions("the repository has no commit yet", hint="commit something first")
    return commit, ["--no-track", "-b", branch]


def is_branch(cwd: Path, word: str) -> bool:
    """Return whether the repository at `cwd`, or one of its remotes, has a branch of that name."""
    if not _BRANCH.fullmatch(word):
        return False
    try:
        names = (f"refs/heads/{word}", f"refs/remotes/*/{word}")
        git = Git(str(cwd), time.monotonic() + _QUICK)
        found = git.run("for-each-ref", "--format=%(refname)", *names)[0].split()
    except GitFailed:
        return False
    # A pattern also finds what is below: only 'old/one' has to exist for 'old' to be found.
    return any(one.endswith(f"/{word}") for one in found)


def _succeeds(git: Git, *words: str) -> bool:
    try:
        git.run(*words)
    except GitFailed:
        return False
    return True


def _undo(git: Git, path: str, branch: str | None, start: str) -> None:
    """Remove what a failed 'worktree add' left. The folder was not there before.

    Forced twice: git locks a worktree while it makes it.
    """
    again = Git(git.folder, time.monotonic() + _QUICK, git.settings)
    _succeeds(again, "worktree", "remove", "--force", "--force", "--", path)
    commit = again.line("rev-parse", "--verify", "-q", f"{start}^{{commit}}")
    if branch is not None and commit is not None:
        _succeeds(again, "update-ref", "-d", f"refs/heads/{branch}", commit)


def with_setup(argv: list[str], document: object) -> list[str]:
    """Return the command that runs the set-up command first, until that has succeeded once."""
    made = Worktree.read(document)
    if made is None or not made.setup or os.path.lexists(os.path.join(made.git_folder, _DONE)):
        return argv
    script = (
        'REMUDA_REPOSITORY=$3 /bin/sh -c "$1" || { code=$?; '
        'printf "\\nremuda: the set-up command failed with exit code %s; the agent was not started\\n" '
        '"$code"; exit "$code"; }; : > "$2"; shift 3; exec "$@"'
    )
    done = os.path.join(made.git_folder, _DONE)
    return ["/bin/sh", "-c", script, "remuda-set-up", made.setup, done, made.repository, *argv]


# ── remove it ──


def find_losses(made: Worktree, own_name: str, folder: Path, disposable: str) -> list[str]:
    """Return what would be lost with the worktree, in words; empty if nothing would.

    `disposable` has the names of ignored files that do not count. `own_name` is its session.
    """
    try:
        entry = _find(made)
        if entry is None and not os.path.lexists(made.path) and not os.path.lexists(made.git_folder):
            return []  # removed before: by git, or by a removal that was killed before its end
        if entry is None:
            return [f"git does not list it as a worktree of {made.repository}"]
        if entry.locked is not None:
            return [f"it is locked{': ' + entry.locked if entry.locked else ''} (git worktree unlock)"]
        if not os.path.lexists(made.path):
            return [f"its folder is gone ('git worktree prune' in {made.repository} forgets it)"]
        inside = Git(made.path, time.monotonic() + _QUICK)
        if not _same(inside.run("rev-parse", "--absolute-git-dir")[0].removesuffix("\n"), made.git_folder):
            return ["its .git belongs to another repository"]
        if not _is_whole(inside, made.path):
            return ["git looks at another folder there (core.worktree)"]
        inside.settings = without_filters(inside, keep_own=True) | {"core.ignoreStat": "false"}
        return [
            *_files(inside, disposable.split()),
            *_nested(made.path),
            *_hidden(inside),
            *(f"{what} is not finished" for what in sorted(_unfinished(made))),
            *_commits(made),
            *_refs(inside),
            *(f"session '{name}' runs there" for name in _sessions_in(made.path, own_name, folder)),
        ]
    except (GitFailed, OSError) as error:
        return [f"it cannot be checked: {error}"]


def _find(made: Worktree) -> _Entry | None:
    """Return the worktree as git lists it; None if it does not."""
    return next((one for one in _list(_repository(made.common)) if _same(one.path, made.path)), None)


def _is_whole(git: Git, path: str) -> bool:
    """Whether git in that worktree looks at the worktree itself. core.worktree can name any other folder."""
    return _same(git.run("rev-parse", "--show-toplevel")[0].removesuffix("\n"), path)


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _files(git: Git, disposable: list[str]) -> Iterator[str]:
    text, is_cut = git.run(
        *("status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all", "--ignored=matching"),
        "--ignore-submodules=none",
    )
    groups: dict[str, list[str]] = {"changed": [], "new": [], "ignored": []}
    for line in filter(None, text.split("\0")):
        kind = {"??": "new", "!!": "ignored"}.get(line[:2], "changed")
        path = line[3:]
        parts = path.rstrip("/").split("/")
        if kind != "ignored" or not any(fnmatchcase(part, one) for part in parts for one in disposable):
            groups[kind].append(path)
    for kind, paths in groups.items():
        if paths:
            yield f"{kind} files: {_some(paths, is_cut=is_cut)}"
    if is_cut and not any(groups.values()):
        yield "more files than can be checked"


def _some(names: list[str], *, is_cut: bool = False) -> str:
    more = f" and {len(names) - _SHOWN}{' or more' if is_cut else ''} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _nested(path: str) -> Iterator[str]:
    """Yield repositories inside: submodules, clones, also in ignored folders."""
    found = []
    for folder, folders, files in os.walk(path, onerror=_refuse):
        if folder != path and ".git" in (*folders, *files):
            found.append(os.path.relpath(folder, path))
            folders.clear()
    if found:
        yield f"repositories of their own: {_some(sorted(found))}"


def _refuse(error: OSError) -> None:
    raise error


def _hidden(git: Git) -> Iterator[str]:
    """Yield files that git was asked not to look at: their changes show nowhere."""
    text, is_cut = git.run("ls-files", "-v", "-z", most=16 << 20)
    flagged = [line[2:] for line in text.split("\0") if line[:1].islower() or line[:1] == "S"]
    there = [path for path in flagged if os.path.lexists(os.path.join(git.folder, path))]
    if there or is_cut:
        yield f"files that git was asked to ignore changes of: {_some(there, is_cut=is_cut) or 'many files'}"


def _unfinished(made: Worktree) -> set[str]:
    return {
        what for name, what in _UNFINISHED.items() if os.path.lexists(os.path.join(made.git_folder, name))
    }


def _commits(made: Worktree) -> Iterator[str]:
    """Yield commits that only this worktree's own HEAD, or its log, leads to."""
    heads = set(_OBJECT.findall(_read(os.path.join(made.git_folder, "HEAD"))))
    for line in _read(os.path.join(made.git_folder, "logs", "HEAD")).splitlines():
        heads |= {one for one in line.split(" ", 2)[:2] if _OBJECT.fullmatch(one) and one.strip("0")}
    if len(heads) > _MOST_HEADS:
        yield "a log of HEAD that is too long to check"
    elif heads:
        rest = ("--not", "--single-worktree", "--all", "--reflog")
        git = _repository(made.common)
        found = git.run("rev-list", "--ignore-missing", "--max-count=100", *sorted(heads), *rest)[0].split()
        if found:
            yield f"commits on no branch: {_some([one[:12] for one in found])}"


def _read(path: str) -> str:
    with contextlib.suppress(FileNotFoundError):
        return read_regular(path, 4 << 20).decode("utf-8", "replace")
    return ""


def _refs(git: Git) -> Iterator[str]:
    own = git.run("for-each-ref", "--format=%(refname)", "refs/worktree", "refs/bisect", "refs/rewritten")[0]
    if names := own.split():
        yield f"refs of this worktree alone: {_some(names)}"


def _sessions_in(path: str, own_name: str, folder: Path) -> list[str]:
    living = (SessionPaths(folder, name) for name in sorted(known_names(folder) - {own_name}))
    records = (SessionRecord.load(one.record) for one in living if read_holder(one) is not None)
    where = os.path.realpath(path)
    return [one.name for one in records if one and Path(os.path.realpath(one.cwd)).is_relative_to(where)]


def check_removable(made: Worktree, own_name: str, folder: Path, disposable: str) -> None:
    """Raise `NotSafe` with what would be lost."""
    if losses := find_losses(made, own_name, folder, disposable):
        raise NotSafe(
            f"the worktree {made.path} was not removed: {'; '.join(losses)}",
            hint="commit, move or delete what is there first",
        )


def remove_worktree(made: Worktree, own_name: str, folder: Path, disposable: str) -> str:
    """Remove the worktree of a session that does not run; raises `NotSafe` if anything would be lost.

    Returns what became of its branch, in words. The branch stays, unless it was made for the session and
    nothing was ever committed to it.
    """
    check_removable(made, own_name, folder, disposable)
    git = _repository(made.common, _CHECKOUT)
    try:
        if _find(made) is not None:
            git.run("worktree", "remove", "--", made.path)
        elsewhere = [one.path for one in _list(git) if one.branch == made.branch]
    except GitFailed as error:
        raise NotSafe(f"git did not remove the worktree {made.path}: {error}") from None
    with contextlib.suppress(OSError):  # not empty, or not ours
        if os.path.dirname(made.path).endswith(".worktrees"):
            os.rmdir(os.path.dirname(made.path))
    ref = f"refs/heads/{made.branch}"
    unused = made.made_branch and len(_read(os.path.join(made.common, "logs", ref)).splitlines()) == 1
    if unused and not elsewhere and _succeeds(git, "update-ref", "-d", ref, made.commit):
        return f"branch '{made.branch}' had no commits of its own and is gone too"
    return f"branch '{made.branch}' stays"


def forget_worktree(paths: SessionPaths) -> None:
    """Note in the record of an ended session that it has no worktree any more."""
    claim = Claim.take(paths)
    try:
        if (record := SessionRecord.load(paths.record)) is not None:
            replaced(record, worktree=None, killed=True).save(paths.record)
    except OSError as error:
        raise FolderUnusable(f"cannot write {paths.record}: {error.strerror}") from error
    finally:
        claim.release()
