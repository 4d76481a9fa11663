"""The program of the invented agent: `stable` serves calls, `ride` shows a stable, `trot` is both in one.

A conversation is a trail: a file of JSON lines. Words that begin with these do more than being answered:

    WALK SECONDS    work for so long, or until halted
    KICK COMMAND    ask for permission first, then pretend to run it
    STUMBLE TEXT    fail with this text

`HOME/hold` lets a call wait: "before" it is taken, or "after" it, before it is answered.
"""

# mypy: ignore-errors
# It stands for a program of someone else's.

import asyncio
import json
import os
import re
import sys
import termios
import time
import tty
from pathlib import Path

TASKS = set()  # the loop has only weak references to them
PASTE = re.compile(rb"\x1b\[200~(.*?)\x1b\[201~", re.S)


def begin(work):
    task = asyncio.ensure_future(work)
    TASKS.add(task)
    task.add_done_callback(TASKS.discard)
    return task


class Horse:
    """One conversation at a time. `tell` gets a note of everything that happens."""

    def __init__(self, home, tell):
        self.home = Path(home)
        self.tell = tell
        self.turn = None
        self.running = None
        self.reins = {}

    # ── trails ──

    def path(self, trail):
        return self.home / "trails" / f"{trail}.jsonl"

    def open(self, trail=None):
        self.trail = trail or os.urandom(6).hex()
        self.path(self.trail).parent.mkdir(parents=True, exist_ok=True)
        self.path(self.trail).touch()
        asked = [one for one in self.records() if one["kind"] == "ask"]
        self.count = len(asked)
        last = asked[-1]["turn"] if asked else None
        if last is not None and self.ending(last) is None:
            self.write({"kind": "cut", "turn": last})  # with the process before this one
        return last

    def records(self, trail=None):
        try:
            return [json.loads(line) for line in self.path(trail or self.trail).read_text().splitlines()]
        except OSError:
            return []

    def ending(self, turn, trail=None):
        ends = [one for one in self.records(trail) if one["turn"] == turn and one["kind"] != "ask"]
        return ends[-1] if ends else None

    def write(self, record):
        with self.path(self.trail).open("a") as file:
            file.write(json.dumps({**record, "at": time.time()}) + "\n")

    def note(self, gait, **more):
        self.tell({"gait": gait, "trail": self.trail, "path": str(self.path(self.trail)), **more})

    # ── what it is asked ──

    async def ask(self, words, call=None):
        await self.held("before")
        if words.startswith("/"):
            return self.command(words)
        if self.turn is not None:  # a second prompt is added to the turn that runs
            return self.turn
        self.turn = turn = "t" + os.urandom(4).hex()
        self.count += 1
        self.write({"kind": "ask", "turn": turn, "call": call, "words": words})
        with (self.home / "runs").open("a") as runs:
            runs.write(json.dumps(words) + "\n")
        self.running = begin(self.run(turn, words))
        await asyncio.sleep(0)  # a turn without a wait is over before "after"
        await self.held("after")
        return turn

    async def held(self, moment):
        hold = self.home / "hold"
        while hold.exists() and hold.read_text() == moment:
            (self.home / "holding").touch()
            await asyncio.sleep(0.01)

    def command(self, words):
        if words == "/graze":
            self.open()
            self.note("grazed", word="graze")
        else:
            self.note("snorted", word=words[1:])
        return "c" + os.urandom(4).hex()

    async def run(self, turn, words):
        self.note("asked", turn=turn, words=words)
        self.note("marked", turn=turn, words=words)
        try:
            said = await self.work(turn, words)
            self.write({"kind": "say", "turn": turn, "words": said, "oats": len(words)})
            self.turn = None
            self.note("spoke", turn=turn, words=said)
            self.note("stood", turn=turn, words=said, oats=len(words))
        except asyncio.CancelledError:
            self.write({"kind": "halt", "turn": turn})
            self.turn = None
            self.note("halted", turn=turn)
        except ValueError as error:
            self.write({"kind": "fall", "turn": turn, "words": str(error)})
            self.turn = None
            self.note("fell", turn=turn, words=str(error))

    async def work(self, turn, words):
        verb, _, rest = words.partition(" ")
        if verb == "WALK":
            await asyncio.sleep(float(rest))
        if verb == "STUMBLE":
            raise ValueError(rest)
        if verb == "KICK":
            return await self.kick(turn, rest)
        return f"MUSTANG#{self.count} to: {words}"

    async def kick(self, turn, command):
        kick = "k" + os.urandom(4).hex()
        self.note("kicks", turn=turn, kick=kick, tool="hoof", input={"line": command})
        self.reins[kick] = rein = asyncio.get_running_loop().create_future()
        self.note("balked", turn=turn, kick=kick, tool="hoof", input={"line": command})
        try:
            loose, words = await rein
        finally:
            del self.reins[kick]
        self.note("reined", kick=kick, loose=loose)
        self.note("landed", kick=kick, tool="hoof", ok=loose, words=words or f"kicked {command}")
        return f"kicked {command}" if loose else f"held back: {words}"

    def rein(self, kick, loose, words=""):
        rein = self.reins.get(kick)
        if rein is not None and not rein.done():  # the first answer counts
            rein.set_result((loose, words))

    def halt(self, turn=None):
        if self.running is not None and self.turn is not None and turn in (None, self.turn):
            self.running.cancel()

    def search(self, call, trail):
        asked = [one for one in self.records(trail) if one["kind"] == "ask" and one["call"] == call]
        if not asked:
            return {"turn": None}
        end = self.ending(asked[-1]["turn"], trail) or {"kind": "runs"}
        return {"turn": asked[-1]["turn"], "end": end["kind"], "words": end.get("words", "")}


