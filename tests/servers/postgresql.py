"""A real PostgreSQL server as a child process in a temporary folder, reached through a Unix socket.

with postgresql_server() as database:
    psycopg.connect(database)

The server dies with its parent. It refuses to run as root, so there it runs as the user of Debian's package.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

POSTGRESQL = "PostgreSQL and psycopg (apt-get install postgresql)"
USER = "postgres"
START_MAX_S = 60.0
POLL_S = 0.02
OPTIONS = ("-c", "listen_addresses=", "-c", "fsync=off", "-c", "shared_buffers=16MB", "-c", "max_connections=20")


class PostgresqlFailed(Exception):
    """The server did not start."""


def find_postgresql() -> Path | None:
    """Return the folder of its programs; Debian keeps them outside of PATH. None if it or psycopg is missing."""
    with suppress(ImportError):
        import psycopg  # noqa: F401

        if found := shutil.which("initdb"):
            return Path(found).parent
        versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
        return versions[-1].parent if versions else None
    return None


class PostgresqlServer:
    """A server with its data; it can be killed and started again. `database` is what psycopg connects to."""

    def __init__(self, programs: Path, home: Path, user: str | None, options: Sequence[str]) -> None:
        self._programs, self._home, self._user, self._options = programs, home, user, options
        self.database = f"host={home} user={USER} dbname=postgres"
        self.url = f"postgresql://{USER}@/postgres?host={home}"
        self._process: subprocess.Popen[bytes] | None = None
        initdb = [programs / "initdb", "-D", home / "data", "-U", USER, "--auth=trust", "--no-sync", "--encoding=UTF8"]
        subprocess.run(initdb, cwd=home, user=user, check=True, capture_output=True)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        setpriv = shutil.which("setpriv")
        prefix = [setpriv, "--pdeathsig", "INT"] if setpriv else []
        log = self._home / "log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*prefix, self._programs / "postgres", "-D", self._home / "data", "-k", self._home, *self._options],
                cwd=self._home,
                user=self._user,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        _wait_until_it_answers(self.database, self._process, log)

    def kill(self) -> None:
        """End it at once, without saving: the next start is a recovery."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()
            self._process = None


@contextmanager
def postgresql_process(options: Sequence[str] = OPTIONS) -> Iterator[PostgresqlServer]:
    """Run a server while the block runs."""
    programs = find_postgresql()
    if programs is None:
        raise PostgresqlFailed("it is not installed")
    home = Path(tempfile.mkdtemp(prefix="lycosa-pg-"))
    user = USER if os.geteuid() == 0 else None
    if user is not None:
        os.chown(home, pwd.getpwnam(user).pw_uid, -1)
    try:
        server = PostgresqlServer(programs, home, user, options)
        try:
            server.start()
            yield server
        finally:
            server.kill()
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def postgresql_server() -> Iterator[str]:
    """Run a server while the block runs. Yields what psycopg connects to."""
    with postgresql_process() as server:
        yield server.database


def _wait_until_it_answers(database: str, process: subprocess.Popen[bytes], log: Path) -> None:
    import psycopg

    deadline = time.monotonic() + START_MAX_S
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(psycopg.OperationalError):
            psycopg.connect(database).close()
            return
        time.sleep(POLL_S)
    raise PostgresqlFailed(f"it did not start: {log.read_text(errors='replace')[-500:]}")
