"""Addresses of proxies: the usual formats, the identity, and hidden logins."""

from __future__ import annotations

import re

import pytest

from lycosa.core.errors import BadProxy
from lycosa.proxies.core.proxy import PORTS, parse_proxy


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("1.2.3.4:8080", "http://1.2.3.4:8080"),
        ("Proxy.Example:8080", "http://proxy.example:8080"),
        ("https://proxy.example", "https://proxy.example:443"),
        ("SOCKS5H://proxy.example/", "socks5h://proxy.example:1080"),
        ("socks4a://proxy.example:9", "socks4a://proxy.example:9"),
        ("http://[2001:DB8:0:0::1]:3128", "http://[2001:db8::1]:3128"),
        ("[::1]:3128", "http://[::1]:3128"),
        ("ann:pass@1.2.3.4:8080", "http://ann:pass@1.2.3.4:8080"),
        ("1.2.3.4:8080:ann:pa:ss", "http://ann:pa%3Ass@1.2.3.4:8080"),
        ("1.2.3.4:8080:ann:50%25", "http://ann:50%2525@1.2.3.4:8080"),
        ("socks5h://1.2.3.4:8080:ann:pass", "socks5h://ann:pass@1.2.3.4:8080"),
        ("[::1]:8080:ann:pass", "http://ann:pass@[::1]:8080"),
        ("http://1.2.3.4:8080:ann:p@ss", "http://ann:p%40ss@1.2.3.4:8080"),
        ("http://ann:80:pass@1.2.3.4:8080", "http://ann:80%3Apass@1.2.3.4:8080"),
        ("http://ann@1.2.3.4:8080", "http://ann@1.2.3.4:8080"),
        ("http://a%40b:p%3A%2F@1.2.3.4:8080", "http://a%40b:p%3A%2F@1.2.3.4:8080"),
        ("http://bücher.example:8080", "http://xn--bcher-kva.example:8080"),
    ],
)
def test_the_usual_formats_of_an_address_are_parsed(text: str, url: str) -> None:
    proxy = parse_proxy(text)
    assert proxy.url == url
    assert parse_proxy(proxy.url) == proxy, "the URL can be parsed again"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not the address of a proxy"),
        ("proxy.example", "has no port"),
        ("ftp://proxy.example:21", "ftp:// is not a kind of proxy: write one of http, https, socks4"),
        ("1.2.3.4:0", "0 is not a port"),
        ("1.2.3.4:65536", "65536 is not a port"),
        ("1.2.3.4:80/path", "is not the address"),
        ("http://1.2.3.4:80?x", "is not the address"),
        ("a b:80", "is not the address"),
        ("http://999.1.1.1:80", "is not a host"),
        ("http://user:geheim@:80", "is not the address"),
        ("geheim:12345:1.2.3.4:8080", "write host:port:user:password"),
        ("1.2.3:80", "'1.2.3' is an ambiguous IP address: write four decimal numbers, such as 1.2.3.4"),
        ("http://ann:geheim@010.1.2.3:80", "'010.1.2.3' is an ambiguous IP address"),
        ("16909060:80", "is an ambiguous IP address"),
        ("0x7f.1:80", "is an ambiguous IP address"),
        ("999.1.1.1:80", "is not a host"),
        ("http://a..b:80", "is not a host"),
        ("http://.:80", "is not a host"),
        (f"http://{'a' * 64}.example:80", "is not a host"),
        (f"http://{'a.' * 130}example:80", "is not a host"),
        ("x" * 2000 + ":80", "is not the address"),
        ("http://proxy.example\\x:80", "is not the address"),
        ("http://user:%ff@proxy.example:80", "the login is not UTF-8"),
    ],
)
def test_the_error_for_an_invalid_address_is_one_line_without_the_login(text: str, message: str) -> None:
    with pytest.raises(BadProxy) as caught:
        parse_proxy(text)
    assert message in str(caught.value)
    assert "geheim" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("text", ["http://ann:\ud800@1.2.3.4:80", "1.2.3.4:80:\udcff:b", "http://\ud800.example:80"])
def test_bytes_that_are_not_utf_8_are_refused(text: str) -> None:
    with pytest.raises(BadProxy):
        parse_proxy(text)


def test_the_identity_is_scheme_host_port_and_login() -> None:
    one = "http://ann:pass@proxy.example:8080"
    others = (
        "https://ann:pass@proxy.example:8080", "http://ann:pass@proxy.example:8081", "http://ann:pass@other.example:8080",
        "http://bob:pass@proxy.example:8080", "http://ann:word@proxy.example:8080", "http://proxy.example:8080",
        "http://ann%00pass@proxy.example:8080",
    )  # fmt: skip
    assert len({parse_proxy(each).key for each in (one, *others)}) == len(others) + 1
    priced = parse_proxy(one, tags={"country": "de"}, price_gb=4.0)
    assert (priced, priced.key) == (parse_proxy(one), parse_proxy(one).key)


def test_names_hide_logins_but_differ_between_them() -> None:
    ann, bob = parse_proxy("http://ann:pass@p.example:80"), parse_proxy("http://bob:pass@p.example:80")
    assert ann.name != bob.name
    assert "ann" not in ann.name
    assert "pass" not in ann.name
    assert parse_proxy("p.example:80").name == "http://p.example:80"


@pytest.mark.parametrize("scheme", PORTS)
def test_the_default_scheme_of_a_list_can_be_set(scheme: str) -> None:
    assert parse_proxy("1.2.3.4:1000", scheme).url == f"{scheme}://1.2.3.4:1000"


def test_representations_hide_the_login() -> None:
    proxy = parse_proxy("http://ann:secret@1.2.3.4:80")
    assert repr(proxy) == f"Proxy({proxy.name})"
    assert not {"ann", "secret"} & set(re.split(r"\W", repr([proxy])))


@pytest.mark.parametrize("login", ["a" * 256 + ":b", "a:" + "%C3%A4" * 128])
def test_a_login_too_long_for_socks_5_is_refused(login: str) -> None:
    with pytest.raises(BadProxy, match="more than 255 bytes"):
        parse_proxy(f"socks5h://{login}@1.2.3.4:1080")
    assert parse_proxy(f"http://{login}@1.2.3.4:1080")
