"""robots.txt by RFC 9309: selection of groups, matching of paths, unreadable files (C10)."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lycosa.http.core.robots import (
    CRAWL_DELAY_MAX,
    ROBOTS_MAX,
    RULES_MAX,
    SITEMAPS_MAX,
    Robots,
    product_token,
    robots_from_response,
)

HOST = "https://example.com"


def allowed(robots: str, path: str, user_agent: str = "Lycosa/1.0 (+https://example.org)") -> bool:
    return Robots.parse(robots.encode(), user_agent).allowed(HOST + path)


@pytest.mark.parametrize(
    ("rules", "path", "verdict"),
    [
        ("Disallow: /a", "/a", False),
        ("Disallow: /a", "/abc?d", False),
        ("Disallow: /a", "/b/a", True),
        ("Disallow: /a", "/A", True),
        ("Disallow: /a/\nAllow: /a/b", "/a/b", True),
        ("Allow: /a/b\nDisallow: /a/", "/a/c", False),
        ("Disallow: /a/b\nAllow: /a/b", "/a/b", True),
        ("Disallow: /\nAllow: /$", "/", True),
        ("Disallow: /\nAllow: /$", "/x", False),
        ("Disallow: /*.php$", "/a.php", False),
        ("Disallow: /*.php$", "/a.php?x", True),
        ("Disallow: /*.php", "/dir/a.php?x", False),
        ("Disallow: /*/private/", "/a/b/private/c", False),
        ("Disallow: *.gif", "/a/b.gif", False),
        ("Disallow: /*?s=", "/find?s=1", False),
        ("Disallow: /*?s=", "/find?t=1", True),
        ("Disallow: /%7Ejoe/", "/~joe/x", False),
        ("Disallow: /~joe/", "/%7ejoe/x", False),
        ("Disallow: /a%2Fb", "/a/b", True),
        ("Disallow: /a%2fb", "/a%2Fb", False),
        ("Disallow: /ü", "/%C3%BCber", False),
        ("Disallow: /%C3%BC", "/%c3%bcber", False),
        ("Disallow: /a b", "/a%20b", False),
        ("Disallow: /a%2A", "/a*", False),
        ("Disallow: /a%2A", "/ab", True),
        ("Disallow:", "/a", True),
        ("Disallow: # nothing", "/a", True),
        ("Disallow: /a # comment", "/a", False),
        ("Disallow: a", "/a", True),
        ("Allow: /a", "/b", True),
        ("Disallow: /", "/robots.txt", True),
        ("Disallow: /", "/robots.txt?x", True),
        ("Disallow: /", "/a/robots.txt", False),
        ("disALLOW : /a", "/a", False),
        ("Dissallow /a", "/a", False),
        ("Noindex: /a\nDisallow /a\x0bAllow: /a", "/a", True),
    ],
)
def test_rules_match_paths(rules: str, path: str, verdict: bool) -> None:
    assert allowed(f"User-agent: *\n{rules}\n", path) is verdict


@pytest.mark.parametrize(
    ("agent", "token"),
    [
        ("lycosa", True),
        ("LYCOSA", True),
        ("Lycosa/2.0", True),
        ("Lycosa # we", True),
        ("lycosa and others", True),
        ("lyc", False),
        ("lycosa2", False),
        ("2lycosa", False),
        ("cosa", False),
        ("lycosa-news", False),
        ("Mozilla", False),
        ("example", False),
        ("*lycosa", False),
        ("", False),
    ],
)
def test_group_is_selected_by_the_whole_product_token(agent: str, token: bool) -> None:
    robots = f"User-agent: {agent}\nDisallow: /ours\n\nUser-agent: *\nDisallow: /theirs\n"
    assert allowed(robots, "/ours") is not token
    assert allowed(robots, "/theirs") is token


@pytest.mark.parametrize("name", ["2bot", "360Spider", "008", "a1b2-c_d"])
def test_agent_names_may_have_digits(name: str) -> None:
    robots = f"User-agent: {name}\nDisallow: /ours\n\nUser-agent: *\nDisallow: /theirs\n"
    assert [allowed(robots, path, f"{name}/1.0") for path in ("/ours", "/theirs")] == [False, True]


@pytest.mark.parametrize("agent", [b"* all", b"*\xc2\xa0", b"*\xa0", b"*\tx", b"* # all"])
def test_star_may_be_followed_by_white_space_and_words(agent: bytes) -> None:
    assert not Robots.parse(b"User-agent: " + agent + b"\nDisallow: /\n").allowed("https://example.com/a")


def test_groups_for_one_agent_are_merged() -> None:
    robots = """User-agent: lycosa
