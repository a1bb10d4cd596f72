"""Every block of code in README.md and docs/*.md runs as written, page by page from the top, in one folder a page.

`sh` and `console` blocks go to bash line by line, and every line must succeed. `python` blocks are executed, and
spiders and callbacks in them crawl a local site. `toml` blocks are read by the loader of the settings. `text` blocks
show output and files: there is nothing to run. Only addresses are replaced (`places`). Files and names that a page
takes for granted are in `walk` and `names_of`. What cannot run here is in `EXCEPTIONS`, with the reason.
"""

from __future__ import annotations

import ast
import asyncio
import base64
import gzip
import inspect
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest

import lycosa
from lycosa.app.proxies.checks import project_checks, project_sources
from lycosa.app.proxies.pools import project_policies
from lycosa.config import Settings, load
from lycosa.config.view import SettingsView
from lycosa.crawl.spiders.response import Response
from lycosa.pool import open_pool
from lycosa.queue import Queue
from tests.cli.command import environment
from tests.conftest import ROOT
from tests.servers.file_site import serve
from tests.servers.ports import ReservedPort
from tests.servers.proxies import Tinyproxy
from tests.servers.redis import RedisServer, redis_server

PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {"python", "sh", "console", "toml", "text"}
LINE_MAX_S = 60
SERVER_START_MAX_S = 30
UNTIL_CANCELLED_S = 0.3

EXCEPTIONS = {
    ("README.md", "make demo"): "installs packages; tests/scripts/test_demo.py runs the demo",
    ("README.md", "python3 -m venv"): "installs packages",
    ("README.md", "pip install"): "installs packages",
    ("docs/streams.md", "pip install"): "installs packages",
    ("docs/several-machines.md", "pip install"): "installs packages",
    ("docs/streams.md", "for entries in batches"): "part of examples/consume_stream.py, which a test runs and compares",
    ("docs/dht-import.md", "lycosa dht import ~/"): "a database of magnetico; tests/dht/exchange makes one",
    ("docs/dht-import.md", "lycosa dht import postgresql"): "a server with bitmagnet; tests/dht/exchange makes one",
    ("docs/proxy-gateway.md", "chromium"): "opens a window",
    (
        "docs/torrent-search.md",
        "searchd --config",
    ): "a search server on a fixed port; tests/search/contracts/test_sphinx_index.py",
    (
        "docs/torrent-search.md",
        "lycosa index --state torrents --index sphinx",
    ): "a search server on a fixed port; tests/search/contracts/test_sphinx_index.py",
    (
        "docs/torrent-search.md",
        "lycosa site --state torrents --index sphinx",
    ): "a search server on a fixed port; tests/search/contracts/test_sphinx_index.py",
    ("docs/roadmap.md", "lycosa "): "commands that are planned",
    ("docs/real-pages.md", "wget"): "a recursive wget of a whole site, which bench/ runs",
    (
        "docs/dht-crawler.md",
        "lycosa dht explain",
    ): "nothing was found, so it exits with 1; tests/cli/dht/test_explain.py",
    ("docs/proxies.md", 'async with pool.lease("shop.example") as proxy, httpx'): "httpx is not among our packages",
}
"""Page and beginning of a line or a block of Python that is not run, and why."""

PUBLIC_DHT = "--bootstrap default"
"""Lines with this are not run: the public DHT is not for tests."""

SERVERS = (
    "lycosa site", "lycosa proxies serve", "lycosa proxies site", "lycosa proxies judge", "lycosa proxies keep",
    "lycosa top", "lycosa dht node",
)  # fmt: skip
"""Commands that run until Ctrl-C: they have to write something, and end with the page."""