# ── the stable ──


class Stable:
    def __init__(self, home, secret, trail):
        self.secret = secret
        self.riders = set()
        self.horse = Horse(home, self.tell)
        self.last = self.horse.open(trail)

    def tell(self, note):
        for rider in self.riders:
            send(rider, note)

    async def serve(self, path):
        Path(path).unlink(missing_ok=True)
        server = await asyncio.start_unix_server(self.ride, path)
        print(f"stable open at {path}", flush=True)
        await server.serve_forever()

    async def ride(self, reader, writer):
        knock = json.loads(await reader.readline() or b"{}")
        if knock.get("knock") != self.secret:
            writer.close()
            return
        horse = self.horse
        if knock.get("trail") not in (None, horse.trail) and horse.turn is None:
            self.last = horse.open(knock["trail"])
        end = self.last and horse.ending(self.last)
        send(
            writer,
            {
                "gait": "met",
                "trail": horse.trail,
                "path": str(horse.path(horse.trail)),
                "turn": horse.turn,
                "last": self.last,
                "end": end and end["kind"],
                "balked": list(horse.reins),
            },
        )
        self.riders.add(writer)
        try:
            while line := await reader.readline():
                begin(self.do(json.loads(line), writer))
        finally:
            self.riders.discard(writer)
            writer.close()

    async def do(self, wish, writer):
        horse, what = self.horse, wish["do"]
        if what == "ask":
            answer = {"turn": await horse.ask(wish["words"], wish.get("call"))}
        elif what == "search":
            answer = horse.search(wish["call"], wish.get("trail"))
        elif what == "rein":
            answer = {"done": horse.rein(wish["kick"], wish["loose"], wish.get("words", ""))}
        else:
            answer = {"done": horse.halt(wish.get("turn"))}
        send(writer, {"to": wish["id"], **answer})


def send(writer, document):
    if not writer.is_closing():
        writer.write(json.dumps(document).encode() + b"\n")


# ── the terminal ──


class Face:
    """Draws the talk and the composer at the top of the screen, and reads keys."""

    def __init__(self, do):
        self.do = do
        self.talk = ["mustang 1.0"]
        self.draft, self.stashed, self.kick, self.busy = "", None, None, False

    def take(self, note):
        gait = note["gait"]
        if gait == "asked":
            self.busy = True
            self.talk.append(f"rider: {note['words']}")
            if self.stashed is not None:
                self.draft, self.stashed = self.stashed, None
        elif gait in ("stood", "fell", "halted"):
            self.busy, self.kick = False, None
            self.talk.append(f"horse: {note.get('words', gait)}")
        elif gait == "balked":
            self.kick = (note["kick"], note["input"]["line"])
        elif gait == "reined":
            self.kick = None
        elif gait == "grazed":
            self.talk = ["new trail"]
        self.draw()

    def draw(self):
        rows = [f"saddle> {self.draft.replace(chr(10), '⏎')}", "busy" if self.busy else "ready"]
        rows += [f"(kept aside) {self.stashed}"] if self.stashed is not None else []
        if self.kick is not None:
            rows = [f"?? may I kick: {self.kick[1]} ??", "press y or n", *rows[1:]]
        text = "\r\n".join(row[:90] for row in [*rows, *self.talk[-10:]])
        sys.stdout.write("\x1b[H\x1b[2J" + text)
        sys.stdout.flush()

    def keys(self, data):
        while data:
            pasted = PASTE.match(data)
            if pasted:
                self.draft += pasted[1].decode()
                data = data[pasted.end() :]
                continue
            key, data = data[:1], data[1:]
            self.press(key)
        self.draw()

    def press(self, key):
        if self.kick is not None:
            if key in b"yn":
                self.do(
                    {"do": "rein", "kick": self.kick[0], "loose": key == b"y", "words": "no, said the rider"}
                )
        elif key == b"\r":
            if self.draft.strip():
                self.do({"do": "ask", "words": self.draft})
            self.draft = ""
        elif key == b"\x07":
            self.draft, self.stashed = "", self.draft
        elif key == b"\x18":
            self.do({"do": "halt"})
        elif key == b"\x15":
            self.draft = ""
        elif key >= b" ":
            self.draft += key.decode("latin-1")


