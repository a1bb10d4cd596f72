"""Canonical URLs, host keys and fingerprints: how a crawl recognizes known URLs (C5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lycosa.core.errors import BadUrl
from lycosa.core.url import URL_MAX, canonicalize, fingerprint, host_key, join, redirect_target


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("HTTP://EXAMPLE.com:80/a#b#c", "http://example.com/a"),
        ("https://example.com:443", "https://example.com/"),
        ("https://example.com:8443/a/../b/./c", "https://example.com:8443/b/c"),
        ("  https://example.com/a\n\tb  ", "https://example.com/ab"),
        ("https://example.com/?b=2&a=1", "https://example.com/?b=2&a=1"),
        ("https://example.com/a?", "https://example.com/a?"),
        ("https://bücher.example/ü?ü", "https://xn--bcher-kva.example/%C3%BC?%C3%BC"),
        ("http:example.com", "http://example.com/"),
        ("https://example.com\\a", "https://example.com/a"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://[0:0::1]/", "http://[::1]/"),
        ("https://example.com/a@b", "https://example.com/a@b"),
        ("http://@example.com/", "http://example.com/"),
    ],
)
def test_urls_have_one_canonical_form(written: str, canonical: str) -> None:
    assert canonicalize(written) == canonical


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("example.com", "'example.com' has no scheme: write https://example.com"),
        ("localhost:8080/x", "'localhost:8080/x' has no scheme: write https://localhost:8080/x"),
        ("//example.com", "'//example.com' has no scheme: write https://example.com"),
        ("exam\nple.com", r"'exam\nple.com' has no scheme: write https://exam\nple.com"),
        ("", "the URL is empty: write one like https://example.com"),
        ("   ", "the URL is empty: write one like https://example.com"),
        ("ftp://example.com/", "'ftp://example.com/' is not http: write a URL that begins with http:// or https://"),
        ("mailto:a@b", "'mailto:a@b' is a mailto: address: write a URL that begins with http:// or https://"),
        ("https://", "'https://' has no host name: write one like https://example.com"),
        ("http://a b/", "'http://a b/' is not a valid URL: check the host name and the port"),
        ("http://a:99999/", "'http://a:99999/' is not a valid URL: check the host name and the port"),
        ("http://a/\ud800", r"'http://a/\ud800' is not a valid URL: check the host name and the port"),
    ],
)
def test_bad_urls_are_refused_with_advice(written: str, complaint: str) -> None:
    with pytest.raises(BadUrl) as caught:
        canonicalize(written)
    assert str(caught.value) == complaint


def test_credentials_are_refused_and_not_repeated() -> None:
    with pytest.raises(BadUrl, match="user name or password") as caught:
        canonicalize("https://anna:geheim@example.com/")
    assert "geheim" not in str(caught.value)
    assert "anna" not in str(caught.value)
    assert join("https://example.com/", "//anna@example.com/") is None


def test_length_is_bounded_before_and_after_escaping() -> None:
    longest = "https://example.com/".ljust(URL_MAX, "a")
    assert canonicalize(longest) == longest
    with pytest.raises(BadUrl, match=f"8193 characters long: write at most {URL_MAX}"):
        canonicalize(longest + "a")
    with pytest.raises(BadUrl, match="characters long once escaped"):
        canonicalize("https://example.com/" + "ü" * 4000)
    with pytest.raises(BadUrl) as caught:
        canonicalize("e" * 5000)
    assert len(str(caught.value)) < 300
    assert join("https://example.com/", "a" * URL_MAX) is None
    assert join("https://example.com/", "a" * (URL_MAX + 1)) is None


@given(st.text() | st.text().map("http://".__add__) | st.text(alphabet="htps:/@#?.a[]1\\\t%").map("http:".__add__))
def test_canonicalize_is_idempotent_or_raises(text: str) -> None:
    try:
        canonical = canonicalize(text)
    except BadUrl as error:
        assert "\n" not in str(error)
        return
    assert canonicalize(canonical) == canonical
    assert canonical.isascii()
    assert "#" not in canonical
    assert host_key(canonical).startswith(("http://", "https://"))
    assert canonicalize(host_key(canonical)) == canonicalize(canonical[: canonical.index("/", 8)])
    assert host_key(canonical).rpartition(":")[2].isdigit()


@pytest.mark.parametrize(
    ("href", "url"),
    [
        ("b", "https://example.com/a/b"),
        ("../c?d#e", "https://example.com/c?d"),
        ("?q", "https://example.com/a/?q"),
        ("", "https://example.com/a/?x=1"),
        ("//other.example/", "https://other.example/"),
        ("javascript:void(0)", None),
        ("http://[", None),
        ("\ud800", None),
    ],
)
def test_join_resolves_like_a_browser(href: str, url: str | None) -> None:
    assert join("https://example.com/a/?x=1", href) == url


@pytest.mark.parametrize(
    ("canonical", "key"),
    [
        ("https://example.com/", "https://example.com:443"),
        ("http://example.com/a:b", "http://example.com:80"),
        ("http://example.com:8080/", "http://example.com:8080"),
        ("http://[::1]/", "http://[::1]:80"),
        ("https://[::1]:1/", "https://[::1]:1"),
        ("http://a/", "http://a:80"),
    ],
)
def test_host_key_always_has_the_port(canonical: str, key: str) -> None:
    assert host_key(canonical) == key


def test_fingerprints_are_stored_and_must_never_change() -> None:
    assert fingerprint("GET", "https://example.com/") == GET_FINGERPRINT
    assert fingerprint("POST", "https://example.com/", b"a=1") == POST_FINGERPRINT


def test_fingerprint_depends_on_method_url_and_body() -> None:
    url = "https://example.com/"
    different = [
        fingerprint("GET", url),
        fingerprint("POST", url),
        fingerprint("GET", url, b"a"),
        fingerprint("POST", url, b"a"),
        fingerprint("POST", url + "a", b""),
        fingerprint("POSTh", url[1:]),
        fingerprint("GET", url + "a"),
    ]
    assert len(set(different)) == len(different)
    assert fingerprint("get", url) == fingerprint("GET", url, b"")
    assert fingerprint("post", url) == fingerprint("POST", url)


Parts = st.tuples(st.text(max_size=4), st.text(max_size=6), st.binary(max_size=4))


@given(Parts, Parts)
def test_fingerprints_are_64_bits_and_unambiguous(one: tuple[str, str, bytes], other: tuple[str, str, bytes]) -> None:
    assert 0 <= fingerprint(*one) < 2**64
    same = (one[0].upper(), *one[1:]) == (other[0].upper(), *other[1:])
    assert (fingerprint(*one) == fingerprint(*other)) == same


GET_FINGERPRINT = 825967155076963135
POST_FINGERPRINT = 4061896238395794603


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/a?b", "http://a.example/a?b"),
        ("x", "http://a.example/d/x"),
        ("/ação".encode().decode("latin-1"), "http://a.example/a%C3%A7%C3%A3o"),
        ("/ação", "http://a.example/a%E7%E3o"),
        ("//bücher.example/".encode().decode("latin-1"), "http://xn--bcher-kva.example/"),
        ("mailto:x@y.example", None),
        ("", None),
    ],
)
def test_redirect_target_of_a_location(location: str, url: str | None) -> None:
    assert redirect_target("http://a.example/d/p", location) == url
