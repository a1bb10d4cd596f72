"""Sources of proxies: their settings, and the parsing of their responses."""

from __future__ import annotations

import json
import random
import tomllib
from typing import Any

import pytest

from lycosa.core.errors import BadProxy, BadSetting
from lycosa.proxies.core.proxy import Proxy, parse_proxy
from lycosa.proxies.core.sources.sources import (
    FAULTS_MAX,
    ProxySource,
    SourceAddress,
    SourceKind,
    merge_results,
    read_answer,
    read_entries,
    read_template,
    source_addresses,
    sources_from,
)

ENVIRON = {"ACME_TOKEN": "secret-token", "ACME_PASSWORD": "p%40ss"}


def read(text: str) -> tuple[ProxySource, ...]:
    return sources_from(tomllib.loads(text)["proxies"]["sources"], ENVIRON)


def one(text: str) -> ProxySource:
    (source,) = read(f"[[proxies.sources]]\nname = 'acme'\n{text}")
    return source


def addresses(proxies: list[Proxy]) -> list[str]:
    return [each.url for each in proxies]


def test_settings_of_sources_are_read() -> None:
    text = """
[[proxies.sources]]
name = "mine"
kind = "file"
path = "proxies.txt"
every = "1m"
keep = 0

[[proxies.sources]]
name = "acme-api"
kind = "api"
url = "https://api.acme.example/list?country={country}"
variables = { country = ["de", "fr"] }
headers = { Authorization = "Bearer ${ACME_TOKEN}" }
items = "data.proxies"
fields = { host = "addr.ip", port = "addr.port", user = "login", password = "secret", asn = "asn" }
every = 300
keep = "1d"
scheme = "socks5h"
provider = "acme"
tags = { kind-of = "residential" }
price_gb = 4.5

[[proxies.sources]]
name = "gate"
kind = "template"
address = "http://user-{country}-{session}:${ACME_PASSWORD}@gate.acme.example:8000"
variables = { country = ["de", "fr"] }
sessions = 3

[[proxies.sources]]
name = "code"
kind = "python"
iterator = "my.proxies:all"
"""
    mine, api, gate, code = read(text)
    assert (mine.kind, mine.location, mine.every_s, mine.keep_s) == (SourceKind.FILE, "proxies.txt", 60.0, 0.0)
    assert (api.every_s, api.keep_s, api.scheme, api.price_gb) == (300.0, 86_400.0, "socks5h", 4.5)
    assert api.tags == {"kind-of": "residential", "provider": "acme"}
    assert api.headers == {"Authorization": "Bearer secret-token"}
    assert [each.location for each in source_addresses(api)] == [
        "https://api.acme.example/list?country=de", "https://api.acme.example/list?country=fr",
    ]  # fmt: skip
    assert code.location == "my.proxies:all"
    found = read_template(gate).proxies
    assert len(found) == 6
    assert found[0].url == "http://user-de-s1:p%40ss@gate.acme.example:8000"
    assert [dict(each.tags) for each in found[2:4]] == [
        {"country": "de", "source": "gate"}, {"country": "fr", "source": "gate"},
    ]  # fmt: skip


