"""How much a proxy reveals about its client: levels, spellings of addresses, the exit address."""

from __future__ import annotations

import random

import pytest

from lycosa.proxies.core.checks.anonymity import Anonymity, SeenRequest, addresses_in, anonymity, canonical_ip, exit_ip

DIRECT = SeenRequest("198.51.100.7", (("host", "judge.example:8300"), ("user-agent", "Lycosa"), ("accept", "*/*")))


def seen_through(*more: tuple[str, str], address: str = "203.0.113.9") -> SeenRequest:
    return SeenRequest(address, (("host", "other.example"), ("user-agent", "Lycosa"), ("accept", "*/*"), *more))


@pytest.mark.parametrize(
    ("fields", "level"),
    [
        ([], "elite"),
        ([("connection", "close")], "elite"),
        ([("via", "1.1 tinyproxy (tinyproxy/1.11.1)")], "anonymous"),
        ([("x-forwarded-for", "unknown")], "anonymous"),
        ([("x-forwarded-for", "203.0.113.9")], "anonymous"),
        ([("x-forwarded-for", "10.1.2.3, 198.51.100.7")], "transparent"),
        ([("x-real-ip", "198.51.100.7")], "transparent"),
        ([("forwarded", 'for="198.51.100.7:4711";proto=http')], "transparent"),
        ([("forwarded", "for=_hidden, for=203.0.113.9")], "anonymous"),
        ([("x-strange-field", "client at 198.51.100.7.")], "transparent"),
        ([("via", "1.1 ::ffff:198.51.100.7")], "transparent"),
        ([("x-forwarded-for", "::ffff:c633:6407")], "transparent"),
        ([("x-forwarded-for", "198.51.100.70")], "anonymous"),
        ([("cache-control", "max-age=259200")], "anonymous"),
    ],
)
def test_each_header_has_its_level(fields: list[tuple[str, str]], level: str) -> None:
    assert anonymity(seen_through(*fields), DIRECT) == level


def test_a_missing_or_changed_header_reveals_the_proxy() -> None:
    assert anonymity(SeenRequest("203.0.113.9", DIRECT.fields[:2]), DIRECT) is Anonymity.ANONYMOUS
    changed = SeenRequest("203.0.113.9", (*DIRECT.fields[:2], ("accept", "text/html")))
    assert anonymity(changed, DIRECT) is Anonymity.ANONYMOUS


def test_a_proxy_with_our_own_address_is_transparent() -> None:
    assert anonymity(seen_through(address="::ffff:198.51.100.7"), DIRECT) is Anonymity.TRANSPARENT


def test_configured_addresses_count_as_ours() -> None:
    seen = seen_through(("x-forwarded-for", "2001:DB8:0:1::0:99"))
    assert anonymity(seen, DIRECT) is Anonymity.ANONYMOUS
    assert anonymity(seen, DIRECT, ["2001:db8:0:1:abcd:ef01:2345:6789"]) is Anonymity.TRANSPARENT  # in the same /64
    assert anonymity(seen, DIRECT, ["2001:db8:0:2:abcd:ef01:2345:6789"]) is Anonymity.ANONYMOUS


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("2001:DB8::0:1", "2001:db8::1"),
        ("[2001:db8:0:0:0:0:0:1]", "2001:db8::1"),
        ("::ffff:1.2.3.4", "1.2.3.4"),
        ("fe80::1%eth0", "fe80::1"),
        (" 1.2.3.4 ", "1.2.3.4"),
        ("1.2.3", ""),
        ("1.2.3.4:80", ""),
        ("", ""),
    ],
)
def test_addresses_have_one_canonical_form(text: str, form: str) -> None:
    assert canonical_ip(text) == form


def test_addresses_are_found_in_the_formats_of_rfc_7239() -> None:
    value = 'for=192.0.2.43:47011, for="[2001:DB8:cafe::17]:4711";by=203.0.113.60, for="_SEVKISEK"'
    assert set(addresses_in([value])) == {"192.0.2.43", "2001:db8:cafe::17", "203.0.113.60"}


def test_levels_are_ordered() -> None:
    assert Anonymity.ELITE.reaches(Anonymity.ANONYMOUS)
    assert Anonymity.ANONYMOUS.reaches(Anonymity.ANONYMOUS)
    assert not Anonymity.TRANSPARENT.reaches(Anonymity.ANONYMOUS)


def test_the_exit_is_known_if_all_requests_have_the_same_one() -> None:
    assert exit_ip(SeenRequest("::ffff:1.2.3.4"), SeenRequest("1.2.3.4", is_tls=True)) == "1.2.3.4"
    assert exit_ip(SeenRequest("1.2.3.4"), SeenRequest("1.2.3.5")) == ""
    assert exit_ip() == ""


def test_random_headers_have_a_level() -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    pieces = ["1", ".", ":", "f", "::", "[", "]", '"', "for=", "%", "198.51.100.7", "\0", "é", ",", " "]
    for _ in range(3000):
        value = "".join(rng.choices(pieces, k=rng.randint(0, 12)))
        assert anonymity(seen_through(("x-any", value)), DIRECT) in set(Anonymity), (seed, value)
