"""Shared by the programs of this folder: paths, arguments, folders, progress lines, processor cores."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "benchmarks.md"

Figures = dict[str, Any]
QUICK_TORRENTS = 20_000


def count(text: str) -> int:
    """Read an argument that is a number, at least 1."""
    number = int(text.replace("_", ""))
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: at least 1")
    return number


def torrent_options(about: str | None, *, keep: bool = True) -> argparse.ArgumentParser:
    """Return the options of a benchmark of stored torrents. Read them with `read_torrent_options`."""
    options = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--torrents", type=count, default=1_000_000, help="how many are stored (%(default)s)")
    if keep:
        options.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the data there, and use them again")
    options.add_argument("--quick", action="store_true", help=f"{QUICK_TORRENTS:,} torrents: does it work at all?")
    options.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md")
    return options


def read_torrent_options(options: argparse.ArgumentParser) -> argparse.Namespace:
    """Read the command line."""
    chosen = options.parse_args()
    if chosen.write and chosen.quick:
        options.error("--write is for the whole: leave out --quick")
    if chosen.quick:
        chosen.torrents = QUICK_TORRENTS
    return chosen


@contextmanager
def kept(folder: Path | None = None) -> Iterator[Path]:
    """Yield `folder` and keep it. Without a folder, yield a new one in the working folder, and delete it at the end."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
    else:
        with tempfile.TemporaryDirectory(prefix="lycosa-bench-", dir=Path.cwd()) as made:
            yield Path(made)


def bytes_in(folder: Path) -> int:
    """Return the size of all files in a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def children(pid: int) -> list[int]:
    """Return the child processes of a process; none if it has ended."""
    found: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            found += map(int, file.read_text().split())
    return found


class MemoryWatch:
    """While the block runs: the highest memory of this process and its descendants together, as `peak_mb`.

    Memory that several processes share counts once (proportional set size), mapped files included.
    """

    EVERY_S = 0.5

    def __init__(self) -> None:
        self.peak_mb = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.peak_mb = max(self.peak_mb, _memory_mb(os.getpid()))
            if self._ended.wait(self.EVERY_S):
                return


def _memory_mb(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:  # it has ended
        return 0.0
    own = int(text.partition("\nPss:")[2].split()[0]) / 1024
    return own + sum(_memory_mb(each) for each in children(pid))


def progress(line: object) -> None:
    """Print a line of progress on standard error."""
    print(line, file=sys.stderr, flush=True)


@contextmanager
def on_cores(*cores: int) -> Iterator[None]:
    """Run this process, and those started in the block, on these cores."""
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, mine)
