"""Fingerprint rules (F1): which requests are the same, also for hostile URLs, without losing a page."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lycosa.core.errors import BadSetting, BadSpider, BadUrl
from lycosa.core.url import URL_MAX, canonicalize, fingerprint
from lycosa.frontier.core.keys import STAMPS, TRACKING, FingerprintRules, is_function, parse_rules, split_rules

SITE = "http://a.example/x"
ALL = ["tracking", "sort", "jsonp", "slash", "drop:sid,s?d,[", "keep:id,p*,utm_*,cb"]
CHAINS = [
    ["tracking"],
    ["sort"],
    ["jsonp"],
    ["slash"],
    ["drop:sid,x*"],
    ["keep:id"],
    ["tracking", "sort", "jsonp"],
    ALL,
]
PAIRS = [
    "a=1",
    "a=2",
    "a",
    "a=",
    "=1",
    "=",
    "b=%41",
    "b=A",
    "a%26b=1",
    "a+b=1",
    "a%20b=1",
    "c=1;d=2",
    "%ff=1",
    "%=1",
    "é=ü",
]

PAGE, BYTES, NUMBER = 9405506256933396322, 16361962184278761730, 17036458115642858246


def reduced(words: list[str], query: str) -> str:
    """Return the part of a query that counts."""
    return parse_rules(words).reduce(f"{SITE}?{query}").removeprefix(SITE).removeprefix("?")


def test_without_rules_the_fingerprint_is_the_default_one() -> None:
    for method, url, body in (("GET", SITE, b""), ("post", f"{SITE}?b&&a=1", b"x"), ("GET", "http://a.example/?", b"")):
        assert parse_rules([]).fingerprint(method, url, body) == fingerprint(method, url, body)
    assert parse_rules([]).words == ()


def test_a_url_that_no_rule_changes_keeps_its_fingerprint() -> None:
    url = f"{SITE}?a=1&b=2"
    assert parse_rules(ALL[:-1]).fingerprint("GET", url) == fingerprint("GET", url)


@pytest.mark.parametrize(
    ("word", "query", "expected"),
    [
        ("tracking", "id=5&utm_source=x&utm_whatever=y&gclid=1&fbclid=2", "id=5"),
        ("tracking", "%75tm_source=x&UTM_Medium=y&utm%5Fid=3&id=5", "id=5"),
        ("tracking", "%2575tm_source=x&utm=1&source=2&ref=3&xutm_source=4", None),
        ("tracking", "a%26utm_source=1&b=utm_source&gclid%3D1", None),
        ("tracking", "gclid&fbclid=&&id=5&", "id=5"),
        ("tracking", "utm_source=x;id=5&gclid=%3B", "utm_source=x;id=5"),
        ("sort", "b=2&a=2&b=1&a=1&a=1", "a=1&a=1&a=2&b=1&b=2"),
        ("sort", "b&%61=1&=&a=%30", "=&a=%30&%61=1&b"),
        ("drop:sid", "sid=1&SID=2&xsid=3&s%69d=4&sid=5&a=sid", "SID=2&xsid=3&a=sid"),
        ("drop:s*,?", "sid=1&session=2&a=1&ab=1&S=3", "ab=1"),
        ("drop:a b", "a+b=1&a%20b=2&ab=3", "ab=3"),
        ("drop:a[b", "a[b=1&a%5Bb=2&ab=3", "ab=3"),
        ("keep:id,p*", "x=1&id=1&page=2&ID=3&p=4", "id=1&page=2&p=4"),
        ("keep:id", "x=1;id=2&y=3", "x=1;id=2"),
        ("jsonp", "id=1700000000000&callback=jQuery1113_1700000000000&_=1700000000001", "id=1700000000000"),
        ("jsonp", "callback=jsonp1&jsonp=angular.callbacks._a&jsoncallback=ng_jsonp_callback_0", ""),
        ("jsonp", "callback=__jp0&callback=STK_13981234567&jsonpCallback=Ext.data.JsonP.callback1", ""),
        ("jsonp", "callback=render&callback=http://b.example/1&callback=12345&callback=step2&callback=", None),
        ("jsonp", "rnd=0.8372615243&nocache=1700000000&cb=123456789&_dc=1700000000000&rand=.123456789", ""),
        ("jsonp", "rnd=4711&_=1&cb=left&random=1&nocache=true", None),
        ("jsonp", "t=1700000000123&_t=1700000000123&timestamp=1700000000123", ""),
        ("jsonp", "t=90&ts=1577836800&ts=1577836800000&timestamp=2017000000123", None),
        ("jsonp", "time=1700000000123&page=1700000000123&v=0.8372615243", None),
        ("slash", "a=1&&b=/", None),
    ],
)  # fmt: skip
def test_the_part_of_a_query_that_counts(word: str, query: str, expected: str | None) -> None:
    """`expected` is None if all of it counts."""
    assert reduced([word], query) == (query if expected is None else expected)


@pytest.mark.parametrize(
    ("url", "counts"),
    [
        ("http://a.example/x/", "http://a.example/x"),
        ("http://a.example/x///?q=/", "http://a.example/x?q=/"),
        ("http://a.example/", "http://a.example/"),
        ("http://a.example//", "http://a.example/"),
        ("http://a.example/x", "http://a.example/x"),
        ("https://[::1]:8/?", "https://[::1]:8/?"),
    ],
)
def test_a_slash_at_the_end_counts_unless_the_rule_ignores_it(url: str, counts: str) -> None:
    assert parse_rules(["slash"]).reduce(url) == counts
    assert parse_rules([]).reduce(url) == url


def test_the_order_of_the_rules_does_not_matter() -> None:
    one, other = parse_rules(["sort", "drop:b,a", "tracking"]), parse_rules(["tracking", "drop:a", "sort", "drop:b"])
    assert one.words == other.words == ("sort", "tracking", "drop:a,b")
    assert one.reduce(f"{SITE}?z&b&a&c&gclid") == other.reduce(f"{SITE}?z&b&a&c&gclid") == f"{SITE}?c&z"


def test_tracking_names_are_in_lower_case() -> None:
    assert all(name == name.lower() for name in TRACKING | STAMPS)


# ----------------------------------------------------------------------------------------------------------- properties

Pairs = st.lists(st.sampled_from(PAIRS) | st.text("abc=%&;+1é\\/?", max_size=6), max_size=8)
Chains = st.sampled_from(CHAINS)


def canonical(pairs: list[str], fragment: str = SITE) -> str:
    return canonicalize(f"{fragment}?{'&'.join(pairs)}")


@given(st.text() | st.text(alphabet="htp:/a.?&=%;+#\\\x00é\ud8001").map("http://a.example/".__add__), Chains)
def test_any_canonical_url_has_a_key_and_reducing_twice_changes_nothing(text: str, chain: list[str]) -> None:
    try:
        url = canonicalize(text)
    except BadUrl:
        return
    resolver = parse_rules(chain)
    reduced_once = resolver.reduce(url)
    assert resolver.reduce(reduced_once) == reduced_once
    assert 0 <= resolver.fingerprint("GET", url) < 2**64
    assert resolver.fingerprint("GET", url) != resolver.fingerprint("POST", url)
    assert canonicalize(reduced_once) == reduced_once


@given(st.data(), Pairs, Chains)
def test_sorting_ignores_the_order_and_loses_nothing(data: Any, pairs: list[str], chain: list[str]) -> None:
    pairs = [pair for pair in canonical(pairs).partition("?")[2].split("&") if pair]
    shuffled = data.draw(st.permutations(pairs))
    resolver = parse_rules([*chain, "sort"])
    assert resolver.reduce(canonical(pairs)) == resolver.reduce(canonical(shuffled))
    assert sorted(reduced(["sort"], "&".join(pairs)).split("&")) == sorted(pairs or [""])


@given(
    st.data(),
    Pairs,
    st.sampled_from(["sid=1", "sid", "sid=", "s%69d=2", "xyz=é", "%78=", "SID=1"]),
)
def test_an_ignored_parameter_may_occur_anywhere(data: Any, pairs: list[str], extra: str) -> None:
    at = data.draw(st.integers(0, len(pairs)))
    longer = canonical([*pairs[:at], extra, *pairs[at:]])
    same = parse_rules(["drop:sid,x*"]).reduce(longer) == parse_rules(["drop:sid,x*"]).reduce(canonical(pairs))
    assert same == (extra != "SID=1")


@given(Pairs, Pairs, Chains)
def test_different_parameters_make_different_keys(one: list[str], other: list[str], chain: list[str]) -> None:
    """The expected result comes from a slower way: parameter by parameter."""
    resolver = parse_rules(chain)

    def counting(pairs: list[str]) -> list[str]:
        parameters = [each for each in canonical(pairs).partition("?")[2].split("&") if each]
        if chain != ["slash"]:
            parameters = [each for each in parameters if resolver.reduce(f"{SITE}?{each}") != SITE]
        return sorted(parameters) if "sort" in chain else parameters

    if chain == ["slash"]:
        one, other = [each for each in one if each], [each for each in other if each]
        assume(("?" in canonical(one)) == ("?" in canonical(other)))
    first, second = (resolver.fingerprint("GET", canonical(pairs)) for pairs in (one, other))
    if chain == ["slash"]:
        assert (first == second) == (canonical(one) == canonical(other))
    else:
        assert (first == second) == (counting(one) == counting(other))


HOSTILE = [
    "&" * 8000,
    "=" * 8000,
    "%" * 8000,
    ";" * 8000,
    "a=1&" * 2000,
    "b&a&" * 2000,
    "=&" * 4000,
    "callback=" + "a" * 7900,
    "callback=" + "a." * 3900 + "!",
    "callback=" + "1" * 7900,
    "callback=cb" + "a1" * 3900 + "!",
    "_=" + "1" * 7900,
    "rnd=" + "0." * 3900,
    "%75" * 2600 + "=1",
    "utm_" * 1900,
    "s" * 7900 + "!",
]


@pytest.mark.parametrize("query", HOSTILE, ids=lambda query: f"{query[:12]}..{len(query)}")
def test_the_time_for_a_fingerprint_is_linear_in_the_length_of_the_url(query: str) -> None:
    """The longest URLs take milliseconds, and twice the length about twice the time."""
    resolver = parse_rules(["tracking", "sort", "jsonp", "slash", "drop:s*s*s*s*x,[a-z]*[a-z]*1"])
    url = f"http://a.example/?{query}"
    assert len(url) <= URL_MAX

    def seconds(size: int) -> float:
        best = 1.0
        for _ in range(3):
            started = time.process_time()
            resolver.fingerprint("GET", url[:size])
            best = min(best, time.process_time() - started)
        return best

    assert seconds(len(url)) < max(0.05, 8 * seconds(len(url) // 2))
    assert seconds(len(url)) < 0.5


# ----------------------------------------------------------------------------------------------------- user's resolvers


def with_resolver(resolver: Callable[..., Any], *words: str) -> FingerprintRules:
    return parse_rules(words, resolver, "shop:key")


def test_a_resolver_chooses_the_key_but_the_method_always_counts() -> None:
    one = with_resolver(lambda method, url, body: "page")
    assert one.words == ("shop:key",)
    assert one.fingerprint("GET", SITE) == one.fingerprint("get", f"{SITE}?2", b"body")
    assert one.fingerprint("GET", SITE) != one.fingerprint("POST", SITE)
    assert one.fingerprint("GET", SITE) != fingerprint("GET", "page")


def test_a_resolver_gets_the_reduced_url() -> None:
    calls = []

    def key(method: str, url: str, body: bytes) -> str:
        calls.append((method, url, body))
        return url

    both = parse_rules(["tracking", "sort"], key, "shop:key")
    both.fingerprint("post", f"{SITE}?b&a&gclid=1", b"x")
    assert calls == [("POST", f"{SITE}?a&b", b"x")]
    assert both.words == ("sort", "tracking", "shop:key")


Key = (
    st.text() | st.binary() | st.integers() | st.sampled_from([0, "0", b"0", -1, 255, b"\xff", 10**5000, "\ud800", ""])
)


@given(st.text(max_size=5), Key, st.text(max_size=5), Key)
def test_different_keys_have_different_fingerprints(method: str, key: Any, other_method: str, other: Any) -> None:
    same = (method.upper(), type(key), key) == (other_method.upper(), type(other), other)
    first = with_resolver(lambda *_: key).fingerprint(method, SITE)
    assert 0 <= first < 2**64
    assert (first == with_resolver(lambda *_: other).fingerprint(other_method, SITE)) == same


def test_keys_that_only_look_alike_have_different_fingerprints() -> None:
    pairs = [("G", "ET"), ("GE", "T"), ("GE", b"T"), ("GE", ord("T")), ("", "GET"), ("1 G", "ET"), ("", "1 GET")]
    assert len({with_resolver(lambda *_, key=key: key).fingerprint(verb, SITE) for verb, key in pairs}) == len(pairs)


@pytest.mark.parametrize(
    ("method", "key", "stored"), [("GET", "page", PAGE), ("GET", b"page", BYTES), ("POST", -5, NUMBER)]
)
def test_fingerprints_of_resolved_keys_are_stored_and_must_never_change(method: str, key: Any, stored: int) -> None:
    assert with_resolver(lambda *_: key).fingerprint(method, SITE) == stored


@pytest.mark.parametrize("returned", [None, True, 1.5, ["a"], ("a",), object()])
def test_a_key_of_a_wrong_type_is_reported_with_the_url(returned: Any) -> None:
    kind = type(returned).__name__
    with pytest.raises(BadSpider, match=rf"^the key resolver shop:key returned a {kind} for {SITE}: return a str"):
        with_resolver(lambda *_: returned).fingerprint("GET", SITE)


def test_a_failing_resolver_is_reported_in_one_line() -> None:
    def key(method: str, url: str, body: bytes) -> str:
        raise KeyError("no\nid")

    with pytest.raises(BadSpider) as caught:
        with_resolver(key, "sort").fingerprint("GET", SITE)
    assert str(caught.value) == f"the key resolver shop:key failed for {SITE}: KeyError: 'no\\nid'"


# ---------------------------------------------------------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        ((), []),
        (("",), []),
        (("tracking,sort",), ["tracking", "sort"]),
        ((" tracking , ,sort ", "jsonp"), ["tracking", "sort", "jsonp"]),
        (("drop:sid,sort",), ["drop:sid,sort"]),
        (("tracking,drop:a,b", "keep:c"), ["tracking", "drop:a,b", "keep:c"]),
        (("sort,shop:key",), ["sort", "shop:key"]),
    ],
)
def test_commas_separate_rules_but_not_names(texts: tuple[str, ...], found: list[str]) -> None:
    assert split_rules(texts) == found


@pytest.mark.parametrize(
    ("word", "function"), [("shop:key", True), ("a.b:C.d", True), ("sort", False), ("drop:a", False)]
)
def test_a_word_with_a_colon_names_a_function(word: str, *, function: bool) -> None:
    assert is_function(word) == function


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("trackin", "'trackin' is unknown: did you mean tracking?"),
        ("dorp:sid", "'dorp:sid' is unknown: did you mean drop:sid?"),
        ("drop", "'drop' is unknown: did you mean drop:NAME,...?"),
        ("everything", "'everything' is unknown: write one of tracking, sort, jsonp, slash, drop:NAME,..."),
        ("drop:", "the rule 'drop:' names no parameter: write one, as in drop:sessionid"),
        ("keep:,", "the rule 'keep:' names no parameter"),
        (
            "drop:sid,shop:key",
            "'shop:key' in the rule 'drop:' is not the name of a parameter: write it as a separate rule",
        ),
    ],
)
def test_an_unknown_word_is_refused(word: str, message: str) -> None:
    with pytest.raises(BadSetting) as caught:
        parse_rules([word])
    assert str(caught.value).startswith(f"fingerprint_rules: {message}")