HTML = """<!doctype html><title>Quotes</title><h1> Emma </h1><p>The context manager of a shop</p><b class=price>$7</b>
<div class=quote><span class=text>So it goes</span> <small>Kurt</small></div><ul class=tags><li>a</ul>
<form id=login method=post><input name=name><input name=password type=password></form>
<a class=shelf href=/sale>Sale</a><ul><li class=next><a href=/2>Next</a></ul><img src=/image.png>"""
IMAGE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
TORRENT = '{"infohash_v1": "%s", "name": "acme leak", "files": [{"path": "a", "size_bytes": 1}]}' % ("ab" * 20)
PREPARED = {
    "README.md": [f"echo '{TORRENT}' | lycosa dht import - --state torrents", "lycosa index --state torrents"],
    "docs/proxy-checks.md": [
        "lycosa proxies add list.txt --pool proxies",
        "lycosa proxies add list.txt --pool redis://localhost:6379/0",
    ],
    "docs/dht-crawler.md": [
        "lycosa dht node --bind 127.0.0.1:6881 --allow-private 127.0.0.0/8",
        (
            "lycosa dht crawl --bind 127.0.0.2:0 --bootstrap 127.0.0.1:6881 --allow-private 127.0.0.0/8"
            " --state torrents --max-time 1"
        ),
    ],
    "docs/torrent-rules.md": [f"echo '{TORRENT}' | lycosa dht import - --state torrents"],
    "docs/torrent-search.md": [
        f"echo '{TORRENT}' | lycosa dht import - --state torrents",
        "lycosa index --state torrents",
    ],
    "docs/proxy-api.md": ["lycosa proxies add list.txt --pool pool"],
    "docs/proxy-gateway.md": [
        "lycosa proxies add list.txt --pool pool",
        "lycosa proxies add list.txt --pool redis://localhost:6379/0",
    ],
}
"""Commands that the reader has run before a page begins."""

SITE: dict[str, tuple[str, bytes | str]] = {
    **dict.fromkeys(["/", "/2", "/sale", "/new", "/cart"], ("text/html", HTML)),
    "/robots.txt": ("text/plain", "User-agent: *\n"),
    "/stock.json": ("application/json", '{"stock": 3}'),
    "/image.png": ("image/png", IMAGE),
}
SHOP = """
from lycosa import Spider

class Shop(Spider):
    name = "shop"
    start_urls = ["https://shop.example/"]

    def parse(self, response):
        yield {"url": response.url}
"""


ENVIRONMENT = {"ACME_TOKEN": "token", "ACME_PASSWORD": "secret", "KEY": "k" * 32}
WRITTEN = {
    "Vb0…": r'"id":"([^"]+)"',
    "5f0c1a2b-1a": r"(?i)x-proxy-lease: (\S+)",
    "judge://KEY@judge.example.org:8300/?tls=8301&pin=PIN": r"(judge://\S+)",
}
"""Texts in the docs that stand for a part of the output of an earlier line, and the pattern of that part."""

PORTS = ("3128", "8082", "8300", "9464", "9465", "6881")
"""Ports in the docs; free ones take their place."""


class Block(NamedTuple):
    """A fenced block: its page, the number of its first line, its language and its text."""

    page: str
    line: int
    language: str
    text: str


