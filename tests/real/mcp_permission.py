"""A server whose one tool gives leave: `mcp_permission.py LOG` writes down each call, and edits one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def answer(method: str, parameters: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        about = {"name": "x", "version": "1"}
        version = parameters["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return {"tools": [{"name": "leave", "description": "d", "inputSchema": {"type": "object"}}]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": json.dumps(decide(parameters["arguments"]))}]}
    return None


def decide(asked: dict[str, Any]) -> dict[str, Any]:
    with Path(sys.argv[1]).open("a") as log:
        log.write(json.dumps(asked) + "\n")
    if asked["input"]["command"] == "touch made":
        return {"behavior": "allow", "updatedInput": {**asked["input"], "command": "touch edited"}}
    return {"behavior": "deny", "message": "not that one"}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        found = answer(request["method"], request.get("params") or {})
        unknown = {"error": {"code": -32601, "message": "no such method"}}
        said = unknown if found is None else {"result": found}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **said}), flush=True)
