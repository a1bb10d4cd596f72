"""A real Sphinx server as a child process in a temporary folder, reached through a Unix socket.

with sphinx_process({"torrents": TORRENTS}) as server:
    SphinxIndex(server.address("torrents"), TORRENTS, write=True)

The server dies with its parent.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from lycosa.search.core.schema import Schema
from lycosa.search.core.sphinx_address import SphinxAddress
from lycosa.search.sphinx.config import index_config, searchd_config

SPHINX = "Sphinx and PyMySQL (apt-get install sphinxsearch)"
START_MAX_S = 60.0
POLL_S = 0.02


class SphinxFailed(Exception):
    """The server did not start."""


def find_sphinx() -> str | None:
    """Return the server's program; None if it or PyMySQL is missing."""
    with suppress(ImportError):
        import pymysql  # noqa: F401

        return shutil.which("searchd")
    return None


class SphinxProcess:
    """A server with its data; it can be killed and started again."""

    def __init__(self, program: str, home: Path, schemas: Mapping[str, Schema], memory: str) -> None:
        self._program, self._home = program, home
        self._process: subprocess.Popen[bytes] | None = None
        indexes = [index_config(name, schema, home, memory) for name, schema in schemas.items()]
        (home / "sphinx.conf").write_text("".join([*indexes, searchd_config(self.address("any"), home)]))

    def address(self, name: str) -> SphinxAddress:
        """Return the address of one of the indexes."""
        return SphinxAddress(name, "localhost", 0, str(self._home / "socket"))

    @property
    def pid(self) -> int:
        """Return the id of the process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it answers."""
        setpriv = shutil.which("setpriv")
        prefix = [setpriv, "--pdeathsig", "KILL"] if setpriv else []
        log = self._home / "log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*prefix, self._program, "--config", str(self._home / "sphinx.conf"), "--nodetach"],
                cwd=self._home,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_MAX_S
        while time.monotonic() < deadline and self._process.poll() is None:
            with suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(POLL_S * 10)
                probe.connect(str(self._home / "socket"))
                if probe.recv(1):  # it greets when it has read its indexes
                    return
            time.sleep(POLL_S)
        raise SphinxFailed(f"it did not start: {log.read_text(errors='replace')[-500:]}")

    def kill(self) -> None:
        """End it at once, without saving: the next start replays its log."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def sphinx_process(schemas: Mapping[str, Schema], memory: str = "32M") -> Iterator[SphinxProcess]:
    """Run a server with these indexes while the block runs."""
    program = find_sphinx()
    if program is None:
        raise SphinxFailed("it is not installed")
    home = Path(tempfile.mkdtemp(prefix="lycosa-sphinx-"))
    try:
        server = SphinxProcess(program, home, schemas, memory)
        try:
            server.start()
            yield server
        finally:
            server.kill()
    finally:
        shutil.rmtree(home, ignore_errors=True)
