"""An agent, as far as MCP goes: `mcp_lead.py RESULT` starts the server as its child, and uses its tools."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main(result: Path) -> None:
    server = StdioServerParameters(
        command=sys.executable, args=["-P", "-m", "remuda", "mcp"], env=dict(os.environ), cwd=os.getcwd()
    )
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        about = await session.initialize()
        tools = [tool.name for tool in (await session.list_tools()).tools]

        async def call(tool: str, /, **arguments: Any) -> Any:
            return (await session.call_tool(tool, arguments)).structured_content

        who = await call("whoami")
        made = [await call("start", agent="demo", name=name) for name in ("one", "two")]
        one, two = (one["session"] for one in made)
        first = await call("send", session=one, text="do one")
        second = await call("send", session=two, text="RUNBASH touch made")
        answers = [(await call("wait", **first, timeout=60))["answer"]]
        stopped = await call("wait", **second, timeout=60)
        while not (requests := [each for it in (await call("queue"))["waiting"] for each in it["requests"]]):
            await asyncio.sleep(0.05)
        decided = await session.call_tool(
            "answer_permission", {"request": requests[0]["request"], "decision": "allow"}
        )
        exists = Path("made").exists()
        # From here on it waits for the human.
        done = await call("wait", **second, timeout=60)
        answers.append(done["answer"])
        resources = [str(one.uri) for one in (await session.list_resources()).resources]
        transcript = await session.read_resource(f"remuda://sessions/{made[0]['session']}/transcript")
        refused = await session.call_tool("screen", {"session": "user"})
        killed = [await call("kill", session=each) for each in (one, two)]
    report = {
        "server": about.server_info.name,
        "instructions": about.instructions,
        "tools": tools,
        "who": who,
        "made": made,
        "stopped": stopped,
        "requests": requests,
        "decided": [decided.is_error, decided.content[0].text],  # type: ignore[union-attr]
        "exists": exists,
        "answers": answers,
        "resources": resources,
        "transcript": json.loads(transcript.contents[0].text),  # type: ignore[union-attr]
        "refused": [refused.is_error, refused.content[0].text],  # type: ignore[union-attr]
        "killed": killed,
    }
    temporary = result.with_suffix(".tmp")
    temporary.write_text(json.dumps(report))
    temporary.rename(result)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
