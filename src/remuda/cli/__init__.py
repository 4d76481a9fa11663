"""The command line. The module of a command is loaded when it is called: `remuda ls` pays only for `ls`."""
