"""The upper limit of speed: libcurl, lexbor, ada and a set of URLs, in a plain loop.

It has no robots.txt, retries, politeness, redirects, charsets or limits, and nothing that survives the process. This is
what is left of a crawler when only its libraries work.
"""

from __future__ import annotations

from collections import deque
from io import BytesIO
from pathlib import Path

import ada_url
import msgspec
import pycurl
from item import CONCURRENCY, TIMEOUT_S, job, now
from selectolax.lexbor import LexborHTMLParser
from xxhash import xxh3_64_hexdigest

JOB = job()
FOLDERS = tuple(start[: start.rindex("/") + 1] for start in JOB.starts)
encode = msgspec.json.Encoder().encode


class Transfer:
    """One easy handle and the page it fetches."""

    def __init__(self) -> None:
        self.curl = pycurl.Curl()
        self.curl.setopt(pycurl.NOSIGNAL, 1)
        self.curl.setopt(pycurl.TIMEOUT, TIMEOUT_S)
        self.curl.setopt(pycurl.BUFFERSIZE, 128 << 10)

    def start(self, url: str, depth: int) -> None:
        self.url, self.depth, self.body = url, depth, BytesIO()
        self.curl.setopt(pycurl.URL, url)
        self.curl.setopt(pycurl.WRITEFUNCTION, self.body.write)


def links_of(tree: LexborHTMLParser, url: str) -> set[str]:
    """Return the absolute URLs of the links, without fragments."""
    hrefs = {(node.attributes["href"] or "").partition("#")[0] for node in tree.css("a[href]")}
    found = set()
    for href in hrefs:
        try:
            found.add(ada_url.join_url(url, href))
        except ValueError:
            continue
    return found


def item_of(done: Transfer, tree: LexborHTMLParser, links: set[str]) -> bytes:
    """Return the line to write. Takes the scripts out of the tree."""
    tree.strip_tags(["script", "style", "noscript", "iframe"])
    title = tree.css_first("title")
    root = tree.root
    assert root is not None
    assert tree.body is not None
    fields = {
        "url": done.url,
        "final_url": done.url,
        "status": done.curl.getinfo(pycurl.RESPONSE_CODE),
        "content_type": done.curl.getinfo(pycurl.CONTENT_TYPE),
        "title": " ".join(title.text().split()) if title else "",
        "headings": [" ".join(node.text().split()) for node in tree.css("h1,h2,h3,h4,h5,h6")],
        "text": " ".join(tree.body.text(separator=" ").split()),
        "lang": (root.attributes.get("lang") or "").lower(),
        "out_links": len(links),
        "fetched_at": now(),
        "depth": done.depth,
        "fingerprint": xxh3_64_hexdigest(done.url.encode()),
    }
    return encode(fields) + b"\n"


def main() -> None:
    seen = set(JOB.starts)
    queue = deque((url, 0) for url in JOB.starts)
    idle = [Transfer() for _ in range(CONCURRENCY)]
    transfers = {each.curl: each for each in idle}
    multi = pycurl.CurlMulti()
    with Path(JOB.items).open("wb") as file:
        while queue or len(idle) < CONCURRENCY:
            while queue and idle:
                transfer = idle.pop()
                transfer.start(*queue.popleft())
                multi.add_handle(transfer.curl)
            multi.perform()
            _, good, bad = multi.info_read()
            for curl, *_ in bad:
                raise SystemExit(f"{transfers[curl].url}: {curl.errstr()}")
            for curl in good:
                done = transfers[curl]
                multi.remove_handle(curl)
                if curl.getinfo(pycurl.RESPONSE_CODE) == 200:
                    tree = LexborHTMLParser(done.body.getvalue())
                    links = links_of(tree, done.url)
                    new = [link for link in links - seen if link.startswith(FOLDERS) and link.endswith(".html")]
                    seen.update(new)
                    queue.extend((link, done.depth + 1) for link in new)
                    file.write(item_of(done, tree, links))
                idle.append(done)
            if not good:
                multi.select(1.0)


if __name__ == "__main__":
    main()
