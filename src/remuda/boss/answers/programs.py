"""Programs that are known to run no others, and with which words. Pure.

Below a rule that denies or asks for a command, only these are allowed. A list of programs that do run others
(`sudo`, `xargs`, `python3`, `setarch` …) can never be complete, so every program that is not here is asked.
Programs that run the project's own code (`npm test`, `git commit`) are here: what that code does is not seen.
But they are asked where the same command may have written that code, or pipes something into them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .reading import UNKNOWN, Part, Words


def program_name(word: str) -> str:
    """Return the name without its folder, in lower case: on some file systems `RM` is `rm`."""
    return word.rpartition("/")[2].lower()


def doubt_about(part: Part, *, wrote: bool) -> str:
    """Why a simple command may run anything; empty if it runs nothing but itself.

    `wrote`: a part before it may have written a file.
    """
    words = _unwrapped(part.words)
    program, known = words[0], _known(words)
    if known is None or not known.check(words):
        return f"{program!r} may run other programs"
    if known.runs_project and part.is_fed:
        return f"{program!r} may run what it reads"
    if known.runs_project and wrote:
        return f"{program!r} may run what this command has written"
    return ""


def may_write(words: Words) -> bool:
    known = _known(_unwrapped(words))
    return known is None or known.writes


def has_subcommands(program: str) -> bool:
    """Whether the word after the program says what it does, for each form that is known here."""
    return program_name(program) in _WITH_SUBCOMMANDS


def plain_words(words: Words) -> Words:
    """What is run, without `timeout 60` or `nohup` before it, and with the subcommand next to `git`."""
    words = _unwrapped(words)
    return _plain_git(words) if program_name(words[0]) == "git" else words


def _unwrapped(words: Words) -> Words:
    while len(words) > 1:
        count = 2 if words[0] == "timeout" and re.fullmatch(r"[0-9.]+[smh]?", words[1]) else 1
        if (count == 1 and words[0] not in ("nice", "nohup", "time")) or len(words) == count:
            break
        words = words[count:]
    return words


def _plain_git(words: Words) -> Words:
    at = 1
    while at < len(words) and (words[at] in _GIT_PLAIN or words[at] == "-C"):
        at += 2 if words[at] == "-C" else 1
    return (words[0], *words[at:])


@dataclass(frozen=True, slots=True)
class _Program:
    check: Callable[[Words], bool]
    """Whether it runs no others with these words."""
    runs_project: bool = False
    writes: bool = False
    """It may write a file with a content of the command's choice."""


_FOLDERS = ("", "/bin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin")


def _known(words: Words) -> _Program | None:
    folder, _, name = words[0].rpartition("/")
    if folder not in _FOLDERS:
        return None
    if words[1:] == ("--version",) and name in _VERSIONED:
        return _ANY
    return _PROGRAMS.get(name)


# ── how words are checked ──


def _names(text: str) -> list[str]:
    return text.split()


def _any(_words: Words) -> bool:
    return True


def _without(*options: str) -> Callable[[Words], bool]:
    """A check for programs that run nothing else but with one of these options, written without dashes."""
    return lambda words: not any(_is_option(word, options) for word in words[1:])


def _is_option(word: str, options: Sequence[str]) -> bool:
    """Whether a word is, shortens or begins with one of them. One that is not certain may be any."""
    if not word.startswith(("-", UNKNOWN)):
        return False
    if UNKNOWN in word:
        return True
    name = word.lstrip("-").partition("=")[0].replace("_", "-")
    letters = word[1:] if word[1:2] != "-" else ""
    return any(
        (one in letters)
        if len(one) == 1
        else name.startswith(one) or (len(name) > 1 and one.startswith(name))
        for one in options
    )


def _sub(*subcommands: str, but: Sequence[str] = ()) -> Callable[[Words], bool]:
    """A check for programs that run nothing else with these subcommands, and without the options in `but`."""
    allowed, check = frozenset(subcommands), _without(*but)
    return lambda words: len(words) > 1 and words[1] in allowed and check(words[1:])


def _only(text: str) -> Callable[[Words], bool]:
    """A check for programs that are given nothing but these words."""
    allowed = frozenset(text.split())
    return lambda words: allowed.issuperset(words[1:])


