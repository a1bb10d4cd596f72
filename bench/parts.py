"""What the pure parts cost, in microseconds of CPU time a page: `python bench/parts.py FOLDER [--pages N]`.

FOLDER holds HTML pages (`**/*.html`), as the site of the demo does. Each page is parsed and taken through every
part once a round, as in a crawl, so that the caches of the processor and of `links` are as warm as they would be; the
best of three rounds counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lycosa.core.url import canonicalize, fingerprint, host_key
from lycosa.frontier.core.scope import Scope
from lycosa.html import links
from lycosa.html.charset import detect_encoding
from lycosa.html.links import extract_links, join
from lycosa.html.nesting import limit_nesting
from lycosa.html.page import extract_page, parse_html
from lycosa.http.core.robots import Robots

ROUNDS = 3
HOST = "http://127.0.0.1:8000/"
ROBOTS = b"User-agent: *\nDisallow: /private/\nDisallow: /*.cgi$\nCrawl-delay: 1\n"


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("--pages", type=int, default=2000)
    chosen = options.parse_args()
    pages = list(_pages(chosen.folder, chosen.pages))
    if not pages:
        options.error(f"no *.html in {chosen.folder}: name a folder of web pages")
    rounds = [_round(pages) for _ in range(ROUNDS)]
    size = sum(len(body) for _, body in pages) / len(pages)
    print(f"{len(pages)} pages, mean {size / 1000:.1f} kB; microseconds of CPU time a page, best of {ROUNDS} rounds")
    for part in rounds[0]:
        print(f"  {part:42} {min(one[part] for one in rounds) / len(pages) * 1e6:9.1f}")
    known = links._resolve.cache_info()  # noqa: SLF001
    print(
        f"resolved hrefs found in memory: {known.hits / (known.hits + known.misses):.1%} of {known.hits + known.misses}"
    )


def _pages(folder: Path, count: int) -> Iterator[tuple[str, bytes]]:
    """Yield at most `count` pages: groups of neighbouring pages, as a crawl fetches them, spread over the folder."""
    files = sorted(path for path in folder.rglob("*.html") if path.is_file())
    step = max(1, len(files) // count)
    for number in range(0, len(files), step * 20):
        for path in files[number : number + 20]:
            yield HOST + path.relative_to(folder).as_posix(), path.read_bytes()


def _round(pages: list[tuple[str, bytes]]) -> dict[str, float]:
    spent: dict[str, float] = {}

    def timed(part: str, call: Callable[..., Any], *arguments: Any) -> Any:
        started = time.thread_time()
        result = call(*arguments)
        spent[part] = spent.get(part, 0.0) + time.thread_time() - started
        return result

    scope = Scope.of("host", [HOST], depth_max=20, deny=["*.zip"])
    robots = Robots.parse(ROBOTS)
    links_seen = 0
    for url, body in pages:
        encoding = timed("detect_encoding, nothing in the header", detect_encoding, body, "text/html")
        timed("  limit_nesting (in parse_html)", limit_nesting, body)
        tree = timed("parse_html", parse_html, body, encoding)
        found = timed("extract_links", extract_links, tree, url)
        timed("  the walk alone", links._Hrefs, tree)  # noqa: SLF001
        timed("extract_page", extract_page, tree)
        timed("scope of its links", _each, scope.reason, [(link.url, link.host, 1) for link in found])
        timed("robots of its links", _each, robots.allowed, [(link.url,) for link in found])
        timed("(its links joined without memory)", _each, join, [(url, link.url) for link in found])
        timed("(its links: fingerprint)", _each, fingerprint, [("GET", link.url) for link in found])
        timed("(its links: host_key)", _each, host_key, [(link.url,) for link in found])
        timed("(canonicalize its URL)", canonicalize, url)
        links_seen += len(found)
    spent["(number of links)"] = links_seen / 1e6
    return spent


def _each(call: Callable[..., Any], arguments: list[tuple[Any, ...]]) -> None:
    for each in arguments:
        call(*each)


if __name__ == "__main__":
    main()
