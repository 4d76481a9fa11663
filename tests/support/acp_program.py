"""An agent that speaks ACP, made with the package `agent-client-protocol`.

The first word of a prompt says what it does:

    RUN COMMAND     ask for permission first, then pretend to run it
    CHOOSE          ask the user which colour
    WAIT            say one word, and work until it is cancelled
    SILENT          say nothing until the file `go` is there, or it is cancelled
    DIE             exit in the middle of the turn
    HOSTILE         say what commands a terminal
    GARBLE          print what is not a message, then answer
    LONG            print a message without an end
    FAIL TEXT       answer the call with an error
    SAY TEXT        answer with this text
    FILE PATH       ask the client for a file

Everything else is answered. `runs` in its home has each prompt that it began, in order.
"""

# mypy: ignore-errors
# It stands for a program of someone else's.

import asyncio
import json
import os
import sys
from pathlib import Path

import acp
from acp import helpers, schema

ESCAPES = "\x1b[2J\x1b]0;owned\x07\x1b[31mred\x9b5n\rover\u202eback"
OPTIONS = [
    ("yes", "Allow once", "allow_once"),
    ("ever", "Always allow", "allow_always"),
    ("no", "Reject", "reject_once"),
]
COLOURS = [("r", "Red", "allow_once"), ("b", "Blue", "allow_once"), ("n", "None of them", "reject_once")]
HOME = Path(os.environ["ACP_TEST_HOME"])


class ScriptedAcpAgent(acp.Agent):
    def __init__(self):
        self.cancelled = asyncio.Event()

    def on_connect(self, conn):
        self.client = conn

    async def initialize(self, protocol_version, **_more):
        able = schema.AgentCapabilities(load_session=bool(os.environ.get("ACP_TEST_LOAD")))
        return acp.InitializeResponse(protocol_version=acp.PROTOCOL_VERSION, agent_capabilities=able)

    async def new_session(self, cwd, **_more):
        session_id = os.urandom(6).hex()
        self.path(session_id).touch()
        return acp.NewSessionResponse(session_id=session_id)

    async def load_session(self, cwd, session_id, **_more):
        for asked, answered in self.turns(session_id):
            await self.client.session_update(session_id, helpers.update_user_message_text(asked))
            await self.client.session_update(session_id, helpers.update_agent_message_text(answered))
        return acp.LoadSessionResponse()

    def path(self, session_id):
        return HOME / f"{session_id}.talk"

    def turns(self, session_id):
        return [json.loads(line) for line in self.path(session_id).read_text().splitlines()]

    async def say(self, session_id, text):
        await self.client.session_update(session_id, helpers.update_agent_message_text(text))

    async def prompt(self, session_id, prompt, **_more):
        text = prompt[0].text
        with (HOME / "runs").open("a") as runs:
            runs.write(json.dumps(text) + "\n")
        self.cancelled.clear()
        answer = await self.work(session_id, *text.partition(" ")[::2])
        if answer is None:
            return acp.PromptResponse(stop_reason="cancelled")
        if answer:
            middle = len(answer) // 2
            await self.say(session_id, answer[:middle])
            await self.say(session_id, answer[middle:])
        with self.path(session_id).open("a") as talk:
            talk.write(json.dumps([text, answer]) + "\n")
        used = schema.Usage(
            input_tokens=12, output_tokens=3, total_tokens=15, cached_read_tokens=2, cached_write_tokens=0
        )
        return acp.PromptResponse(stop_reason="end_turn", usage=used)

    async def work(self, session_id, verb, rest):  # noqa: C901  # one case each
        match verb:
            case "RUN":
                return await self.run(session_id, rest)
            case "CHOOSE":
                call = schema.ToolCallUpdate(tool_call_id="c1", title="Which colour?")
                return f"chose {await self.ask(session_id, call, COLOURS)}"
            case "WAIT":
                await self.say(session_id, "waiting\n")
                await self.cancelled.wait()
                return None
            case "SILENT":
                while not (HOME / "go").exists():
                    if self.cancelled.is_set():
                        return None
                    await asyncio.sleep(0.01)
            case "DIE":
                await self.say(session_id, "half of it\n")
                while not (HOME / "go").exists():
                    await asyncio.sleep(0.01)
                print("it broke", file=sys.stderr, flush=True)
                os._exit(3)
            case "HOSTILE":
                return f"before {ESCAPES} after"
            case "GARBLE":
                os.write(1, b"Warning: \x1b[31mnot a message\n")
            case "LONG":
                os.set_blocking(1, True)
                with open(1, "wb", closefd=False) as output:
                    output.write(b"x" * (20 << 20))
            case "SAY":
                return rest
            case "FAIL":
                raise acp.RequestError(-32603, rest)
            case "FILE":
                try:
                    await self.client.read_text_file(session_id, rest)
                except acp.RequestError as error:
                    return f"no file: {error}"
        return f"ACP#{len(self.turns(session_id)) + 1} to: {verb} {rest}".rstrip()

    async def run(self, session_id, command):
        call, given = f"call-{len(self.turns(session_id))}", {"command": command}
        title = f"Run {command}"
        started = helpers.start_tool_call(call, title, kind="execute", status="pending", raw_input=given)
        await self.client.session_update(session_id, started)
        # Only what changed, as agents do: the input was said before.
        chosen = await self.ask(session_id, schema.ToolCallUpdate(tool_call_id=call), OPTIONS)
        if chosen is None:
            return None
        ok = chosen != "no"
        content = [helpers.tool_content(helpers.text_block(f"ran {command}" if ok else "not allowed"))]
        status = "completed" if ok else "failed"
        ended = helpers.update_tool_call(call, status=status, content=content)
        await self.client.session_update(session_id, ended)
        return f"done: {chosen}"

    async def ask(self, session_id, call, options):
        offers = [schema.PermissionOption(option_id=one, name=name, kind=kind) for one, name, kind in options]
        answer = await self.client.request_permission(session_id, call, offers)
        return getattr(answer.outcome, "option_id", None)

    async def cancel(self, session_id, **_more):
        self.cancelled.set()


if __name__ == "__main__":
    (HOME / "pid").write_text(str(os.getpid()))
    asyncio.run(acp.run_agent(ScriptedAcpAgent()))
