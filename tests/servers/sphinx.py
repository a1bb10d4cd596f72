"""A real Sphinx server as a child process in a temporary folder, reached through a Unix socket.

with sphinx_process({"torrents": TORRENTS}) as server:
    SphinxIndex(server.address("torrents"), TORRENTS, write=True)
"""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from lycosa.search.core.schema import Schema
from lycosa.search.core.sphinx_address import SphinxAddress
from lycosa.search.sphinx.config import index_config, searchd_config
from tests.servers.database_process import START_MAX_S, DatabaseProcess, ServerFailed, running

SPHINX = "Sphinx and PyMySQL (apt-get install sphinxsearch)"


def find_sphinx() -> str | None:
    """Return the server's program; None if it or PyMySQL is missing."""
    with suppress(ImportError):
        import pymysql  # noqa: F401

        return shutil.which("searchd")
    return None


class SphinxProcess(DatabaseProcess):
    """A server with these indexes, empty at first. After a kill, the next start replays its log."""

    def __init__(self, program: str, home: Path, schemas: Mapping[str, Schema], memory: str) -> None:
        super().__init__(home)
        self._program = program
        indexes = [index_config(name, schema, home, memory) for name, schema in schemas.items()]
        (home / "sphinx.conf").write_text("".join([*indexes, searchd_config(self.address("any"), home)]))

    def address(self, name: str) -> SphinxAddress:
        """Return the address of one of the indexes."""
        return SphinxAddress(name, "localhost", 0, str(self._home / "socket"))

    def command(self) -> Sequence[str | Path]:
        """Return the command line."""
        return [self._program, "--config", self._home / "sphinx.conf", "--nodetach"]

    def answers(self) -> bool:
        """Return whether the server greets: it does so when it has read its indexes."""
        with suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(START_MAX_S)
            probe.connect(str(self._home / "socket"))
            return bool(probe.recv(1))
        return False


@contextmanager
def sphinx_process(schemas: Mapping[str, Schema], memory: str = "32M") -> Iterator[SphinxProcess]:
    """Run a server with these indexes while the block runs."""
    program = find_sphinx()
    if program is None:
        raise ServerFailed("Sphinx is not installed")
    with running(lambda home, _: SphinxProcess(program, home, schemas, memory), "sphinx") as server:
        yield server
