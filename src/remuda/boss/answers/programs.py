"""Programs that are known to run no others, and with which words. Pure.

Below a rule that denies or asks for a command, only these are allowed. A list of programs or options that do
run others can never be complete. So a program, a subcommand or an option that is not listed is asked
(`program_options`). Programs that run the project's own code (`npm test`, `git commit`) are listed: what that
code does is not seen. But nothing that a part of the same command may have written is run.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from .program_options import Form, Given, ProgramEntry, Runs, Writes, entry, group, has_forms, parse
from .reading import UNKNOWN, Part, Words
from .spellings import plain_git, program_name, unwrapped


def doubt_about(part: Part, *, wrote: Writes) -> str:
    """Return why a simple command may run anything; empty if it runs nothing but itself.

    `wrote`: what other parts may have written before it ends.
    """
    words, effect = unwrapped(part.words), _effect(part.words)
    program = words[0]
    if effect is None:
        return f"{program!r} may run other programs"
    if effect.runs >= Runs.HOOKS and part.is_fed:
        return f"{program!r} may run what it reads"
    if wrote is Writes.FILES and effect.runs >= Runs.BY_NAME:
        return f"{program!r} may be, or run, what this command has written"
    if wrote is Writes.GIT and effect.runs is Runs.PROJECT:
        return f"{program!r} may run what this command has written"
    return ""


def written_by(words: Words) -> Writes:
    """Return what a simple command may write; everything, if that is unknown."""
    effect = _effect(words)
    return Writes.FILES if effect is None else effect.writes


def has_subcommands(program: str) -> bool:
    """Whether the word after the program says what it does, for each form that is known here."""
    return has_forms(program_name(program))


# ── what a simple command does ──


@dataclass(frozen=True, slots=True)
class _Effect:
    runs: Runs = Runs.BY_NAME
    writes: Writes = Writes.NOTHING


_FOLDERS = ("", "/bin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin")


def _effect(words: Words) -> _Effect | None:
    """Return what a simple command runs and writes; None if that is unknown."""
    inner = unwrapped(words)
    effect = _known(inner)
    if effect is None or inner == words:
        return effect
    is_logged = "nohup" in words[: len(words) - len(inner)]  # it may write nohup.out
    return _Effect(max(effect.runs, Runs.BY_NAME), Writes.FILES if is_logged else effect.writes)


def _known(words: Words) -> _Effect | None:
    folder, _, name = words[0].rpartition("/")
    if folder not in _FOLDERS:
        return None
    if words[1:] == ("--version",) and name in _VERSIONED:
        return _Effect()
    if name in _BUILTINS:
        return _Effect(Runs.BY_NAME if folder else Runs.BUILTIN) if _BUILTINS[name](words) else None
    if name in _STARTERS:
        return _STARTERS[name](words)
    if name != "git":
        return _listed(words, name)
    plain = plain_git(words)
    before = words[: len(words) - len(plain) + 1]  # `git -C {x,-cy} log` has an option more
    return None if any(UNKNOWN in word for word in before) else _listed(plain, name)


def _listed(words: Words, name: str) -> _Effect | None:
    """Return what a program with listed options runs and writes; None if that is unknown."""
    key, rest = name, words[1:]
    if has_forms(name):
        if not rest:
            return None
        key, rest = f"{name} {rest[0]}", rest[1:]
    found = entry(key)
    given = None if found is None else parse(found.form, rest)
    if found is None or given is None or not _operands_are_known(found, given):
        return None
    check = _CHECKS.get(key) or _CHECKS.get(name)
    writes = check(given, found.form) if check else found.form.writes
    if writes is None:
        return None
    return _Effect(found.form.runs, Writes.FILES if given.writes else writes)


def _operands_are_known(found: ProgramEntry, given: Given) -> bool:
    if found.most_operands is not None and len(given.operands) > found.most_operands:
        return False
    words = given.operands if found.form.is_on_npm else [*given.operands, *given.values]
    if found.form.is_tool and any(one.startswith("@") for one in words):
        return False  # options from a file: pytest, mypy and ruff read them where a value is wanted, too
    return found.only is None or all(map(found.only.fullmatch, given.operands))


# ── words of the shell ──


def _no_index(words: Words) -> bool:
    """A word of the shell may run what is in `a[$(…)]` where it wants a number."""
    return not any(re.search(r"[$`\x00]|\w\[", word) for word in words[1:])


def _numbers(words: Words) -> bool:
    """zsh takes each for arithmetic, which may set a variable."""
    return all(re.fullmatch(r"[-+%]?\d+|-[A-Z]+|-[ls]|[A-Z]+", word) for word in words[1:])


def _test(words: Words) -> bool:
    if not _no_index(words) or any(word in ("-v", "-R") for word in words):
        return False
    sides = [
        one for at, word in enumerate(words) if word in _COMPARISONS for one in words[at - 1 : at + 2 : 2]
    ]
    return all(re.fullmatch(r"-?\d+", one) for one in sides)


_COMPARISONS = ("-eq", "-ne", "-lt", "-le", "-gt", "-ge")


def _printf(words: Words) -> bool:
    """`-v NAME` and `%n` set a variable. Conversions of numbers take only numbers."""
    if not _no_index(words) or words[1:2] == () or words[1].startswith("-"):
        return False
    plain = _CONVERSION.sub("", words[1].replace("%%", ""))
    is_numeric = any(kind in "diuoxXfFeEgG" for kind in _CONVERSION.findall(words[1]))
    return "%" not in plain and (not is_numeric or all(re.fullmatch(r"[\w. -]*", one) for one in words[2:]))


_CONVERSION = re.compile(r"%[-+ 0#]*\d*(?:\.\d+)?([sbqcdiuoxXfFeEgG])")


def _command(words: Words) -> bool:
    return words[1:2] in (("-v",), ("-V",)) and not any(word.startswith("-") for word in words[2:])


_BUILTINS: dict[str, Callable[[Words], bool]] = {
    **dict.fromkeys((":", "echo", "false", "true", "type"), lambda _: True),
    **dict.fromkeys(("cd", "dirs", "popd", "pushd"), _no_index),
    **dict.fromkeys(("exit", "kill"), _numbers),
    "[": _test,
    "command": _command,
    "printf": _printf,
    "pwd": lambda words: set(words[1:]) <= {"-L", "-P", "-LP"},
    "test": _test,
}


# ── programs that start others ──


def _started(words: Words, options: str) -> _Effect | None:
    """Of `npx` and others, with the words after it: a tool that is listed itself."""
    form = entry(options)
    given = None if form is None else parse(form.form, words, stop=True)
    return None if given is None else _tool(tuple(given.operands))


def _tool(words: Words) -> _Effect | None:
    if not words or "/" in words[0]:
        return None
    found = entry(words[0]) or (entry(" ".join(words[:2])) if has_forms(words[0]) else None)
    effect = _listed(words, words[0]) if found is not None and found.form.is_tool else None
    return None if effect is None else _Effect(Runs.PROJECT, effect.writes)


def _npx(words: Words) -> _Effect | None:
    """Fetches a package that is not installed. `npx black` is not black."""
    tool = next((word for word in words[1:] if not word.startswith("-")), "")
    found = entry(tool)
    if found is None or not found.form.is_on_npm or _may_expand(words):
        return None
    return _started(words[1:], "options-of-npx")


def _uv(words: Words) -> _Effect | None:
    if words[1:2] == ("run",):
        return _started(words[2:], "options-of-uv-run")
    return _listed(words[1:], "pip") if words[1:2] == ("pip",) else _listed(words, "uv")


def _poetry(words: Words) -> _Effect | None:
    return _tool(words[2:]) if words[1:2] == ("run",) else _listed(words, "poetry")


def _scripts(words: Words) -> _Effect | None:
    """pnpm and yarn also run a program where they find no script of this name."""
    name, rest = program_name(words[0]), words[1:]
    if _may_expand(rest):
        return None
    if rest[:1] == ("exec",):
        return _tool(rest[1:])
    script = rest[1:] if rest[:1] == ("run",) else rest
    if (effect := _tool(script)) is not None:
        return effect
    if script and _is_script(script[0]):
        words_for_it = tuple(word for word in script[1:] if word != "--")
        return _Effect(Runs.PROJECT) if _may_pass("passed-to-script", words_for_it) else None
    return _listed(words, name) if rest[:1] != ("run",) else None


def _may_expand(words: Words) -> bool:
    """A script's shell expands the words that are passed on: seen with npm 6.14 and pnpm 9.15."""
    return any("$" in word or "`" in word for word in words)


