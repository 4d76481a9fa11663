"""The OpenAPI document is true: of the routes there are, and of what they take and answer."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from remuda.boss.http.openapi import ROUTES, describe
from support import counts
from support.boss import RunningBoss, event

EXAMPLES = 200 if counts.SOAK else 4
PHASES = "coverage,fuzzing,stateful" if counts.SOAK else "coverage,fuzzing"


JUDGED = (
    "POST /v1/navigate",
    "POST /v1/sessions/{session}/reply",
    "POST /v1/approvals/{approval}/answer",
    "POST /v1/logout",
    "POST /v1/push/subscribe",
    "GET /v1/usage",
)
"""What is well-formed may still not be possible with this session, pane or question."""
_MAY_BE_REFUSED = """
[[operations]]
include-name = "{name}"
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "404", "409", "5xx"]
"""

_WITHOUT_TMUX = """
[[operations]]
include-name = "GET /v1/sessions/{session}/NAME"
checks.not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", "502"]
"""
"""There is a session in a pane, and no tmux server that has the pane."""


def test_document_has_every_route_and_no_other(served: RunningBoss) -> None:
    document = served.ask("GET", "/v1/openapi.json").json
    told = {(method.upper(), path) for path, found in document["paths"].items() for method in found}
    assert told == {(route.method, route.path) for route in ROUTES}
    assert document == describe(ROUTES)
    for method, path in told:
        filled = re.sub(r"{\w+}", "x", path)
        if path != "/v1/events" or method == "POST":
            assert served.ask(method, filled).status not in (404, 405) or "{" in path
    names = [found["operationId"] for path in document["paths"].values() for found in path.values()]
    assert len(set(names)) == len(names)


def test_every_reference_of_the_document_is_there(served: RunningBoss) -> None:
    document = served.ask("GET", "/v1/openapi.json").json

    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if "$ref" in value else []
            return own + [one for inner in value.values() for one in references(inner)]
        return [one for inner in value for one in references(inner)] if isinstance(value, list) else []

    for found in references(document):
        assert found.rpartition("/")[2] in document["components"]["schemas"]


@pytest.fixture
def filled(boss: RunningBoss) -> RunningBoss:
    """With something to be found."""
    asked = event("asked", 20, session="b", tool="Bash", input={"command": "x"}, message="Bash: x")
    boss.tell(event("stopped", 10, session="a", message="m", pane="%1", cwd="/srv"), asked)
    return boss


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_schemathesis_finds_no_request_that_is_answered_otherwise_than_reported(
    filled: RunningBoss, tmp_path: Path
) -> None:
    config = tmp_path / "schemathesis.toml"
    refused = [_MAY_BE_REFUSED.format(name=name) for name in JUDGED]
    config.write_text(
        "".join(refused + [_WITHOUT_TMUX.replace("NAME", one) for one in ("screen", "history")])
    )
    command = [
        str(Path(sys.executable).with_name("schemathesis")),
        "--config-file",
        str(config),
        "run",
        f"http://127.0.0.1:{filled.port}/v1/openapi.json",
        "--header",
        f"Authorization: Bearer {filled.token}",
        "--max-examples",
        str(EXAMPLES),
        "--phases",
        PHASES,
        "--workers",
        "1",
        "--seed",
        "7",
        "--generation-database",
        "none",
        "--exclude-name",
        "GET /v1/events",  # a stream has no end
        "--exclude-name",
        "POST /v1/sessions",  # it starts whatever program it is told to
        "--exclude-checks",
        "unsupported_method,missing_required_header",
        "--no-color",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert filled.client.get("health")["status"] == "ok"
