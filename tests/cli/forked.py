"""Runs command lines in processes that are forked from one that has imported Lycosa: half a second less for each.

Every command has a process, a folder, an environment and standard streams of its own, as with `subprocess.run`. Two
processes to fork from take turns, so that what one command writes is read by one with other hashes. Those that a test
kills, and all in `make prove`, are started in the usual way.
"""

from __future__ import annotations

import atexit
import json
import os
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
OF_PYTHON = ("PYTHON", "LANG", "LC_", "MALLOC_")
"""How names of variables begin that are read when a process starts."""

READ_BYTES = 2**16


class Interpreter:
    """A process to fork from. `environment` is what it was started with."""

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
        """Run a command line. Return its exit code and what it wrote to standard output and standard error."""
        (output, out), (errors, err), (news, tell) = os.pipe(), os.pipe(), os.pipe()
        nothing = os.open(os.devnull, os.O_RDONLY)
        socket.send_fds(self._control, [message], [nothing, out, err, tell])
        for descriptor in (nothing, out, err, tell):
            os.close(descriptor)
        said, printed, complained = _read((news, output, errors), timeout_s)
        assert said.count(b"\n") == 2, "the process to fork from has ended"
        return int(said.split()[1]), printed, complained

    def _end(self) -> None:
        self._control.close()
        self._process.wait()


def _read(descriptors: tuple[int, ...], timeout_s: float) -> list[bytes]:
    """Read all to their ends. The first says which process it is, which is killed when it takes too long."""
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
    """Run a command line to its end; None when only a new process can be what is asked for."""
    umask = os.umask(0)
    os.umask(umask)
    order = {"arguments": arguments, "cwd": str(cwd), "environment": environment, "umask": umask}
    message = json.dumps(order).encode()
    if len(message) > MESSAGE_MAX or any("\udc80" <= letter <= "\udcff" for part in arguments for letter in part):
        return None
    if not _interpreters:
        _interpreters.extend(Interpreter(environment) for _ in range(INTERPRETERS))
    chosen = _interpreters[next(_turns)]
    if _of_python(environment) != _of_python(chosen.environment):
        return None
    code, printed, complained = chosen.run(message, timeout_s)
    return subprocess.CompletedProcess(arguments, code, _text(printed), _text(complained))


def _of_python(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(OF_PYTHON)}


def _text(data: bytes) -> str:
    """Decode as `subprocess` does with text=True."""
    return data.decode().replace("\r\n", "\n").replace("\r", "\n")
