"""A real server as a child process in a temporary folder, reached through a Unix socket. It dies with its parent."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

START_MAX_S = 60.0
POLL_S = 0.02

Server = TypeVar("Server", bound="DatabaseProcess")


class ServerFailed(Exception):
    """The server is not installed, or did not start."""


class DatabaseProcess(ABC):
    """A server with its data; it can be killed and started again."""

    kill_signal = signal.SIGKILL
    """Signal that ends the server at once, without saving. Its next start is a recovery."""

    parent_death_signal = "KILL"

    def __init__(self, home: Path, user: str | None = None) -> None:
        self._home, self._user = home, user
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> Sequence[str | Path]:
        """Return the command line that runs the server in the foreground."""

    @abstractmethod
    def answers(self) -> bool:
        """Return whether the server answers."""

    @property
    def pid(self) -> int:
        """Return the id of the process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        setpriv = shutil.which("setpriv")
        prefix = [setpriv, "--pdeathsig", self.parent_death_signal] if setpriv else []
        log = self._home / "log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*prefix, *self.command()],
                cwd=self._home,
                user=self._user,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_MAX_S
        while time.monotonic() < deadline and self._process.poll() is None:
            if self.answers():
                return
            time.sleep(POLL_S)
        raise ServerFailed(f"{type(self).__name__} did not start: {log.read_text(errors='replace')[-500:]}")

    def kill(self) -> None:
        """End the server at once, without saving."""
        if self._process is not None:
            self._process.send_signal(self.kill_signal)
            self._process.wait()
            self._process = None


@contextmanager
def running(make: Callable[[Path, str | None], Server], name: str, user: str | None = None) -> Iterator[Server]:
    """Run a server in a temporary folder while the block runs.

    Root runs it as `user`: some servers refuse to run as root.
    """
    home = Path(tempfile.mkdtemp(prefix=f"lycosa-{name}-"))
    user = user if os.geteuid() == 0 else None
    if user is not None:
        os.chown(home, pwd.getpwnam(user).pw_uid, -1)
    try:
        server = make(home, user)
        try:
            server.start()
            yield server
        finally:
            server.kill()
    finally:
        shutil.rmtree(home, ignore_errors=True)
