"""A signal that ends a call is heard wherever it comes."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys, time
from remuda.oneshot.output import Signalled, raise_signals

def end():
    os.kill(os.getpid(), signal.Signals[sys.argv[2]])

class Dropped:
    def __del__(self):
        end()

def generator():
    try:
        yield
    finally:
        end()

def work():
    if sys.argv[1] == "object":
        Dropped()
    elif sys.argv[1] == "generator":
        next(generator())
    else:
        end()
    while True:
        time.sleep(0.01)

raise_signals()
try:
    work()
except Signalled as heard:
    print(heard)
"""


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("where", ["plain", "object", "generator"])
def test_signal_is_raised_also_when_it_comes_while_something_is_taken_away(where: str, number: str) -> None:
    words = ["env", "--default-signal=HUP,INT,TERM", sys.executable, "-c", PROGRAM, where, number]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert (done.stdout, done.stderr) == (f"interrupted by {number}\n", "")


def test_what_else_is_dropped_is_still_reported() -> None:
    program = PROGRAM.replace(
        "        end()\n\ndef generator", "        raise ValueError('seen')\n\ndef generator"
    )
    done = subprocess.run(
        [sys.executable, "-c", program.replace("while True:", "end()\n    while True:"), "object", "SIGTERM"],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.stdout == "interrupted by SIGTERM\n"
    assert "ValueError: seen" in done.stderr


SECOND = """
import os, signal, sys
from remuda.oneshot.output import Signalled, SignalsHeld, raise_signals, ignore_signals

class Late:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.Signals[sys.argv[2]]):
        kill(pid, number)

def end():
    os.kill(os.getpid(), signal.Signals[sys.argv[2]])

def cut_short():
    try:
        end()
        print("not heard")
    finally:
        end()
        print("cleaned")

def held():
    with SignalsHeld():
        end()
        print("cleaned")
    print("not heard")

raise_signals()
try:
    globals()[sys.argv[1]]()
except Signalled as heard:
    end()
    print(heard)
ignore_signals()
end()
late = Late()
sys.exit(3)
"""


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP", "SIGALRM"])
@pytest.mark.parametrize("where", ["cut_short", "held"])
def test_signals_after_the_first_change_nothing_to_the_very_end_of_the_process(
    where: str, number: str
) -> None:
    first = "SIGTERM" if number == "SIGALRM" else number
    program = SECOND.replace(
        "os.kill(os.getpid(), signal.Signals[sys.argv[2]])", f"os.kill(os.getpid(), signal.{first})"
    )
    words = ["env", "--default-signal=HUP,INT,TERM,ALRM", sys.executable, "-c", program, where, number]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, f"cleaned\ninterrupted by {first}\n", "")
