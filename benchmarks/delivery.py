"""How long a message takes from its sender to the agent's word that it took it, on the real CLI at rest.

Next to it, turn about, what the CLI itself needs: a paste into a bare terminal until its request arrives at
the model. The message's time begins before it is written to the disk and ends when the keeper heard the
agent's UserPromptSubmit, by the date of that receipt.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.kept_agent import KeptAgent
from benchmarks.report import Report, Target, mark, percentile
from benchmarks.scene import Scene, bounded

from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli
from remuda.testing.real_cli.bench import PlainTerminal

_MESSAGES = 12
_PAUSE = 0.4
"""The CLI is drawn and at rest again."""
_LIMIT = Target("<=", 1.5)


def measure(scene: Scene, report: Report, rounds: int) -> None:
    report.title("Message to submitted, on the real CLI at rest")
    pasted: list[float] = []
    sent: list[float] = []
    with (
        bounded(240.0, "delivery"),
        LoopbackModel() as model,
        RealCli(scene.folder / "bare", model.url) as bare,
        RealCli(scene.folder / "kept", model.url) as kept,
        _at_rest(bare, model) as terminal,
    ):
        agent = KeptAgent(scene, kept)
        agent.send("the first one is slower")
        time.sleep(_PAUSE)
        for number in range(rounds * _MESSAGES):
            pasted.append(_paste(terminal, model, f"paste {number}"))
            time.sleep(_PAUSE)
            sent.append(agent.send(f"message {number}") * 1000)
            time.sleep(_PAUSE)
        scene.end_all()
    floor = percentile(pasted, 0.5)
    report.add("paste to the model's request, p50", floor, "ms", note=mark(pasted, 0.9))
    whole = percentile(sent, 0.5)
    report.add("message to submitted, p50", whole, "ms", note=mark(sent, 0.9))
    report.add("message to submitted / paste to request", whole / floor, "x", _LIMIT)


@contextmanager
def _at_rest(cli: RealCli, model: LoopbackModel) -> Iterator[PlainTerminal]:
    with cli.open_terminal("--permission-mode", "manual") as terminal:
        terminal.wait_for(b"manual mode")
        time.sleep(_PAUSE)
        _paste(terminal, model, "the first one is slower")
        time.sleep(_PAUSE)
        yield terminal


def _paste(terminal: PlainTerminal, model: LoopbackModel, text: str) -> float:
    began = time.monotonic()
    terminal.write(f"\x1b[200~{text}\x1b[201~\r".encode())
    return (model.wait_for(text).received - began) * 1000
