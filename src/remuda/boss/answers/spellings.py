"""Other ways to write the same command: a rule against one of them is a rule against each. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from signal import Signals

from .program_options import entry, has_forms, parse
from .reading import OPERAND, Words


def program_name(word: str) -> str:
    """Return the name without its folder, in lower case: on some file systems `RM` is `rm`."""
    return word.rpartition("/")[2].lower()


def every_form(words: Words) -> tuple[Words, ...]:
    """Return what certainly runs, in every known spelling.

    Without `timeout 60` before it, with other names of its subcommand, and what `npx` or `uv run` would run.
    """
    forms = {words: None}
    waiting = [words]
    while waiting and len(forms) < MOST_FORMS:
        form = waiting.pop(0)
        others = (unwrapped(form), plain_git(form), *_same(form), *_inner(form))
        new = [other for other in dict.fromkeys(others) if other and other not in forms]
        forms |= dict.fromkeys(new)
        waiting += new
    return tuple(forms)


MOST_FORMS = 64
"""About as many spellings are looked for: those of `npx npx npx …` took minutes."""


# ── other ways to write the same ──


def unwrapped(words: Words) -> Words:
    while len(words) > 1:
        count = 2 if words[0] == "timeout" and re.fullmatch(r"[0-9.]+[smh]?", words[1]) else 1
        if (count == 1 and words[0] not in ("nice", "nohup", "time")) or len(words) == count:
            break
        words = words[count:]
    return words


def plain_git(words: Words) -> Words:
    """Return the words with the subcommand next to `git`."""
    if program_name(words[0]) != "git":
        return words
    at = 1
    while at < len(words) and (words[at] in _GIT_PLAIN or words[at] == "-C"):
        at += 2 if words[at] == "-C" else 1
    return (words[0], *words[at:])


_GIT_PLAIN = frozenset({"--no-pager", "--no-optional-locks", "--literal-pathspecs", "--no-replace-objects"})


def _same(words: Words) -> Iterator[Words]:
    name = program_name(words[0])
    for programs in _SAME_PROGRAMS:
        if name in programs:
            yield from ((other, *words[1:]) for other in programs if other != name)
    for names in _same_subcommands(name):
        for one in names:
            if words[1 : 1 + len(one)] == one:
                yield from ((words[0], *other, *words[1 + len(one) :]) for other in names if other != one)
    yield from _same_options(words, name)
    for find in _SAME_FORMS.get(name, ()):
        yield from find(words)
    if name in ("pnpm", "yarn") and len(words) > 1:  # each name that is not a subcommand is a script
        if words[1] == "run":
            yield (words[0], *words[2:])
        elif words[1] != "run-script" and not words[1].startswith("-"):
            yield (words[0], "run", *words[1:])


def _same_options(words: Words, name: str) -> Iterator[Words]:
    """With all names of each option: `rm -R` is `rm -r`, and `curl --request` is `curl -X`."""
    before = 2 if has_forms(name) else 1
    found = entry(" ".join((name, *words[1:before])))
    given = _names(words)
    groups = () if found is None else found.form.same
    if others := sorted(one for group in groups if group & given for one in group - given):
        yield (*words[:before], *others, *words[before:])


def _names(words: Words) -> set[str]:
    """Return the names of all options; a letter of a joined value may be among them."""
    options = [word for word in words[1:] if word.startswith("-")]
    letters = {f"-{one}" for word in options if not word.startswith("--") for one in word[1:]}
    return letters | {word.partition("=")[0] for word in options}


def _same_pushes(words: Words) -> Iterator[Words]:
    """By what is pushed where: `+x` is forced, `:x` deletes, and `HEAD:refs/heads/x` goes to x."""
    if words[1:2] != ("push",):
        return
    for word in words[2:]:
        for option in _PUSHES.get(word) or _PUSHES.get(word[:1], ()):
            if option not in words:
                yield (*words[:2], option, *words[2:])
    targets = [word if word.startswith("-") else _pushed_to(word) for word in words[2:]]
    unnamed = 2 - sum(not one.startswith("-") for one in targets)
    if OPERAND not in words and not _names(words).isdisjoint(("--all", "--branches", "--mirror")):
        unnamed = max(unnamed, 1)
    yield (*words[:2], *targets, *[OPERAND] * unnamed)


_PUSHES = {
    "+": ("--force",),
    ":": ("--delete",),
    "--mirror": ("--force", "--delete"),
    "--prune": ("--delete",),
}


def _pushed_to(word: str) -> str:
    branch = word.removeprefix("+").rpartition(":")[2].removeprefix("refs/heads/")
    return OPERAND if branch in ("", "HEAD", "@") else branch


def _same_branches(words: Words) -> Iterator[Words]:
    """`git branch -D` is `-d -f`."""
    if words[1:2] != ("branch",):
        return
    given = _names(words)
    for letter, name in (("d", "--delete"), ("m", "--move"), ("c", "--copy")):
        forced = f"-{letter.upper()}"
        if forced in given:
            others = [name, "--force"]
        elif given & {f"-{letter}", name} and given & {"-f", "--force"}:
            others = [forced]
        else:
            continue
        if not given.issuperset(others):
            yield (*words[:2], *others, *words[2:])


def _same_signals(words: Words) -> Iterator[Words]:
    """`kill -s KILL` and `kill -SIGKILL` are `kill -9`."""
    for before, word in pairwise(words):
        if before not in ("-s", "-n", "--signal") and not word.startswith("-"):
            continue
        given = word.removeprefix("--signal=").lstrip("-").upper().removeprefix("SIG")
        for one in Signals:
            names = (str(int(one)), one.name.removeprefix("SIG"), one.name)
            if given in names:
                rest = [other for other in words[1:] if other not in (word, "-s", "-n", "--signal")]
                yield from ((words[0], f"-{name}", *rest) for name in names)
                return  # the first one: all of many in every order would be too many


_SAME_FORMS: dict[str, tuple[Callable[[Words], Iterator[Words]], ...]] = {
    "git": (_same_pushes, _same_branches),
    **dict.fromkeys(("kill", "killall", "pkill"), (_same_signals,)),
}
_SAME_PROGRAMS = (
    ("pip", "pip3"),
    ("grep", "egrep", "fgrep"),
    ("test", "["),
    ("pytest", "py.test"),
    ("fd", "fdfind"),
    ("python", "python3"),
    ("npx", "pnpx", "bunx"),
)
_SAME_SUBCOMMANDS = {
    "cargo": "b|build c|check d|doc r|run t|test rm|remove",
    "docker": "ps|container.ls|container.list|container.ps images|image.ls|image.list logs|container.logs "
    "inspect|container.inspect stats|container.stats info|system.info",
    "gh": "pr.create|pr.new pr.list|pr.ls issue.create|issue.new issue.list|issue.ls run.list|run.ls "
    "release.create|release.new release.list|release.ls workflow.list|workflow.ls label.list|label.ls",
    "git": "add|stage blame|annotate",
    "npm": "install|i|add|in|ins|inst|insta|instal|isnt|isnta|isntal|isntall "
    "uninstall|remove|rm|r|un|unlink update|up|upgrade|udpate ls|list|ll|la view|info|show|v why|explain "
    "ci|clean-install|ic|install-clean|isntall-clean run|run-script|rum|urn exec|x test|t|tst|run.test "
    "start|run.start stop|run.stop restart|run.restart dedupe|ddp version|verison publish|pub",
    "pnpm": "install|i add|install.--save uninstall|remove|rm|un update|up|upgrade ls|list|ll|la "
    "test|t run|run-script",
    "yarn": "upgrade|up",
}


@cache
def _same_subcommands(program: str) -> tuple[tuple[Words, ...], ...]:
    return tuple(
        tuple(tuple(one.split(".")) for one in group.split("|"))
        for group in _SAME_SUBCOMMANDS.get(program, "").split()
    )


def _inner(words: Words) -> Iterator[Words]:
    """Return what a program that runs others would run."""
    name = program_name(words[0])
    for before in _RUN_OTHERS.get(name, ()):
        if words[1 : 1 + len(before)] == before:
            rest = _after_options(words[1 + len(before) :])
            if rest:
                yield rest
                if found := re.fullmatch(r"(?:@[^/]+/)?([^@/]+)(?:@.*)?", rest[0]):
                    yield (found[1], *rest[1:])
    if name == "uv" and words[1:2] == ("pip",):
        yield words[1:]


def _after_options(words: Words) -> Words:
    """The program and its words. Only options of `uv run` that are known take the next word for a value."""
    known = entry("options-of-uv-run")
    if known is not None and (given := parse(known.form, words, stop=True)) is not None:
        return tuple(given.operands)
    while words and words[0].startswith("-"):
        words = words[1:]
    return words


_RUN_OTHERS: dict[str, tuple[Words, ...]] = {
    **dict.fromkeys(("npx", "pnpx", "bunx", "uvx"), ((),)),
    **dict.fromkeys(("poetry", "pipenv", "pdm", "rye", "hatch", "pipx", "conda"), (("run",),)),
    **dict.fromkeys(("python", "python3"), (("-m",),)),
    "bun": (("run",), ("x",)),
    "npm": (("exec",), ("x",)),
    "pnpm": (("exec",), ("dlx",), ("run",)),
    "uv": (("run",), ("tool", "run")),
    "yarn": (("exec",), ("dlx",), ("run",)),
}