def test_representations_hide_secrets() -> None:
    source = one("kind='api'\nurl='https://x.example/${ACME_TOKEN}'\nheaders={ A = '${ACME_TOKEN}' }")
    assert "secret-token" in source.location
    assert "secret-token" not in repr(source)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind = 'ftp'", "kind: this is not one of file, url, api, template, python"),
        ("kind = 'file'", "path: a source of this kind needs it"),
        ("kind = 'file'\npath = 'a'\nurl = 'http://x.example/'", "url: has no effect for kind = 'file'"),
        ("kind = 'file'\npath = 'a'\nitems = 'b'", "items: has no effect for kind = 'file'"),
        ("kind = 'file'\npath = 'a'\nevry = 5", "there is no 'evry': did you mean every?"),
        (
            "kind = 'file'\npath = 'a'\nevery = 0",
            'every: this is not a number from 1 to 2,592,000, or a duration such as "10m"',
        ),
        (
            "kind = 'file'\npath = 'a'\nevery = '5 parsecs'",
            'every: this is not a number from 1 to 2,592,000, or a duration such as "10m"',
        ),
        ("kind = 'file'\npath = 'a'\nkeep = true", "keep: this is not a number"),
        ("kind = 'file'\npath = 'a'\nprice_gb = -1", "price_gb: this is not a number from 0"),
        ("kind = 'file'\npath = 'a'\nprice_gb = nan", "price_gb: this is not a number"),
        ("kind = 'file'\npath = 'a'\nscheme = 'gopher'", "scheme: this is not one of http"),
        ("kind = 'file'\npath = 'a'\ntags = { source = 'x' }", "'source' is not a valid name of a tag"),
        ("kind = 'url'\nurl = 'x.example/list'", "url: is not a URL"),
        ("kind = 'url'\nurl = 'https://x.example/${NOT_SET}'", "${NOT_SET} is not set in the environment"),
        ("kind = 'api'\nurl = 'https://x.example/{country}'", "{country} has no values: write variables = "),
        ("kind = 'api'\nurl = 'https://x.example/{session}'", "{session} has no values: write sessions = 10"),
        ("kind = 'api'\nurl = 'https://x.example/'\nvariables = { a = 'b' }", "{a} is not in url"),
        ("kind = 'api'\nurl = 'https://x.example/{session}'\nsessions = 101", "101 combinations: write at most 100"),
        (
            "kind = 'api'\nurl = 'https://x.example/{a}'\nvariables = { a = 'b c' }",
            "variables: this is not a table of texts of letters",
        ),
        ("kind = 'api'\nurl = 'https://x.example/'\nline = '{host}'", "write its format, with {host} and {port}"),
        ("kind = 'api'\nurl = 'https://x.example/'\nline = '{host}{port}'", "write some text between two parts"),
        ("kind = 'api'\nurl = 'https://x.example/'\nline = '{host}:{port}'\nitems = 'a'", "line: is for text"),
        ("kind = 'api'\nurl = 'https://x.example/'\nfields = { port = 'p' }", "say where the host is"),
        ("kind = 'template'\naddress = 'user@gate.example'", "address: 'gate.example' has no port"),
        ("kind = 'python'\niterator = 'my.module'", "iterator: this is not module:function"),
    ],
)
def test_errors_in_sources_are_one_line_with_the_key(text: str, message: str) -> None:
    with pytest.raises(BadSetting) as caught:
        one(text)
    assert message in str(caught.value)
    assert str(caught.value).startswith("proxies.sources[1]")
    assert "\n" not in str(caught.value)


def test_names_are_valid_and_unique() -> None:
    with pytest.raises(BadSetting, match="name: this is not a name of a-z, 0-9"):
        read("[[proxies.sources]]\nname = 'Two Words'\nkind='file'\npath='a'")
    with pytest.raises(BadSetting, match="two sources have the name x"):
        read("[[proxies.sources]]\nname='x'\nkind='file'\npath='a'\n" * 2)
    with pytest.raises(BadSetting, match="write at most"):
        sources_from({"name": "x"}, {})
    with pytest.raises(BadSetting, match="this is not a table"):
        sources_from(["x"], {})


def parse_answer(source: ProxySource, text: str) -> tuple[list[str], list[str]]:
    found = read_answer(source, text, next(source_addresses(source)))
    return addresses(found.proxies), [str(each) for each in found.faults]


def test_faults_of_a_list_have_their_line() -> None:
    source = one("kind='url'\nurl='http://x.example/'\nscheme='socks5'\ntags={ a = 'b' }\nprice_gb = 2")
    result = read_answer(source, "1.2.3.4:80 price_gb=1\n\nnonsense\n5.6.7.8:81 a=c\n5.6.7.8:81", SourceAddress("", {}))
    assert addresses(result.proxies) == ["socks5://1.2.3.4:80", "socks5://5.6.7.8:81"]
    assert [each.line for each in result.faults] == [3]
    assert [(each.price_gb, each.tags["a"]) for each in result.proxies] == [(1.0, "b"), (2.0, "b")]


