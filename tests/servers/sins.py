"""The faults of the misbehaving server, one function each, with the fault as its docstring.

`SINS` maps the first part of the path to the function; the rest of the path is `exchange.rest`.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from html import escape
from time import time
from typing import Any

from tests.servers.charsets import CHARSETS

Exchange = Any  # tests.servers.misbehaving.Exchange, which imports this module
Handler = Callable[[Exchange], Awaitable[None]]

SINS: dict[str, Handler] = {}
HTML = b"Content-Type: text/html; charset=utf-8\r\n"
OK = b"HTTP/1.1 200 OK\r\n" + HTML
MEBIBYTE = 2**20
LINKS = 10_000
NESTED = 100_000
WELL_BEHAVED = ("/good", "/echo", "/site/40", "/tree/40/0", "/slow?ms=50", "/many-links", "/broken-links", "/empty")


def sin(path: str) -> Callable[[Handler], Handler]:
    """Add the function to the table."""

    def register(handler: Handler) -> Handler:
        SINS[path] = handler
        return handler

    return register


def page(title: str, *links: str, text: str = "") -> str:
    """Return a small HTML page."""
    items = "".join(f'<li><a href="{escape(link)}">{escape(link)}</a>' for link in links)
    return (
        f'<!doctype html><html lang="en"><title>{escape(title)}</title><h1>{escape(title)}</h1>'
        f"<p>{escape(text)}</p><ul>{items}</ul></html>"
    )


async def until_gone(x: Exchange) -> None:
    """Wait until the client disconnects."""
    while await x.reader.read(MEBIBYTE):
        pass


async def robots_txt(x: Exchange) -> None:
    """Answer as `server.robots` says: a status, redirect, loop, a URL to move to, hang, html, sitemaps, or the text
    itself.
    """
    mode = x.server.robots
    if mode.isdigit():
        await x.answer(int(mode), f"no robots.txt: {mode}", kind="text/plain")
    elif mode == "redirect":
        await x.answer(302, Location="/robots-moved.txt")
    elif mode == "loop":
        await x.answer(302, Location="/robots.txt")
    elif mode.startswith("http://"):
        await x.answer(302, Location=mode)
    elif mode == "hang":
        await until_gone(x)
    elif mode == "html":
        await x.answer(200, page("Not a robots.txt", "/good"))
    elif mode == "sitemaps":
        lines = [
            "User-agent: *",
            "Disallow: /private",
            f"Sitemap: {x.server.url('/sitemap-index.xml')}",
            "sitemap:/sitemap.txt",
        ]
        await x.answer(200, "\n".join(lines), kind="text/plain")
    else:
        await x.answer(200, mode, kind="text/plain")


@sin("/robots-moved.txt")
async def robots_moved(x: Exchange) -> None:
    """Not a sin: the target of a redirected robots.txt."""
    await x.answer(200, "User-agent: *\nDisallow: /private\n", kind="text/plain")


# --- connections


@sin("/drop")
async def drop(x: Exchange) -> None:
    """Close the connection without a response."""


@sin("/reset")
async def reset(x: Exchange) -> None:
    """Reset the connection without a response."""
    x.abort()


@sin("/hang")
async def hang(x: Exchange) -> None:
    """Never respond."""
    await until_gone(x)


@sin("/hang-after-headers")
async def hang_after_headers(x: Exchange) -> None:
    """Announce a body that never comes."""
    await x.send(OK + b"Content-Length: 100\r\n\r\n")
    await until_gone(x)


@sin("/drip")
async def drip(x: Exchange) -> None:
    """Send one byte per second, for ever."""
    await x.send(OK + b"\r\n")
    while True:
        await x.send(b".")
        await asyncio.sleep(1)


@sin("/slow")
async def slow(x: Exchange) -> None:
    """Respond after `?ms=` milliseconds (200)."""
    await asyncio.sleep(int(x.query("ms", "200")) / 1000)
    await x.answer(200, page("Slow"))


@sin("/early-close-keepalive")
async def early_close(x: Exchange) -> None:
    """Answer as if the connection stayed open, and close it."""
    await x.answer(200, page("Closed early"), Connection="keep-alive")
    x.keep = False


# --- heads


@sin("/endless-headers")
async def endless_headers(x: Exchange) -> None:
    """Send header fields for ever."""
    await x.send(OK)
    while True:
        await x.send(b"".join(b"X-Field: " + b"v" * 100 + b"\r\n" for _ in range(100)))


@sin("/huge-header")
async def huge_header(x: Exchange) -> None:
    """Send one field of a megabyte."""
    await x.send(OK + b"X-Huge: " + b"v" * MEBIBYTE + b"\r\nContent-Length: 2\r\n\r\nok")


@sin("/1xx")
async def early_hints(x: Exchange) -> None:
    """Send 103 Early Hints before the answer."""
    await x.send(b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\nContent-Type: text/hint\r\n\r\n" * 2)
    await x.answer(200, page("After the hints"), X_Final="yes")


@sin("/trailers")
async def trailers(x: Exchange) -> None:
    """Send trailer fields after a chunked body, one of which poses as a Content-Type."""
    head = OK + b"Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
    await x.send(head + b"5\r\nhello\r\n0\r\nX-Sum: 5\r\nContent-Type: text/trailer\r\n\r\n")
    x.keep = True


@sin("/not-http")
async def not_http(x: Exchange) -> None:
    """Send bytes that are not HTTP."""
    await x.send(bytes(range(256)) * 16)


@sin("/http-0.9")
async def http_0_9(x: Exchange) -> None:
    """Send a page without any head, as in 1991."""
    await x.send(page("HTTP/0.9").encode())


@sin("/no-content-type")
async def no_content_type(x: Exchange) -> None:
    """Send no Content-Type."""
    await x.answer(200, page("Untyped"), kind="")


# --- bodies


@sin("/endless")
async def endless(x: Exchange) -> None:
    """Send a body that never ends."""
    await x.send(OK + b"\r\n")
    while True:
        await x.send(b"<p>and so on</p>\n" * 4096)


@sin("/broken-chunks")
async def broken_chunks(x: Exchange) -> None:
    """Send an invalid chunk size."""
    await x.send(OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nxyz\r\nworld\r\n0\r\n\r\n")


@sin("/cut-chunks")
async def cut_chunks(x: Exchange) -> None:
    """Close before the last chunk."""
    await x.send(OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n64\r\nworld")


@sin("/short")
async def short(x: Exchange) -> None:
    """Announce more bytes than are sent."""
    await x.send(OK + b"Content-Length: 1000\r\n\r\nonly this")


@sin("/bad-gzip")
async def bad_gzip(x: Exchange) -> None:
    """Send a damaged compressed page."""
    head = gzip.compress(b"")[:10]
    await x.answer(200, head + b"\xff" * 100, Content_Encoding="gzip")


@sin("/not-gzip")
async def not_gzip(x: Exchange) -> None:
    """Announce gzip, or another coding (/not-gzip/br), and send the page uncompressed."""
    await x.answer(200, page("Not compressed", text="at all"), Content_Encoding=x.rest or "gzip")


@sin("/gzip")
async def good_gzip(x: Exchange) -> None:
    """Not a sin: a compressed page, /gzip or /gzip/deflate."""
    body = page("Compressed", text="squeezed " * 1000).encode()
    coding = x.rest or "gzip"
    await x.answer(200, gzip.compress(body) if coding == "gzip" else zlib.compress(body), Content_Encoding=coding)


@sin("/gzip-bomb")
async def gzip_bomb(x: Exchange) -> None:
    """Send a GiB of zeros, compressed a thousandfold."""
    squeezed = zlib.compressobj(9, zlib.DEFLATED, 31)
    start = squeezed.compress(b"") + squeezed.flush(zlib.Z_FULL_FLUSH)
    mebibyte = squeezed.compress(bytes(MEBIBYTE)) + squeezed.flush(zlib.Z_FULL_FLUSH)  # does not refer to earlier data
    await x.send(OK + b"Content-Encoding: gzip\r\n\r\n" + start)
    for _ in range(1024):
        await x.send(mebibyte)
        await asyncio.sleep(0)


@sin("/wrong-charset")
async def wrong_charset(x: Exchange) -> None:
    """Announce one charset (/wrong-charset/ascii; utf-8) and use another, Shift_JIS."""
    text = page("文字化け", text="これは日本語の文章です。" * 20)
    await x.answer(200, text.encode("shift_jis"), kind=f"text/html; charset={x.rest or 'utf-8'}")


@sin("/bad-charset-label")
async def bad_charset_label(x: Exchange) -> None:
    """Name a charset that does not exist."""
    await x.answer(200, page("Ünknown label"), kind='text/html; charset="x-klingon;"')


@sin("/charset")
async def charset(x: Exchange) -> None:
    """Use one charset and announce another, as in `charsets.py`; /charset/NAME."""
    case = CHARSETS[x.rest]
    await x.answer(200, case.body, kind=case.content_type)


@sin("/binary")
async def binary(x: Exchange) -> None:
    """Send HTML as application/octet-stream."""
    await x.answer(200, page("Not for you", "/good"), kind="application/octet-stream")


@sin("/video")
async def video(x: Exchange) -> None:
    """Not a sin: a gigabyte of video."""
    await x.send(b"HTTP/1.1 200 OK\r\nContent-Type: video/mp4\r\nContent-Length: 1073741824\r\n\r\n")
    for _ in range(1024):
        await x.send(bytes(MEBIBYTE))


@sin("/empty")
async def empty(x: Exchange) -> None:
    """Send an empty page."""
    await x.answer(200)


@sin("/nested")
async def nested(x: Exchange) -> None:
    """Nest divs deeper than a stack."""
    await x.answer(200, b"<!doctype html><title>Deep</title>" + b"<div>" * NESTED + b'<a href="/good">bottom</a>')


@sin("/nul-bytes")
async def nul_bytes(x: Exchange) -> None:
    """Send a page with NUL bytes."""
    body = page("N\0U\0L", "/good", text="zeros\0 between").encode().replace(b"&#0;", b"\0")
    await x.answer(200, body.replace(b"<p>", b"<p>\0\0"))


# --- statuses


def status_page(status: int) -> Handler:
    """Return a handler that answers with the status."""

    async def handler(x: Exchange) -> None:
        await x.answer(status, b"" if status in {204, 304} else page(f"Status {status}"))

    handler.__doc__ = f"Answer {status}."
    return handler


for code in (204, 304, 401, 403, 404, 410, 500, 503):
    SINS[f"/{code}"] = status_page(code)


@sin("/429")
async def too_many(x: Exchange) -> None:
    """Answer 429 with Retry-After `?after=` (1) seconds for the first `?times=` (1) requests, then 200."""
    if x.tries() <= int(x.query("times", "1")):
        await x.answer(429, page("Too many"), Retry_After=x.query("after", "1"))
    else:
        await x.answer(200, page("At last"))


@sin("/503-date")
async def unavailable_until(x: Exchange) -> None:
    """Answer 503 with a Retry-After date `?after=` (2) seconds from now for the first `?times=` (1) requests."""
    if x.tries() <= int(x.query("times", "1")):
        await x.answer(503, page("Later"), Retry_After=formatdate(time() + float(x.query("after", "2")), usegmt=True))
    else:
        await x.answer(200, page("Open again"))


@sin("/flaky")
async def flaky(x: Exchange) -> None:
    """Fail N times (/flaky/N) with 500, then answer."""
    failed = x.tries() <= int(x.rest or "1")
    await x.answer(500 if failed else 200, page("Flaky"))


# --- redirects and cookies


def redirect(path: str, location: str | None) -> None:
    """Make the path answer 302, with this Location or none."""

    async def handler(x: Exchange) -> None:
        await x.answer(302, **({} if location is None else {"Location": location}))

    handler.__doc__ = f"Redirect to {location}."
    SINS[path] = handler


redirect("/redirect-loop/a", "/redirect-loop/b")
redirect("/redirect-loop/b", "/redirect-loop/a")
redirect("/redirect-self", "/redirect-self")
redirect("/redirect-nowhere", None)
redirect("/redirect-bad", "http://[::bad/%zz\t\x01")
redirect("/redirect-good", "/good")


@sin("/redirect-chain")
async def redirect_chain(x: Exchange) -> None:
    """Redirect from /redirect-chain/N to N + 1, without end."""
    await x.answer(302, Location=f"/redirect-chain/{int(x.rest or 0) + 1}")


@sin("/redirect-out")
async def redirect_out(x: Exchange) -> None:
    """Redirect to another host."""
    await x.answer(302, Location=x.server.out)


@sin("/cookies-required")
async def cookies_required(x: Exchange) -> None:
    """Redirect to itself with a cookie until the cookie comes back."""
    if "session=7" in x.hit.headers.get("cookie", ""):
        await x.answer(200, page("With cookie"))
    else:
        await x.answer(302, Location=x.hit.path, Set_Cookie="session=7; Path=/; HttpOnly")


# --- links


@sin("/broken-links")
async def broken_links(x: Exchange) -> None:
    """Mix valid and invalid links."""
    await x.answer(
        200,
        """<!doctype html><title>Links</title><base href="/linked/">
        <a href="relative">1</a> <a href="  spaced out  ">2</a> <a href="../up?a=1&amp;b=2">3</a>
        <a href="ünïcode/日本">4</a> <a href="//127.0.0.2/protocol-relative">5</a> <a href="?query">6</a>
        <a href="#fragment">7</a> <a href="/good#part">8</a> <a href>9</a> <a>10</a>
        <a href="javascript:void(0)">js</a> <a href="mailto:a@example.com">mail</a> <a href="tel:+1">tel</a>
        <a href="data:text/html,x">data</a> <a href="http://">no host</a> <a href="http://[::1">bad host</a>
        <a href="http://bücher.example/">idn</a> <a href="http://exa mple.com/">blank in host</a>
        <a href="http:///three">slashes</a> <a href="HTTP://127.0.0.1:99999/">bad port</a>
        <a href="\\back\\slash">bs</a>
        <!-- <a href="/commented">no</a> --> <script>"<a href='/scripted'>"</script> <a href=unquoted>u</a>
        <a href='/single'>s</a> <A HREF="/upper">U</A> <a href="/unclosed>x""",
    )


