"""Which agent has which feature, by the marks on tests of real programs; for docs/reference/agents.md.

python tests/support/feature_table.py    write the table

`@pytest.mark.shows("feature")` marks a test that shows a feature, with `refused=True` one that shows that it
is refused with a reason. A test in a folder `tests/real/AGENT` is about that agent, any other about Claude
Code, or about those that the mark names (`agents=("codex", …)`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "agents.md"
BEGIN, END = "<!-- made by tests/support/feature_table.py -->\n", "<!-- end -->\n"
AGENTS = {"claude": "Claude Code", "codex": "codex", "opencode": "opencode", "copilot": "copilot"}
FEATURES = (
    "a permission request is decided from elsewhere",
    "it is allowed with an edited input",
    "a question is answered from elsewhere",
    "the usage of a turn is known",
    "a rate limit gives the message back for later",
    "no message is lost or runs twice when processes are killed",
    "a request of a pool carries nothing of another",
    "a request of a pool runs with its own folder, model, environment and tools",
    "an agent that you started yourself is in the queue",
)


class Shown(NamedTuple):
    """One mark."""

    agent: str
    feature: str
    refused: bool
    test: str


def marks() -> Iterator[Shown]:
    folder = ROOT / "tests" / "real"
    for path in sorted(folder.rglob("test_*.py")):
        agent = path.parent.name if path.parent != folder else "claude"
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef):
                for call in node.decorator_list:
                    if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.shows":
                        given = {one.arg: ast.literal_eval(one.value) for one in call.keywords}
                        for about in given.get("agents", (agent,)):
                            yield Shown(about, ast.literal_eval(call.args[0]), "refused" in given, node.name)


def table(shown: list[Shown]) -> str:
    rows = [f"| feature | {' | '.join(AGENTS.values())} |", f"|{' --- |' * (len(AGENTS) + 1)}"]
    for feature in FEATURES:
        cells = []
        for agent in AGENTS:
            found = [one for one in shown if (one.agent, one.feature) == (agent, feature)]
            cells.append("refused" if any(one.refused for one in found) else "yes" if found else "-")
        rows.append(f"| {feature} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def page(text: str, made: str) -> str:
    """Return the page with the table as it should be."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{made}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(), table(list(marks()))))
