"""The command line. One file a command, loaded when it is called: `remuda ls` pays for `ls` alone."""