def on_terminal(face):
    old = termios.tcgetattr(0)
    tty.setraw(0, termios.TCSANOW)  # keeps what was typed before
    sys.stdout.write("\x1b[?2004h")
    face.draw()
    pending = b""

    def read():
        nonlocal pending
        data = os.read(0, 65536)
        if not data or b"\x04" in data:
            termios.tcsetattr(0, termios.TCSADRAIN, old)
            os._exit(0)
        pending += data
        begun = pending.rfind(b"\x1b[200~")
        if begun >= 0 and b"\x1b[201~" not in pending[begun:]:
            return
        data, pending = pending, b""
        face.keys(data)

    asyncio.get_running_loop().add_reader(0, read)


async def ride(path, secret):
    """Shows a stable; when that dies, comes back to the one that is started in its place."""
    writer = None
    waiting = []

    def do(wish):
        if writer is None:
            waiting.append(wish)
        else:
            send(writer, {"id": 0, **wish})

    face = Face(do)
    on_terminal(face)
    while True:
        try:
            reader, writer = await asyncio.open_unix_connection(path)
            send(writer, {"knock": secret})
            while waiting:
                do(waiting.pop(0))
            while line := await reader.readline():
                note = json.loads(line)
                if note.get("gait") == "met":
                    face.busy, face.kick = note["turn"] is not None, None
                    face.draw()
                elif "gait" in note:
                    face.take(note)
        except OSError:
            pass
        await asyncio.sleep(0.05)


# ── both in one ──


async def trot(home, url, token, trail):
    """Hooks, in order; one that asks for permission waits for its answer."""
    import urllib.request  # slow to load

    loop, notes = asyncio.get_running_loop(), asyncio.Queue()

    def post(note):
        body = json.dumps(note).encode()
        request = urllib.request.Request(
            url, body, {"x-remuda-token": token, "content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=600) as answer:
            return json.loads(answer.read() or b"null") or {}

    async def whinny(note):
        answer = await loop.run_in_executor(None, post, note)
        if "rein" in answer:
            horse.rein(note["kick"], answer["rein"] == "loose", answer.get("words", ""))

    def tell(note):
        face.take(note)
        notes.put_nowait(note)

    def do(wish):
        if wish["do"] == "ask":
            begin(horse.ask(wish["words"]))
        elif wish["do"] == "rein":
            horse.rein(wish["kick"], wish["loose"], wish["words"])
        else:
            horse.halt()

    horse = Horse(home, tell)
    face = Face(do)
    last = horse.open(trail)
    notes.put_nowait(
        {
            "gait": "met",
            "trail": horse.trail,
            "path": str(horse.path(horse.trail)),
            "turn": None,
            "last": last,
            "end": None,
            "balked": [],
        }
    )
    on_terminal(face)
    while True:
        note = await notes.get()
        task = begin(whinny(note))
        if note["gait"] != "balked":
            await task


def main():
    words = dict(zip(sys.argv[2::2], sys.argv[3::2], strict=True))
    home = os.environ["MUSTANG_HOME"]
    if sys.argv[1] == "stable":
        stuck = Path(home, "stuck")
        if stuck.exists():
            stuck.unlink()
            sys.exit("the gate is stuck")
        stable = Stable(home, os.environ["MUSTANG_SECRET"], words.get("--trail"))
        asyncio.run(stable.serve(words["--at"]))
    elif sys.argv[1] == "ride":
        asyncio.run(ride(words["--at"], os.environ["MUSTANG_SECRET"]))
    else:
        asyncio.run(trot(home, words["--whinny"], words["--token"], words.get("--trail")))


main()
