"""A real MariaDB server as a child process in a temporary folder, reached through a Unix socket.

with mariadb_process() as server:
    open_sql_records(server.url)

The server dies with its parent.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

MARIADB = "MariaDB and PyMySQL (apt-get install mariadb-server)"
USER = "mysql"
START_MAX_S = 60.0
POLL_S = 0.02
OPTIONS = ("--no-defaults", "--skip-networking", "--skip-grant-tables", "--innodb-buffer-pool-size=16M")
FAST = ("--innodb-flush-log-at-trx-commit=2", "--innodb-log-file-size=8M", "--max-connections=20")


class MariadbFailed(Exception):
    """The server did not start."""


def find_mariadb() -> str | None:
    """Return the server's program; None if it or PyMySQL is missing."""
    with suppress(ImportError):
        import pymysql  # noqa: F401

        return shutil.which("mariadbd", path=f"{os.environ['PATH']}:/usr/sbin")
    return None


class MariadbServer:
    """A server with its data; it can be killed and started again. Its database `records` is empty at first."""

    def __init__(self, program: str, home: Path, user: str | None, options: Sequence[str]) -> None:
        self._program, self._home, self._user, self._options = program, home, user, options
        self._socket = home / "socket"
        self.url = f"mysql://root@localhost/records?socket={self._socket}"
        self._process: subprocess.Popen[bytes] | None = None
        install = ["mariadb-install-db", "--no-defaults", f"--datadir={home / 'data'}", "--skip-test-db"]
        install.append("--auth-root-socket-user=root")
        subprocess.run(install, cwd=home, user=user, check=True, capture_output=True)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        setpriv = shutil.which("setpriv")
        prefix = [setpriv, "--pdeathsig", "KILL"] if setpriv else []
        places = [f"--datadir={self._home / 'data'}", f"--socket={self._socket}", f"--pid-file={self._home / 'pid'}"]
        log = self._home / "log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*prefix, self._program, *self._options, *places],
                cwd=self._home,
                user=self._user,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        _create_database(self._socket, self._process, log)

    def kill(self) -> None:
        """End it at once, without saving: the next start is a recovery."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def mariadb_process(options: Sequence[str] = (*OPTIONS, *FAST)) -> Iterator[MariadbServer]:
    """Run a server while the block runs."""
    program = find_mariadb()
    if program is None:
        raise MariadbFailed("it is not installed")
    home = Path(tempfile.mkdtemp(prefix="lycosa-my-"))
    user = USER if os.geteuid() == 0 else None
    if user is not None:
        os.chown(home, pwd.getpwnam(user).pw_uid, -1)
    try:
        server = MariadbServer(program, home, user, options)
        try:
            server.start()
            yield server
        finally:
            server.kill()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _create_database(path: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    import pymysql

    deadline = time.monotonic() + START_MAX_S
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(path))  # PyMySQL does not close the socket of a failed attempt
            connection = pymysql.connect(unix_socket=str(path), user="root")
            connection.cursor().execute("CREATE DATABASE IF NOT EXISTS records")
            connection.close()
            return
        time.sleep(POLL_S)
    raise MariadbFailed(f"it did not start: {log.read_text(errors='replace')[-500:]}")
