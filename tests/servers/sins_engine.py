"""More faults of the misbehaving server: for middlewares, forms, feeds and pipelines.

As in `sins.py`: one function each, with the fault as its docstring; the rest of the path is `x.rest`. State between
requests is in `x.server.memory`.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import struct
import zlib
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from email.utils import formatdate
from html import escape
from http.cookies import SimpleCookie
from time import time
from urllib.parse import parse_qs, urlsplit

from tests.servers.sins import Exchange, page, sin

USER, PASSWORD = "ada", "count&compute"
PER_PAGE = 20
MODIFIED_AT = 1_700_000_000
IMAGE_SIDE = 32
BOMB_SIDE = 30_000


def cookies_of(x: Exchange) -> dict[str, str]:
    """Return the cookies of the request."""
    return {name: each.value for name, each in SimpleCookie(x.hit.headers.get("cookie", "")).items()}


def form_of(x: Exchange) -> dict[str, list[str]]:
    """Return the fields of a form in the body."""
    return parse_qs(x.hit.body.decode(), keep_blank_values=True)


def next_number(x: Exchange, kind: str) -> int:
    """Return 1, 2, 3 ... for each kind of number on this server."""
    counts: Counter[str] = x.server.memory.setdefault("numbers", Counter())
    counts[kind] += 1
    return counts[kind]


# --- cookies and logins


@sin("/identity")
async def identity(x: Exchange) -> None:
    """Redirect to itself with a new identity (cookie `who`, 1, 2, ...) until the cookie comes back. An identity is
    valid for `?uses=` requests (a million); the next one is redirected with a new identity.
    """
    uses: Counter[str] = x.server.memory.setdefault("uses", Counter())
    customer = cookies_of(x).get("who", "")
    if customer and uses[customer] < int(x.query("uses", "1000000")):
        uses[customer] += 1
        await x.answer(200, page(f"You are {customer}", "/identity/a", "/identity/b", "/identity/a/c"))
    else:
        new = f"who={next_number(x, 'who')}; Path=/identity; HttpOnly"
        await x.answer(302, Location=x.hit.target, Set_Cookie=new)


@sin("/set-cookies")
async def set_cookies(x: Exchange) -> None:
    """Set a cookie for every `?line=`, exactly as given, whether it is allowed or not."""
    lines = parse_qs(urlsplit(x.hit.target).query).get("line", [])
    await x.answer(200, page("Cookies", "/show-cookies"), Set_Cookie=lines)


@sin("/show-cookies")
async def show_cookies(x: Exchange) -> None:
    """Not a sin: the cookies of the request, as JSON."""
    await x.answer(200, json.dumps(cookies_of(x)), kind="application/json")


@sin("/login")
async def login(x: Exchange) -> None:
    """Show a form whose hidden token is valid once, and only with the session cookie it came with; otherwise 403.
    The right name and password lead to /account (303), wrong ones back to the form.
    """
    tokens: dict[str, str] = x.server.memory.setdefault("tokens", {})
    if x.hit.method == "POST":
        await _log_in(x, tokens)
        return
    session = cookies_of(x).get("session") or str(next_number(x, "session"))
    tokens[session] = f"token-{next_number(x, 'token')}&<{session}>"
    await x.answer(200, _login_page(tokens[session]), Set_Cookie=f"session={session}; Path=/; HttpOnly; SameSite=Lax")


async def _log_in(x: Exchange, tokens: dict[str, str]) -> None:
    session, form = cookies_of(x).get("session", ""), form_of(x)
    if form.get("csrf") != [tokens.pop(session, "none")]:
        await x.answer(403, page("Forbidden", text="The token is wrong."))
    elif form.get("name") == [USER] and form.get("password") == [PASSWORD] and form.get("do") == ["log in"]:
        x.server.memory.setdefault("known", set()).add(session)
        await x.answer(303, Location="/account")
    else:
        await x.answer(303, Location="/login?wrong=1")


def _login_page(token: str) -> str:
    return (
        "<!doctype html><title>Log in</title><form action=/search><input name=q><button>search</button></form>"
        f'<form id=login method=post action="/login"><input type=hidden name=csrf value="{escape(token)}">'
        "<input name=name><input name=password type=password><input type=checkbox name=keep value=yes>"
        "<button name=do value=cancel type=button>cancel</button>"
        '<button name=do value="log in">Log in</button></form>'
    )


@sin("/account")
async def account(x: Exchange) -> None:
    """Redirect to /login unless the session is logged in."""
    if cookies_of(x).get("session", "") in x.server.memory.get("known", ()):
        await x.answer(200, page("Account", "/account/orders", text=f"Welcome, {USER}."))
    else:
        await x.answer(302, Location="/login")


@sin("/basic")
async def basic(x: Exchange) -> None:
    """Require a name and a password (401, realm "engine room"), the same for all of /basic."""
    expected = "Basic " + b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    if x.hit.headers.get("authorization") == expected:
        await x.answer(200, page("Engine room", "/basic/deeper"))
    else:
        challenge = 'Basic realm="engine room", charset="UTF-8"'
        await x.answer(401, page("Who are you?"), WWW_Authenticate=challenge)


# --- redirects


@sin("/redirects")
async def redirects(x: Exchange) -> None:
    """Redirect with one status after the other, /redirects/301-302-307, then answer like /echo."""
    status, _, rest = x.rest.partition("-")
    if status:
        await x.answer(int(status), Location=f"/redirects/{rest}")
    else:
        request = {"method": x.hit.method, "headers": x.hit.headers, "body": x.hit.body.hex()}
        await x.answer(200, json.dumps(request), kind="application/json")


@sin("/redirect-to")
async def redirect_to(x: Exchange) -> None:
    """Redirect to any `?url=`, with `?status=` (302)."""
    await x.answer(int(x.query("status", "302")), Location=x.query("url", "/good"))


@sin("/meta-refresh")
async def meta_refresh(x: Exchange) -> None:
    """Redirect in the page: to `?url=` (/good) after `?after=` (0) seconds. /meta-refresh/loop redirects to itself.
    /meta-refresh/noscript redirects only clients that run no scripts, and /meta-refresh/comment none, since its tag is
    in a comment.
    """
    target = "/meta-refresh/loop" if x.rest == "loop" else x.query("url", "/good")
    tag = f'<meta http-equiv="Refresh" content="{x.query("after", "0")}; URL=\'{escape(target)}\'">'
    around = {"noscript": "<noscript>{}</noscript>", "comment": "<!-- {} -->"}.get(x.rest, "{}")
    await x.answer(200, f"<!doctype html><html><head>{around.format(tag)}<title>Moved</title></head>Wait.")


# --- temporary failures


@sin("/fails")
async def fails(x: Exchange) -> None:
    """Answer `?status=` (503) for the first `?times=` (1) requests, with Retry-After `?after=` if given; then 200."""
    if x.tries() > int(x.query("times", "1")):
        await x.answer(200, page("Fine"))
    else:
        later = {"Retry_After": x.query("after")} if x.query("after") else {}
        await x.answer(int(x.query("status", "503")), page("Not now"), **later)


@sin("/drops")
async def drops(x: Exchange) -> None:
    """Close without a response N times (/drops/N), then answer."""
    if x.tries() > int(x.rest or "1"):
        await x.answer(200, page("Fine"))


@sin("/missing")
async def missing(x: Exchange) -> None:
    """Answer 404 with a useful page."""
    await x.answer(404, page("Gone, but look here", "/good", text="What you look for has moved."))


@sin("/congested")
async def congested(x: Exchange) -> None:
    """Take `?ms=` (20) milliseconds for every request in progress; `memory["busy"]` has their number at each
    request.
    """
    x.server.memory.setdefault("busy", []).append(x.server.busy)
    await asyncio.sleep(float(x.query("ms", "20")) * x.server.busy / 1000)
    await x.answer(200, page(f"Congested {x.rest}"))


@sin("/overloaded")
async def overloaded(x: Exchange) -> None:
    """Answer 429 while more than `?most=` (2) requests are in progress, each taking `?ms=` (20) milliseconds, or at
    least until `?until=` requests have been in progress together.
    """
    refused = x.server.busy > int(x.query("most", "2"))
    await asyncio.sleep(float(x.query("ms", "20")) / 1000)
    most_busy = x.server.memory["most_busy"] = max(x.server.busy, x.server.memory.get("most_busy", 0))
    while most_busy < int(x.query("until", "0")):
        await asyncio.sleep(0.01)
        most_busy = x.server.memory["most_busy"]
    await x.answer(429 if refused else 200, page(f"Overloaded {x.rest}"))


# --- encodings and caches


@sin("/coded")
async def coded(x: Exchange) -> None:
    """Compress: /coded/gzip, deflate, raw-deflate (as some servers do), br, twice; or lie: /coded/wrong (gzip
    labelled br), none (uncompressed, labelled gzip), unknown (an unknown coding), cut (a part of gzip).
    """
    import brotli

    body = page("Coded", "/good", text="squeezed " * 1000).encode()
    gzipped, raw = gzip.compress(body), zlib.compressobj(wbits=-15)
    coding, data = {
        "gzip": ("gzip", gzipped),
        "deflate": ("deflate", zlib.compress(body)),
        "raw-deflate": ("deflate", raw.compress(body) + raw.flush()),
        "br": ("br", brotli.compress(body)),
        "twice": ("gzip, gzip", gzip.compress(gzipped)),
        "wrong": ("br", gzipped),
        "none": ("gzip", body),
        "unknown": ("klingon", body),
        "cut": ("gzip", gzipped[: len(gzipped) // 2]),
    }[x.rest or "gzip"]
    await x.answer(200, data, Content_Encoding=coding)


@sin("/cached")
async def cached(x: Exchange) -> None:
    """Not a sin: a page titled by how often it was generated. `?control=` is Cache-Control, `?vary=` Vary, `?age=`
    Age, `?expires=` seconds from now; `?etag=` and `?modified=1` make it conditional (304).
    """
    fields = {"Cache_Control": x.query("control"), "Vary": x.query("vary"), "Age": x.query("age")}
    fields["ETag"] = f'"{x.query("etag")}"' if x.query("etag") else ""
    fields["Last_Modified"] = formatdate(MODIFIED_AT, usegmt=True) if x.query("modified") else ""
    fields["Expires"] = formatdate(time() + float(x.query("expires")), usegmt=True) if x.query("expires") else ""
    fields["Date"] = formatdate(time(), usegmt=True)
    sent = {name: value for name, value in fields.items() if value}
    if _unchanged(x, sent):
        await x.answer(304, **sent)
    else:
        await x.answer(
            200, page(f"Made {next_number(x, x.hit.target)}", text=x.hit.headers.get("accept-language", "")), **sent
        )


def _unchanged(x: Exchange, fields: dict[str, str]) -> bool:
    tags = x.hit.headers.get("if-none-match", "")
    if tags:
        return "ETag" in fields and fields["ETag"] in tags
    return x.hit.headers.get("if-modified-since", "-") == fields.get("Last_Modified")


# --- sitemaps and feeds


@sin("/sitemap-index.xml")
async def sitemap_index(x: Exchange) -> None:
    """Not a sin: a sitemap index; the second sitemap is compressed, the third missing, the fourth the index itself."""
    names = ("/sitemap-1.xml", "/sitemap-2.xml.gz", "/404/sitemap.xml", "/sitemap-index.xml")
    entries = "".join(f"<sitemap><loc>{x.server.url(name)}</loc></sitemap>" for name in names)
    space = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
    await x.answer(200, f'<?xml version="1.0"?><sitemapindex {space}>{entries}</sitemapindex>', kind="application/xml")


@sin("/sitemap-1.xml")
async def sitemap(x: Exchange) -> None:
    """Not a sin: products 0 to 4 of the shop, changed on the first to the fifth of January 2026, with blanks in loc."""
    await x.answer(200, _urlset(x, 0), kind="text/xml; charset=utf-8")


@sin("/sitemap-2.xml.gz")
async def sitemap_compressed(x: Exchange) -> None:
    """Not a sin: products 5 to 9 of the shop, as a gzip file."""
    await x.answer(200, gzip.compress(_urlset(x, 5).encode()), kind="application/gzip")


@sin("/sitemap.txt")
async def sitemap_text(x: Exchange) -> None:
    """Not a sin: a sitemap of plain lines, with a byte order mark."""
    lines = [x.server.url(f"/shop/10/product/{number}") for number in range(3)]
    await x.answer(200, "\ufeff" + "\r\n".join(lines), kind="text/plain; charset=utf-8")


def _urlset(x: Exchange, first: int) -> str:
    entries = "".join(
        f"<url><loc>\n  {x.server.url(f'/shop/10/product/{number}')}  </loc><lastmod>2026-01-{number + 1:02}</lastmod>"
        f'<xhtml:link rel="alternate" hreflang="de" href="{x.server.url(f"/shop/10/product/{number}?lang=de")}"/></url>'
        for number in range(first, first + 5)
    )
    spaces = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:xhtml="http://www.w3.org/1999/xhtml"'
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<urlset {spaces}>{entries}</urlset>'


@sin("/feed.rss")
async def feed(x: Exchange) -> None:
    """Not a sin: an RSS feed of three items, one with CDATA and one with a namespace."""
    items = "".join(
        f"<item><title>Item {number}</title><link>{x.server.url(f'/shop/3/product/{number}')}</link>"
        f"<description><![CDATA[<b>Bold</b> & item {number}]]></description>"
        f"<dc:creator>Ada {number}</dc:creator></item>"
        for number in range(3)
    )
    head = '<?xml version="1.0" encoding="utf-8"?><rss version="2.0" xmlns:dc="http://purl.org/dc/elements/1.1/">'
    await x.answer(200, f"{head}<channel><title>News</title>{items}</channel></rss>", kind="application/rss+xml")


@sin("/table.csv")
async def table(x: Exchange) -> None:
    """Send a table with quotes, line ends in fields, a row too short and one too long, in Latin-1."""
    rows = ["id;name;price", '1;"Ännchen; the ""first""";1,50', '2;"two\r\nlines";2', "3;short", "4;long;4;more"]
    await x.answer(200, "\r\n".join(rows).encode("latin-1"), kind="text/csv; charset=iso-8859-1")


