"""Shell commands for tests of the policy."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

# BIN stands for the folder of the recorders: no generated text names a real program by its path.
DENIED = [
    *(
        "rm x",
        "rm -rf x",
        "BIN/rm x",
        "r''m x",
        'r""m x',
        "\\rm x",
        '"rm" x',
        "'rm' x",
        "$'rm' x",
        "r\\\nm x",
    ),
    *(
        "r\\m x",
        "$'\\x72m' x",
        '$"rm" x',
        "RM=rm; $RM x",
        "r{m,} x",
        "{rm,x}",
        "BIN/r? x",
        "BIN/[r]m x",
        "rm\tx",
    ),
    *("rm", "rm x 2>&1", "rm x >/dev/null", ">/dev/null rm x", "2>&1 rm x", "rm x &", "rm '' x", "rm -- x"),
    *(
        "git push",
        "git push origin main",
        "git -C . push",
        "git --no-pager push",
        "g\\it push",
        'git "push" x',
    ),
    *("git push 2>&1", "git 'pu''sh'", "git $'push'", "git {push,x}", "BIN/git push", "git >/dev/null push"),
    *("sudo ls", "sudo -n ls", "'su''do' ls"),
]
HARMLESS = [
    *(
        "ls -la",
        "echo a",
        "git status",
        "git log -3",
        "true",
        "cat x",
        "echo 'rm x'",
        'echo "a b" c',
        "npm test",
    ),
    *(
        "grep -rn 'rm' x",
        "head -3 x",
        "git diff --stat",
        "echo *",
        "ls x 2>/dev/null",
        "sed -n 1p x",
        "pytest -q",
    ),
    *(
        "echo a#b",
        "printf '%s' a",
        "[ -f x ]",
        "wc -l x",
        "find . -name x",
        "sort x | uniq -c",
        "cargo build",
    ),
    *("git commit -m 'a; rm x'", "echo a\\;b", "timeout 5 ls", "echo ~", "echo HEAD~1", "cat < /dev/null"),
]
CONTEXTS = [
    *(
        "@",
        "@; H",
        "H; @",
        "H && @",
        "H || @",
        "H | @",
        "@ | H",
        "H & @",
        "H\n@",
        "@\nH",
        "H |& @",
        "! @",
        "time @",
    ),
    *(
        "FOO='1' @",
        'FOO="1" @',
        "FOO=1 @",
        "FOO=$(H) @",
        "A=1 B='2' @",
        "FOO+=x @",
        "A[0]=1 @",
        "F\\\nOO='1' @",
    ),
    *("( @ )", "{ @; }", "(H; @)", "if true; then @; fi", "if @; then H; fi", "while @; do break; done"),
    *(
        "for i in 1; do @; done",
        "for ((i=0;i<1;i++)); do @; done",
        "case a in a) @;; esac",
        "case a in (a) @; esac",
    ),
    *("f() { @; }; f", "function f { @; }; f", "until @; do break; done", "select i in 1; do @; done < x"),
    *("echo $(@)", 'echo "$(@)"', "echo `@`", 'echo "`@`"', "echo $((1 + $(@; echo 1)))", "echo ${X:-$(@)}"),
    *(
        "echo $( (true); @ )",
        'echo "$( (true); @ )"',
        'echo "$(case x in x) @;; esac)"',
        "echo $((true; @) )",
    ),
    *(
        "cat <(@)",
        "H > >(@)",
        "cat <<E\n$(@)\nE",
        "cat <<'E'\n$(H)\nE\n@",
        "cat <<-E\n\t`@`\n\tE",
        "cat <<< $(@)",
    ),
    *(
        "cat <<'E'\nfoo\\\nE\n@\nE",
        "cat <<E\nfoo\\\nE\n@\nE",
        "cat <<$X\n'\n$X\n@\n#'",
        'cat <<"E F"\na\nE F\n@',
    ),
    *("cat <<A <<B\n$(@)\nA\nx\nB", "cat <<E | H\n$(@)\nE", "cat <<E; @\na\nE", "cat <<\\E\n'\nE\n@\n#'"),
    *("true # c \\\n@", "true # '\n@ # '", "echo a#'\n@\n#'", "# '\n@\n# '", "echo a # b; H\n@", "H;# c\n@"),
    *("echo $'\\''; @; echo ''", "echo ${x:-'}'}; @; echo ''", "echo `# c`; @", 'echo "\\""; @; echo ""'),
    *(
        "echo '\\'; @; echo ''",
        "echo \\'; @; echo \\'",
        'echo "\\\\"; @; echo "\\\\"',
        "echo \\\n; @",
        "echo a \\\n&& @",
    ),
    *("eval '@'", 'eval "@"', "eval @", "bash -c '@'", "sh -c '@'", "echo '@' | sh", "echo '@' | bash -s x"),
    *(
        "echo '@' | bash -o posix",
        "echo '@' | sh /dev/stdin",
        "echo '@' | bash +e",
        "echo '@' | xargs -I % sh -c %",
    ),
    *(
        ". <(echo '@')",
        "echo '@' | source /dev/stdin",
        "bash <<< '@'",
        "bash <<E\n@\nE",
        "printf '@' > f; . ./f",
    ),
    *(
        "env @",
        "env -i PATH=$PATH @",
        "env '-S@'",
        "env --split-string='@'",
        "env A=1 @",
        "nice @",
        "nice -n 5 @",
    ),
    *(
        "timeout 5 @",
        "timeout -s TERM 5 @",
        "setsid @",
        "nohup @",
        "stdbuf -o0 @",
        "setarch x86_64 @",
        "ionice @",
    ),
    *(
        "setpriv --no-new-privs @",
        "prlimit --core=0 @",
        "command @",
        "builtin command @",
        "exec @",
        "coproc @",
    ),
    *(
        "script -qc'@' /dev/null",
        "script -qc '@' /dev/null",
        "flock x @",
        "unshare -U @",
        "find x -exec @ \\;",
    ),
    *(
        "echo x | xargs @",
        "xargs @ < x",
        "xargs -n1 @ < x",
        "find . -maxdepth 0 -exec sh -c '@' \\;",
        "oddrun @",
    ),
    *(
        "oddeval '@'",
        "echo '@' | oddstdin",
        "oddrun oddrun @",
        "oddrun env @",
        "oddrun -- @",
        "timeout 5 oddrun @",
    ),
    *("python3 -c \"import os; os.system('@')\"", "perl -e 'system(\"@\")'", "awk 'BEGIN{system(\"@\")}'"),
    *(
        "awk 'BEGIN{\"@\" | getline}'",
        "sed '1e @' x",
        "sed 's/.*/@/e' x",
        "printf 'a:\\n\\t@\\n' | make -f -",
    ),
    *(
        "trap '@' EXIT",
        "trap '@' DEBUG; H",
        "alias q='@'\nq",
        "shopt -s expand_aliases\nalias q='@'\nq",
        "ls() { @; }; ls",
    ),
    *(
        "hash -p BIN/rm ls; ls x",
        "enable -n echo; @",
        'set -- @; "$@"',
        "X='@'; $X",
        "X='@'; eval \"$X\"",
        "let 'a[$(@)]'",
    ),
    *(
        "test -v 'a[$(@)]'",
        "[ -v 'a[$(@)]' ]",
        "printf -v 'a[$(@)]' x",
        "read 'a[$(@)]' < x",
        "unset 'a[$(@)]'",
    ),
    *(
        "[[ -n $(@) ]]",
        "[[ a[$(@)] -eq 0 ]]",
        "[[ a == @ ]]",
        "((a[$(@)]))",
        "declare a=$(@)",
        "export A=$(@)",
        "A=$(@)",
    ),
    *(
        "compgen -C '@'",
        "compgen -W '$(@)'",
        "mapfile -C '@' -c 1 < x",
        "jobs -x @",
        "exec 3< <(@)",
        "wait; @",
    ),
    *(
        "PATH=BIN; @",
        "export PATH=BIN; @",
        "cp BIN/rm q; ./q x",
        "ln -s BIN/rm q; ./q x",
        "cp BIN/r? .; ./rm x",
    ),
    *(
        "printf '#!BASH\\n@' | tee q; chmod +x q; ./q",
        "echo '@' | tee q; chmod +x q; ./q",
        "cd BIN; ./rm x",
        "tar cf q x; @",
    ),
    *(
        "H {fd}>/dev/null; @",
        "H 2>&1 | @",
        "H &>/dev/null; @",
        "H >& /dev/null; @",
        "H 3>&1 >&3-; @",
        "H 10>&1; @",
    ),
    *(
        "H >|/dev/null; @",
        "H <>x; @",
        "echo a>/dev/null; @",
        "echo 2>/dev/null; @",
        "echo a2>/dev/null; @",
        "H<x; @",
    ),
    *(
        "H ;\t@",
        "H;;@",
        "H ;& @",
        "H &\n\n@",
        "H &&\n\n@",
        "H |\n@",
        "\n\n@\n\n",
        "   @   ",
        "H;\\\n@",
        "H &\\\n& @",
    ),
    *(
        "echo a!b; @",
        "echo '!'; @",
        'echo "a!b"; @',
        "echo !(x); @",
        "shopt -s extglob; echo @(x)",
        "echo a\\ b; @",
    ),
    *(
        "echo ${x/'/@}; H; echo '",
        'echo ${x#"; @; "}',
        "echo $[1]; @",
        "echo $[$(@)]",
        "echo $'a\\'b'; @; echo ''",
    ),
    *(
        'echo "${x:-"; @; "}"',
        "echo a=(b); @",
        "a=(b c); @",
        "a=($(@))",
        "echo {a,$(@)}",
        "echo =x; @",
        "=ls; @",
    ),
    *(
        "H\r\n@",
        "H\r@",
        "H\v@",
        "H\f@",
        "H\u00a0@",
        "H \u2028@",
        "echo \u00e0; @",
        "echo '\u00e9' | @",
        "H\x01@",
        "\ufeff@",
    ),
    *(
        "'' @",
        '"" @',
        "$X @",
        "$(true) @",
        "`true` @",
        "${X} @",
        "$@ @",
        "$X$Y @",
        "{ @\n}",
        "{ H; @; } | H",
        "((1)) && @",
    ),
    *(
        "repeat 1 @",
        "noglob @",
        "nocorrect @",
        "- @",
        "then @",
        "do @",
        "in @",
        "[ a ] && @",
        "[ a = a ] && @",
        "[ a\n@",
    ),
    *(
        "git -c core.pager='@' log",
        "git -c alias.q='!@' q",
        "git rebase -x '@'",
        "git bisect run @",
        "npm exec -- @",
    ),
    *(
        "git submodule foreach '@'",
        "git clone -u '@' a",
        "git grep -O'@' a",
        "git fetch --upload-p='@' a",
        "npx -c '@'",
    ),
    *(
        "tar cf /dev/null x --checkpoint=1 --checkpoint-action=exec='@'",
        "split --filter='@' x",
        "tar -I '@' -cf q x",
    ),
    *(
        "sort --compress-prog='@' x",
        "make -f x SHELL='@'",
        "H; wait; @",
        "exit; @",
        "true || @",
        "false && @",
        "false || @",
    ),
]
_NOISE = [
    *" \t\n;|&<>(){}[]'\"`$\\#!*?~=^%,:@-+./\r",
    *(
        "&&",
        "||",
        "|&",
        ";;",
        "<<",
        "<<<",
        "<<-E",
        ">>",
        "2>&1",
        "$(",
        "$((",
        "))",
        "${",
        "$'",
        '$"',
        "\\\n",
        "# ",
        "'\n",
    ),
    *(
        "E\n",
        "\nE\n",
        "[[ ",
        " ]]",
        "case a in a) ",
        ";; esac",
        "rm x",
        "rm",
        "git push",
        "echo ",
        "ls",
        "x",
        "in",
        "do ",
    ),
]

NOT_UNDERSTOOD = [
    *(
        "ls > x",
        "ls >> x",
        "ls < x",
        "ls 2>x",
        "ls <<< x",
        "cat <<E\nx\nE",
        "ls >&x",
        "ls 3<>x",
        "ls >/dev/null2",
    ),
    *(
        "ls $(rm x)",
        "ls `rm x`",
        'ls "$(rm x)"',
        'ls "`rm x`"',
        "ls $X",
        "ls ${X}",
        "ls $'\\n'",
        'ls $"x"',
        'ls "$X"',
    ),
    *(
        "ls <(rm x)",
        "(ls)",
        "{ ls; }",
        "! ls",
        "if ls; then rm x; fi",
        "for i in a; do ls; done",
        "ls() { rm x; }",
    ),
    *(
        "case a in a) ls;; esac",
        "[[ a ]]",
        "((1))",
        "while ls; do rm x; done",
        "coproc { ls; }",
        "a=(b)",
        "ls;;ls",
    ),
    *(
        "X=1 ls",
        "X='1' ls",
        'X="1" ls',
        "X+=1 ls",
        "X[0]=1 ls",
        "X=1",
        "1=x ls",
        "=ls",
        "export X=1",
        "declare X",
    ),
    *(
        "l? x",
        "l* x",
        "[l]s x",
        "{ls,x}",
        "~/x",
        "'' x",
        '"" x',
        "lü x",
        "ls 'x",
        'ls "x',
        "ls \\",
        "ls &&",
        "ls |",
    ),
    *(
        "ls\r rm x",
        "ls\x00",
        "ls\xa0x",
        "ls \u202e",
        "ls\x0bx",
        "ls\x01",
        "\ufeffls",
        "ls \ud800",
        "",
        "   ",
        "\n",
    ),
    *(
        'echo "a!b"',
        "echo a!b",
        "!ls",
        "&& ls",
        "; ls",
        "ls & & ls",
        "l\\\ns",
        "ls &\\\n& rm x",
        "{fd}>/dev/null ls",
    ),
    *(
        "echo @(x)",
        "echo !(x)",
        "echo $[1]",
        "echo $((1))",
        "time { ls; }",
        "function f { ls; }",
        "x" * (1 << 13),
    ),
]
"""What bash runs is not certain from these texts, or they are not complete."""


def generate(count: int, seed: int) -> Iterator[str]:
    """Every context with every form of a denied command first, then nested, joined and mutated ones."""
    rng = random.Random(seed)
    first = [fill(context, "rm x", rng) for context in CONTEXTS]
    first += [fill(rng.choice(CONTEXTS), denied, rng) for denied in DENIED]
    yield from first[:count]
    for _ in range(count - len(first)):
        text = _list(rng) if rng.random() < 0.25 else _nested(rng)
        yield _mutate(text, rng) if rng.random() < 0.4 else text


def _nested(rng: random.Random) -> str:
    text = rng.choice(("rm x", "git push", "BIN/rm x")) if rng.random() < 0.6 else rng.choice(DENIED)
    for _ in range(rng.choice((1, 1, 2, 3))):
        text = fill(rng.choice(CONTEXTS), text, rng)
    return text


def _list(rng: random.Random) -> str:
    """Mostly of commands that are understood."""
    parts = [rng.choice(DENIED if rng.random() < 0.1 else HARMLESS) for _ in range(rng.randint(1, 4))]
    return rng.choice(("; ", " && ", " | ", "\n", " & ", " ")).join(parts)


def generate_noise(count: int, seed: int, words: Sequence[str]) -> Iterator[str]:
    """Random texts of these words and of everything that means something to a shell."""
    rng = random.Random(seed)
    for _ in range(count):
        pieces = [
            rng.choice(words) if rng.random() < 0.5 else rng.choice(_NOISE) for _ in range(rng.randint(1, 9))
        ]
        yield rng.choice(("", " ")).join(pieces)


def fill(context: str, denied: str, rng: random.Random) -> str:
    return "".join(
        denied if char == "@" else rng.choice(HARMLESS) if char == "H" and _is_hole(context, at) else char
        for at, char in enumerate(context)
    )


def _is_hole(context: str, at: int) -> bool:
    return context[at - 1 : at] not in ("A", "P", "S", "T") and context[at + 1 : at + 2] != "E"


def _mutate(text: str, rng: random.Random) -> str:
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(text) + 1)
        kind = rng.randrange(4)
        if kind == 0:
            text = text[:at] + rng.choice(_NOISE) + text[at:]
        elif kind == 1:
            text = text[:at] + text[at + 1 :]
        elif kind == 2:
            text = text[:at] + text[at : at + 6] + text[at:]
        else:
            text = text[:at] + text[at + 1 : at + 2] + text[at : at + 1] + text[at + 2 :]
    return text
