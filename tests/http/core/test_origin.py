"""Origins of URLs: they are the same as in browsers, and any text is accepted (C2, C10)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lycosa.http.core.origin import origin_of, path_of, url_prefix


@pytest.mark.parametrize(
    ("url", "text", "names"),
    [
        ("https://www.example.com/a", "https://www.example.com", ["www.example.com", "example.com", "com"]),
        ("http://Example.COM", "http://example.com", ["example.com", "com"]),
        ("http://example.com:80?q/x", "http://example.com", ["example.com", "com"]),
        ("https://example.com:8443#x", "https://example.com:8443", ["example.com", "com"]),
        ("http://user:pw@example.com/", "http://example.com", ["example.com", "com"]),
        (r"http://example.com\@evil.org/", "http://example.com", ["example.com", "com"]),
        ("http://127.1/", "http://127.0.0.1", ["127.0.0.1"]),
        ("http://[::1]:8/", "http://[::1]:8", ["[::1]"]),
        ("http://localhost/", "http://localhost", ["localhost"]),
    ],
)
def test_origins(url: str, text: str, names: list[str]):
    origin = origin_of(url)
    assert origin is not None
    assert (origin.text, origin.host, list(origin.names())) == (text, names[0], names)


@pytest.mark.parametrize(
    "url", ["", "x", "ftp://example.com/", "file:///x", "http://", "http:///", "http://a:b/", "//x"]
)
def test_text_without_an_origin(url: str):
    assert origin_of(url) is None


@pytest.mark.parametrize(
    ("url", "secure"),
    [
        ("https://example.com/", True),
        ("http://example.com/", False),
        ("http://localhost/", True),
        ("http://x.localhost:8000/", True),
        ("http://notlocalhost/", False),
        ("http://127.0.0.2/", True),
        ("http://127.0.0.1.example.com/", False),
        ("http://[::1]/", True),
        ("http://[::2]/", False),
        ("http://10.0.0.1/", False),
    ],
)
def test_secure_origins(url: str, secure: bool):
    origin = origin_of(url)
    assert origin is not None
    assert origin.secure == secure


def test_path_ends_before_query_and_fragment():
    urls = ("https://e.com", "https://e.com?a/b", "https://e.com/", "https://e.com/a/b?c/d#e", "https://e.com/a#b?c")
    assert [path_of(url) for url in urls] == ["/", "/", "/", "/a/b", "/a"]


@given(st.text() | st.text().map("http://".__add__))
def test_origin_depends_on_the_prefix_only_and_any_text_is_accepted(text: str):
    assert origin_of(text) == origin_of(url_prefix(text))
    assert path_of(text)
