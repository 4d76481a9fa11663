"""A program on a terminal of its own for as long as it runs: the engine of `remuda launch`.

`plan` says what to run, `run` does it, `idle` decides when a silent program is prompted (pure), `output`
hands on what it prints at the pace of whoever reads, `console` is the user's own terminal where there is one.
"""
