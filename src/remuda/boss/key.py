"""What tmux runs for a key and for its status line: `python -I -S key.py next CLIENT`.

It runs `key_press.py` in this folder without compiling it again, as `inbox/stop.py` does with the Stop hook.
"""

import sys

# already loaded at the start; `importlib` would have to be imported
from _frozen_importlib_external import SourceFileLoader

if __name__ == "__main__":
    path = __file__.rpartition("/")[0] + "/key_press.py"
    sys.argv[0] = path
    exec(SourceFileLoader("__main__", path).get_code("__main__") or "")  # noqa: S102
