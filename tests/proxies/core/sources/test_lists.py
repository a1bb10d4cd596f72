"""Lists of proxies: handwritten ones, those of providers, and faults with their lines."""

from __future__ import annotations

import json
import random
import tracemalloc

import pytest

from lycosa.core.errors import BadProxy
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.core.sources import lists
from lycosa.proxies.core.sources.lists import LIST_MAX, Fault, read_list


def urls(text: str) -> list[str]:
    return [each.url if isinstance(each, Proxy) else str(each) for each in read_list(text)]


def test_a_handwritten_list_is_read_line_by_line() -> None:
    text = """\ufeff# the cheap ones
1.2.3.4:8080

    ann:pass@5.6.7.8:3128   country=de provider=acme price_gb=4.5  # ours
socks5h://proxy.example
1.2.3.4
5.6.7.8:99999
7.7.7.7:80 what
#9.9.9.9:80
"""
    found = list(read_list(text))
    assert [each.url for each in found if isinstance(each, Proxy)] == [
        "http://1.2.3.4:8080", "http://ann:pass@5.6.7.8:3128", "socks5h://proxy.example:1080",
    ]  # fmt: skip
    second = found[1]
    assert isinstance(second, Proxy)
    assert (dict(second.tags), second.price_gb) == ({"country": "de", "provider": "acme"}, 4.5)
    assert [(each.line, each.problem) for each in found if isinstance(each, Fault)] == [
        (6, "'1.2.3.4' has no port: write host:port"),
        (7, "99999 is not a port: write 1 to 65535"),
        (8, "the text after the address is not key=value"),
    ]


def test_a_list_may_start_with_an_ipv6_address() -> None:
    assert urls("[::1]:8080\n") == ["http://[::1]:8080"]
    assert urls("\n [2001:db8::1]:8080:ann:secret country=de\n1.2.3.4:80") == [
        "http://ann:secret@[2001:db8::1]:8080",
        "http://1.2.3.4:80",
    ]
    assert urls("[::1]")[0].endswith("has no port: write host:port")
    assert urls('["[::1]:8080"]') == ["http://[::1]:8080"]
    assert urls("[]") == []


@pytest.mark.parametrize(
    "line",
    [
        "socks5://1.2.3.4:99999:ann:geheim", "http://ann:geheim", "1.2.3.4:80 ann:geheim", "1.2.3.4:80 ann:geheim=1",
        "http://ann:ge geheim@1.2.3.4:80", "1.2.3.4:80:ann:geheim:\x00 x", "1.2.3.4:x:ann:geheim", "ann:geheim",
    ],
)  # fmt: skip
def test_faults_hide_logins(line: str) -> None:
    (fault,) = read_list(line)
    assert isinstance(fault, Fault)
    assert "geheim" not in str(fault)


def test_the_length_of_a_line_and_of_its_fault_is_limited() -> None:
    long = "1.2.3.4:80 " + "a=1 " * 2_500_000
    tracemalloc.start()
    try:
        found = urls(f"{long}\n1.2.3.4:81")
        assert tracemalloc.get_traced_memory()[1] < 100_000_000
    finally:
        tracemalloc.stop()
    assert found == ["line 1: the line has 10,000,010 characters: write at most 8,192", "http://1.2.3.4:81"]


def test_the_number_of_proxies_in_a_list_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "ENTRIES_MAX", 10)
    found = list(read_list("u-{session}:p@g.example:1 sessions=10000\n" * 1_000))
    assert len(found) == 11
    assert str(found[-1]) == "line 1: more than 10 proxies and faults: the rest is ignored"
    assert len(list(read_list("u-{session}:p@g.example:1 sessions=10"))) == 10


def test_a_very_long_number_of_sessions_is_a_fault() -> None:
    assert "write a number from 1 to" in urls("http://{session}@g.example:1 sessions=" + "1" * 5_000)[0]


def test_one_line_may_stand_for_many_sessions() -> None:
    found = urls("http://user-{session}:pw@gate.example:8000 sessions=3")
    assert found == [f"http://user-s{number}:pw@gate.example:8000" for number in (1, 2, 3)]
    assert urls("http://u-{session}:p@g.example:1") == ["line 1: {session} in the address: write sessions=N after it"]
    assert urls("http://g.example:1 sessions=3") == ["line 1: sessions=3 without {session} in the address"]
    assert "write a number from 1 to" in urls("http://{session}@g.example:1 sessions=10001")[0]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (["1.2.3.4:80", {"ip": "5.6.7.8", "port": 81}], ["http://1.2.3.4:80", "http://5.6.7.8:81"]),
        (
            {"count": 1, "results": [{"proxy_address": "1.2.3.4", "port": 80, "username": "a", "password": "b:c"}]},
            ["http://a:b%3Ac@1.2.3.4:80"],
        ),
        (
            [{"proxy": "1.2.3.4:80", "protocol": "socks5", "username": "a", "password": "b@"}, {"url": "https://c@5.6.7.8"}],
            ["socks5://a:b%40@1.2.3.4:80", "https://c@5.6.7.8:443"],
        ),
        ([{"proxy": "1.2.3.4:80:a:b", "type": "socks4", "user": "c"}], ["socks4://a:b@1.2.3.4:80"]),
        ({"data": {"list": [{"host": "::1", "port": "80", "protocols": ["socks5"]}]}}, ["socks5://[::1]:80"]),
        ([{"ip": "1.2.3.4", "port": 8080, "protocols": ["https"]}], ["http://1.2.3.4:8080"]),
        ({"data": [{"proxy": "socks4://1.2.3.4:80", "country_code": "DE"}]}, ["socks4://1.2.3.4:80"]),
        ([{"port": 80}, 7], ["line 1: entry 1: an object needs host (or ip) and port, or proxy, or url",
                             "line 1: entry 2: neither an address nor an object"]),
    ],
)  # fmt: skip
def test_the_json_formats_of_providers_are_read(data: object, expected: list[str]) -> None:
    assert urls(json.dumps(data)) == expected


def test_countries_in_json_become_tags() -> None:
    (proxy,) = read_list('[{"ip": "1.2.3.4", "port": 80, "country": "DE", "price_gb": 2}]')
    assert isinstance(proxy, Proxy)
    assert (dict(proxy.tags), proxy.price_gb) == ({"country": "de"}, 2.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!doctype html><p>1.2.3.4:80", "is a page"),
        ('{"error": "quota"}', "holds no array"),
        ("[1, 2", "this is not JSON: line 1: unexpected end"),
        ("[" * 100_000, "this is not JSON: it is nested too deeply"),
        ("x" * (LIST_MAX + 1), "at most 64,000,000"),
    ],
)
def test_texts_that_are_no_list_are_refused(text: str, message: str) -> None:
    with pytest.raises(BadProxy, match=message):
        list(read_list(text))


def test_random_texts_are_read_or_refused() -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    pieces = ["1.2.3.4", ":", "80", "@", "user", " ", "\n", "#", "=", "{session}", "sessions=2", "[", "]", "::1", '"',
              "{", "}", "http://", "é", "\0", "%", "price_gb=", "1e999", ","]  # fmt: skip
    for _ in range(5000):
        text = "".join(rng.choices(pieces, k=rng.randint(1, 14)))
        try:
            found = list(read_list(text))
        except BadProxy:
            continue
        assert all(isinstance(each, Proxy | Fault) for each in found), (seed, text)
