"""An invented agent with other habits than Claude Code: the example of docs/why/add-an-agent.md.

`mustang` is called: its server (`program.py stable`) keeps the conversation, and its terminal (`ride`) shows
it. `pinto` is the same program in one process, whose composer is pasted into and whose hooks have names of
their own.
"""