@sin("/many-links")
async def many_links(x: Exchange) -> None:
    """Link to 10,000 pages, /many-links/i."""
    links = [] if x.rest else [f"/many-links/{number}" for number in range(LINKS)]
    await x.answer(200, page(f"Many links {x.rest}", *links))


@sin("/calendar")
async def calendar(x: Exchange) -> None:
    """Link to the next and the previous month, without end."""
    year, _, month = (x.rest or "2026-01").partition("-")
    number = int(year) * 12 + int(month) - 1
    near = [f"/calendar/{each // 12:04}-{each % 12 + 1:02}" for each in (number - 1, number + 1)]
    await x.answer(200, page(f"Calendar {x.rest}", *near))


# --- well-behaved


@sin("/")
@sin("/index")
async def index(x: Exchange) -> None:
    """Not a sin: links to harmless pages."""
    await x.answer(200, page("Index", *WELL_BEHAVED))


@sin("/good")
async def good(x: Exchange) -> None:
    """Not a sin: a page."""
    await x.answer(200, page("Good", text="All is well."))


@sin("/links")
async def chosen_links(x: Exchange) -> None:
    """Not a sin: links to every line of `?to=`."""
    await x.answer(200, page("Links", *x.query("to").split("\n")))


@sin("/echo")
async def echo(x: Exchange) -> None:
    """Not a sin: the request, as JSON."""
    request = {"method": x.hit.method, "target": x.hit.target, "headers": x.hit.headers, "body": x.hit.body.hex()}
    await x.answer(200, json.dumps(request), kind="application/json")


@sin("/site")
async def site(x: Exchange) -> None:
    """Not a sin: the first page of a tree of N (/site/N)."""
    await x.answer(200, page("Site", f"/tree/{int(x.rest or 1)}/0"))


@sin("/tree")
async def tree(x: Exchange) -> None:
    """Not a sin: page I of a tree of N (/tree/N/I), each linking to three, after `?delay_ms=` or the server's delay."""
    count, number = (int(part) for part in x.rest.split("/"))
    await asyncio.sleep(float(x.query("delay_ms", str(x.server.delay_ms))) / 1000)
    if number >= count:
        await x.answer(404, page("No such page"))
        return
    children = [f"/tree/{count}/{child}" for child in range(3 * number + 1, 3 * number + 4) if child < count]
    await x.answer(200, page(f"Page {number}", *children, text=f"This is page {number} of {count}. " * 10))
