"""A real PostgreSQL server as a child process in a temporary folder, reached through a Unix socket.

with postgresql_server() as database:
    psycopg.connect(database)

PostgreSQL refuses to run as root: if root runs the tests, the server runs as `postgres`, the user of Debian's package.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.servers.database_process import DatabaseProcess, ServerFailed, running

POSTGRESQL = "PostgreSQL and psycopg (apt-get install postgresql)"
USER = "postgres"
OPTIONS = ("-c", "listen_addresses=", "-c", "fsync=off", "-c", "shared_buffers=16MB", "-c", "max_connections=20")


def find_postgresql() -> Path | None:
    """Return the folder of its programs; Debian keeps them outside of PATH. None if it or psycopg is missing."""
    with suppress(ImportError):
        import psycopg  # noqa: F401

        if found := shutil.which("initdb"):
            return Path(found).parent
        versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
        return versions[-1].parent if versions else None
    return None


class PostgresqlServer(DatabaseProcess):
    """A server with an empty database. `database` is what psycopg connects to."""

    kill_signal = signal.SIGQUIT
    parent_death_signal = "INT"

    def __init__(self, programs: Path, home: Path, user: str | None, options: Sequence[str]) -> None:
        super().__init__(home, user)
        self._programs, self._options = programs, options
        self.database = f"host={home} user={USER} dbname=postgres"
        self.url = f"postgresql://{USER}@/postgres?host={home}"
        initdb = [programs / "initdb", "-D", home / "data", "-U", USER, "--auth=trust", "--no-sync", "--encoding=UTF8"]
        subprocess.run(initdb, cwd=home, user=user, check=True, capture_output=True)

    def command(self) -> Sequence[str | Path]:
        """Return the command line."""
        return [self._programs / "postgres", "-D", self._home / "data", "-k", self._home, *self._options]

    def answers(self) -> bool:
        """Return whether the server accepts a connection."""
        import psycopg

        with suppress(psycopg.OperationalError):
            psycopg.connect(self.database).close()
            return True
        return False


@contextmanager
def postgresql_process(options: Sequence[str] = OPTIONS) -> Iterator[PostgresqlServer]:
    """Run a server while the block runs."""
    programs = find_postgresql()
    if programs is None:
        raise ServerFailed("PostgreSQL is not installed")
    with running(lambda home, user: PostgresqlServer(programs, home, user, options), "postgresql", USER) as server:
        yield server


@contextmanager
def postgresql_server() -> Iterator[str]:
    """Run a server while the block runs. Yields what psycopg connects to."""
    with postgresql_process() as server:
        yield server.database
