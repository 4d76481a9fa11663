"""A program on a terminal of its own for as long as it runs: the engine of `remuda launch`.

`plan` says what to run and when a silent program is prompted (pure), `run` does it, `output` passes on what
it prints at the reader's pace, `console` is the user's own terminal, if any.
"""
