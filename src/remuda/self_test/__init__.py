"""The self-test of an installed agent: `remuda doctor --agent X`.

`promises` is what is tried, `bench` runs it in a process without a network, `trial` is what that process
does, and `results` keeps what was found. What is true of one agent only comes from `agents/self_test`.
"""
