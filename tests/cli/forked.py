"""Runs command lines in processes forked from one that has imported Lycosa, which saves half a second for each.

Every command has its own process, folder, environment and standard streams, as with `subprocess.run`. Two processes to
fork from are used in turn, so that what one command writes is read by a command with another hash seed. Commands that a
test kills, and all commands in `make prove`, are started in the usual way.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from itertools import cycle
from pathlib import Path

from tests.cli.warm import MESSAGE_MAX

WARM = Path(__file__).with_name("warm.py")
INTERPRETERS = 2
READ_AT_START = ("PYTHON", "LANG", "LC_", "MALLOC_")
"""Prefixes of variables that Python and libc read when a process starts."""

READ_BYTES = 2**16
WARM_MAX_S = 120.0
"""Seconds for the imports of a process to fork from, on a busy machine."""


class Interpreter:
    """A process to fork from. It was started with `environment`."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", WARM.read_text(), str(theirs.fileno())],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self._end)

    def run(self, message: bytes, timeout_s: float) -> tuple[int, bytes, bytes]:
        """Run a command line. Return its exit code, standard output and standard error."""
        (stdout, stdout_end), (stderr, stderr_end), (status, status_end) = os.pipe(), os.pipe(), os.pipe()
        stdin_end = os.open(os.devnull, os.O_RDONLY)
        ends = [stdin_end, stdout_end, stderr_end, status_end]
        socket.send_fds(self._control, [message], ends)
        for descriptor in ends:
            os.close(descriptor)
        # The timeout of the command begins when its process exists: until then, a new process to fork from may still be
        # importing Lycosa.
        forked = select.poll()
        forked.register(status, select.POLLIN)
        assert forked.poll(WARM_MAX_S * 1000), "the process to fork from does not answer"
        lines, printed, errors = _read((status, stdout, stderr), timeout_s)
        assert lines.count(b"\n") == 2, "the process to fork from has ended"
        return int(lines.split()[1]), printed, errors

    def _end(self) -> None:
        self._control.close()
        self._process.wait()


def _read(descriptors: tuple[int, ...], timeout_s: float) -> list[bytes]:
    """Read all descriptors to their ends. The first has the id of the process, which is killed after the timeout."""
    found = dict.fromkeys(descriptors, b"")
    deadline = time.monotonic() + timeout_s
    try:
        with selectors.DefaultSelector() as selector:
            for descriptor in descriptors:
                selector.register(descriptor, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(deadline - time.monotonic())
                if not ready and time.monotonic() >= deadline:
                    os.kill(int(found[descriptors[0]]), signal.SIGKILL)
                    raise subprocess.TimeoutExpired("lycosa", timeout_s, *(found[each] for each in descriptors[1:]))
                for key, _ in ready:
                    read = os.read(key.fd, READ_BYTES)
                    found[key.fd] += read
                    if not read:
                        selector.unregister(key.fd)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return list(found.values())


_interpreters: list[Interpreter] = []
_turns = cycle(range(INTERPRETERS))


def run(
    arguments: list[str], cwd: Path, environment: dict[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str] | None:
    """Run a command line to its end; None if it needs a new process."""
    umask = os.umask(0)
    os.umask(umask)
    command = {"arguments": arguments, "cwd": str(cwd), "environment": environment, "umask": umask}
    message = json.dumps(command).encode()
    if len(message) > MESSAGE_MAX or any("\udc80" <= letter <= "\udcff" for part in arguments for letter in part):
        return None
    if not _interpreters:
        _interpreters.extend(Interpreter(environment) for _ in range(INTERPRETERS))
    chosen = _interpreters[next(_turns)]
    if _read_at_start(environment) != _read_at_start(chosen.environment):
        return None
    code, printed, errors = chosen.run(message, timeout_s)
    return subprocess.CompletedProcess(arguments, code, _text(printed), _text(errors))


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(READ_AT_START)}


def _text(data: bytes) -> str:
    """Decode as `subprocess` does with text=True."""
    return data.decode().replace("\r\n", "\n").replace("\r", "\n")
