"""A process that has imported all of Lycosa, and forks a child for every command line that it receives (`forked`).

It is run as text, so that its children have no module of the tests loaded. A message is a JSON object with `arguments`,
`cwd`, `environment` and `umask`, and four descriptors: the three standard streams, and one for the status: a line with
the process id, and at the end one with the exit code (negative: the signal).
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import pkgutil
import resource
import select
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from importlib import import_module
from typing import Any

MESSAGE_MAX = 100_000
DESCRIPTORS = 4


def warm_up() -> None:
    """Import all modules except those whose dependencies are not installed."""
    import lycosa

    for module in pkgutil.walk_packages(lycosa.__path__, "lycosa."):
        if not module.name.endswith("__main__"):
            with suppress(ImportError):
                import_module(module.name)
    gc.freeze()


def next_command(control: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Fork a child for each message. Returns only in the child; the parent ends when the other side has ended."""
    status: dict[int, int] = {}
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([control, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            report_ended(status)
        if control in ready:
            message, descriptors, _, _ = socket.recv_fds(control, MESSAGE_MAX, DESCRIPTORS)
            if not message:
                os._exit(0)
            child = os.fork()
            if not child:
                return json.loads(message), descriptors
            status[child] = descriptors.pop()
            os.write(status[child], b"%d\n" % child)
            for each in descriptors:
                os.close(each)


def report_ended(status: dict[int, int]) -> None:
    """Write the exit codes of children that have ended."""
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            descriptor = status.pop(ended[0])
            with suppress(BrokenPipeError):
                os.write(descriptor, b"%d\n" % os.waitstatus_to_exitcode(ended[1]))
            os.close(descriptor)


def become(command: dict[str, Any], streams: list[int]) -> None:
    """Take over streams, folder and environment of the command; only the imports of the parent remain."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(len(streams), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    os.chdir(command["cwd"])
    os.umask(command["umask"])
    os.environ.clear()
    os.environ.update(command["environment"])
    time.tzset()
    sys.argv[1:] = command["arguments"]


def main() -> int:
    """Wait for command lines, and run each in a child."""
    control = socket.socket(fileno=int(sys.argv[1]))
    warm_up()
    command, descriptors = next_command(control)
    control.detach()
    become(command, descriptors[:3])
    from lycosa.cli.main import main as lycosa

    return lycosa()


def end(code: int) -> None:
    """End as Python does, but without clearing a thousand modules, which takes longer than many commands."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    end(main())