@sin("/products.xml")
async def products_xml(x: Exchange) -> None:
    """Send XML whose tags have a default namespace, and at the end one that is never closed."""
    items = "".join(f'<p:product id="{number}"><name>Product {number}</name></p:product>' for number in range(3))
    head = '<?xml version="1.0"?><products xmlns="http://shop.example/" xmlns:p="http://shop.example/p">'
    await x.answer(200, f"{head}{items}<unclosed></products>", kind="application/xml")


@sin("/entities.xml")
async def entities(x: Exchange) -> None:
    """Send XML whose entities expand a billionfold, and one that refers to a local file."""
    more = "".join(f'<!ENTITY e{level} "{f"&e{level - 1};" * 10}">' for level in range(1, 10))
    kinds = f'<!DOCTYPE feed [<!ENTITY e0 "lol">{more}<!ENTITY file SYSTEM "file:///etc/hostname">]>'
    await x.answer(
        200, f'<?xml version="1.0"?>{kinds}<feed><item>&e9;</item><item>&file;</item></feed>', kind="text/xml"
    )


# --- images and shops


def png(side: int, colour: tuple[int, int, int]) -> bytes:
    """Return a square PNG of one colour."""
    row = b"\0" + bytes(colour) * side
    return _png(struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0), zlib.compress(row * side))