def _git(words: Words) -> bool:
    before, words = words, _plain_git(words)
    if len(words) < 2 or any(UNKNOWN in word for word in before[: len(before) - len(words) + 2]):
        return False
    name, rest = words[1], words[2:]
    if name in _GIT_NEXT:
        return (
            bool(rest)
            and rest[0] in _GIT_NEXT[name]
            and not any(_is_option(one, ("f", "file", "blob")) for one in rest[1:])
        )
    if name not in _GIT_SAFE or any(_TRANSPORT.search(word) for word in rest):
        return False
    return not any(_is_option(word, (*_GIT_OPTIONS, *_GIT_LETTERS.get(name, ""))) for word in rest)


_GIT_PLAIN = frozenset({"--no-pager", "--no-optional-locks", "--literal-pathspecs", "--no-replace-objects"})
_GIT_SAFE = frozenset(
    _names("""
    add am apply blame branch cat-file check-attr check-ignore checkout cherry cherry-pick clean clone
    commit count-objects describe diff diff-files diff-index diff-tree fetch for-each-ref format-patch
    fsck gc grep hash-object init log ls-files ls-remote ls-tree merge merge-base mv name-rev notes pull
    push range-diff rebase reflog remote reset restore rev-list rev-parse revert rm shortlog show
    show-ref sparse-checkout stash status switch symbolic-ref tag update-index version whatchanged
    worktree
    """)
)
_GIT_OPTIONS = (
    *("upload-pack", "receive-pack", "exec", "open-files-in-pager", "config", "template", "output"),
    *("ext-diff", "git-dir", "work-tree"),
)
_GIT_LETTERS = {"rebase": "x", "clone": "uc", "grep": "O", "ls-remote": "u"}
_GIT_NEXT = {
    "bisect": {"start", "good", "bad", "new", "old", "reset", "log", "skip"},
    "submodule": {"status", "update", "init", "sync", "summary"},
    "config": {"--get", "--get-all", "--get-regexp", "--list", "-l", "user.name", "user.email"},
}
_TRANSPORT = re.compile(r"(?:^|=)[\w+.-]+::|ProxyCommand")


def _no_index(words: Words) -> bool:
    """A word of the shell may run what is in `a[$(…)]` where it wants a number."""
    return not any(re.search(r"[$`\x00]|\w\[", word) for word in words[1:])


def _test(words: Words) -> bool:
    return _no_index(words) and not any(word in ("-v", "-R") for word in words)


def _printf(words: Words) -> bool:
    """`-v NAME` and `%n` set a variable."""
    return _no_index(words) and not any(re.search(r"^-|%[^a-zA-Z]*n", word) for word in words[1:])


def _two(words: Words) -> bool:
    """The second file is written."""
    return sum(word == "-" or not word.startswith("-") for word in words[1:]) < 2


def _tool(words: Words) -> bool:
    """What `npx` or `uv run` is given: a tool that is known itself."""
    return bool(words) and words[0] in _TOOLS and _TOOLS[words[0]](words)


def _uv(words: Words) -> bool:
    if words[1:2] == ("run",):
        return _tool(words[2:])
    return _sub("sync", "lock", "add", "remove", "tree", "pip", "venv", "version", but=("python", "p"))(words)


def _curl(words: Words) -> bool:
    return _CURL(words) and not any("%output" in word for word in words)


_CURL = _without(
    *("K", "o", "O", "D", "c", "config", "output", "remote-name", "dump-header", "cookie-jar", "trace"),
    *("libcurl", "stderr", "etag-save", "hsts", "alt-svc", "expand", "engine"),
)


def _command(words: Words) -> bool:
    return words[1:2] in (("-v",), ("-V",))


def _env(words: Words) -> bool:
    return len(words) == 1


# ── the programs ──

