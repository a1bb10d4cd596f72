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
from collections.abc import Iterator
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


@contextmanager
def postgresql_server() -> Iterator[str]:
    """Run a server while the block runs. Yields what psycopg connects to."""
    programs = find_postgresql()
    if programs is None:
        raise PostgresqlFailed("it is not installed")
    home = Path(tempfile.mkdtemp(prefix="lycosa-pg-"))
    user = USER if os.geteuid() == 0 else None
    if user is not None:
        os.chown(home, pwd.getpwnam(user).pw_uid, -1)
    data, log = home / "data", home / "log"
    try:
        initdb = [programs / "initdb", "-D", data, "-U", USER, "--auth=trust", "--no-sync", "--encoding=UTF8"]
        subprocess.run(initdb, cwd=home, user=user, check=True, capture_output=True)
        setpriv = shutil.which("setpriv")
        prefix = [setpriv, "--pdeathsig", "INT"] if setpriv else []
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*prefix, programs / "postgres", "-D", data, "-k", home, *OPTIONS],
                cwd=home,
                user=user,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            database = f"host={home} user={USER} dbname=postgres"
            _wait_until_it_answers(database, process, log)
            yield database
        finally:
            process.send_signal(signal.SIGQUIT)  # at once, without saving
            process.wait()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _wait_until_it_answers(database: str, process: subprocess.Popen[bytes], log: Path) -> None:
    import psycopg

    deadline = time.monotonic() + START_MAX_S
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(psycopg.OperationalError):
            psycopg.connect(database).close()
            return
        time.sleep(POLL_S)
    raise PostgresqlFailed(f"it did not start: {log.read_text(errors='replace')[-500:]}")
