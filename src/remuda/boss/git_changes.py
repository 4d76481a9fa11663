"""What changed in a session's git folder. git is ended after `TIMEOUT`."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

from remuda.durable import open_regular
from remuda.git_command import NO_REPOSITORY, OUTPUT_BYTES, Git, GitFailed, without_filters

TIMEOUT = 10.0
MOST_FILES = 300
DIFF_BYTES = 64 << 10
"""Of one file."""
ALL_BYTES = OUTPUT_BYTES
"""Of all diffs together."""
_UNTRACKED_BYTES = 16 << 10
_SAFE_DIFF = ("--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=all", "--find-renames")
_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
_STATUS = {
    "A": "added",
    "M": "modified",
    "D": "deleted",
    "R": "renamed",
    "C": "copied",
    "T": "type",
    "U": "conflict",
}
_MAIN = ("@{upstream}", "origin/HEAD", "origin/main", "origin/master", "main", "master")


def find_changes(
    folder: str | None, base: str, started_at: float, start_commit: str | None = None
) -> dict[str, Any]:
    """Return the changes of the repository at `folder` since `base`. Blocks for at most about `TIMEOUT`.

    `start_commit` is where a session began whose worktree was made for it.
    """
    found: dict[str, Any] = {
        "folder": folder,
        "repository": None,
        "branch": None,
        "base": base,
        "commit": None,
        "files": [],
        "cut": False,
        "note": None,
    }
    if not folder or not os.path.isdir(folder):
        missing = "the folder of this agent is not known" if not folder else "its folder does not exist"
        return found | {"note": missing}
    git = Git(folder, time.monotonic() + TIMEOUT)
    try:
        found["repository"] = git.run("rev-parse", "--show-toplevel", most=4096)[0].strip()
        git.folder = found["repository"]
        # Read where git runs from now on: core.worktree can lead into another repository.
        git.settings = without_filters(git)
        found["branch"] = git.line("symbolic-ref", "--short", "-q", "HEAD")
        found["commit"] = _commit(git, base, started_at, start_commit)
        files, is_cut = _files(git, found["commit"] or _EMPTY_TREE)
        found["files"], found["cut"] = files, is_cut
    except GitFailed as error:
        is_none = found["repository"] is None and NO_REPOSITORY in str(error)
        found["note"] = "its folder is not in a git repository" if is_none else str(error)[:500]
    return found


def _commit(git: Git, base: str, started_at: float, start_commit: str | None) -> str | None:
    """Return the commit to compare with; None for a repository without one."""
    if git.line("rev-parse", "--verify", "-q", "HEAD") is None:
        return None
    if base == "start" and start_commit is not None:
        return git.line("merge-base", "HEAD", start_commit)
    if base == "start":
        return git.line("rev-list", "-1", f"--min-age={int(started_at)}", "HEAD")
    if base == "merge_base":
        for other in _MAIN:
            if (commit := git.line("merge-base", "HEAD", other)) is not None:
                return commit
    return git.line("rev-parse", "HEAD")


def _files(git: Git, commit: str) -> tuple[list[dict[str, Any]], bool]:
    raw, names_cut = git.run("diff", *_SAFE_DIFF, "--raw", "--numstat", "-z", "--abbrev=40", commit, "--")
    files = list(_parse_raw(raw))
    patch, patch_cut = git.run("diff", *_SAFE_DIFF, "--patch", "--no-prefix", commit, "--")
    _set_diffs(files, _split_patch(patch), patch_cut)
    others, others_cut = git.run("ls-files", "--others", "--exclude-standard", "-z")
    files += [_untracked(git.folder, path) for path in filter(None, others.split("\0")[: MOST_FILES + 1])]
    is_cut = names_cut or patch_cut or others_cut or len(files) > MOST_FILES
    return files[:MOST_FILES], is_cut


def _file(path: str, status: str, old_path: str | None = None) -> dict[str, Any]:
    return {
        "path": path,
        "old_path": old_path,
        "status": status,
        "added": None,
        "removed": None,
        "binary": False,
        "diff": None,
        "cut": False,
    }


def _parse_raw(text: str) -> Iterator[dict[str, Any]]:
    """Read `--raw --numstat -z`: first a line for each file, then the counts in the same order."""
    words, files = iter(text.split("\0")), []
    counts: list[tuple[str, str]] = []
    for word in words:
        if word.startswith(":"):
            status = word.rpartition(" ")[2][:1]
            first = next(words, "")
            second = next(words, "") if status in "RC" else None
            files.append(_file(second or first, _STATUS.get(status, "modified"), first if second else None))
        elif word.count("\t") >= 2:  # a name can hold more
            added, removed, path = word.split("\t", 2)
            if not path:  # a rename: both names follow
                next(words, ""), next(words, "")
            counts.append((added, removed))
    for one, (added, removed) in zip(files, counts, strict=False):
        one["binary"] = added == "-"
        one["added"] = int(added) if added.isdecimal() else None
        one["removed"] = int(removed) if removed.isdecimal() else None
    yield from files


def _split_patch(text: str) -> list[str]:
    """Split at lines that begin a file. A line of a file's content begins with ' ', '+', '-' or '@'."""
    parts = re.split(r"^diff --(?:git|cc|combined) .*\n", text, flags=re.MULTILINE)
    return parts[1:]


def _set_diffs(files: list[dict[str, Any]], parts: list[str], is_cut: bool) -> None:
    """Give each file its diff. A file that became a link has two parts: it is removed and made again."""
    counts = {"conflict": 0, "type": 2}
    wanted = [counts.get(one["status"], 1) for one in files]
    is_known = is_cut or sum(wanted) == len(parts)
    left = iter(parts[: len(parts) - is_cut] if is_known else ())
    for one, count in zip(files, wanted, strict=True):
        found = list(islice(left, count))
        if found and len(found) == count:
            _set_diff(one, "".join(map(_hunks, found)))
        elif count:
            one["cut"] = True


def _hunks(part: str) -> str:
    """Return a part without its head, which has names of files; empty if only its mode or name changed."""
    start = re.search(r"^@@", part, re.MULTILINE)
    return part[start.start() :] if start is not None else ""


def _set_diff(file: dict[str, Any], diff: str) -> None:
    if file["binary"]:
        return
    file["diff"] = diff
    if len(diff) > DIFF_BYTES:
        file["diff"], file["cut"] = diff[:DIFF_BYTES], True


def _untracked(folder: str, path: str) -> dict[str, Any]:
    """Return a new file, with its beginning as a diff."""
    file = _file(path, "untracked")
    try:
        if os.path.islink(os.path.join(folder, path)):  # what it points to is not in the folder
            return file
        fd = open_regular(os.path.join(folder, path))
        try:
            data = os.read(fd, _UNTRACKED_BYTES + 1)
        finally:
            os.close(fd)
    except (OSError, ValueError):
        return file
    if b"\0" in data:
        file["binary"] = True
        return file
    file["cut"] = len(data) > _UNTRACKED_BYTES
    lines = data[:_UNTRACKED_BYTES].decode("utf-8", "replace").splitlines()
    file["added"] = None if file["cut"] else len(lines)
    file["removed"] = 0
    file["diff"] = (
        "\n".join([f"@@ -0,0 +1,{len(lines)} @@", *(f"+{line}" for line in lines)]) if lines else ""
    )
    return file
