"""Cookies by RFC 6265 and its revision: the header, the jar, its bounds (C2, C7)."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lycosa.core.errors import StorageError
from lycosa.http.core.cookie_header import (
    ATTRIBUTE_MAX,
    LIFETIME_MAX_S,
    PAIR_MAX,
    SESSION,
    SetCookie,
    parse_set_cookie,
)
from lycosa.http.core.cookies import DOMAIN_MAX, JAR_MAX, LINES_MAX, CookieJar, CookieJars, default_path, path_matches
from lycosa.http.core.origin import origin_of

NOW = 1_700_000_000.0
SUFFIXES = {"com", "org", "uk", "co.uk", "blogspot.com", "github.io"}
SITE = "https://www.example.com/shop/list?page=2"


def jar(*lines: str, url: str = SITE, now: float = NOW) -> CookieJar:
    new_jar = CookieJar(SUFFIXES.__contains__)
    for nth, line in enumerate(lines):
        new_jar.set_from(url, [line], now + nth)
    return new_jar


def sent(new_jar: CookieJar, url: str, now: float = NOW + 100) -> list[str]:
    header = new_jar.header(url, now)
    return header.split("; ") if header else []


# ------------------------------------------------------------------------------------------------------- parsing a line


@pytest.mark.parametrize(
    ("line", "parsed"),
    [
        ("a=b", SetCookie("a", "b")),
        ("  a \t= b c \t; Path=/x ", SetCookie("a", "b c", path="/x")),
        ("a=b=c; foo; =bar;;", SetCookie("a", "b=c")),
        ('a="b,c"', SetCookie("a", '"b,c"')),
        ("a=", SetCookie("a", "")),
        ("=b", SetCookie("", "b")),
        ("b", SetCookie("", "b")),
        ("a=b; Domain=.Example.COM", SetCookie("a", "b", "example.com")),
        ("a=b; domain=", SetCookie("a", "b")),
        ("a=b; domain=x.com; DOMAIN=y.com", SetCookie("a", "b", "y.com")),
        ("a=b; path=x", SetCookie("a", "b")),
        ("a=b; Path=/x; Path=", SetCookie("a", "b")),
        ("a=b; SECURE=no; httponly; SameSite=LAX", SetCookie("a", "b", "", "", SESSION, True, True, "lax")),
        ("a=b; Max-Age=10", SetCookie("a", "b", expires=NOW + 10)),
        ("a=b; Max-Age=0", SetCookie("a", "b", expires=-math.inf)),
        ("a=b; Max-Age=-1", SetCookie("a", "b", expires=-math.inf)),
        ("a=b; Max-Age=" + "9" * 500, SetCookie("a", "b", expires=NOW + LIFETIME_MAX_S)),
        ("a=b; Max-Age=1.5", SetCookie("a", "b")),
        ("a=b; Max-Age=", SetCookie("a", "b")),
        ("a=b; Max-Age=\u0661", SetCookie("a", "b")),
        ("a=b; Expires=never", SetCookie("a", "b")),
        ("a=b; Expires=Thu, 01 Jan 1970 00:00:00 GMT", SetCookie("a", "b", expires=0.0)),
        ("a=b; Expires=Thu, 01 Jan 1970 00:00:00 GMT; Max-Age=5", SetCookie("a", "b", expires=NOW + 5)),
        ("a=b; Expires=Fri, 31 Dec 9999 23:59:59 GMT", SetCookie("a", "b", expires=NOW + LIFETIME_MAX_S)),
        ("a=b; Path=/" + "x" * ATTRIBUTE_MAX, SetCookie("a", "b")),
        ("a=" + "x" * (PAIR_MAX - 1), SetCookie("a", "x" * (PAIR_MAX - 1))),
        ("a=\xc3\xa1", SetCookie("a", "\xe1")),
        ("a=\xe1", SetCookie("a", "\xe1")),
    ],
)
def test_line_is_parsed_as_in_browsers(line: str, parsed: SetCookie):
    assert parse_set_cookie(line, NOW) == parsed


@pytest.mark.parametrize(
    "line",
    [
        "",
        ";",
        "=",
        " = ; Path=/",
        "a=" + "x" * PAIR_MAX,
        "a\x00=b",
        "a=b\r\nX: y",
        "a=b; Path=/\x7f",
        "a=b; Domain=\xfc.com",
    ],
)
def test_lines_that_are_ignored(line: str):
    assert parse_set_cookie(line, NOW) is None


def test_number_of_attributes_is_bounded():
    assert parse_set_cookie("a=b" + "; x=y" * 10_000 + "; Secure", NOW) == SetCookie("a", "b")


@given(st.text(st.characters(max_codepoint=255)) | st.text(), st.floats(0, 4e9))
def test_any_line_is_parsed_or_ignored(line: str, now: float):
    parsed = parse_set_cookie(line, now)
    if parsed is not None:
        assert not set("\r\n\0;") & set(parsed.name + parsed.value)
        assert "=" not in parsed.name
        assert parsed.expires == SESSION or parsed.expires <= now + LIFETIME_MAX_S
        parsed.value.encode()


# fmt: off
PIECES = st.sampled_from([
    "a=b", "=b", "a=", "", "Path=/", "Path=/shop", "Domain=example.com", "Domain=www.example.com", "Domain=.com",
    "Domain=[::1]", "Domain=..com", "Secure", "HttpOnly", "Max-Age=0", "Max-Age=9", "Expires=21 Oct 15 7:28:00",
    "__Host-a=b", "__Secure-a=b", "\xff", "\t", ",", "=", ".",
])
# fmt: on
PLACES = [
    "https://www.example.com/shop/",
    "http://www.example.com/",
    "http://[::1]/",
    "http://localhost:8/x",
    "http://a..com/",
]


@given(st.lists(st.tuples(st.sampled_from(PLACES), st.lists(PIECES, max_size=9).map("; ".join)), max_size=30))
def test_no_history_breaks_the_invariants_of_a_jar(history: list[tuple[str, str]]):
    new_jar = CookieJar(SUFFIXES.__contains__)
    for nth, (url, line) in enumerate(history):
        before = new_jar.header(url, NOW + nth)
        if not new_jar.set_from(url, [line], NOW + nth):
            assert new_jar.header(url, NOW + nth) == before
        for place in PLACES:
            new_jar.header(place, NOW + nth).encode()
    assert len(new_jar) == len(list(new_jar))
    restored = CookieJar.from_bytes(new_jar.to_bytes(), SUFFIXES.__contains__)
    assert [restored.header(url, NOW) for url in PLACES] == [new_jar.header(url, NOW) for url in PLACES]


# ----------------------------------------------------------------------------------------- which cookies a request gets


@pytest.mark.parametrize(
    ("line", "url", "is_sent"),
    [
        ("a=b", "https://www.example.com/shop/x", True),
        ("a=b", "https://www.example.com/shop", True),
        ("a=b", "https://www.example.com/shopping", False),
        ("a=b", "https://www.example.com/", False),
        ("a=b; Path=/", "https://www.example.com", True),
        ("a=b; Path=/", "https://www.example.com?q", True),
        ("a=b; Path=/", "https://www.example.com:8443/", True),
        ("a=b; Path=/", "http://www.example.com/#x/y", True),
        ("a=b; Path=/", "https://WWW.Example.com/", True),
        ("a=b; Path=/", "https://example.com/", False),
        ("a=b; Path=/", "https://x.www.example.com/", False),
        ("a=b; Path=/; Domain=www.example.com", "https://x.www.example.com/", True),
        ("a=b; Path=/; Domain=example.com", "https://example.com/", True),
        ("a=b; Path=/; Domain=.example.com", "https://x.example.com/", True),
        ("a=b; Path=/; Domain=example.com", "https://badexample.com/", False),
        ("a=b; Path=/; Domain=example.com", "https://example.com.org/", False),
        ("a=b; Path=/; Secure", "https://www.example.com/", True),
        ("a=b; Path=/; Secure", "http://www.example.com/", False),
        ("a=b; Path=/shop/", "https://www.example.com/shop/x", True),
        ("a=b; Path=/shop/", "https://www.example.com/shop", False),
        ("a=b; Path=/; Max-Age=50", "https://www.example.com/", False),
        ("a=b; Path=/; Max-Age=101", "https://www.example.com/", True),
        ("a=b; Path=/", "ftp://www.example.com/", False),
        ("a=b; Path=/", "https://www.example.com:x/", False),
        ("a=b; Path=/", "https:www", False),
    ],
)
def test_cookie_is_sent_to_its_domain_and_path_only(line: str, url: str, is_sent: bool):
    assert sent(jar(line), url) == (["a=b"] if is_sent else [])


@pytest.mark.parametrize(
    ("url", "line", "is_kept"),
    [
        ("https://www.example.com/", "a=b; Domain=other.com", False),
        ("https://www.example.com/", "a=b; Domain=ww.example.com", False),
        ("https://www.example.com/", "a=b; Domain=x.www.example.com", False),
        ("https://www.example.com/", "a=b; Domain=com", False),
        ("https://foo.co.uk/", "a=b; Domain=co.uk", False),
        ("https://foo.blogspot.com/", "a=b; Domain=blogspot.com", False),
        ("https://co.uk/", "a=b; Domain=co.uk", True),
        ("http://localhost/", "a=b; Domain=localhost", True),
        ("http://x.localhost/", "a=b; Domain=localhost", False),
        ("http://127.0.0.1:8000/", "a=b; Domain=127.0.0.1", True),
        ("http://127.0.0.1/", "a=b; Domain=0.0.1", False),
        ("http://[::1]/", "a=b; Domain=[::1]", True),
        ("http://www.example.com/", "a=b; Secure", False),
        ("http://localhost:8000/", "a=b; Secure", True),
        ("http://app.localhost/", "a=b; Secure", True),
        ("http://127.9.9.9/", "a=b; Secure", True),
        ("http://[::1]/", "a=b; Secure", True),
        ("http://127.example.com/", "a=b; Secure", False),
        ("http://192.168.0.1/", "a=b; Secure", False),
        ("https://www.example.com/", "__Secure-a=b", False),
        ("https://www.example.com/", "__Secure-a=b; Secure", True),
        ("http://www.example.com/", "__Secure-a=b; Secure", False),
        ("https://www.example.com/", "__Host-a=b; Secure; Path=/", True),
        ("https://www.example.com/", "__hOsT-a=b; Secure", False),
        ("https://www.example.com/", "__Host-a=b; Secure; Path=/x", False),
        ("https://www.example.com/", "__Host-a=b; Secure; Path=/; Domain=www.example.com", False),
        ("https://www.example.com/", "__Host-a=b; Path=/", False),
        ("https://www.example.com/", "=__Host-a=b; Secure; Path=/", False),
        ("https://www.example.com/", "__Secure-a; Secure", False),
        ("mailto:x@example.com", "a=b", False),
        ("", "a=b", False),
    ],
)
def test_domains_for_which_a_site_may_set_cookies(url: str, line: str, is_kept: bool):
    new_jar = jar(line, url=url)
    assert len(new_jar) == new_jar.changed == is_kept
    if is_kept:
        assert sent(new_jar, url)


def test_cookie_of_a_public_suffix_is_host_only():
    new_jar = jar("a=b; Domain=co.uk", url="https://co.uk/")
    assert sent(new_jar, "https://co.uk/") == ["a=b"]
    assert sent(new_jar, "https://foo.co.uk/") == []


def test_longer_path_is_sent_first_then_the_older_cookie():
    lines = ["a=1; Path=/", "b=2; Path=/shop", "c=3; Path=/; Domain=example.com", "d=4; Path=/shop/list", "e=5; Path=/"]
    new_jar = jar(*lines)
    new_jar.set_from(SITE, ["a=6; Path=/"], NOW + 50)  # replaced: it keeps its creation time
    assert sent(new_jar, SITE) == ["d=4", "b=2", "a=6", "c=3", "e=5"]


def test_cookies_of_one_response_are_sent_in_its_order():
    made = jar()
    made.set_from(SITE, ["a=1; Path=/; Domain=example.com", "b=2; Path=/", "c=3; Path=/; Domain=example.com"], NOW)
    assert sent(made, SITE) == ["a=1", "b=2", "c=3"]


def test_cookie_without_a_name_is_sent_unchanged():
    assert sent(jar("=b; Path=/"), SITE) == ["b"]


def test_cookie_is_replaced_by_one_with_equal_name_domain_and_path():
    new_jar = jar("a=1; Path=/", "a=2; Path=/shop", "a=3; Path=/; Domain=www.example.com", "a=4; Path=/")
    assert sorted(sent(new_jar, SITE)) == ["a=2", "a=3", "a=4"]


def test_cookie_is_deleted_by_an_expired_one():
    new_jar = jar("a=1; Path=/", "b=2; Path=/")
    assert new_jar.set_from(SITE, ["a=; Path=/; Expires=Thu, 01 Jan 1970 00:00:00 GMT"], NOW)
    assert sent(new_jar, SITE) == ["b=2"]
    assert not new_jar.set_from(SITE, ["a=; Path=/; Max-Age=0"], NOW)
    assert len(new_jar) == 1


def test_jar_is_not_changed_by_an_equal_cookie():
    new_jar = jar("a=1; Path=/", "b=2; Expires=Wed, 21 Oct 2026 07:28:09 GMT")
    new_jar.changed = False
    assert not new_jar.set_from(SITE, ["a=1; Path=/"], NOW + 5)
    assert not new_jar.changed
    assert new_jar.set_from(SITE, ["a=1; Path=/; HttpOnly"], NOW + 5)
    assert new_jar.changed


def test_http_can_neither_shadow_nor_delete_a_secure_cookie():
    new_jar = jar("id=safe; Path=/; Secure; Domain=example.com")
    plain = "http://www.example.com/"
    for line in ("id=evil; Path=/", "id=evil; Path=/login", "id=; Path=/; Domain=example.com; Max-Age=0"):
        assert not new_jar.set_from(plain, [line], NOW)
    assert new_jar.set_from(plain, ["other=x; Path=/"], NOW + 1)
    assert sent(new_jar, SITE) == ["id=safe", "other=x"]


def test_default_path_and_path_match():
    assert [default_path("https://e.com" + path) for path in ("", "/", "/a", "/a/", "/a/b?c/d", "/a/b#/c")] == [
        *("/", "/", "/", "/a", "/a", "/a")
    ]
    assert path_matches("/a", "/a")
    assert path_matches("/a/b", "/a")
    assert not path_matches("/ab", "/a")


def test_url_without_a_path_has_an_origin():
    place = origin_of("http://example.com")
    assert place
    assert list(place.names()) == ["example.com", "com"]
    assert sent(jar("a=b", url="http://example.com"), "http://example.com/x") == ["a=b"]
    assert sent(jar("a=b", url="http://example.co/"), "http://example.com") == []


# ------------------------------------------------------------------------------------------------- cookies of a request


def test_cookies_of_a_request_as_mapping_and_as_list():
    new_jar = CookieJar(SUFFIXES.__contains__)
    assert (
        new_jar.set("http://example.com/a/b", {"s": "x", b"b": "\xe1".encode(), "l": b"\xe1", "i": 1, "t": True}, NOW)
        == []
    )
    assert sent(new_jar, "http://example.com/a/c") == ["s=x", "b=\xe1", "l=\xe1", "i=1", "t=True"]
    assert sent(new_jar, "http://example.com/") == []
    cookies = [{"name": "n", "value": "v", "domain": ".example.com", "path": "/q"}, {"name": "m", "value": 9.5}]
    assert new_jar.set("http://www.example.com/", cookies, NOW) == []
    assert sent(new_jar, "http://x.example.com/q") == ["n=v"]
    assert sent(new_jar, "http://www.example.com/") == ["m=9.5"]


@pytest.mark.parametrize(
    ("scheme", "secure", "goes_to"),
    [
        ("http", None, ["http", "https"]),
        ("https", None, ["https"]),
        ("https", False, ["http", "https"]),
        ("http", True, ["https"]),
    ],
)
def test_cookie_of_a_request_for_https_is_secure_by_default(scheme: str, secure: bool | None, goes_to: list[str]):
    new_jar = CookieJar(SUFFIXES.__contains__)
    new_jar.set(f"{scheme}://a.example/", [{"name": "a", "value": "b", "secure": secure}], NOW)
    assert [each for each in ("http", "https") if sent(new_jar, f"{each}://a.example/")] == goes_to


@pytest.mark.parametrize(
    ("cookie", "reason"),
    [
        ({"value": "x"}, "no name"),
        ({"name": "a"}, "no value"),
        ({"name": "a", "value": None}, "no value"),
        ({"name": "a", "value": ["x"]}, "no value"),
        ({"name": "", "value": ""}, "empty"),
        ({"name": "a", "value": "b\r\nX: y"}, "control"),
        ({"name": "a", "value": "b; Domain=com"}, "';'"),
        ({"name": "a=b", "value": "c"}, "'='"),
        ({"name": "a", "value": "\xe1" * (PAIR_MAX // 2)}, str(PAIR_MAX)),
        ({"name": "a", "value": "b", "domain": "other.com"}, "other.com"),
        ({"name": "a", "value": "b", "domain": "com"}, "public suffix"),
        ({"name": "__Host-a", "value": "b", "secure": True}, "path /"),
    ],
)
def test_invalid_cookie_of_a_request_is_reported(cookie: dict[str, object], reason: str):
    new_jar = CookieJar(SUFFIXES.__contains__)
    complaints = new_jar.set("https://example.com/", [cookie, {"name": "ok", "value": ""}], NOW)
    assert [reason in line for line in complaints] == [True]
    assert sent(new_jar, "https://example.com/") == ["ok="]


def test_url_without_a_host_has_no_cookies():
    assert CookieJar(SUFFIXES.__contains__).set("file:///x", {"a": "b"}, NOW) == []


@given(st.dictionaries(st.text() | st.binary(), st.text() | st.binary() | st.integers() | st.floats() | st.none()))
def test_cookies_of_a_request_cannot_break_the_header(cookies: dict[object, object]):
    new_jar = CookieJar(SUFFIXES.__contains__)
    new_jar.set("http://example.com/", cookies, NOW)
    header = new_jar.header("http://example.com/", NOW)
    assert not set("\r\n\0") & set(header)
    header.encode()


# --------------------------------------------------------------------------------------------------------------- bounds


def test_least_recently_used_cookie_is_evicted_from_a_full_domain():
    new_jar = jar(*(f"c{n}=x; Path=/{'used' if n == 0 else 'unused'}" for n in range(DOMAIN_MAX)))
    assert sent(new_jar, "https://www.example.com/used", NOW + DOMAIN_MAX) == ["c0=x"]
    new_jar.set_from(SITE, ["new=x; Path=/"], NOW + DOMAIN_MAX + 1)
    assert {cookie.name for cookie in new_jar} == {"c0", "new", *(f"c{n}" for n in range(2, DOMAIN_MAX))}


def test_expired_cookies_are_evicted_first_and_secure_ones_last():
    lines = [f"c{n}=x; Secure" for n in range(DOMAIN_MAX - 2)]
    new_jar = jar(*lines, "plain=x", "brief=x; Max-Age=1", now=NOW)
    new_jar.set_from(SITE, ["n1=x"], NOW + 1000)
    new_jar.set_from(SITE, ["n2=x; Secure"], NOW + 1001)
    assert {cookie.name for cookie in new_jar if cookie.name[0] != "c"} == {"n1", "n2"}


def test_jar_is_bounded():
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    new_jar = jar("keep=me; Path=/", url="https://used.org/", now=NOW)
    for n in range(JAR_MAX + 1000):
        new_jar.set_from(f"https://h{rng.randrange(10**9)}.org/", [f"c=x{n}"], NOW + n)
        assert new_jar.header("https://used.org/", NOW + n)
        assert len(new_jar) <= JAR_MAX
    assert len(new_jar) > JAR_MAX // 2
    assert len(new_jar) == len(list(new_jar))


def test_lines_of_a_response_are_bounded():
    new_jar = jar()
    new_jar.set_from(SITE, (f"a={n}" for n in range(LINES_MAX + 10)), NOW)
    assert sent(new_jar, SITE) == [f"a={LINES_MAX - 1}"]


def test_expired_cookies_are_evicted_first_from_a_full_jar():
    new_jar = jar("old=1", url="https://old.org/", now=NOW - 1)
    for n in range(JAR_MAX - 1):
        new_jar.set_from(f"https://h{n}.org/", ["c=x; Max-Age=10" if n < 5 else "c=x"], NOW)
    new_jar.set_from("https://new.org/", ["c=x"], NOW + 11)
    assert len(new_jar) == JAR_MAX + 1 - 5
    assert sent(new_jar, "https://old.org/") == ["old=1"]


# -------------------------------------------------------------------------------------------- storing and limiting jars


def test_jar_survives_serialization():
    new_jar = jar("a=1; Secure; HttpOnly; SameSite=Lax", "b=2; Path=/; Domain=example.com; Max-Age=1000", "c=\xc3\xa1")
    restored = CookieJar.from_bytes(new_jar.to_bytes(), SUFFIXES.__contains__)
    assert list(restored) == list(new_jar)
    assert (len(restored), restored.changed) == (3, False)
    assert restored.set_from(SITE, ["a=; Max-Age=0"], NOW)
    assert len(restored) == 2


@pytest.mark.parametrize("data", [b"", b"\x92", b"\x92\x01\xc0", b"\x92\x63\x90"])
def test_damaged_jar_raises_storage_error(data: bytes):
    with pytest.raises(StorageError, match="cookies"):
        CookieJar.from_bytes(data, SUFFIXES.__contains__)


def test_least_recently_used_jar_is_evicted():
    jars = CookieJars(jars_max=2)
    a, b, c = (CookieJar(SUFFIXES.__contains__) for _ in range(3))
    assert jars.add("a", a) is None
    assert jars.add("b", b) is None
    assert jars.get("a") is a
    assert jars.add("c", c) == ("b", b)
    assert (jars.get("a"), jars.get("b"), jars.get("c")) == (a, None, c)


def test_changed_jars_are_returned_once():
    jars = CookieJars()
    new_jar, other = jar("a=b"), CookieJar(SUFFIXES.__contains__)
    jars.add("x", new_jar)
    jars.add("y", other)
    assert jars.changed() == [("x", new_jar)]
    assert jars.changed() == []
    other.set(SITE, {"a": "b"}, NOW)
    assert jars.changed() == [("y", other)]
