"""A Python without what Linux alone has: on PYTHONPATH, each of our processes believes to be elsewhere.

It is no macOS. It shows that nothing we rely on is Linux's: names that macOS's Python does not have are gone,
`sys.platform` says darwin, and /proc seems empty. What only a Mac has (kqueue, its `ps`,
the uid by LOCAL_PEERCRED) it cannot show.
"""

import fcntl
import os
import resource
import select
import selectors
import signal
import sys
import time
import types
from collections.abc import Callable
from typing import Any

_GONE = {
    os: (
        "pidfd_open pipe2 O_PATH O_TMPFILE O_DIRECT fdatasync posix_fallocate posix_fadvise memfd_create"
        " eventfd getrandom copy_file_range splice sendfile setresuid setresgid getresuid waitid P_PIDFD"
        " sched_setaffinity sched_getaffinity sched_setscheduler getxattr setxattr unshare setns"
    ),
    fcntl: (
        "F_NOTIFY DN_MODIFY DN_CREATE DN_RENAME DN_MULTISHOT F_SETSIG F_GETSIG F_SETLEASE F_GETLEASE"
        " F_OFD_SETLK F_OFD_SETLKW F_OFD_GETLK F_ADD_SEALS F_SETPIPE_SZ F_GETPIPE_SZ"
    ),
    resource: "prlimit",
    selectors: "EpollSelector",
    signal: "sigtimedwait sigwaitinfo pidfd_send_signal SIGPOLL SIGPWR SIGRTMIN SIGRTMAX SIGSTKFLT",
    time: "CLOCK_BOOTTIME CLOCK_TAI",
}
for module, names in _GONE.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
for name in [name for name in vars(select) if name.startswith("EPOLL") or name == "epoll"]:
    delattr(select, name)
selectors.DefaultSelector = selectors.PollSelector  # type: ignore[misc, assignment]
sys.platform = "darwin"
sys.modules["_scproxy"] = _scproxy = types.ModuleType("_scproxy")  # a Mac's settings of proxies
vars(_scproxy).update(_get_proxies=dict, _get_proxy_settings=dict)


def _is_of_proc(path: object) -> bool:
    text = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
    return text == "/proc" or text.startswith("/proc/")


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if event in ("open", "os.listdir", "os.scandir") and arguments and _is_of_proc(arguments[0]):
        raise FileNotFoundError(2, "No such file or directory", arguments[0])


def _without_proc(call: Callable[..., Any]) -> Callable[..., Any]:
    def called(path: Any, *more: Any, **named: Any) -> Any:
        if _is_of_proc(path):
            raise FileNotFoundError(2, "No such file or directory", path)
        return call(path, *more, **named)

    return called


for name in ("stat", "lstat", "readlink"):
    setattr(os, name, _without_proc(getattr(os, name)))
sys.addaudithook(_refuse)
