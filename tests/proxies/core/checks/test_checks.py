"""What a check asks of a proxy, and what its findings mean for a pool (P6)."""

from __future__ import annotations

import tomllib

import pytest

from lycosa.core.errors import BadProxy, BadSetting
from lycosa.proxies.core.checks.anonymity import Anonymity
from lycosa.proxies.core.checks.checks import Checks, Finding, Site, checks_from
from lycosa.proxies.core.checks.judging import JudgeAddress
from lycosa.proxies.core.outcomes.outcome import Blame
from lycosa.proxies.core.proxy import parse_proxy

PROXY = parse_proxy("1.2.3.4:80")
KEY = "k" * 32


def read(text: str) -> Checks:
    return checks_from(tomllib.loads(text))


def test_checks_as_toml_says_them() -> None:
    found = read(f"""
judges = ["judge://{KEY}@203.0.113.1:8300/"]
every = "5m"
timeout = 3.5
concurrency = 10
anonymity = "anonymous"
own_addresses = ["2001:DB8::1"]
may_alter = ["page"]
other_kinds = true
[[sites]]
target = "shop.example"
url = "https://www.shop.example/"
statuses = [200, 304]
contains = "add to basket"
lacks = ["are you a robot", "blocked"]
""")
    site = Site("shop.example", "https://www.shop.example/", frozenset({200, 304}), ("add to basket",),
                ("are you a robot", "blocked"))  # fmt: skip
    assert found == Checks(
        (JudgeAddress("203.0.113.1", 8300, KEY),), 300.0, 3.5, 10, Anonymity.ANONYMOUS, ("2001:db8::1",),
        frozenset({"page"}), True, (site,),
    )  # fmt: skip
    assert read("") == Checks()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("judge = 'x'", "unknown key 'judge': write one of judges"),
        ("timeout = 0", "timeout: write seconds"),
        ("concurrency = 2000", "concurrency: write a whole number, 1 to 1,000"),
        ("concurrency = 2.5", "concurrency: write a whole number"),
        ("anonymity = 'high'", "'high' is none of transparent, anonymous, elite"),
        ("own_addresses = ['home']", "own_addresses: write IP addresses"),
        ("other_kinds = 1", "other_kinds: write true or false"),
        ("[[sites]]\nurl = 'http://a.example/'", "target: is missing"),
        ("[[sites]]\ntarget = 'a'\nurl = 'a.example'", "url: is not a URL"),
        ("[[sites]]\ntarget = 'a'\nurl = 'http://a.example/'\nstatuses = ['ok']", "statuses: write statuses"),
        ("[[sites]]\ntarget = 'a'\nurl = 'http://a.example/'\nhas = 'x'", "unknown key 'has'"),
        ("[[sites]]\ntarget = 'a'\nurl = 'http://a.example/'\n" * 2, "two for the target 'a'"),
    ],
)
def test_wrong_checks_are_one_line_that_says_where_and_what(text: str, says: str) -> None:
    with pytest.raises(BadSetting) as told:
        read(text)
    assert says in str(told.value)
    assert str(told.value).startswith("proxies.checks")


def test_what_is_no_judge_is_told() -> None:
    with pytest.raises(BadProxy, match="write judge://"):
        read("judges = ['http://judge.example/']")


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (200, b"<p>add to basket", ""),
        (503, b"add to basket", "answered 503"),
        (200, b"welcome", "page without what must be in it"),
        (200, "add to basket; prüfe Roboter".encode(), "page with what must not be in it"),
    ],
)
def test_a_page_of_a_site(status: int, body: bytes, problem: str) -> None:
    site = Site("a", "http://a.example/", contains=("add to basket",), lacks=("prüfe",))
    assert site.problem(status, body) == problem


def works(**more: object) -> Finding:
    return Finding(PROXY, ("http",), 0.2, Anonymity.ANONYMOUS, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("finding", "checks", "blame", "reason"),
    [
        (works(), Checks(), Blame.NONE, ""),
        (Finding(PROXY, problem="connection refused"), Checks(), Blame.PROXY, "connection refused"),
        (works(changes=("page",)), Checks(), Blame.UNFIT, "not fit: alters the page"),
        (works(changes=("page",)), Checks(may_alter=frozenset({"page"})), Blame.NONE, ""),
        (works(changes=("certificate",)), Checks(may_alter=frozenset({"page"})), Blame.UNFIT,
         "not fit: alters the certificate"),
        (works(changes=("answer adds set-cookie",)), Checks(), Blame.NONE, ""),
        (works(), Checks(least=Anonymity.ELITE), Blame.UNFIT, "not fit: anonymous"),
        (works(), Checks(least=Anonymity.ANONYMOUS), Blame.NONE, ""),
        (works(sites={"a": "answered 403"}), Checks(), Blame.NONE, ""),
        (Finding(PROXY, changes=("certificate",), problem="x"), Checks(), Blame.UNFIT,
         "not fit: alters the certificate"),
    ],
)  # fmt: skip
def test_what_a_finding_means(finding: Finding, checks: Checks, blame: Blame, reason: str) -> None:
    outcome = finding.outcome(checks)
    assert (outcome.blame, outcome.reason) == (blame, reason)
    assert outcome.latency_s == (0.2 if finding.alive else None)