def _is_script(name: str) -> bool:
    """Whether it is a common name of a script, and not the name of a program."""
    return name.partition(":")[0] in ("test", "start", *group("SCRIPTS").split(",")) and UNKNOWN not in name


_STARTERS: dict[str, Callable[[Words], _Effect | None]] = {
    "npx": _npx,
    "pnpm": _scripts,
    "poetry": _poetry,
    "uv": _uv,
    "yarn": _scripts,
}


# ── programs that depend on their operands ──

_Check = Callable[[Given, Form], Writes | None]
"""What it writes with these words; None if it may run others."""


def _reads_with(*options: str) -> _Check:
    return lambda given, form: Writes.NOTHING if given.has(*options) else form.writes


def _first_operand(reads: str, writes: str = "", default: Writes | None = None) -> _Check:
    """By the word that says what is done. Without one it is as `default` says.

    It must be the first word: gh takes a word after an option for its value, `git stash -- list` for a file.
    """
    reading, writing = frozenset(reads.split()), frozenset(writes.split())

    def check(given: Given, form: Form) -> Writes | None:
        if not given.operands:
            return default
        if not given.begins_with_operand:
            return None
        first = given.operands[0]
        return Writes.NOTHING if first in reading else form.writes if first in writing else None

    return check


def _remote(check: _Check | None = None) -> _Check:
    """Of git, for what may be an address: `ext::` and `ext://` run a program."""

    def checked(given: Given, form: Form) -> Writes | None:
        if any(map(_HELPER.search, (*given.operands, *given.values))):
            return None
        return check(given, form) if check else form.writes

    return checked


