"""A signal that ends a call is heard wherever it comes."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys, time
from remuda.oneshot.signals import Signalled, heed_signals

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

heed_signals()
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


def test_what_else_is_dropped_is_still_told() -> None:
    program = PROGRAM.replace(
        "        end()\n\ndef generator", "        raise ValueError('seen')\n\ndef generator"
    )
    done = subprocess.run(
        [sys.executable, "-c", program.replace("while True:", "end()\n    while True:"), "object", "SIGTERM"],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.stdout == "interrupted by SIGTERM\n"
    assert "ValueError: seen" in done.stderr
