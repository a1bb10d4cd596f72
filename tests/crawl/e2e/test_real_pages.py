"""Lycosa and wget fetch the same real pages (C1, D4; docs/real-pages.md).

The log of nginx has the URLs that it answered with status 200 and text/html, for Lycosa and for GNU Wget, which has
its own rules for links. Every difference must be of the one kind that docs/real-pages.md explains. `make test` takes a
part of the documentation, `make prove` all that is packaged, over ten thousand pages.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urljoin, urlsplit

import pytest

from lycosa.app.search import open_index
from tests.cli.command import items, lycosa
from tests.conftest import PROVE, need
from tests.servers.nginx import serve

pytestmark = [pytest.mark.nginx, pytest.mark.site]
PAGES_MIN = 10_000 if PROVE else 600
MODULE = "java.sql"
PARTIAL = f"""location ~ "^/(openjdk-[^/]+/api/(?!{MODULE}/)|postgresql-[^/]+/html/(?!index)[e-z])" {{ return 404; }}"""
"""For nginx: omits most pages of OpenJDK, which has five sixths of all pages, and most pages of PostgreSQL."""

TEST_MAX_S = 300.0
WGET = (
    "wget --no-config --no-verbose --no-proxy --recursive --level=inf --execute robots=off --tries=1"
    " --follow-tags=a,area,iframe,frame,link --delete-after --no-directories"
)
SAMPLE = 20
OUR_RELATIONS = {"next", "canonical", "alternate"}
RARE_MAX = 20
"""Maximum number of pages with a rare word."""

TAG = re.compile(rb"<([a-z]+)\b([^>]*)>", re.IGNORECASE)
ATTRIBUTE = re.compile(rb"""\b(rel|href|src)\s*=\s*["']?([^"'>\s][^"'>]*)""", re.IGNORECASE)
TOKEN = re.compile(r"[a-z]{4,}")
ALONE = re.compile(r"(?<!\S)[a-z]{6,20}(?!\S)")


class Crawled(NamedTuple):
    """The paths that Lycosa and wget have fetched, and the items of Lycosa."""

    ours: set[str]
    wgets: set[str]
    items: list[dict[str, Any]]
    index: Path
    took_s: float


@pytest.fixture(scope="module")
def crawled(docs_root, tmp_path_factory) -> Crawled:
    need("wget (apt-get install wget)", shutil.which("wget") is not None)
    home, started_at = tmp_path_factory.mktemp("real-pages"), time.monotonic()
    (module,) = docs_root.glob(f"openjdk-*-jre-headless/api/{MODULE}/module-summary.html")
    with serve(docs_root, extra="" if PROVE else PARTIAL) as server:
        start = [f"{server.url}/", f"{server.url}/{module.relative_to(docs_root)}"]
        options = ("--state", "state", "-o", "items.jsonl", "--index", "index", "-q")
        done = lycosa("crawl", *start, *options, cwd=home, timeout_s=TEST_MAX_S)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        ours = server.pages()
        server.forget()
        (home / "wget").mkdir()
        subprocess.run([*WGET.split(), *start], cwd=home / "wget", capture_output=True, check=False, timeout=TEST_MAX_S)
        wgets = server.pages()
    return Crawled(ours, wgets, items(home / "items.jsonl"), home / "index", time.monotonic() - started_at)


def test_the_fetched_pages_are_those_of_wget_except_for_explained_differences(crawled, docs_root):
    assert len(crawled.wgets) > PAGES_MIN
    assert crawled.ours - crawled.wgets == set()
    only_wget = crawled.wgets - crawled.ours
    print("only wget:", sorted(only_wget))
    kinds = {path: kinds_of_links(docs_root, crawled.wgets, path) for path in only_wget}
    assert {path for path, found in kinds.items() if not found or not all(map(is_explained, found))} == set()
    assert crawled.took_s < TEST_MAX_S


def test_every_page_is_one_item(crawled):
    written = Counter(urlsplit(item["final_url"]).path for item in crawled.items)
    assert set(written) == {urlsplit(uri).path for uri in crawled.ours}
    assert set(written.values()) == {1}


def test_pages_are_found_by_a_rare_word(crawled):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    frequency = Counter(word for item in crawled.items for word in set(TOKEN.findall(searched(item))))
    index = open_index(crawled.index)
    assert index.count() == len(crawled.items)
    with_rare_word = 0
    for item in rng.sample(crawled.items, len(crawled.items)):
        word = min(ALONE.findall(searched(item)), key=lambda each: (frequency[each], each), default="")
        if not word or frequency[word] > RARE_MAX:
            continue
        found = index.search(word, limit=5 * RARE_MAX)
        assert item["final_url"] in {hit.url for hit in found.hits}, (word, item["final_url"])
        with_rare_word += 1
        if with_rare_word == SAMPLE:
            break
    index.close()
    assert with_rare_word == SAMPLE


def searched(item: dict[str, Any]) -> str:
    """Return all searchable text of an item."""
    return " ".join([item["title"], *item["headings"], item["text"], item["final_url"]]).lower()


def kinds_of_links(root: Path, pages: set[str], target: str) -> set[tuple[str, str]]:
    """Return the elements, with their `rel`, by which any of the pages links to the target."""
    name = Path(unquote(urlsplit(target).path)).name.encode()
    found = set()
    for page in pages:
        path = root / unquote(urlsplit(page).path).lstrip("/")
        content = (path / "index.html" if path.is_dir() else path).read_bytes()
        if name in content:
            found |= {(tag, rel) for tag, rel, href in elements(content) if urljoin(page, href) == target}
    return found


def elements(content: bytes) -> Iterator[tuple[str, str, str]]:
    """Yield name, `rel` and URL of every element with a URL."""
    for tag, attributes in TAG.findall(content):
        named = {name.lower(): value.decode(errors="replace") for name, value in ATTRIBUTE.findall(attributes)}
        address = named.get(b"href") or named.get(b"src")
        if address:
            yield tag.decode().lower(), named.get(b"rel", "").lower(), address.partition("#")[0]


def is_explained(kind: tuple[str, str]) -> bool:
    """True if only wget follows such a link: a `link` element without any of the relations that Lycosa follows."""
    tag, rel = kind
    return tag == "link" and not OUR_RELATIONS & set(rel.split())
