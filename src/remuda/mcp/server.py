"""The MCP server: the tools and resources for one client. Only this package's `server` and `http` import mcp.

Standard input is read here and not by the package: its lines are bounded and go through `untrusted`, and what
is not a message gets an error and does not end the server.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, unquote

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage

from remuda._version import __version__
from remuda.errors import RemudaError
from remuda.untrusted import BadJson, bounded, dump_json, parse_json

from .tool_list import INSTRUCTIONS, TOOLS
from .tools import AgentTools

LINE_BYTES = 4 << 20
_READ_BYTES = 1 << 16
_BASE = "remuda://sessions"

ToolsOf = Callable[[Any], AgentTools]
"""Returns the tools for the context of a request."""


def make_server(tools_of: ToolsOf) -> Server[Any]:
    """Return a server whose tools depend on who asks."""

    async def list_tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=_TOOLS)

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            result = await tools_of(ctx).call(params.name, params.arguments or {})
        except RemudaError as error:
            failure = {"error": {"code": error.code, "message": error.message, "hint": error.hint}}
            failure = bounded(failure)  # it can name a path that is not UTF-8
            text = types.TextContent(type="text", text=bounded(f"{error.code}: {error}"))
            return types.CallToolResult(content=[text], structured_content=failure, is_error=True)
        text = types.TextContent(type="text", text=dump_json(result, ascii_only=False))
        return types.CallToolResult(content=[text], structured_content=result)

    async def list_resources(ctx: Any, _params: Any) -> types.ListResourcesResult:
        agents = (await _called(tools_of(ctx).call("list_agents", {"ended": True})))["agents"]
        found = [
            types.Resource(
                uri=_BASE, name="sessions", description="All sessions that you reach.", mime_type=_JSON
            )
        ]
        for one in agents:
            name, uri = one["session"], f"{_BASE}/{quote(one['session'], safe='+@')}"
            found.append(
                types.Resource(
                    uri=uri, name=name, description=f"{one['agent']}, {one['state']}", mime_type=_JSON
                )
            )
            found.append(types.Resource(uri=f"{uri}/transcript", name=f"{name} transcript", mime_type=_JSON))
        return types.ListResourcesResult(resources=found)

    async def list_templates(_ctx: Any, _params: Any) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=_TEMPLATES)

    async def read_resource(ctx: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        document = await _called(_read(tools_of(ctx), params.uri))
        text = dump_json(document, indent=1, ascii_only=False)
        return types.ReadResourceResult(
            contents=[types.TextResourceContents(uri=params.uri, mime_type=_JSON, text=text)]
        )

    server: Server[Any] = Server(
        "remuda",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
    )
    server.middleware.clear()  # no spans: no one collects them
    return server


_JSON = "application/json"
_TOOLS = [
    types.Tool(
        name=name,
        description=tool.description,
        input_schema=tool.schema,
        annotations=types.ToolAnnotations(
            read_only_hint=tool.reads_only, destructive_hint=tool.destroys, open_world_hint=False
        ),
    )
    for name, tool in TOOLS.items()
]
_TEMPLATES = [
    types.ResourceTemplate(
        name="session",
        uri_template=f"{_BASE}/{{session}}",
        description="State of a session.",
        mime_type=_JSON,
    ),
    types.ResourceTemplate(
        name="transcript",
        uri_template=f"{_BASE}/{{session}}/transcript",
        description="The last entries of the agent's conversation.",
        mime_type=_JSON,
    ),
]


async def _called(call: Any) -> Any:
    """Return what a call returns, with its error as one of the protocol."""
    try:
        return await call
    except RemudaError as error:
        raise MCPError(types.INVALID_PARAMS, bounded(f"{error.code}: {error}")) from None


async def _read(tools: AgentTools, uri: str) -> Any:
    path = uri.removeprefix(_BASE) if uri.startswith(_BASE) else "?"
    name, _, what = path.removeprefix("/").partition("/")
    name = unquote(name)  # HOST/SESSION is one word of the path
    if path == "":
        return await tools.call("list_agents", {"ended": True})
    if path.startswith("/") and name and what == "transcript":
        return await tools.read(name, transcript=True)
    if path.startswith("/") and name and not what:
        return await tools.read(name)
    raise MCPError(types.INVALID_PARAMS, f"no resource {uri[:200]!r}; resources/list lists them")


# ── standard input and output ──


class _Lines:
    """Standard input as lines of a bounded length. A longer one is None, and is skipped completely."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._data = bytearray()
        self._skips = False

    async def next(self) -> bytes | None:
        """Raises `EOFError` at the end of the input."""
        while (end := self._data.find(b"\n")) < 0:
            if len(self._data) > LINE_BYTES:
                self._skips = True
            if self._skips:
                self._data.clear()
            if not (piece := await self._reader.read(_READ_BYTES)):
                raise EOFError
            self._data += piece
        line = bytes(self._data[:end])
        del self._data[: end + 1]
        if self._skips or len(line) > LINE_BYTES:
            self._skips = False
            return None
        return line


def refusal_of(line: bytes | None) -> tuple[dict[str, Any] | None, types.JSONRPCMessage | None]:
    """Read a line. Return the error to send, or the message; neither for an empty line."""
    if line is None:
        return _error(types.INVALID_REQUEST, f"the message is longer than {LINE_BYTES} bytes"), None
    if not line.strip():
        return None, None
    try:
        document = parse_json(line)
    except BadJson as error:
        return _error(types.PARSE_ERROR, f"the message is not JSON: {str(error)[:200]}"), None
    try:
        message = types.jsonrpc_message_adapter.validate_python(document, by_name=False)
        # One with an id of another type would be taken for a notification, and get no answer.
        if isinstance(message, types.JSONRPCNotification) and "id" in document:
            raise ValueError
        return None, message
    except ValueError:
        number = document.get("id") if isinstance(document, dict) else None
        is_id = isinstance(number, str | int) and not isinstance(number, bool)
        return _error(
            types.INVALID_REQUEST, "the message is not JSON-RPC 2.0", number if is_id else None
        ), None


def _error(code: int, message: str, number: str | int | None = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}}


async def serve_stdio(tools: AgentTools) -> None:
    """Serve one client on standard input and output, until it closes its end."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_READ_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), _own(sys.stdin.fileno(), "rb"))
    output = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what else prints must not get between messages
    inward, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outward = anyio.create_memory_object_stream[SessionMessage](0)
    server = make_server(lambda _ctx: tools)

    async def take() -> None:
        lines = _Lines(reader)
        async with inward:
            while True:
                try:
                    error, message = refusal_of(await lines.next())
                except EOFError:
                    return
                if error is not None:
                    _write(output, dump_json(error))
                elif message is not None:
                    await inward.send(SessionMessage(message))

    async def give() -> None:
        async with outward:
            async for one in outward:
                _write(output, one.message.model_dump_json(by_alias=True, exclude_unset=True))

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(take)
            group.start_soon(give)
            await server.run(read, write, server.create_initialization_options())
            group.cancel_scope.cancel()
    except* BrokenPipeError:  # the client is gone
        pass


def _own(fd: int, mode: str) -> Any:
    """Return a file of our own for standard input: nothing that we start can read from it."""
    duplicate = os.dup(fd)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, fd)
    os.close(null)
    return os.fdopen(duplicate, mode)


def _write(fd: int, text: str) -> None:
    """Write a line. Blocks while the client does not read: then nothing more is read from it either."""
    data = text.encode("utf-8", "replace") + b"\n"
    while data:
        data = data[os.write(fd, data) :]