def blocks_of(page: str) -> list[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return [Block(page, text.count("\n", 0, match.start()) + 2, match[1], match[2]) for match in BLOCK.finditer(text)]


def places(site: str, redis: str, ports: Sequence[int]) -> list[tuple[str, str]]:
    """Return patterns of addresses in the docs, and what is in their place here."""
    return [
        (r"lycosa proxies serve --pool pool", "lycosa proxies serve --bind 127.0.0.1:3128 --pool pool"),
        (r"\{NAME\.", "{shop."),
        *((rf"(?<=[: ]){port}\b", str(free)) for port, free in zip(PORTS, ports, strict=True)),
        (r"redis://(:password@)?(host|localhost|10\.0\.0\.5):6379/0", f"{redis}/0"),
        (r"\bredis-cli", f"redis-cli -u {redis}"),
        (r"lycosa site --index", "lycosa site --port 0 --index"),
        (r"lycosa proxies serve", "lycosa proxies serve --allow-private 127.0.0.1"),
        (r'"quotes\.example"', '"127.0.0.1"'),
        (r"lycosa proxies judge", "lycosa proxies judge --no-tls"),
        (r"--public judge\.example\.org", "--public 127.0.0.1"),
        (r"https://(\w+\.)?example(\.com|\.org)?", site),
    ]


SLOW = {"docs/processes.md"}
WALKED = [
    pytest.param(page, marks=[pytest.mark.prove] if page in SLOW else [])
    for page in PAGES
    if {block.language for block in blocks_of(page)} - {"text"}
]


def is_exception(page: str, text: str) -> bool:
    listed = any(page == where and text.startswith(start) for where, start in EXCEPTIONS)
    return listed or PUBLIC_DHT in text


def lines_of(block: Block) -> Iterator[tuple[int, str]]:
    """Yield the commands of a block with their line numbers; `\\` at the end of a line joins it with the next."""
    joined, first = "", 0
    for number, line in enumerate(block.text.splitlines(), block.line):
        if not joined:
            first = number
            if block.language == "console" and not line.startswith("$ "):
                continue  # output
        joined += line if joined or block.language == "sh" else line.removeprefix("$ ")
        if joined.endswith("\\"):
            joined = joined[:-1]
            continue
        if joined.strip() and not joined.startswith("#"):
            yield first, joined
        joined = ""


class Shell:
    """A bash that runs line after line, so that variables, the folder and programs in the background stay."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.output = ""
        self._servers: dict[tuple[str, ...], int] = {}
        self._logs: list[Path] = []
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._bash = subprocess.Popen(
            ["bash", "-o", "pipefail"],
            cwd=home,
            env=environment() | {"PATH": path, "HOME": str(home)} | ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, line: str) -> int:
        """Run a line. Return its exit code; `output` is what it wrote to both streams."""
        output = self.home / "output"
        code = int(self._do(f"{{ {line}\n}} </dev/null >{output} 2>&1; echo $?"))
        self.output = output.read_text(errors="replace")
        return code

    def serve(self, line: str) -> bool:
        """Start a line in the background, and wait until it writes something. False when it has failed.

        It takes the place of an earlier line with the same command.
        """
        command = tuple(line.split()[:3])
        self.stop(command)
        log = self.home / f"server-{len(self._logs)}"
        pid = self._servers[command] = int(self._do(f"{{ {line}\n}} </dev/null >{log} 2>&1 & echo $!"))
        log.touch()
        self._logs.append(log)
        deadline = time.monotonic() + SERVER_START_MAX_S
        while not log.stat().st_size and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.1)  # a command that fails has ended by then
        self.output = log.read_text(errors="replace")
        return bool(self.output) and self._do(f"kill -0 {pid} 2>/dev/null || wait {pid}; echo $?") == "0"

    def stop(self, command: tuple[str, ...]) -> None:
        """End the program that this command runs in the background."""
        if pid := self._servers.pop(command, 0):
            # bash lets programs in the background ignore SIGINT; they end with SIGTERM in the same way.
            self._do(f"pkill -P {pid} || kill {pid} 2>/dev/null; wait {pid}; echo")

    def close(self) -> None:
        """End all programs in the background, and bash."""
        for command in list(self._servers):
            self.stop(command)
        assert self._bash.stdin
        assert self._bash.stdout
        self._bash.stdin.close()
        self._bash.stdout.close()
        self._bash.wait(LINE_MAX_S)
        assert [log.name for log in self._logs if "Traceback" in log.read_text(errors="replace")] == []

    def _do(self, script: str) -> str:
        assert self._bash.stdin
        assert self._bash.stdout
        self._bash.stdin.write(f"{script}\n")
        self._bash.stdin.flush()
        if not select.select([self._bash.stdout], [], [], LINE_MAX_S)[0]:
            subprocess.run(["pkill", "-KILL", "--session", str(self._bash.pid)], check=False)
            raise AssertionError(f"no end after {LINE_MAX_S} s: {script}")
        return self._bash.stdout.readline().strip()


@dataclass
class Walk:
    """A reader who goes through a page from the top, in an empty folder. `places` are the addresses replaced."""

    page: str
    home: Path
    shell: Shell
    places: list[tuple[str, str]]
    stack: ExitStack
    names: dict[str, Any] = field(default_factory=dict)

    def here(self, text: str) -> str:
        """Return a text with addresses that exist here, and with what an earlier line wrote."""
        for shown, pattern in WRITTEN.items():
            found = re.search(pattern, self.shell.output)
            if shown in text and found:
                text = text.replace(shown, found[1])
        for pattern, place in self.places:
            text = re.sub(pattern, place, text)
        return text

    def do(self, block: Block) -> None:
        """Run a block. Raises AssertionError with the line that failed."""
        match block.language:
            case "python" if not is_exception(self.page, block.text):
                self.python(block)
            case "toml":
                self.toml(block)
            case "sh" | "console":
                self.shell.run(f"cd {self.home}")
                for number, line in lines_of(block):
                    if not is_exception(self.page, line):
                        self.command(f"{self.page}:{number}", line)

    def command(self, place: str, line: str) -> None:
        if is_server(line):
            assert self.shell.serve(self.here(line)), f"{place}: {line}\n{self.shell.output}"
            return
        code = self.shell.run(self.here(line))
        assert code == 0, f"{place}: {line}\nexit code {code}\n{self.shell.output}"

    def toml(self, block: Block) -> None:
        if named := re.match(r"# (\w+\.toml)\n", block.text):  # no settings, but a file for commands below
            (self.home / named[1]).write_text(block.text)
            return
        name = "pyproject.toml" if "[tool.lycosa" in block.text else "lycosa.toml"
        (self.home / name).write_text(self.here(block.text))
        load({}, environ={}, folder=self.home)
        project_policies(self.home)
        project_sources(self.home, ENVIRONMENT)
        project_checks(self.home)

    def python(self, block: Block) -> None:
        text = self.here(block.text)
        if named := re.match(r"# (\w+\.py)\b", text):
            (self.home / named[1]).write_text(text)
        before = dict(self.names)
        code = compile("\n" * (block.line - 1) + text, self.page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        raised = re.search(r"  # (\w+Error): (.*)", text)
        with pytest.raises(Exception, match=re.escape(raised[2])) if raised else ExitStack():
            if uses(text, "queue", "Queue("):
                self.names["queue"] = self.stack.enter_context(Queue("jobs"))
                self.names["queue"].put("a job")
            found = eval(code, self.names)
            if inspect.iscoroutine(found):
                asyncio.run(self._finish(found, text))
        defined = {name: value for name, value in self.names.items() if before.get(name) is not value}
        asyncio.run(self._crawl(defined))

    async def _finish(self, running: Coroutine[Any, Any, None], text: str) -> None:
        """Wait for the end of a block that awaits something, or until it has run for a while."""
        async with AsyncExitStack() as stack:
            if uses(text, "pool", "open_pool("):
                self.names["pool"] = pool = await stack.enter_async_context(open_pool("proxies"))
                if ".lease(" not in text:
                    self.names["pool"] = pool.port
            endless = "until cancelled" in text
            try:
                await asyncio.wait_for(running, UNTIL_CANCELLED_S if endless else LINE_MAX_S)
            except TimeoutError:
                assert endless

    async def _crawl(self, defined: dict[str, Any]) -> None:
        """Crawl with the spiders and the callbacks that a block defines."""
        site = self.places[-1][1]
        spiders = [each for each in defined.values() if is_spider(each)]
        if "parse" in defined:
            methods = {"name": "page", "parse_shelf": callback("parse_shelf")}
            spiders = [type("Page", (lycosa.Spider,), methods | defined)]
        for spider in spiders:
            start: dict[str, Any] = {} if spider.start_urls else {"start_urls": [f"{site}/"]}
            if spider.parse is lycosa.Spider.parse:
                start["parse"] = callback("parse")
            async with lycosa.Crawl(type(spider.__name__, (spider,), start)) as crawl:
                summary = await crawl.run()
            assert (set(summary.reasons), [*summary.bugs]) == ({"200"}, []), summary


def is_spider(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, lycosa.Spider) and value.__module__ == "docs"


def is_server(line: str) -> bool:
    """Whether a command runs until Ctrl-C."""
    command = re.sub(r"^\w+=\S+ ", "", line)
    return command.startswith(SERVERS) and "--once" not in line


def uses(text: str, name: str, definition: str) -> bool:
    """Whether a block uses a name that an earlier block defined only for as long as that block ran."""
    return bool(re.search(rf"\b{name}\b", text)) and definition not in text


def callback(name: str) -> Callable[..., None]:
    """Return a method for a page that yields nothing."""

    def parse(_spider: object, _response: object, **_more: object) -> None: ...

    parse.__name__ = name
    return parse


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """A Redis of our own: `lycosa frontier status` without a name wants the only crawl there."""
    with redis_server() as server:
        yield server


@pytest.fixture
def walk(
    request: pytest.FixtureRequest, server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Walk]:
    """Return a reader at the top of a page."""
    server.cli("FLUSHALL")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("quotes", "shop"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with ExitStack() as stack:
        site = stack.enter_context(serve(SITE)).url
        ports = [stack.enter_context(ReservedPort()).number for _ in PORTS]
        walk = Walk(request.param, tmp_path, Shell(tmp_path), places(site, server.url.removesuffix("/0"), ports), stack)
        stack.callback(walk.shell.close)
        proxy = "http://127.0.0.1:3128"
        if "prox" in request.param or request.param == "README.md":
            proxy = stack.enter_context(Tinyproxy()).url
        for name in ("list.txt", "proxies.txt"):
            (tmp_path / name).write_text(f"{proxy}\n")
        (tmp_path / ".curlrc").write_text("fail-with-body\nsilent\nshow-error\n")
        (tmp_path / "users.txt").write_text("ann:secret\n")
        (tmp_path / "seeds.txt").write_text(f"{site}/new\n")
        (tmp_path / "urls.gz").write_bytes(gzip.compress(f"{site}/sale\n".encode()))
        (tmp_path / "shop.py").write_text(walk.here(SHOP))
        module = ModuleType("docs")
        monkeypatch.setitem(sys.modules, "docs", module)
        walk.names = vars(module)
        walk.names.update(names_of(walk))
        yield walk


def names_of(walk: Walk) -> dict[str, Any]:
    """Return the names that snippets use without a definition: those that a method of a spider has, and modules."""
    url = walk.here("https://shop.example/")
    spider = SimpleNamespace(**{name: callback(name) for name in ("parse_results", "parse_book", "on_error")})
    return {
        "lycosa": lycosa,
        "self": spider,
        "url": url,
        "urls": [url],
        "folder": walk.home,
        "work_on": print,
        "Authors": type(
            "Authors", (lycosa.Spider,), {"name": "authors", "start_urls": [url], "parse": callback("parse")}
        ),
        "response": Response(url, 200, {"Content-Type": "text/html"}, HTML),
        "crawler": SimpleNamespace(settings=SettingsView(Settings())),
    }


@pytest.mark.redis
@pytest.mark.proxies
@pytest.mark.parametrize("walk", WALKED, indirect=True)
def test_every_block_of_the_page_runs_as_written(walk: Walk) -> None:
    for line in PREPARED.get(walk.page, ()):
        walk.command("before", line)
    for block in blocks_of(walk.page):
        walk.do(block)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_says_what_language_it_is_in(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert {block.language for block in blocks_of(page)} <= LANGUAGES
    assert not re.search(r"\n\n    \S", BLOCK.sub("", text)), "an indented block: fence it"
    shown = [block for block in blocks_of(page) if block.language == "text" and page != "docs/commands.md"]
    commands = [block.line for block in shown if re.match(r"(lycosa|curl|pip) ", block.text)]
    assert commands == [], "commands are sh"


def test_every_exception_is_still_there() -> None:
    texts = {
        page: [text for block in blocks_of(page) for text in [block.text, *block.text.splitlines()]] for page in PAGES
    }
    assert [(page, start) for page, start in EXCEPTIONS if not any(t.startswith(start) for t in texts[page])] == []
