"""How often the repeating tests repeat: small for `make test`, in full for `make soak`."""

from __future__ import annotations

import os
from typing import Final

SOAK: Final = os.environ.get("REMUDA_SOAK") == "1"

EXAMPLES: Final = 2_000 if SOAK else 60
"""Of each hypothesis property."""
FUZZ_BYTES: Final = 1_000_000 if SOAK else 400_000
"""Random bytes at a keeper's socket."""
MUTATED_FRAMES: Final = 10_000 if SOAK else 4_000
STATUS_IN_PIECES: Final = 1_000 if SOAK else 100
"""STATUS frames that arrive byte by byte while output streams."""
EXITS: Final = 100 if SOAK else 6
"""Sessions that end with output pending."""
JOINS: Final = 500 if SOAK else 40
"""Subscribers that join a running stream."""
RACES: Final = 30 if SOAK else 3
"""Rounds of concurrent starts of one name."""
STARTS: Final = 50 if SOAK else 4
"""Starts that are watched for the moment when the socket appears."""
KILL_STEP: Final = 1 if SOAK else 3
"""Every which system call of a program on an inbox is one where it is killed."""
POWER_STEP: Final = 1 if SOAK else 5
"""Every which state that a loss of power may leave is recovered."""
CONTEST: Final = 30.0 if SOAK else 3.0
"""Seconds for which eight writers and two consumers share an inbox and are killed at random."""
CHAOS_MESSAGES: Final = 300 if SOAK else 6
"""Messages through a kept Claude Code while agent, keeper and sender are killed at random."""
CALLS: Final = 100 if SOAK else 3
"""Calls of `remuda print` in a row on the real CLI."""
ISOLATED_REQUESTS: Final = 200 if SOAK else 12
"""Requests with secrets through a warm pool of four sessions on the real CLI."""
COPILOT_CHAOS: Final = 50 if SOAK else 6
"""Messages through a kept copilot while agent and keeper are killed at random, and a user types."""
ACP_REQUESTS: Final = 100 if SOAK else 6
"""Requests with secrets through one worker on the real copilot."""
OPENCODE_CHAOS: Final = 50
"""Messages through a kept opencode while its processes are killed at random, and a user types. A start takes
10 s: in soak only."""
OPENCODE_REQUESTS: Final = 100
"""Requests with secrets through a warm pool on the real opencode, in soak only."""
CODEX_CHAOS: Final = 50 if SOAK else 6
"""Messages through a kept codex, of each seed, while its processes are killed at random."""
CODEX_REQUESTS: Final = 100 if SOAK else 10
"""Requests with secrets through a warm pool on the real codex."""
POOL_CHAOS: Final = 500 if SOAK else 15
"""Requests to a warm pool while its sessions are killed, aborted and timed out at random."""
IDLE_POOL: Final = 60.0 if SOAK else 3.0
"""Seconds for which an idle pool is watched for requests to the model."""
BOSS_KILLS: Final = 60 if SOAK else 4
"""Kills of a boss while events pour in."""
PAYLOADS: Final = 15_000 if SOAK else 1_000
"""Hook payloads, transcript records and registry files of any shape."""
POOL_STORMS: Final = 40 if SOAK else 2
"""Rounds of five hundred requests to a pool of fakes that crash, hang and fail at random."""
KEEPER_KILLS: Final = 50 if SOAK else 3
"""Kills of a keeper or its agent with three messages in flight, on the scripted agent."""
MACHINE_KILLS: Final = 50 if SOAK else 3
"""Kills of all processes of a machine with six messages in flight, on the scripted agent."""
REAL_MACHINE_KILLS: Final = 5 if SOAK else 1
"""The same on the real CLI."""
SLEEP_KILLS: Final = 50 if SOAK else 4
"""Kills of a keeper or its agent while the session falls asleep, sleeps and wakes, on the scripted agent."""
REAL_SLEEP_KILLS: Final = 12 if SOAK else 0
"""The same on the real CLI."""
FLOOD: Final = 2_000 if SOAK else 600
"""Connections that another user holds to a server of ours, and opens again when they are dropped."""
HALF_FRAMES: Final = 2_000 if SOAK else 300
"""Connections with half a frame at a keeper's and a pool's socket."""
SHELL_COMMANDS: Final = 10_000 if SOAK else 400
"""Generated shell commands that bash runs and the policy decides."""
RANDOM_TEXTS: Final = 60_000 if SOAK else 1_500
"""Random texts that rules of the policy may allow."""
HEARTBEAT_SCRIPTS: Final = 300 if SOAK else 60
"""Random scripts of an inbox's life that are compared with a model of heartbeat-stop."""
FLEET_DEATHS: Final = 75 if SOAK else 3
"""Deaths of a boss, the hub or a sender of a fleet; during each, four messages are sent."""
FLEET_CHAOS: Final = 77 if SOAK else 9
"""Deaths of anything in a fleet; during each, five messages and four requests to any host are sent."""
REQUEST_LEASE: Final = 30.0 if SOAK else 4.0
"""Seconds for which a host of a fleet has a request without extending it; 30 is that of the product."""
LINK_CUT: Final = 35.0 if SOAK else 0.0
"""Seconds for which the link of a host is cut at least: longer than every timeout of a fleet."""
