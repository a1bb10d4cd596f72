"""The settings of checks, and the outcomes of their findings."""

from __future__ import annotations

import tomllib

import pytest

from lycosa.core.errors import BadSetting
from lycosa.proxies.core.checks.anonymity import Anonymity
from lycosa.proxies.core.checks.checks import Checks, Finding, TargetPage, checks_from
from lycosa.proxies.core.checks.judging import JudgeAddress
from lycosa.proxies.core.outcomes.outcome import Blame
from lycosa.proxies.core.proxy import parse_proxy

PROXY = parse_proxy("1.2.3.4:80")
KEY = "k" * 32


def read(text: str) -> Checks:
    return checks_from(tomllib.loads(text))


def test_settings_of_checks_are_read() -> None:
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
    site = TargetPage("shop.example", "https://www.shop.example/", frozenset({200, 304}), ("add to basket",),
                ("are you a robot", "blocked"))  # fmt: skip
    assert found == Checks(
        (JudgeAddress("203.0.113.1", 8300, KEY),), 300.0, 3.5, 10, Anonymity.ANONYMOUS, ("2001:db8::1",),
        frozenset({"page"}), True, (site,),
    )  # fmt: skip
    assert read("") == Checks()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("judge = 'x'", "there is no 'judge': did you mean judges?"),
        ("timeout = 0", 'timeout: 0 is not a number from 0.1 to 300, or a duration such as "10m"'),
        ("concurrency = 2000", "concurrency: 2000 is not a whole number from 1 to 1,000"),
        ("concurrency = 2.5", "concurrency: 2.5 is not a whole number"),
        ("anonymity = 'high'", "'high' is not one of transparent, anonymous, elite"),
        ("own_addresses = ['home']", "own_addresses: write IP addresses"),
        ("other_kinds = 1", "other_kinds: 1 is not true or false"),
        ("[[sites]]\nurl = 'http://a.example/'", "sites[1].target: it is missing: write a text"),
        ("[[sites]]\ntarget = 'a'\nurl = 'a.example'", "sites[1].url: this is not a URL"),
        (
            "[[sites]]\ntarget = 'a'\nurl = 'http://a.example/'\nstatuses = ['ok']",
            "statuses[1]: 'ok' is not a whole number from 100 to 599",
        ),
        ("[[sites]]\ntarget = 'a'\nurl = 'http://a.example/'\nhas = 'x'", "there is no 'has': write target, url"),
        ("[[sites]]\ntarget = 'a'\nurl = 'http://a.example/'\n" * 2, "two entries for the target 'a'"),
    ],
)
def test_errors_in_checks_are_one_line_with_the_key(text: str, message: str) -> None:
    with pytest.raises(BadSetting) as caught:
        read(text)
    assert message in str(caught.value)
    assert str(caught.value).startswith("proxies.checks")


def test_an_invalid_address_of_a_judge_is_an_error() -> None:
    with pytest.raises(BadSetting, match=r"^proxies\.checks\.judges\[1\]: not the address of a judge: write judge://"):
        read("judges = ['http://judge.example/']")


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (200, b"<p>add to basket", ""),
        (503, b"add to basket", "answered 503"),
        (200, b"welcome", "page lacks a required text"),
        (200, "add to basket; prüfe Roboter".encode(), "page contains a forbidden text"),
    ],
)
def test_the_page_of_a_target_must_have_the_expected_content(status: int, body: bytes, problem: str) -> None:
    site = TargetPage("a", "http://a.example/", contains=("add to basket",), lacks=("prüfe",))
    assert site.problem(status, body) == problem


def working_finding(**more: object) -> Finding:
    return Finding(PROXY, ("http",), 0.2, Anonymity.ANONYMOUS, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("finding", "checks", "blame", "reason"),
    [
        (working_finding(), Checks(), Blame.NONE, ""),
        (Finding(PROXY, problem="connection refused"), Checks(), Blame.PROXY, "connection refused"),
        (working_finding(changes=("page",)), Checks(), Blame.UNFIT, "not fit: alters the page"),
        (working_finding(changes=("page",)), Checks(may_alter=frozenset({"page"})), Blame.NONE, ""),
        (working_finding(changes=("certificate",)), Checks(may_alter=frozenset({"page"})), Blame.UNFIT,
         "not fit: alters the certificate"),
        (working_finding(changes=("answer adds set-cookie",)), Checks(), Blame.NONE, ""),
        (working_finding(), Checks(anonymity=Anonymity.ELITE), Blame.UNFIT, "not fit: anonymous"),
        (working_finding(), Checks(anonymity=Anonymity.ANONYMOUS), Blame.NONE, ""),
        (working_finding(sites={"a": "answered 403"}), Checks(), Blame.NONE, ""),
        (Finding(PROXY, changes=("certificate",), problem="x"), Checks(), Blame.UNFIT,
         "not fit: alters the certificate"),
    ],
)  # fmt: skip
def test_each_finding_has_its_outcome(finding: Finding, checks: Checks, blame: Blame, reason: str) -> None:
    outcome = finding.outcome(checks)
    assert (outcome.blame, outcome.reason) == (blame, reason)
    assert outcome.latency_s == (0.2 if finding.alive else None)
