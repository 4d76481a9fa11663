"""A program that behaves as Claude Code, on a terminal and with ``-p``, as far as a supervisor relies on it.

``python -m remuda.testing.scripted_agent [flags] [PROMPT]`` needs no account and no network: its answers come
from :mod:`remuda.testing.script`. It is what ``remuda start NAME --agent demo`` runs, and what tests drive
where the real program would be slow, unsure or not to be had. ``tests/real/test_conformance.py`` compares
the two.

How it is made, from the inside out:

===============================  =====================================================================
``keys``, ``composer``           bytes of a terminal to keys, keys to a text box; no I/O
``dialog``                       the questions it can ask, as rows and keys; no I/O
``layout``, ``screen``           what is shown as rows of text; the terminal, and changed rows as bytes
``options``                      the command line; the ``MOCK_*`` variables for misbehaviour
``settings``                     hooks and rules of the settings files; what a call needs
``hooks``                        which hooks an event has, running them, what they decided
``records``, ``transcript``      the files that a supervisor reads
``loop``                         timers, readers, threads, tasks; quicker to import than asyncio
``session``                      one conversation: its ids, its files, its hook payloads
``model``, ``calls``, ``tool``   an answer of the model; a tool call; running the tool
``turn``, ``command``            a prompt until the agent stops; ``/`` and ``!``
``worker``                       what waits, and doing it
``face``                         everything that is seen from outside
``stage``, ``app``               what a turn needs of the program; the program
``print_voice``, ``print_turn``  print mode: its messages; a turn
``print_app``                    print mode: input, control requests, tasks in the background
``probe``                        drives it in a test
===============================  =====================================================================
"""

from __future__ import annotations

# The version whose behaviour is played.
VERSION = "2.1.325"
# What it calls itself wherever the real program names its entry point: no one shall take it for the real one.
ENTRYPOINT = "scripted"