_HELPER = re.compile(
    r"(?:^|=)(?:[\w+.-]+::|(?!(?:https?|ssh|git|file|ftps?|git\+ssh|ssh\+git)://)[\w+.-]+://)|ProxyCommand"
)


def _git_config(given: Given, _form: Form) -> Writes | None:
    names = given.operands
    if given.has("--get", "--get-all", "--get-regexp", "--list", "-l"):
        return Writes.NOTHING
    if names[:1] in (["get"], ["list"]) or (len(names) == 1 and "." in names[0]):
        return Writes.NOTHING
    return Writes.GIT if len(names) == 2 and names[0] in ("user.name", "user.email") else None


def _git_checkout(given: Given, form: Form) -> Writes:
    """A new branch from here changes no file."""
    is_forced = given.has("-f", "--force", "--discard-changes")
    is_new = given.has("-b", "-c", "--create") and not given.operands and not is_forced
    return Writes.GIT if is_new else form.writes


def _git_reset(given: Given, form: Form) -> Writes:
    return form.writes if given.has("--hard", "--keep", "--merge", "-p", "--patch") else Writes.GIT


def _git_restore(given: Given, form: Form) -> Writes:
    is_index = given.has("-S", "--staged") and not given.has("-W", "--worktree", "-p", "--patch")
    return Writes.GIT if is_index else form.writes


def _passed(key: str, *, operands: bool, skip: int = 0) -> _Check:
    """For words that go to the project's own program: only options that are known and names of files."""

    def check(given: Given, form: Form) -> Writes | None:
        words = (*given.operands[skip:], *given.rest) if operands else tuple(given.rest)
        return form.writes if _may_pass(key, words) else None

    return check


def _may_pass(key: str, words: Words) -> bool:
    found = entry(key)
    passed = None if found is None else parse(found.form, words)
    return passed is not None and not _may_expand(words) and all(map(_FILE.fullmatch, passed.operands))


_FILE = re.compile(
    r"(?!.*\.\.)[\w@][\w@./-]*\.(?:[cm]?[jt]sx?|vue|svelte|py|css|scss|md|json|html|snap)(?:::\w+)*"
)


def _npm_run(given: Given, form: Form) -> Writes | None:
    """`npm run env -- x` runs x."""
    if given.operands[:1] == ["env"] or any(UNKNOWN in one for one in given.operands[:1]):
        return None
    return _passed("passed-to-script", operands=True, skip=1)(given, form)


