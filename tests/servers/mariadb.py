"""A real MariaDB server as a child process in a temporary folder, reached through a Unix socket.

with mariadb_process() as server:
    open_sql_records(server.url)
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.servers.database_process import DatabaseProcess, ServerFailed, running

MARIADB = "MariaDB and PyMySQL (apt-get install mariadb-server)"
USER = "mysql"
OPTIONS = ("--no-defaults", "--skip-networking", "--skip-grant-tables", "--innodb-buffer-pool-size=16M")
FAST = ("--innodb-flush-log-at-trx-commit=2", "--innodb-log-file-size=8M", "--max-connections=20")


def find_mariadb() -> str | None:
    """Return the server's program; None if it or PyMySQL is missing."""
    with suppress(ImportError):
        import pymysql  # noqa: F401

        return shutil.which("mariadbd", path=f"{os.environ['PATH']}:/usr/sbin")
    return None


class MariadbServer(DatabaseProcess):
    """A server whose database `records` is empty at first."""

    def __init__(self, program: str, home: Path, user: str | None, options: Sequence[str]) -> None:
        super().__init__(home, user)
        self._program, self._options = program, options
        self._socket = home / "socket"
        self.url = f"mysql://root@localhost/records?socket={self._socket}"
        install = ["mariadb-install-db", "--no-defaults", f"--datadir={home / 'data'}", "--skip-test-db"]
        install.append("--auth-root-socket-user=root")
        subprocess.run(install, cwd=home, user=user, check=True, capture_output=True)

    def command(self) -> Sequence[str | Path]:
        """Return the command line."""
        places = [f"--datadir={self._home / 'data'}", f"--socket={self._socket}", f"--pid-file={self._home / 'pid'}"]
        return [self._program, *self._options, *places]

    def answers(self) -> bool:
        """Create the database if it is missing; return whether the server did it."""
        import pymysql

        with suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(self._socket))  # PyMySQL does not close the socket of a failed attempt
            connection = pymysql.connect(unix_socket=str(self._socket), user="root")
            connection.cursor().execute("CREATE DATABASE IF NOT EXISTS records")
            connection.close()
            return True
        return False


@contextmanager
def mariadb_process(options: Sequence[str] = (*OPTIONS, *FAST)) -> Iterator[MariadbServer]:
    """Run a server while the block runs."""
    program = find_mariadb()
    if program is None:
        raise ServerFailed("MariaDB is not installed")
    with running(lambda home, user: MariadbServer(program, home, user, options), "mariadb", USER) as server:
        yield server
