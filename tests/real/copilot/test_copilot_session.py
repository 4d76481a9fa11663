"""A kept copilot: messages with receipts, states, permissions, interrupts and what is refused."""

from __future__ import annotations

import pytest

from remuda.testing.loopback_model import LoopbackModel
from support.copilot import CopilotCli, keep_copilot, shell
from support.keeper import Start, until
from support.messages import CHAIN, prompts, stages, step

pytestmark = pytest.mark.real


def test_messages_receipt_chain_with_usage_and_exact_text(
    start: Start, copilot: CopilotCli, model: LoopbackModel
) -> None:
    post = keep_copilot(start, copilot)
    texts = ["hello copilot", "two\nlines\n" + "x\n" * 20 + "end", "tab\there é 😀 @nofile", "y" * 9000]
    for text in texts:
        ended = post.send(text)
        assert stages(ended) == CHAIN, ended
        assert step(ended, "ended")["end"] == "answered"
        assert "REPLY" in step(ended, "acked")["answer"] if "answer" in step(ended, "acked") else True
        usage = step(ended, "ended")["usage"]
        assert usage == {
            "input_tokens": 12,
            "output_tokens": 7,
            "cache_read_input_tokens": 3,
            "cache_creation_input_tokens": 0,
        }
    assert prompts(model) == [text.replace("\t", "    ") for text in texts]
    print(ended)