def test_json_is_read_by_paths() -> None:
    source = one("""kind='api'\nurl='http://x.example/'\nitems='result[1].list'
fields={ host = 'addr.ip', port = 'addr.port', user = 'login', password = 'pass', asn = 'net[0]' }""")
    entries: list[Any] = [
        {"addr": {"ip": "1.2.3.4", "port": 80}, "login": "ann", "pass": "a:b", "net": [64512]},
        {"addr": {"ip": "1.2.3.5"}},
        {"addr": {"port": 80}},
        "6.7.8.9:82",
        7,
    ]
    text = json.dumps({"result": [None, {"list": entries}]})
    found, faults = parse_answer(source, text)
    assert found == ["http://ann:a%3Ab@1.2.3.4:80", "http://1.2.3.5:80", "http://6.7.8.9:82"]
    assert [each.rpartition(": ")[0] for each in faults] == ["line 1: entry 3", "line 1: entry 5"]
    _, faults = parse_answer(source, json.dumps({"result": [None, {"list": entries}]}, indent=1))
    assert [each.rpartition(": ")[0] for each in faults] == ["line 22: entry 3", "line 28: entry 5"]
    (first, *_) = read_answer(source, text, next(source_addresses(source))).proxies
    assert first.tags["asn"] == "64512"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<html>quota</html>", "this is not JSON"),
        ('{"result": []}', "no array at result"),
        ('{"result": {"list": {}}}', "no array at"),
        ("[" * 100_000, "this is not JSON"),
    ],
)
def test_responses_without_a_list_are_refused(text: str, message: str) -> None:
    source = one("kind='api'\nurl='http://x.example/'\nitems='result.list'")
    with pytest.raises(BadProxy, match=message):
        parse_answer(source, text)


def test_lines_of_a_custom_format_are_parsed() -> None:
    source = one("kind='api'\nurl='http://x.example/'\nline='{kind}|{host}:{port}|{country}|{_}'")
    text = "# a comment\nsocks5|1.2.3.4:80|DE|gold\n\nhttp|1.2.3.5|DE|x\nhttp|::1:99|fr|a|b"
    found, faults = parse_answer(source, text)
    assert found[0] == "socks5://1.2.3.4:80"
    assert faults[0] == "line 4: does not match {kind}|{host}:{port}|{country}|{_}"
    (first, *_) = read_answer(source, text, next(source_addresses(source))).proxies
    assert first.tags == {"country": "de", "source": "acme"}


def test_matching_a_line_takes_linear_time() -> None:
    form = ":".join(f"{{part_{number}}}" for number in range(12)) + ":{host}:{port}"
    source = one(f"kind='api'\nurl='http://x.example/'\nline='{form}'")
    assert parse_answer(source, ":" * 100_000)[0] == []  # a backtracking pattern would need years
    assert parse_answer(source, "a:" * 50_000)[0] == []


def test_a_long_tag_is_a_fault() -> None:
    source = one("kind='api'\nurl='https://x.example/'\nfields={ host = 'h', port = 'p', asn = 'asn' }")
    entries = [{"h": "1.2.3.4", "p": 80, "asn": ["x" * 1000]}, {"h": "1.2.3.4", "p": 81, "asn": 1}]
    result = read_answer(source, json.dumps(entries), next(source_addresses(source)))
    assert [str(each) for each in result.faults] == ["line 1: entry 1: asn is longer than 100 characters"]
    assert [dict(each.tags) for each in result.proxies] == [{"asn": "1", "source": "acme"}]


def test_an_iterator_may_yield_texts_objects_and_proxies() -> None:
    def entries() -> Any:
        yield "1.2.3.4:80"
        yield parse_proxy("socks5://1.2.3.5:81")
        yield {"ip": "1.2.3.6", "port": 82}
        yield 7

    result = read_entries(one("kind='python'\niterator='a:b'"), entries())
    assert addresses(result.proxies) == ["http://1.2.3.4:80", "socks5://1.2.3.5:81", "http://1.2.3.6:82"]
    assert [str(each) for each in result.faults] == ["line 4: neither an address nor an object"]
    assert {each.tags["source"] for each in result.proxies} == {"acme"}


def test_the_first_faults_are_kept_and_all_are_counted() -> None:
    source = one("kind='url'\nurl='http://x.example/'")
    result = read_answer(source, "nonsense\n" * 500, SourceAddress("", {}))
    assert (len(result.faults), result.fault_count) == (FAULTS_MAX, 500)
    both = merge_results([result, result])
    assert (len(both.faults), both.fault_count) == (FAULTS_MAX, 1000)


def test_random_responses_are_read_or_refused() -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    sources = [
        one("kind='api'\nurl='http://x.example/'\nline='{host}:{port}'"),
        one("kind='api'\nurl='http://x.example/'\nitems='a[0]'\nfields={ host = 'h', port = 'p[1].x' }"),
        one("kind='url'\nurl='http://x.example/'"),
    ]
    pieces = ["1.2.3.4", ":", "80", "{", "}", "[", "]", '"a"', '"h"', ",", "\n", "null", "é", "\0", " ", "{session}"]
    for _ in range(4000):
        text = "".join(rng.choices(pieces, k=rng.randint(1, 14)))
        try:
            parse_answer(rng.choice(sources), text)
        except BadProxy:
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed}: {text!r}") from error