def _png(header: bytes, data: bytes) -> bytes:
    chunks = ((b"IHDR", header), (b"IDAT", data), (b"IEND", b""))
    parts = (
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def png_bomb() -> bytes:
    """Return a PNG of 110 kB with 900 million pixels. Decoded, it needs about a gigabyte of memory with one byte per
    pixel, and several with colours.
    """
    squeezed = zlib.compressobj(9)
    row = bytes(1 + BOMB_SIDE // 8) * 100
    data = b"".join(squeezed.compress(row) for _ in range(BOMB_SIDE // 100)) + squeezed.flush()
    return _png(struct.pack(">IIBBBBB", BOMB_SIDE, BOMB_SIDE, 1, 0, 0, 0, 0), data)


def jpeg(side: int, colour: tuple[int, int, int]) -> bytes:
    """Return a square JPEG of one colour."""
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (side, side), colour).save(file, "JPEG")
    return file.getvalue()


@sin("/image")
async def image(x: Exchange) -> None:
    """Send /image/N.png or /image/N.jpg, with a different colour for each N below a million; or lie: /image/cut.png
    ends early, /image/fake.png is a page, /image/bomb.png needs a gigabyte of memory, /image/missing.png does not
    exist.
    """
    name, _, kind = x.rest.partition(".")
    number = int(name) if name.isdecimal() else 0
    colour = (number % 256, number // 256 % 256, number // 65536 % 256)
    if name == "missing":
        await x.answer(404, page("No image"))
    elif kind == "jpg":
        await x.answer(200, jpeg(IMAGE_SIDE, colour), kind="image/jpeg")
    else:
        lies = {
            "cut": lambda: png(IMAGE_SIDE, colour)[:60],
            "fake": lambda: page("No image").encode(),
            "bomb": png_bomb,
        }
        await x.answer(200, lies.get(name, lambda: png(IMAGE_SIDE, colour))(), kind="image/png")


@sin("/shop")
async def shop(x: Exchange) -> None:
    """Not a sin: a shop of N products, 20 per page: /shop/N, /shop/N/page/P (from 1), /shop/N/product/I (from 0)."""
    count, *rest = x.rest.split("/")
    kind, number = rest[0] if rest else "page", int(rest[1]) if len(rest) > 1 else 1
    if kind == "product" and number < int(count):
        await x.answer(200, _product_page(int(count), number))
    elif kind == "page" and 0 < number <= max(1, -(-int(count) // PER_PAGE)):
        await x.answer(200, page(f"Shop, page {number}", *_product_links(int(count), number)))
    else:
        await x.answer(404, page("No such thing in this shop"))


def _product_links(count: int, number: int) -> Iterator[str]:
    first, last = (number - 1) * PER_PAGE, min(number * PER_PAGE, count)
    yield from (f"/shop/{count}/product/{product}" for product in range(first, last))
    if last < count:
        yield f"/shop/{count}/page/{number + 1}"


def _product_page(count: int, number: int) -> str:
    return (
        f'<!doctype html><html lang="en"><title>Product {number}</title><h1>Product {number}</h1>'
        f'<p class="price">{number + 0.99:.2f} €</p><img src="/image/{number}.png" alt="Product {number}">'
        f'<a class="next" href="/shop/{count}/product/{(number + 1) % count}">Another one</a></html>'
    )


# --- links to avoid


@sin("/private-links")
async def private_links(x: Exchange) -> None:
    """Link to private addresses, written in every way: loopback, private, link-local, metadata."""
    port = x.server.address.rpartition(":")[2]
    hosts = [
        "127.0.0.3", "127.1", "2130706437", "0x7f000006", "0177.0.0.7", "localhost", "localhost.", "[::1]", "0.0.0.0",
        "[::ffff:127.0.0.8]", "10.0.0.1", "172.16.0.1", "192.168.0.1", "169.254.169.254", "[fe80::1]", "[fd00::1]",
    ]  # fmt: skip
    await x.answer(200, page("Private links", *(f"http://{host}:{port}/private" for host in hosts)))


@sin("/leads")
async def leads(x: Exchange) -> None:
    """Not a sin: link to every `?to=`; /leads/sitemap.xml as a sitemap, /leads/missing with a 404."""
    targets = parse_qs(urlsplit(x.hit.target).query).get("to", [])
    if x.rest == "sitemap.xml":
        entries = "".join(f"<url><loc>{escape(url)}</loc></url>" for url in targets)
        space = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
        await x.answer(200, f'<?xml version="1.0"?><urlset {space}>{entries}</urlset>', kind="application/xml")
    else:
        await x.answer(404 if x.rest == "missing" else 200, page("Leads", *targets))


@sin("/huge-links")
async def huge_links(x: Exchange) -> None:
    """Link to URLs of 2,000, 2,083, 2,084, 8,192, 8,193 and 100,000 characters."""
    links = [x.server.url("/good?").ljust(length, "x") for length in (2000, 2083, 2084, 8192, 8193, 100_000)]
    await x.answer(200, page("Huge links", *links))


@sin("/forms")
async def forms(x: Exchange) -> None:
    """Not a sin: forms of every kind, sent to /echo."""
    await x.answer(200, FORMS)


FORMS = """<!doctype html><title>Forms</title>
<form id=search action="/echo?lost=1"><input name=q value="été"><input type=submit name=go value=Go></form>
<form name=order method=POST action=/echo>
  <input name=title value="A &amp; B"><input type=password name=secret><input disabled name=off value=1>
  <input type=checkbox name=extra value=a checked><input type=checkbox name=extra value=b>
  <input type=checkbox name=extra checked>
  <input type=radio name=size value=s><input type=radio name=size value=m checked>
  <select name=country><option value=de>Germany<option value=fr selected>France</select>
  <select name=one><option>first<option>second</select>
  <select name=many multiple><option selected>x<option>y<option selected value=z>Z</select>
  <textarea name=note>
two
lines</textarea>
  <fieldset disabled><legend><input name=kept value=1></legend><input name=gone value=1></fieldset>
  <input type=file name=upload><input type=reset name=reset><input type=button name=button value=no>
  <input type=image name=map src=/image/1.png><button name=do value=save>Save</button>
  <button name=do value=delete formaction=/echo?deleted formmethod=get>Delete</button>
</form>
<input form=search name=outside value=1>
<form id=upload method=post enctype=multipart/form-data action=/echo>
  <input name=a value="1"><input name=b value=ü></form>
"""
