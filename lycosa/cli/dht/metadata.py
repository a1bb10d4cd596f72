"""`lycosa dht metadata`. The paths of the files, also of existing ones, go to standard output."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import click

from lycosa.cli.dht.options import NodeOptions, join, node_options, report, run_with_node
from lycosa.cli.exit_codes import DEAD, DONE, one_line
from lycosa.cli.parameters import NON_EMPTY, Number
from lycosa.cli.task_progress import ShowProgress, task_progress
from lycosa.core.errors import LycosaError, NoMetadata
from lycosa.core.units import format_count, format_size

CONCURRENT_MAX = 32
"""Maximum number of torrents fetched at a time. Each needs a lookup and a few connections to peers."""


@click.command("metadata")
@click.argument("magnets", nargs=-1, required=True, metavar="MAGNET...")
@click.option(
    "-o", "--output", type=NON_EMPTY, default=".", show_default=True, metavar="DIR", help="Folder for the files."
)
@click.option(
    "--timeout",
    "timeout_s",
    type=Number(1),
    default=120.0,
    show_default=True,
    metavar="S",
    help="Maximum seconds for one torrent.",
)
@node_options(is_short=True)
def command(magnets: tuple[str, ...], options: NodeOptions, output: str, timeout_s: float) -> int:
    """Fetch the metadata of torrents from their peers, and write it to INFOHASH.torrent. Content is never fetched.

    MAGNET is a magnet link or an infohash. Existing files are kept. Exit code 1: some torrents could not be fetched.

    \b
    lycosa dht metadata 0123456789abcdef0123456789abcdef01234567 --bind 0.0.0.0:0 --bootstrap default
    """
    from lycosa.dht.core.magnet import parse_magnet

    parsed = {parse_magnet(text): None for text in magnets}
    jobs = [MetadataJob(magnet, Path(output)) for magnet in parsed]
    return run_with_node(options, lambda session: _fetch_all(session, jobs, timeout_s))


class MetadataJob:
    """A torrent to fetch, and the file for it."""

    def __init__(self, magnet: Any, folder: Path) -> None:
        self.magnet = magnet
        self.name = magnet.infohashes[0].hex()
        self.path = folder / f"{self.name}.torrent"

    async def run(self, session: Any, timeout_s: float) -> str:
        """Fetch the metadata and write the file. Return a line for the user. Raises `LycosaError`."""
        if self.is_there():
            return "already exists"
        try:
            async with asyncio.timeout(timeout_s):
                metadata = await self._fetch(session)
        except TimeoutError:
            raise NoMetadata(f"no metadata within {timeout_s:g} s") from None
        return self._write(metadata)

    def is_there(self) -> bool:
        return os.path.exists(self.path)  # noqa: PTH110  Path.exists raises if the name is too long

    async def _fetch(self, session: Any) -> bytes:
        """A hybrid torrent has two swarms: the second is tried if the first fails."""
        metadata = b""
        for infohash in self.magnet.infohashes:
            try:
                metadata = await session.metadata(infohash, self.magnet.peers)
            except NoMetadata:
                if infohash == self.magnet.infohashes[-1]:
                    raise
            else:
                break
        if not self.magnet.names(metadata):
            raise NoMetadata("the link names two torrents: the metadata has only one of the link's infohashes")
        return metadata

    def _write(self, metadata: bytes) -> str:
        from lycosa.dht.core.metadata.info import read_info
        from lycosa.dht.core.torrent_file import TorrentFile, write_torrent_file
        from lycosa.infra.disk import write_error
        from lycosa.infra.durable_files import replace_file

        info = read_info(metadata)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self.path, write_torrent_file(TorrentFile(metadata)), sync=False)
        except OSError as error:
            raise write_error(self.path, error, "cannot be written") from None
        files = format_count(sum(not file.padding for file in info.files), "file")
        return f"{one_line(info.name.decode(errors='replace'))}: {files}, {format_size(info.size_bytes)}"


async def _fetch_all(session: Any, jobs: list[MetadataJob], timeout_s: float) -> int:
    await join(session)
    turn = asyncio.Semaphore(CONCURRENT_MAX)
    ended: list[bool] = []

    async def run(job: MetadataJob, show: ShowProgress) -> None:
        async with turn:
            try:
                report(f"{job.name}: {await job.run(session, timeout_s)}")
                print(job.path, flush=True)
                ended.append(True)
            except LycosaError as error:
                report(f"{job.name}: {str(error).removeprefix(f'{job.name}: ')}")
                ended.append(False)
            show(len(ended), len(ended))

    with task_progress("torrent", "done", len(jobs), shares_terminal=True) as show:
        show(0, 0)
        async with asyncio.TaskGroup() as tasks:
            for job in jobs:
                tasks.create_task(run(job, show))
    report(f"{sum(ended):,} of {format_count(len(jobs), 'torrent')} fetched")
    return DONE if all(ended) else DEAD
