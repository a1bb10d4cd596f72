"""A slow site of any size as a child process: page N of a ternary tree, requests are recorded. Standard library only.

    with grow(3000, delay_s=0.2) as tree:
        ... tree.url ...                      # the root page, /0
        hits = tree.hits()                    # (monotonic seconds, path), in order of arrival

Page N links to its children 3N+1..3N+3 and to a few pages across the tree, and holds one word that no other page has.
It also links to /away on another name of the same server, so that leaving the site is recorded, too.
The clock of the hits is `time.monotonic()`, which all processes of a machine share. The server dies
with its parent.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.servers.children import started

ROOT = Path(__file__).resolve().parent.parent.parent
HEAD_MAX = 64 * 1024
HEAD = "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {size}\r\n\r\n"


class Hit(NamedTuple):
    """One request: when its head was read, in monotonic seconds, and its path."""

    at: float
    path: str


@dataclass(slots=True)
class Tree:
    """A running server. `url` is that of the root page."""

    url: str
    pages: int
    home: Path
    process: subprocess.Popen[str]

    def hits(self) -> list[Hit]:
        """Return the requests so far, in order, without an incomplete line."""
        lines = (self.home / "hits").read_text().splitlines(keepends=True)
        fields = (line.split() for line in lines if line.endswith("\n"))
        return [Hit(float(at), path) for at, path in fields]

    def hit_bytes(self) -> int:
        """Return the size of the log, which grows with every request."""
        return (self.home / "hits").stat().st_size

    def urls(self) -> set[str]:
        """Return the URLs of all pages."""
        return {self.url.removesuffix("0") + str(n) for n in range(self.pages)}


def word(number: int) -> str:
    """Return the word that is unique to the page."""
    return f"wolfspider{number:06}"


def links(number: int, pages: int) -> list[int]:
    """Return the pages that a page links to: its children, and three across the tree."""
    children = [3 * number + 1, 3 * number + 2, 3 * number + 3]
    across = [(7 * number + 11) % pages, number // 2, (number + pages // 2) % pages]
    return [child for child in children if child < pages] + across


def page(number: int, pages: int, text_bytes: int, away_url: str) -> str:
    """Return the HTML of a page."""
    anchors = "".join(f'<li><a href="/{each}">page {each}</a>' for each in links(number, pages))
    filler = f"filler of {number} " * (text_bytes // len(f"filler of {number} "))
    return (
        f'<!doctype html><html lang="en"><title>Page {number}</title><h1>Heading {number}</h1>'
        f"<p>Here hunts {word(number)}. {filler}</p><ul>{anchors}</ul><p><a href='{away_url}'>away</a></p></html>"
    )


class Server:
    """Answers GET requests on persistent connections."""

    def __init__(self, options: argparse.Namespace, log: int) -> None:
        self._pages: int = options.pages
        self._delay_s: float = options.delay
        self._text_bytes: int = options.text_bytes
        self._robots: str = options.robots
        self._log = log
        self.away = ""

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer until the client disconnects."""
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ", 2)[1].decode("ascii", "replace")
                os.write(self._log, f"{time.monotonic():.6f} {path}\n".encode())
                await asyncio.sleep(self._delay_s)
                writer.write(self._answer(path))
                await writer.drain()
        writer.close()

    def _answer(self, path: str) -> bytes:
        if path == "/robots.txt" and self._robots:
            return self._encoded("200 OK", "text/plain", self._robots)
        number = path.removeprefix("/")
        if not number.isdigit() or int(number) >= self._pages:
            return self._encoded("404 Not Found", "text/plain", "not here")
        return self._encoded(
            "200 OK", "text/html; charset=utf-8", page(int(number), self._pages, self._text_bytes, self.away)
        )

    def _encoded(self, status: str, kind: str, text: str) -> bytes:
        body = text.encode()
        return HEAD.format(status=status, kind=kind, size=len(body)).encode() + body


async def serve(options: argparse.Namespace) -> None:
    """Serve until standard input ends, as it does when the parent dies."""
    log = os.open(options.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    site = Server(options, log)
    server = await asyncio.start_server(site.connected, "127.0.0.1", 0, limit=HEAD_MAX, backlog=1024)
    port = server.sockets[0].getsockname()[1]
    site.away = f"http://localhost:{port}/away"
    print(port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


@contextmanager
def grow(pages: int, *, delay_s: float = 0.0, text_bytes: int = 0, robots: str = "") -> Iterator[Tree]:
    """Serve a tree while the block runs. Each page has `text_bytes` of additional text; without `robots` there is no
    robots.txt.
    """
    home = Path(tempfile.mkdtemp(prefix="lycosa-tree-"))
    (home / "hits").touch()
    options = ("--pages", pages, "--delay", delay_s, "--text-bytes", text_bytes, "--robots", robots)
    command = [sys.executable, "-m", "tests.servers.tree", "--log", home / "hits", *map(str, options)]
    try:
        # A separate session: Ctrl-C in the terminal must not end it before its users.
        with started(command, cwd=ROOT, stdin=subprocess.PIPE, start_new_session=True) as process:
            assert process.stdout
            port = int(process.stdout.readline())
            yield Tree(f"http://127.0.0.1:{port}/0", pages, home, process)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def main() -> None:
    """Serve until standard input ends. Prints the port first."""
    parser = argparse.ArgumentParser(description="Serve a tree of pages on 127.0.0.1.")
    parser.add_argument("--pages", type=int, required=True)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--text-bytes", type=int, default=0)
    parser.add_argument("--robots", default="", help="the text of robots.txt")
    parser.add_argument("--log", required=True)
    asyncio.run(serve(parser.parse_args()))
    os._exit(0)


if __name__ == "__main__":
    main()
