"""Run git in folders of others. A clone's configuration must not run anything.

A repository can name programs in its configuration and attributes: a monitor of files, a pager, filters,
external and text-converting diffs, hooks. All of these are off here. git takes no locks that it can do
without, asks nothing, and is ended at its deadline.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass, field

OUTPUT_BYTES = 1 << 20
"""git's output is cut there."""
NO_REPOSITORY = "not a git repository"
"""git's own words, in the error of a command."""
_LAST_SECONDS = 5.0
"""Seconds that git has to end by itself."""
_OFF = (
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.pager=cat"),
    *("-c", "core.untrackedCache=false"),
    *("-c", "core.attributesFile=/dev/null"),
    *("-c", "diff.external="),
    *("-c", "diff.ignoreSubmodules=all"),
    *("-c", "submodule.recurse=false"),
    *("-c", "protocol.allow=never"),
    *("-c", "core.sshCommand=false"),
    *("-c", "color.ui=false"),
    *("-c", "safe.bareRepository=explicit"),
)
_FILTER = re.compile(r"filter\.(.*)\.(clean|smudge|process|required)", re.DOTALL)
_MOST_FILTERS = 100


class GitFailed(Exception):
    """git could not say it. The text says why."""


@dataclass(slots=True)
class Git:
    """Runs git in `folder`, until `deadline` on the monotonic clock."""

    folder: str
    deadline: float
    settings: dict[str, str] = field(default_factory=dict)
    git_dir: str | None = None
    """The git folder to use; None for that of `folder`."""

    def run(self, *words: str, most: int = OUTPUT_BYTES, is_slow: bool = False) -> tuple[str, bool]:
        """Return what git prints, and whether it was cut at `most` bytes.

        Bytes that are not text stay as they are: the name of a filter or a file can hold any. Ctrl-C ends
        git only if it `is_slow`, else it counts afterwards: git could leave a lock.
        """
        where = () if self.git_dir is None else ("--git-dir", self.git_dir)
        command = ["git", *where, "--no-pager", "--no-optional-locks", "--literal-pathspecs", *_OFF, *words]
        process = None
        # git has a process group of its own, so that its filters end with it, and Ctrl-C reaches only us.
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=_environment(self.settings),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
            )
            if is_slow:
                signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
            return _output(process, most, self.deadline)
        except OSError as error:
            raise GitFailed(f"cannot run git: {error.strerror}") from None
        finally:
            if process is not None:
                _end(process)
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)

    def line(self, *words: str) -> str | None:
        """Return the line that git prints; None if it fails."""
        try:
            return self.run(*words, most=4096)[0].strip() or None
        except GitFailed:
            return None


def _environment(settings: dict[str, str]) -> dict[str, str]:
    """Settings go by the environment: the name of a filter can hold '='."""
    named: dict[str, str] = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings.items()):
        named |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "XDG_CONFIG_HOME") if name in os.environ}
    return (
        kept
        | named
        | {
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_PAGER": "cat",
            "GIT_EXTERNAL_DIFF": "",
            "GIT_ASKPASS": "false",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_NO_LAZY_FETCH": "1",
            # For git before 2.39.4, which fetches lazily. It overrides protocol.*.allow of a clone.
            "GIT_ALLOW_PROTOCOL": "none",
            "LC_ALL": "C",
        }
    )


def _output(process: subprocess.Popen[bytes], most: int, deadline: float) -> tuple[str, bool]:
    """Read both streams: git would wait for a pipe that is full of warnings. Their end is kept."""
    data, errors = b"", b""
    with selectors.DefaultSelector() as streams:
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            streams.register(stream, selectors.EVENT_READ)
        while streams.get_map():
            ready = streams.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise GitFailed("git did not answer in time")
            for key, _ in ready:
                piece = os.read(key.fd, 1 << 16)
                if not piece:
                    streams.unregister(key.fileobj)
                elif key.fileobj is process.stderr:
                    errors = (errors + piece)[-4096:]
                else:
                    data += piece
            if len(data) > most:
                return os.fsdecode(data[:most]), True
    try:
        code = process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise GitFailed("git did not answer in time") from None
    if code:
        error = errors.decode("utf-8", "replace").strip()
        raise GitFailed(error.splitlines()[-1] if error else f"git failed with {code}")
    return os.fsdecode(data), False


def _end(process: subprocess.Popen[bytes]) -> None:
    """End git and what it runs, if it has not ended: politely, since git then removes its locks."""
    with process:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.communicate(timeout=_LAST_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def without_filters(git: Git, *, keep_own: bool = False) -> dict[str, str]:
    """Return settings that turn filters off by name: a clean filter would run for a file that differs.

    `keep_own`: those stay that only the user's own configuration has, such as that of Git LFS.
    """
    listed, is_cut = git.run("config", "--null", "--show-scope", "--name-only", "--list")
    words = listed.split("\0")
    filters = {
        match[1]
        for scope, name in zip(words[::2], words[1::2], strict=False)
        if (match := _FILTER.fullmatch(name)) and not (keep_own and scope in ("system", "global"))
    }
    if is_cut or len(filters) > _MOST_FILTERS:
        raise GitFailed("the repository configures too much")
    off = {f"filter.{name}.{key}": "" for name in filters for key in ("clean", "smudge", "process")}
    return off | {f"filter.{name}.required": "false" for name in filters}