_ANY = _Program(_any)
_READS = """
    : arch b2sum base64 basename cal cat cksum cmp column comm cut date df diff dir dirname du echo
    egrep expand expr factor false fgrep fmt fold free grep groups head hexdump hostname id join jq
    killall locale ls lsblk lscpu lsof md5sum nl nproc numfmt od paste pgrep pidof pkill printenv ps
    pwd readlink realpath rev seq sha1sum sha256sum sha512sum shasum sleep stat strings sum tac tail
    tr true tty type uname unexpand uptime vdir w wc whereis which who whoami zcat
    chmod chown mkdir rm rmdir touch
"""
"""They run nothing and write no content, whatever they are given."""
_VERSIONED = frozenset(
    _names(
        "bash cargo docker gcc git go java make node npm perl php pip pnpm python python3 ruby rustc tmux uv"
    )
)
_NPM = (
    *("script-shell", "shell", "editor", "git", "viewer", "node-options", "call", "userconfig", "workspace"),
    *("globalconfig", "init-module", "browser", "node-gyp", "prefix", "location", "C", "python", "config"),
    *("dir", "cwd", "pnpmfile", "global-pnpmfile", "use-yarnrc"),
)
_SCRIPTS = (
    *("install", "i", "ci", "add", "remove", "uninstall", "update", "up", "outdated", "ls", "list", "why"),
    *("run", "test", "t", "start", "stop", "audit", "info", "view", "pack", "version", "publish", "prune"),
)
_COMMON = ("build", "lint", "dev", "format", "typecheck", "check")
_TOOLS: dict[str, Callable[[Words], bool]] = {
    **dict.fromkeys(_names("biome black eslint flake8 isort jest prettier ruff stylelint tsc"), _any),
    "mypy": _without("python-executable"),
    "pylint": _without("init-hook"),
    # A worker of xdist is any command. Settings given by words can hold such options.
    "pytest": _without("pdb", "trace", "pdbcls", "tx", "px", "o", "override-ini"),
    "pyright": _without("pythonpath"),
    "vitest": _without("execArgv", "exec-argv", "poolOptions", "pool-options"),
    "vue-tsc": _any,
}
"""What projects check themselves with."""
_RUNS_PROJECT: dict[str, Callable[[Words], bool]] = {
    **_TOOLS,
    "cargo": _sub(
        *("add", "b", "bench", "build", "c", "check", "clean", "clippy", "doc", "fetch", "fmt", "metadata"),
        *("r", "run", "search", "t", "test", "tree", "update"),
        but=("config", "Z", "C"),
    ),
    "dotnet": _only("build clean format restore test --no-build --no-restore -c Release Debug"),
    "git": _git,
    "go": _sub(
        *("build", "test", "vet", "fmt", "list", "mod", "version", "doc", "get"),
        but=(
            *("exec", "toolexec", "vettool", "ldflags", "gcflags", "gccgoflags", "asmflags", "compiler"),
            *("overlay", "modfile", "C"),
        ),
    ),
    "gradle": _only("assemble build check clean test --info --stacktrace -q"),
    "mvn": _only("clean compile install package test verify -q -B -DskipTests"),
    "npm": _sub(*_SCRIPTS, but=_NPM),
    "npx": lambda words: _tool(words[1:]),
    "pip": _sub(
        *("install", "list", "show", "freeze", "check", "uninstall", "download"),
        but=("python", "editor", "global-option", "config-settings", "C", "prefix", "target", "t", "root"),
    ),
    "poetry": lambda words: words[1:2] == ("run",) and _tool(words[2:]),
    "pnpm": _sub(*_SCRIPTS, *_COMMON, but=_NPM),
    "uv": _uv,
    "yarn": _sub(*_SCRIPTS, *_COMMON, but=_NPM),
}
_PROGRAMS: dict[str, _Program] = {
    **dict.fromkeys(_names(_READS), _ANY),
    **{name: _Program(check, runs_project=True) for name, check in _RUNS_PROJECT.items()},
    **dict.fromkeys(_names("cp ln mv tee"), _Program(_without("suffix"), writes=True)),
    **dict.fromkeys(_names("cd dirs exit kill popd pushd"), _Program(_no_index)),
    "[": _Program(_test),
    "command": _Program(_command),
    "curl": _Program(_curl),
    "docker": _Program(_sub("ps", "images", "logs", "inspect", "version", "info", "stats")),
    "env": _Program(_env),
    "fd": _Program(_without("x", "X", "exec", "exec-batch")),
    "file": _Program(_without("C", "compile", "z", "Z", "uncompress")),
    "find": _Program(_without("exec", "ok", "delete", "fprint", "fls", "files0-from")),
    "gh": _Program(
        _sub(
            *("api", "issue", "label", "pr", "release", "run", "search", "status", "workflow"),
            but=("editor", "e", "web", "w"),
        )
    ),
    "kubectl": _Program(_sub("get", "describe", "logs", "version", "top", but=("kubeconfig",))),
    "printf": _Program(_printf),
    "rg": _Program(_without("pre", "hostname-bin", "z", "search-zip")),
    "sort": _Program(_without("o", "output", "compress-program", "T", "temporary-directory")),
    "test": _Program(_test),
    "tree": _Program(_without("o", "output", "R")),
    "uniq": _Program(_two),
}
_PROGRAMS["pip3"] = _PROGRAMS["pip"]
_WITH_SUBCOMMANDS = frozenset(_names("cargo docker gh git go kubectl npm pip pip3 pnpm uv yarn"))
