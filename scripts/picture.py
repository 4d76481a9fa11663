"""Make an animated SVG of a recorded terminal session.

    python scripts/picture.py                    record docs/pictures/session.cast, and make session.svg of it
    python scripts/picture.py FILE.cast OUT.svg  make a picture of a recording (asciicast v2)

The recording is made by `remuda start --record`: a shell in a session, in a home of its own, into which the
commands below are typed. A program that shows no animation shows the last screen.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from html import escape
from pathlib import Path

from remuda import Session
from remuda.terminal.screen import open_screen
from remuda.wire.connection import ClientConnection

FOLDER = Path(__file__).resolve().parent.parent / "docs/pictures"
COMMANDS = [
    "remuda start work --agent demo --detach",
    'remuda send work "are you there?" --wait',
    'remuda send work "RUNBASH touch hello.txt"',
    "remuda boss up --detach",
    "remuda ls",
    "remuda queue",
    "remuda approve work --yes",
    "remuda messages work",
    "remuda kill work",
]
COLS, ROWS = 80, 25
PROMPT = "$ "
_TYPED = 6
"""Characters per picture while a command is typed."""
_TYPING_INTERVAL = 0.12
_READING_TIME = 1.5
_PATIENCE = 30.0

# ── recording ──


def record(cast: Path) -> None:
    program = Path(sys.executable).with_name("remuda")
    with tempfile.TemporaryDirectory(prefix="remuda-picture-") as home:
        folder = Path(home, "engine")
        folder.mkdir()
        env = {"HOME": home, "PS1": PROMPT, "PATH": f"{program.parent}:/usr/bin:/bin", "PAGER": "cat"}
        command = ["env", "-u", "REMUDA_HOME", "-u", "XDG_STATE_HOME", "bash", "--norc", "--noprofile"]
        session = Session.start(
            "picture",
            command,
            cwd=folder,
            env=env,
            folder=Path(home, "outer"),
            cols=COLS,
            rows=ROWS,
            record=cast,
        )
        try:
            with session.attach() as client:
                for number, line in enumerate(COMMANDS):
                    _until_prompt(session)
                    time.sleep(_READING_TIME if number else _TYPING_INTERVAL)
                    for begin in range(0, len(line), _TYPED):
                        client.send(ClientConnection.input(line[begin : begin + _TYPED].encode()))
                        time.sleep(_TYPING_INTERVAL)
                    client.send(ClientConnection.input(b"\r"))
                    time.sleep(_TYPING_INTERVAL)
                _until_prompt(session)
                time.sleep(_READING_TIME)
        finally:
            own = {**env, "LC_ALL": "C.UTF-8"}
            for words in (["kill", "--all", "--yes"], ["boss", "down"]):
                subprocess.run([program, *words], env=own, cwd=folder, capture_output=True, check=False)
            session.kill()


def _until_prompt(session: Session) -> None:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        lines = [one for one in session.screen() if one.strip()]
        if lines and lines[-1].strip() == PROMPT.strip():
            return
        time.sleep(0.05)
    raise SystemExit("the shell shows no prompt")


# ── drawing ──

CELL_WIDTH, CELL_HEIGHT, MARGIN = 8.4, 18, 14
BACKGROUND, FOREGROUND = "#1e2127", "#d7dae0"
PALETTE = (
    "#3f4451", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d7dae0",
    "#7f848e", "#ff7b86", "#b1e18b", "#f0d197", "#7cc7ff", "#de9bf0", "#74d4df", "#ffffff",
)  # fmt: skip
_SGR = re.compile(r"\x1b\[([\d;:]*)m|\x1b\][^\x1b\x07]*(?:\x07|\x1b\\)|\x1b\[[\d;]*[A-Za-z]")
_SHORTEST = 0.08
"""Events that follow each other faster than this, in seconds, are one picture."""


def frames(cast: Path) -> tuple[int, int, list[tuple[float, list[str]]]]:
    """Read a recording: columns, rows, and the screens with their times, in rows with SGR sequences."""
    header, *events = map(json.loads, cast.read_text(encoding="utf-8").splitlines())
    cols, rows = header["width"], header["height"]
    screen = open_screen(cols, rows)
    if screen is None:
        raise SystemExit("the terminal emulator is not installed")
    shown: list[tuple[float, list[str]]] = []
    for number, (at, kind, data) in enumerate(events):
        if kind != "o":
            continue
        screen.feed(data.encode())
        following = events[number + 1][0] if number + 1 < len(events) else at + 1
        if following - at < _SHORTEST:
            continue
        picture = [screen.styled_row(y, cols).decode() for y in range(rows)]
        if not shown or shown[-1][1] != picture:
            shown.append((at, picture))
    screen.close()
    return cols, rows, shown


def draw(cast: Path) -> str:
    cols, rows, shown = frames(cast)
    width, height = round(cols * CELL_WIDTH + 2 * MARGIN), rows * CELL_HEIGHT + 2 * MARGIN
    total = shown[-1][0] + 4.0
    row_ids: dict[str, str] = {}
    films = []
    for number, (_, picture) in enumerate(shown):
        uses = [
            f'<use href="#{row_ids.setdefault(row, f"r{len(row_ids)}")}" y="{y * CELL_HEIGHT}"/>'
            for y, row in enumerate(picture)
            if row
        ]
        films.append(f'<g transform="translate({number * width})">{"".join(uses)}</g>')
    steps = [
        f"{100 * at / total if number else 0:.2f}%{{transform:translateX({-number * width}px)}}"
        for number, (at, _) in enumerate(shown)
    ]
    defined = [f'<g id="{name}">{"".join(_spans(row))}</g>' for row, name in row_ids.items()]
    last = (len(shown) - 1) * width
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
            f' height="{height}" role="img" aria-label="A terminal session with Remuda">',
            "<style>text{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:14px;"
            "white-space:pre}",
            f".film{{transform:translateX({-last}px);animation:play {total:.1f}s step-end infinite}}",
            f"@keyframes play{{{''.join(steps)}}}",
            "@media (prefers-reduced-motion:reduce){.film{animation:none}}</style>",
            f"<defs>{''.join(defined)}</defs>",
            f'<rect width="{width}" height="{height}" rx="8" fill="{BACKGROUND}"/>',
            f'<svg x="{MARGIN}" y="{MARGIN}" width="{width - MARGIN}" height="{height - 2 * MARGIN}">',
            '<g class="film">',
            *films,
            "</g></svg></svg>",
            "",
        ]
    )


def _spans(row: str) -> Iterator[str]:
    """One `text` for each run of cells with the same looks; each is as wide as its cells."""
    looks: dict[str, str] = {}
    column = 0
    begin = 0
    for found in [*_SGR.finditer(row), None]:
        text = row[begin : found.start() if found else len(row)]
        for piece in re.findall(r"\s{2,}|\S+(?:\s\S+)*\s?|\s", text):
            if piece.strip():
                yield _span(piece.rstrip(), column, looks)
            column += len(piece)
        if found:
            begin = found.end()
            if found[1] is not None:
                _take_sgr(found[1], looks)


def _span(text: str, column: int, looks: dict[str, str]) -> str:
    attributes = "".join(f' {name}="{value}"' for name, value in looks.items())
    fill = "" if "fill" in looks else f' fill="{FOREGROUND}"'
    return (
        f'<text x="{column * CELL_WIDTH:.1f}" y="{CELL_HEIGHT - 4}" textLength="{len(text) * CELL_WIDTH:.1f}"'
        f' lengthAdjust="spacingAndGlyphs"{fill}{attributes}>{escape(text)}</text>'
    )


def _take_sgr(codes: str, looks: dict[str, str]) -> None:
    numbers = [int(one or 0) for one in re.split("[;:]", codes)]
    while numbers:
        number = numbers.pop(0)
        if number == 0:
            looks.clear()
        elif number == 1:
            looks["font-weight"] = "bold"
        elif number == 2:
            looks["opacity"] = ".6"
        elif number == 22:
            looks.pop("font-weight", None)
            looks.pop("opacity", None)
        elif 30 <= number <= 37 or 90 <= number <= 97:
            looks["fill"] = PALETTE[number - 30 if number < 90 else number - 82]
        elif number == 39:
            looks.pop("fill", None)
        elif number in (38, 48):
            colour = _colour(numbers)
            if number == 38:
                looks["fill"] = colour


def _colour(numbers: list[int]) -> str:
    """Take the numbers of a colour: `5;n` or `2;r;g;b`."""
    if numbers.pop(0) == 2:
        red, green, blue = (numbers.pop(0) for _ in range(3))
        return f"#{red:02x}{green:02x}{blue:02x}"
    number = numbers.pop(0)
    if number < 16:
        return PALETTE[number]
    if number >= 232:
        return f"#{8 + 10 * (number - 232):02x}" + 2 * f"{8 + 10 * (number - 232):02x}"
    number -= 16
    parts = (number // 36, number // 6 % 6, number % 6)
    return "#" + "".join(f"{55 + 40 * one if one else 0:02x}" for one in parts)


def main() -> None:
    if len(sys.argv) == 3:
        Path(sys.argv[2]).write_text(draw(Path(sys.argv[1])), encoding="utf-8")
        return
    cast = FOLDER / "session.cast"
    record(cast)
    shutil.copymode(__file__, cast)
    (FOLDER / "session.svg").write_text(draw(cast), encoding="utf-8")


if __name__ == "__main__":
    main()
