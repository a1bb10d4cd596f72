"""A real MariaDB server as a child process in a temporary folder, reached through a Unix socket.

with mariadb_server() as url:
    open_sql_records(url)

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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MARIADB = "MariaDB and PyMySQL (apt-get install mariadb-server)"
USER = "mysql"
START_MAX_S = 60.0
POLL_S = 0.02
OPTIONS = ("--no-defaults", "--skip-networking", "--skip-grant-tables", "--innodb-buffer-pool-size=16M")
FAST = ("--innodb-flush-log-at-trx-commit=0", "--innodb-log-file-size=8M", "--max-connections=20")


class MariadbFailed(Exception):
    """The server did not start."""


def find_mariadb() -> str | None:
    """Return the server's program; None if it or PyMySQL is missing."""
    with suppress(ImportError):
        import pymysql  # noqa: F401

        return shutil.which("mariadbd", path=f"{os.environ['PATH']}:/usr/sbin")
    return None


@contextmanager
def mariadb_server() -> Iterator[str]:
    """Run a server while the block runs. Yields the URL of an empty database."""
    program = find_mariadb()
    if program is None:
        raise MariadbFailed("it is not installed")
    home = Path(tempfile.mkdtemp(prefix="lycosa-my-"))
    user = USER if os.geteuid() == 0 else None
    if user is not None:
        os.chown(home, pwd.getpwnam(user).pw_uid, -1)
    data, log, path = home / "data", home / "log", home / "socket"
    try:
        install = [
            "mariadb-install-db",
            "--no-defaults",
            f"--datadir={data}",
            "--skip-test-db",
            "--auth-root-socket-user=root",
        ]
        subprocess.run(install, cwd=home, user=user, check=True, capture_output=True)
        setpriv = shutil.which("setpriv")
        prefix = [setpriv, "--pdeathsig", "KILL"] if setpriv else []
        with log.open("ab") as output:
            process = subprocess.Popen(
                [
                    *prefix,
                    program,
                    *OPTIONS,
                    *FAST,
                    f"--datadir={data}",
                    f"--socket={path}",
                    f"--pid-file={home / 'pid'}",
                ],
                cwd=home,
                user=user,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            _create_database(path, process, log)
            yield f"mysql://root@localhost/records?socket={path}"
        finally:
            process.kill()  # at once, without saving
            process.wait()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _create_database(path: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    import pymysql

    deadline = time.monotonic() + START_MAX_S
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(path))  # PyMySQL does not close the socket of a failed attempt
            connection = pymysql.connect(unix_socket=str(path), user="root")
            connection.cursor().execute("CREATE DATABASE records")
            connection.close()
            return
        time.sleep(POLL_S)
    raise MariadbFailed(f"it did not start: {log.read_text(errors='replace')[-500:]}")
