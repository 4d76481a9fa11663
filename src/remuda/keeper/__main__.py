"""`python -m remuda.keeper FD NAME`: started by `remuda start`, not by people. The name is for `ps`."""

from .process import main

main()
