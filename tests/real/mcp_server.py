"""A server of one tool, as small as the Model Context Protocol allows."""

from __future__ import annotations

import json
import sys
from typing import Any


def answer(method: str, parameters: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        about = {"name": "x", "version": "1"}
        return {
            "protocolVersion": parameters["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": about,
        }
    if method == "tools/list":
        return {"tools": [{"name": "t", "description": "d", "inputSchema": {"type": "object"}}]}
    return None


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        found = answer(request["method"], request.get("params") or {})
        said = (
            {"error": {"code": -32601, "message": "no such method"}} if found is None else {"result": found}
        )
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **said}), flush=True)