def _cargo_test(given: Given, form: Form) -> Writes | None:
    """A name of a test may come after the dashes, too."""
    given.rest = [one for one in given.rest if not re.fullmatch(r"\w[\w:]*", one)]
    return _passed("passed-to-cargo-test", operands=False)(given, form)


def _cargo_fmt(given: Given, form: Form) -> Writes | None:
    if _passed("passed-to-cargo-fmt", operands=False)(given, form) is None:
        return None
    return Writes.NOTHING if given.has("--check") or "--check" in given.rest else form.writes


def _tsc(given: Given, form: Form) -> Writes | None:
    """`--noEmit false` takes it back. After `-b`, `-v` is not the version."""
    if given.has("-b", "--build") or not all("." in one for one in given.operands):
        return form.writes
    return _reads_with("--noEmit", "--version", "-v", "--showConfig")(given, form)


def _curl(given: Given, _form: Form) -> Writes | None:
    is_written = any("%output" in one for one in given.values)
    return None if is_written or (given.has("-w", "--write-out") and _from_file(given)) else Writes.NOTHING


def _from_file(given: Given) -> bool:
    return any(one.startswith("@") for one in given.values)


_GH = {
    "auth": ("status", ""),
    "pr": (
        "list ls view create new diff checks status comment edit close reopen ready review",
        "merge checkout",
    ),
    "issue": ("list ls view create new comment edit close reopen status", ""),
    "label": ("list ls create", ""),
    "release": ("list ls view", ""),
    "repo": ("list ls view", ""),
    "run": ("list ls view watch rerun cancel", ""),
    "search": ("code commits issues prs repos", ""),
    "workflow": ("list ls view run", ""),
}
_RUN_SCRIPT = _passed("passed-to-script", operands=True)
_CHECKS: dict[str, _Check] = {
    "black": _reads_with("--check", "--diff"),
    "cargo clippy": _passed("passed-to-cargo-clippy", operands=False),
    "cargo fmt": _cargo_fmt,
    "curl": _curl,
    "dotnet format": _reads_with("--verify-no-changes"),
    "git apply": _reads_with("--check", "--stat", "--numstat", "--summary"),
    "git bisect": _first_operand("log", "start good bad new old reset skip"),
    "git checkout": _git_checkout,
    "git clean": _reads_with("-n", "--dry-run"),
    "git config": _git_config,
    "git notes": _first_operand("list show", "add append remove", Writes.NOTHING),
    "git remote": _remote(
        _first_operand("show get-url", "add set-url remove rm rename prune update", Writes.NOTHING)
    ),
    "git reset": _git_reset,
    "git restore": _git_restore,
    "git stash": _first_operand("list show", "push pop apply drop clear save branch", Writes.FILES),
    "git submodule": _remote(_first_operand("status summary", "update init sync", Writes.NOTHING)),
    "git switch": _git_checkout,
    "git worktree": _first_operand("list", "add remove prune move lock unlock"),
    "go mod": _first_operand("tidy download verify graph why vendor"),
    "isort": _reads_with("-c", "--check", "--check-only", "--diff"),
    "kubectl config": _first_operand("current-context get-clusters get-contexts get-users view"),
    "npm audit": lambda given, _: Writes.FILES if given.operands else Writes.NOTHING,
    "ruff format": _reads_with("--check", "--diff"),
    "tsc": _tsc,
    "vitest": lambda given, form: None if "init" in (*given.operands, *given.values) else form.writes,
    "vue-tsc": _tsc,
    **{f"cargo {name}": _RUN_SCRIPT for name in ("r", "run")},
    **{f"cargo {name}": _cargo_test for name in ("t", "test", "bench")},
    **{f"gh {name}": _first_operand(reads, writes) for name, (reads, writes) in _GH.items()},
    **{f"git {name}": _remote() for name in ("clone", "fetch", "ls-remote", "pull", "push")},
    **{f"npm {name}": _RUN_SCRIPT for name in ("test", "t", "tst", "start", "stop", "restart")},
    "npm run": _npm_run,
    "npm run-script": _npm_run,
}
_VERSIONED = frozenset(
    {"bash", "cargo", "docker", "gcc", "git", "go", "java", "make", "node", "npm", "perl", "php", "pip"}
    | {"pnpm", "python", "python3", "ruby", "rustc", "tmux", "uv", "yarn"}
)
