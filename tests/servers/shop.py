"""A shop as a child process, with everything that makes a crawl hard to resume: sessions, redirects, failures, images.

    with open_shop(3000) as shop:
        ... shop.url ...                          # the home page; /trade is the entry for traders
        counts = shop.hits()                      # how often each path was requested
        more = counts - expected(3000)            # repeated requests

    /  /trade                 set the cookie `who`, of a customer or a trader, and lead to their first section
    /s/K/                     sets the cookie `key` of the section (for this path only) and redirects to its first list
    /s/K/list/I               leads to 20 products, some through redirects, to one page that is missing, and onwards
    /s/K/product/N  stock/N   fail the first time, or the first two times, for some N: 503, 500 or a broken connection
    /image/NAME               a JPEG or PNG; some are 404

A request without the header X-Shop or without the cookies of the section, or from a customer to a section for traders,
is redirected to /cookies, and so appears among the recorded requests. Issued cookies and the failures of each page are
remembered as long as the server lives: it outlives its clients. A fifth of the sections is for traders. The server dies
with its parent.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from tests.servers.children import started

ROOT = Path(__file__).resolve().parent.parent.parent
SECTIONS = 30
TRADE = 24
"""The first section for traders."""

PER_LIST = 20
SHARED = 10
"""Images that all products share."""

SIDE = (24, 16)
COOKIE = re.compile(r"([^=;\s]+)=([^;]*)")
HTML = "text/html; charset=utf-8"


class Answer(NamedTuple):
    """A response. A status of 0 breaks the connection."""

    status: int
    body: bytes = b""
    kind: str = HTML
    more: tuple[str, ...] = ()


def section_of(number: int, products: int) -> int:
    """Return the section of a product."""
    return number * SECTIONS // products


def members(section: int, products: int) -> list[int]:
    """Return the products of a section."""
    return [number for number in range(products) if section_of(number, products) == section]


def failures(number: int) -> list[int]:
    """Return the statuses that a product answers with before it is served; 0 is a broken connection."""
    if number % 40 == 7:
        return [503, 503]
    if number % 10 == 3:
        return [500]
    return [0] if number % 50 == 9 else []


def images(number: int) -> list[str]:
    """Return the image paths of a product: a shared one, one of its own for some products, and missing ones for
    some.
    """
    unique = [f"/image/own-{number}.{'png' if number % 3 else 'jpg'}"] if number % 4 == 0 else []
    missing = ["/image/lost-all.jpg", f"/image/lost-{number}.jpg"] if number % 50 == 1 else []
    return [f"/image/shared-{number % SHARED}.jpg", *unique, *missing]


@lru_cache(4096)
def picture(path: str) -> bytes:
    """Return an image that is unique to the path."""
    number = int(re.sub(r"\D", "", path)) + 7_000_000 * ("shared" in path)
    colour = (number % 251, number // 251 % 251, number // 251**2)
    file = BytesIO()
    if path.endswith("png"):
        Image.new("RGB", SIDE, colour).save(file, "PNG")
    else:
        Image.new("RGB", SIDE, colour).save(file, "JPEG", comment=path.encode())
    return file.getvalue()


def way_to(number: int, products: int) -> list[str]:
    """Return the paths from the link in a list through redirects to the product itself."""
    base = f"/s/{section_of(number, products)}"
    redirects = {0: ["go"], 3: ["go", "via"]}.get(number % 6, [])
    return [*(f"{base}/{hop}/{number}" for hop in redirects), f"{base}/product/{number}"]


def expected(products: int, *, stock: bool = False) -> Counter[str]:
    """Return how often a spider that is never killed requests each path."""
    counts: Counter[str] = Counter(["/", "/trade"])
    for section in range(SECTIONS):
        counts[f"/s/{section}/"] = 1
        own = members(section, products)
        for start in range(0, len(own), PER_LIST):
            counts[f"/s/{section}/list/{start // PER_LIST}"] = 1
            counts[f"/s/{section}/missing/{start // PER_LIST}"] = 1
        for number in own:
            counts.update(way_to(number, products))
            counts[f"/s/{section}/product/{number}"] += len(failures(number))
            counts.update({path: 1 for path in images(number) if path not in counts})
            if stock:
                counts[f"/s/{section}/stock/{number}"] = 1 + bool(failures(number))
    return counts


@dataclass(slots=True)
class Shop:
    """A running server. `url` ends without a slash."""

    url: str
    products: int
    home: Path
    process: subprocess.Popen[str]

    def hits(self) -> Counter[str]:
        """Return how often each path was requested so far, except robots.txt."""
        lines = (self.home / "hits").read_text().splitlines(keepends=True)
        counts = Counter(line[:-1] for line in lines if line.endswith("\n"))
        counts.pop("/robots.txt", None)
        return counts

    def busy(self) -> int:
        """Return the number of requests so far."""
        return (self.home / "hits").read_bytes().count(b"\n")


class ShopState:
    """Answers requests, and remembers issued cookies and failures."""

    def __init__(self, products: int) -> None:
        self._products = products
        self._lists = [members(section, products) for section in range(SECTIONS)]
        self._issued: set[str] = set()
        self._tries: Counter[str] = Counter()

    def answer(self, path: str, head: str) -> Answer:
        """Return the response to a GET request with this head."""
        if path in {"/", "/trade"}:
            first = TRADE if path == "/trade" else 0
            cookie = self._issue("who=" + ("trader" if first else "customer"))
            return Answer(200, self._page("home", [f"/s/{first}/"]), more=(f"Set-Cookie: {cookie}; Path=/",))
        if path.startswith("/image/"):
            return self._image(path)
        if path == "/cookies":
            return Answer(200, b"<p>Please accept our cookies.")
        found = re.fullmatch(r"/s/(\d+)/(?:(\w+)/(\d+))?", path)
        if found is None or int(found[1]) >= SECTIONS:
            return Answer(404)
        section, kind, number = int(found[1]), found[2] or "", int(found[3] or 0)
        if not self._is_welcome(section, kind, head):
            return _to(302, "/cookies")
        answers = {"": self._section, "list": self._list, "go": self._hop, "via": self._hop}
        answers |= {"product": self._product, "stock": self._stock}
        return answers.get(kind, _nothing)(section, number, path)

    def _issue(self, cookie: str) -> str:
        issued = f"{cookie}-{len(self._issued)}"
        self._issued.add(issued)
        return issued

    def _is_welcome(self, section: int, kind: str, head: str) -> bool:
        cookies = dict(COOKIE.findall(_field(head, "cookie")))
        customer = "who=" + cookies.get("who", "")
        key = "key=" + cookies.get("key", "")
        right = customer in self._issued and customer.startswith("who=trader") == (section >= TRADE)
        keyed = not kind or (key in self._issued and key.startswith(f"key={section}-"))
        return right and keyed and _field(head, "x-shop") == "open"

    def _section(self, section: int, _number: int, path: str) -> Answer:
        key = self._issue(f"key={section}")
        return _to(302, f"{path}list/0", f"Set-Cookie: {key}; Path={path}")

    def _list(self, section: int, number: int, _path: str) -> Answer:
        own, start = self._lists[section], number * PER_LIST
        paths = [way_to(each, self._products)[0] for each in own[start : start + PER_LIST]]
        onwards = [f"/s/{section}/list/{number + 1}"]
        if start + PER_LIST >= len(own):
            onwards = [] if section + 1 in {TRADE, SECTIONS} else [f"/s/{section + 1}/"]
        products = "".join(f'<a class="product" href="{path}">product</a>' for path in paths)
        missing = f'<a class="missing" href="/s/{section}/missing/{number}">gone</a>'
        return Answer(200, self._page("list", onwards, products + missing))

    def _hop(self, section: int, number: int, path: str) -> Answer:
        paths = way_to(number, self._products)
        return _to((301, 302, 307)[number % 5 % 3], paths[paths.index(path) + 1])

    def _product(self, _section: int, number: int, path: str) -> Answer:
        failed = self._failure(path, failures(number))
        if failed is not None:
            return failed
        image_tags = "".join(f'<img src="{image}">' for image in images(number))
        body = f'<h1>Product {number}</h1><b class="price">{number}.50</b>{image_tags}'
        return Answer(200, self._page("product", [], body), more=("Cache-Control: private, max-age=3600",))

    def _stock(self, _section: int, number: int, path: str) -> Answer:
        failed = self._failure(path, failures(number)[:1])
        return failed or Answer(200, str(number % 17).encode(), "text/plain")

    def _failure(self, path: str, statuses: list[int]) -> Answer | None:
        self._tries[path] += 1
        if self._tries[path] > len(statuses):
            return None
        return Answer(statuses[self._tries[path] - 1], b"later", more=("Retry-After: 0",))

    def _image(self, path: str) -> Answer:
        if "lost" in path:
            return Answer(404)
        return Answer(200, picture(path), "image/png" if path.endswith("png") else "image/jpeg")

    def _page(self, title: str, onwards: list[str], body: str = "") -> bytes:
        anchors = "".join(f'<a class="next" href="{link}">next</a>' for link in onwards)
        return f"<!doctype html><title>{title}</title>{body}{anchors}".encode()


def _field(head: str, name: str) -> str:
    found = re.search(rf"^{name}:\s*(.*?)\s*$", head, re.IGNORECASE | re.MULTILINE)
    return found[1] if found else ""


def _to(status: int, path: str, *more: str) -> Answer:
    return Answer(status, more=(f"Location: {path}", *more))


def _nothing(_section: int, _number: int, _path: str) -> Answer:
    return Answer(404, b"not here")


class Connection(asyncio.Protocol):
    """One connection, which stays open."""

    def __init__(self, keeper: ShopState, log: int) -> None:
        self._state = keeper
        self._log = log
        self._read = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer every complete request."""
        self._read += data
        while b"\r\n\r\n" in self._read:
            head, _, self._read = self._read.partition(b"\r\n\r\n")
            path = head.split(b" ", 2)[1].decode("ascii", "replace")
            os.write(self._log, f"{path}\n".encode())
            answer = self._state.answer(path, head.decode("latin-1"))
            if not answer.status:
                self._transport.abort()
                return
            lines = [f"HTTP/1.1 {answer.status} Status", f"Content-Type: {answer.kind}", *answer.more]
            lines += [f"Content-Length: {len(answer.body)}", "", ""]
            self._transport.write("\r\n".join(lines).encode() + answer.body)


async def serve(products: int, log_path: str) -> None:
    """Serve until standard input ends, as it does when the parent dies. Prints the port first."""
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    keeper, loop = ShopState(products), asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(keeper, log), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


@contextmanager
def open_shop(products: int) -> Iterator[Shop]:
    """Serve a shop while the block runs."""
    home = Path(tempfile.mkdtemp(prefix="lycosa-shop-"))
    (home / "hits").touch()
    command = [sys.executable, "-m", "tests.servers.shop", "--products", str(products), "--log", home / "hits"]
    try:
        # A separate session: Ctrl-C in the terminal must not end it before its users.
        with started(command, cwd=ROOT, stdin=subprocess.PIPE, start_new_session=True) as process:
            assert process.stdout
            yield Shop(f"http://127.0.0.1:{int(process.stdout.readline())}", products, home, process)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(description="Serve a shop on 127.0.0.1.")
    parser.add_argument("--products", type=int, required=True)
    parser.add_argument("--log", required=True)
    options = parser.parse_args()
    asyncio.run(serve(options.products, options.log))
    os._exit(0)


if __name__ == "__main__":
    main()
