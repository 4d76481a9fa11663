"""A program that behaves as Claude Code, on a terminal and with ``-p``, as far as a supervisor relies on it.

``python -m remuda.testing.scripted_agent [flags] [PROMPT]`` needs no account and no network: its answers come
from :mod:`remuda.testing.script`. It is what ``remuda start NAME --agent demo`` runs, and what tests drive
where the real program would be slow, unsure or not to be had. ``tests/real/test_conformance.py`` compares
the two.

How it is made, from the inside out:

====================================  ======================================================================
``terminal_keys``, ``composer``       bytes of a terminal to keys, keys to a text box; no I/O
``dialog``                            the questions it can ask, as rows and keys; no I/O
``layout``, ``painter``               what is shown as rows of text; the terminal, and changed rows as bytes
``agent_flags``                       the command line; the ``MOCK_*`` variables for misbehaviour
``settings``                          hooks and rules of the settings files; what a call needs
``hook_runner``                       which hooks an event has, running them, what they decided
``records``, ``transcript_file``      the files that a supervisor reads
``agent_loop``                        timers, readers, threads, tasks; quicker to import than asyncio
``agent_conversation``                one conversation: its ids, its files, its hook payloads
``model_reply``, ``calls``, ``tool``  an answer of the model; a tool call; running the tool
``agent_turn``, ``slash_command``     a prompt until the agent stops; ``/`` and ``!``
``prompt_worker``                     what waits, and doing it
``face``                              everything that is seen from outside
``stage``, ``app``                    what a turn needs of the program; the program
``print_voice``, ``print_turn``       print mode: its messages; a turn
``print_app``                         print mode: input, control requests, tasks in the background
``probe``                             drives it in a test
====================================  ======================================================================
"""

from __future__ import annotations

# The version whose behaviour is played.
VERSION = "2.1.325"
# What it calls itself wherever the real program names its entry point: no one shall take it for the real one.
ENTRYPOINT = "scripted"
