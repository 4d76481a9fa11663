"""All benchmarks in one run: `make bench`, or `python benchmarks/run.py --only echo`."""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import (
    attach,
    boss,
    boss_crowd,
    boss_hooks,
    boss_next,
    boss_usage,
    cli,
    codex,
    copilot,
    dash,
    delivery,
    echo,
    fleet,
    fleet_attach,
    growth,
    idle,
    inbox,
    mcp_call,
    memory,
    opencode,
    page,
    page_terminal,
    pool,
    resume,
    sleep,
    start,
    status,
    throughput,
)
from benchmarks import print as call
from benchmarks.report import Report, readable
from benchmarks.scene import Scene, await_quiet, bounded

BENCHMARKS: dict[str, tuple[Callable[[Scene, Report, int], None], str]] = {
    "cli": (cli.measure, "tmux"),
    "throughput": (throughput.measure, "dtach, tmux"),
    "echo": (echo.measure, "dtach -a, tmux attach"),
    "status": (status.measure, "tmux list-panes"),
    "attach": (attach.measure, "tmux attach"),
    "start": (start.measure, "dtach -n, tmux new -d"),
    "resume": (resume.measure, "starting each agent again by hand"),
    "memory": (memory.measure, "tmux, with one server for all sessions"),
    "sleep": (sleep.measure, "ending the agent, and claude --resume by hand"),
    "idle": (idle.measure, "tmux"),
    "delivery": (delivery.measure, "a paste into the terminal, tmux send-keys"),
    "inbox": (inbox.measure, "a Stop hook of your own, a file that is appended to"),
    "print": (call.measure, "claude -p"),
    "pool": (pool.measure, "claude -p, the Agent SDK"),
    "opencode": (opencode.measure, "opencode run"),
    "codex": (codex.measure, "codex exec"),
    "copilot": (copilot.measure, "copilot -p"),
    "boss": (boss.measure, "an HTTP endpoint of your own"),
    "next": (boss_next.measure, "tmux switch-client, if you know where to go"),
    "hooks": (boss_hooks.measure, "no hooks"),
    "crowd": (boss_crowd.measure, "a look at each pane"),
    "usage": (boss_usage.measure, "a count when all is over"),
    "page": (page.measure, "a terminal"),
    "terminal": (page_terminal.measure, "ssh and a terminal"),
    "dash": (dash.measure, "watch remuda ls"),
    "fleet": (fleet.measure, "ssh to each machine"),
    "far": (fleet_attach.measure, "ssh and tmux attach"),
    "mcp": (mcp_call.measure, "a shell command of the agent"),
    "growth": (growth.measure, "fewer of them"),
}
"""Each with what a user would use instead."""


_LIMIT = 1800.0
"""Seconds for one of them. Those that wait for others have a shorter one of their own."""
_QUIET_LIMIT, _QUIET_LEAST, _QUIET_TOTAL = 60.0, 5.0, 300.0
"""Seconds of waiting for a quiet machine before one of them: at most, at least, and before all together."""


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where a shell ignores it for its jobs
    began = time.monotonic()
    names = [one for one in BENCHMARKS if one in (options.only or BENCHMARKS)]
    report = Report(names, options.json, merge=bool(options.only))
    report.save()
    failed: list[str] = []
    patience = _QUIET_TOTAL
    print(", ".join(f"{key} {value}" for key, value in report.machine.items()))
    try:
        with Scene(options.megabytes * 1_000_000) as scene:
            for name in names:
                measure, instead = BENCHMARKS[name]
                asked = time.monotonic()
                noise = await_quiet(max(_QUIET_LEAST, min(_QUIET_LIMIT, patience)))
                patience -= time.monotonic() - asked
                report.begin(name, instead, options.rounds)
                report.noise(noise)
                failure = ""
                try:
                    with bounded(_LIMIT, name):
                        measure(scene, report, options.rounds)
                except KeyboardInterrupt:
                    failure = "interrupted"
                    raise
                except Exception as error:  # noqa: BLE001 - the other figures are still worth their time
                    traceback.print_exc(file=sys.stdout)
                    failure = f"{type(error).__name__}: {error}"
                    failed.append(name)
                finally:
                    report.end(failure)
                scene.end_all()
    except KeyboardInterrupt:
        print("\ninterrupted; everything that was started has been ended")
        return 130
    return _conclude(report, failed, time.monotonic() - began, strict=options.strict)


def _conclude(report: Report, failed: list[str], seconds: float, *, strict: bool) -> int:
    with_target = [figure for figure in report.figures if figure.target]
    met = len(with_target) - len(report.missed)
    print(f"\n{met} of {len(with_target)} targets met, in {seconds:.0f} s")
    for figure in report.missed:
        print(f"MISS  {figure.name}: {readable(figure.value)} {figure.unit}, target {figure.target}")
    for name, one in report.benchmarks.items():
        for what, why in one.missing:
            print(f"{'FAILED' if name in failed else 'NOT MEASURED'}  {what or name}: {why}")
    return 1 if failed or (strict and report.missed) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=list(BENCHMARKS), help="this one alone; may be repeated"
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds behind each median (default 3)")
    parser.add_argument("--megabytes", type=int, default=200, help="length of the stream (default 200)")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a target is missed")
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="keep all figures there; with --only those of the other benchmarks stay as they are",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