User-agent: lycosa
User-agent: other
Disallow: /a
Sitemap: https://example.com/s.xml
Disallow: /b
User-agent: *
Disallow: /everybody
User-agent: third
Disallow: /third
User agent: LyCoSa
Disallow: /c
Allow: /a/x"""
    assert [allowed(robots, path) for path in ("/a", "/b", "/c", "/a/x", "/everybody", "/third")] == [
        False, False, False, True, True, True,
    ]  # fmt: skip
    assert [allowed(robots, path, "other") for path in ("/a", "/c", "/everybody")] == [False, True, True]
    assert [allowed(robots, path, "someone") for path in ("/a", "/everybody")] == [True, False]


def test_empty_group_of_ours_overrides_the_group_for_all() -> None:
    assert allowed("User-agent: lycosa\nDisallow:\nUser-agent: *\nDisallow: /", "/a")
    assert not allowed("User-agent: lycosa\nUser-agent: *\nDisallow: /", "/a")


def test_rules_before_any_group_are_ignored() -> None:
    assert allowed("Disallow: /\nUser-agent: lycosa\nAllow: /", "/a")
    assert allowed("", "/a")


@pytest.mark.parametrize(
    ("user_agent", "token"),
    [
        ("Lycosa", "lycosa"),
        (" Lycosa/1.0 (+https://example.org)", "lycosa"),
        ("Mozilla/5.0 (compatible; Lycosa-Bot/1.0)", "lycosa-bot"),
        ("Mozilla/5.0 (X11)", "mozilla"),
        ("", ""),
        ("1", "1"),
        ("360Spider/2.0", "360spider"),
        ("Mozilla/5.0 (compatible; 2bot/1.0)", "2bot"),
        ("/1", ""),
    ],
)
def test_product_token(user_agent: str, token: str) -> None:
    assert product_token(user_agent) == token


def test_all_line_ends_a_bom_and_invalid_bytes_are_accepted() -> None:
    body = b"\xef\xbb\xbfUser-Agent: *\rDisallow: /a\r\n\xff\xfe\0: x\nDisallow: /\xe4\nDisallow: /c"
    robots = Robots.parse(body)
    assert [robots.allowed(HOST + path) for path in ("/a", "/%E4", "/c", "/d")] == [False, False, False, True]


def test_file_is_cut_at_the_limit_but_not_within_a_rule() -> None:
    head = b"User-agent: *\nDisallow: /a\n"
    body = head + b"#" * (ROBOTS_MAX - len(head) - 14) + b"\nDisallow: /c/long\nDisallow: /d\n"
    robots = Robots.parse(body)
    assert [robots.allowed(HOST + path) for path in ("/a", "/c/", "/c/long", "/d")] == [False, True, True, True]
    assert Robots.parse(b"x" * (ROBOTS_MAX + 1)).allowed(HOST + "/")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("2", 2.0),
        ("0.5", 0.5),
        ("9999", CRAWL_DELAY_MAX),
        ("-1", 0.0),
        ("nan", 0.0),
        ("inf", 0.0),
        ("x", 0.0),
        ("", 0.0),
    ],
)
def test_crawl_delay(value: str, seconds: float) -> None:
    assert Robots.parse(f"User-agent: *\nCrawl-delay: {value}\n".encode()).crawl_delay_s == seconds


def test_crawl_delay_is_taken_from_our_group() -> None:
    robots = "User-agent: *\nCrawl-delay: 1\nUser-agent: lycosa\ncrawl delay: 2\nCrawl-delay: 3\n"
    robots += "User-agent: b\nCrawl-delay: 9"
    assert Robots.parse(robots.encode()).crawl_delay_s == 3.0
    assert Robots.parse(robots.encode(), "someone").crawl_delay_s == 1.0
    assert Robots.parse(b"").crawl_delay_s == 0.0


def test_sitemaps_belong_to_no_group() -> None:
    robots = Robots.parse(
        b"Sitemap: https://example.com/a.xml\nUser-agent: x\n"
        b"SITEMAP:https://example.com/b.xml#f\nSitemap: /c.xml\nSitemap:\n"
    )
    assert robots.sitemaps == ["https://example.com/a.xml", "https://example.com/b.xml"]
    with_many = Robots.parse(b"Sitemap: http://a/\n" * (SITEMAPS_MAX + 1))
    assert len(with_many.sitemaps) == SITEMAPS_MAX


@pytest.mark.parametrize(
    ("status", "allows", "unreachable"),
    [
        (200, False, False),
        (204, False, False),
        (301, True, False),
        (401, True, False),
        (404, True, False),
        (410, True, False),
        (429, False, True),
        (500, False, True),
        (503, False, True),
        (0, False, True),
        (999, False, True),
        (100, False, True),
    ],
)
def test_status_determines_the_rules(status: int, allows: bool, unreachable: bool) -> None:
    rules = robots_from_response(b"User-agent: *\nDisallow: /", status, "Lycosa")
    assert rules.unreachable is unreachable
    assert rules.allowed(HOST + "/a") is allows
    assert rules.allowed(HOST + "/a?/robots.txt") is allows
    assert rules.allowed(HOST + "/robots.txt")


def test_huge_file_is_parsed_in_bounded_time() -> None:
    body = b"User-agent: *\n" + b"Disallow: /*a*b*c$\n" * (2 * RULES_MAX)
    started = time.process_time()
    robots = Robots.parse(body)
    assert robots.allowed(HOST + "/" + "ab" * 4000)
    assert not robots.allowed(HOST + "/" + "ab" * 4000 + "c")
    assert time.process_time() - started < 5.0


@given(st.binary() | st.binary().map(b"User-agent: *\nDisallow: /".__add__), st.text())
def test_random_bytes_never_raise(body: bytes, user_agent: str) -> None:
    robots = Robots.parse(body, user_agent)
    assert isinstance(robots.allowed(HOST + "/a?b"), bool)
    assert 0.0 <= robots.crawl_delay_s <= CRAWL_DELAY_MAX


def test_longest_match_agrees_with_a_simple_implementation() -> None:
    """Random rules without escapes, compared with RFC 9309 §2.2.2 implemented literally."""
    seed = 9309
    rng = random.Random(seed)
    for _ in range(3000):
        rules = [
            (
                rng.choice(["Allow", "Disallow"]),
                "/" + "".join(rng.choices("ab/*", k=rng.randint(0, 5))) + rng.choice(["", "", "$"]),
            )
            for _ in range(rng.randint(1, 5))
        ]
        path = "/" + "".join(rng.choices("ab/", k=rng.randint(0, 6)))
        text = "User-agent: *\n" + "\n".join(f"{field}: {value}" for field, value in rules)
        assert allowed(text, path) is _by_the_rfc(rules, path), f"seed {seed}: {rules} {path}"


def _by_the_rfc(rules: list[tuple[str, str]], path: str) -> bool:
    matching = [(len(value), field == "Allow") for field, value in rules if _matches(value, path)]
    return max(matching)[1] if matching else True


def _matches(pattern: str, path: str) -> bool:
    if pattern == "$":
        return path == ""
    if pattern == "":
        return True
    if pattern[0] == "*":
        return any(_matches(pattern[1:], path[start:]) for start in range(len(path) + 1))
    return path[:1] == pattern[0] and _matches(pattern[1:], path[1:])
