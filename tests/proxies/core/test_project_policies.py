"""Policies and rules of targets in a project's file: which table counts for a target, and the errors."""

from __future__ import annotations

import re
import tomllib
from dataclasses import asdict, fields

import pytest

from lycosa.core.errors import BadSetting
from lycosa.proxies.core.outcomes.outcome import Blame, OutcomeRule
from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.project_policies import (
    CACHE_MAX,
    Policies,
    ProxiesTable,
    TargetTable,
    policies_from,
)
from tests.conftest import ROOT

BLAMES = ", ".join(Blame)
TABLES = ", ".join(ProxiesTable.__struct_fields__)

COMPLETE = """
[default]
lease_s = 30
[[default.rules]]
blame = "site"
statuses = 418

[targets."shop.example"]
concurrency = 2
delay_s = 2.5
guarded = false
[[targets."shop.example".rules]]
blame = "nobody"
statuses = [403, 410]
body = "(?i)no such (thing|page)"
[[targets."shop.example".rules]]
blame = "proxy"
reason = "altered"
location = "^http://portal\\\\."
longer = 0
shorter = 1000

[targets."*.shop?.example"]
members = 5
[targets."api.shop.example"]
members = 7
[targets."Big.Example"]
max_bans = 3
"""


def read(text: str) -> Policies:
    return policies_from(tomllib.loads(text))


def test_without_tables_targets_have_the_default_policy() -> None:
    for policies in (Policies(), policies_from({}), policies_from({"sources": [{"anything": 1}]})):
        assert policies.policy_of("shop.example") == TargetPolicy()
        assert policies.rules_of("shop.example") == ()


@pytest.mark.parametrize(
    ("target", "members", "concurrency"),
    [
        ("shop.example", 200, 2),
        ("SHOP.example", 200, 2),
        ("shop.example:8080", 200, 2),
        ("www.de.shop.example", 200, 2),
        ("api.shop.example", 7, 1),
        ("v1.api.shop.example:443", 7, 1),
        ("a.shop2.example", 5, 1),
        ("a.b.shop2.example", 5, 1),
        ("shop2.example", 200, 1),
        ("workshop.example", 200, 1),
        ("example", 200, 1),
    ],
)
def test_the_most_specific_table_applies(target: str, members: int, concurrency: int) -> None:
    policy = read(COMPLETE).policy_of(target)
    assert (policy.members, policy.concurrency, policy.lease_s) == (members, concurrency, 30.0)


def test_a_target_has_its_own_policy_and_its_own_rules_before_the_default_rules() -> None:
    policies = read(COMPLETE)
    for target in ("shop.example", "www.shop.example"):
        assert policies.policy_of(target) == TargetPolicy(concurrency=2, delay_s=2.5, lease_s=30.0, guarded=False)
    default_rule = OutcomeRule(Blame.SITE, statuses=frozenset({418}))
    assert policies.rules_of("other.example") == (default_rule,)
    assert policies.rules_of("big.example") == (default_rule,)
    assert policies.policy_of("www.big.example").max_bans == 3
    assert policies.rules_of("shop.example") == (
        OutcomeRule(Blame.NOBODY, statuses=frozenset({403, 410}), body="(?i)no such (thing|page)"),
        OutcomeRule(Blame.PROXY, "altered", location=r"^http://portal\.", longer=0, shorter=1000),
        default_rule,
    )


def test_every_field_of_a_policy_can_be_set() -> None:
    policy_fields = {field.name for field in fields(TargetPolicy)}
    assert set(TargetTable.__struct_fields__) == {*policy_fields, "rules"}


def test_the_cache_of_targets_is_limited() -> None:
    policies = read(COMPLETE)
    for number in range(CACHE_MAX + 10):
        policies.policy_of(f"{number}.example")
    assert len(policies._cache) <= CACHE_MAX
    assert policies.policy_of("shop.example").concurrency == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("defaults.lease_s = 1", "proxies: there is no 'defaults': did you mean default?"),
        ("colour = 1", f"proxies: there is no 'colour': write {TABLES}"),
        ("default.lease = 1", "proxies.default: there is no 'lease': did you mean lease_s?"),
        ("default = 1", "proxies.default: 1 is not a table: write [proxies.default]"),
        ("targets = []", 'proxies.targets: [] is not a table: write { name = "value" }'),
        (
            'targets."a.example" = 3',
            'proxies.targets."a.example": 3 is not a table: write [proxies.targets."a.example"]',
        ),
        (
            'targets."http://a.example/".members = 1',
            (
                'proxies.targets."http://a.example/": not a target: '
                'write a domain, "shop.example", or a pattern, "*.example"'
            ),
        ),
        (
            'targets."a.example".members = 1\ntargets."A.example".members = 2',
            'proxies.targets."A.example": another table is for the same target (upper and lower case are equal)',
        ),
        (
            'targets."a.example".delay_s = "2s"',
            "proxies.targets.\"a.example\".delay_s: '2s' is not a number from 0 to 86,400",
        ),
        ("default.delay_s = nan", "proxies.default.delay_s: nan is not a number from 0 to 86,400"),
        ("default.delay_s = inf", "proxies.default.delay_s: inf is not a number from 0 to 86,400"),
        ("default.members = 2.0", "proxies.default.members: 2.0 is not a whole number from 1 to 100,000"),
        ("default.members = true", "proxies.default.members: True is not a whole number from 1 to 100,000"),
        ("default.members = 0", "proxies.default.members: 0 is not a whole number from 1 to 100,000"),
        ("default.guarded = 1", "proxies.default.guarded: 1 is not true or false"),
        (
            "default.cool_s = 7200",
            "proxies.default: cool_s (7200) is more than max_cool_s (3600): set max_cool_s too",
        ),
        ("default.rules = 1", "proxies.default.rules: 1 is not a list of tables: write [[proxies.default.rules]]"),
        ("default.rules = [1]", "proxies.default.rules[1]: 1 is not a table: write [proxies.default.rules[1]]"),
        (
            "default.rules = [{statuses = 403}]",
            f"proxies.default.rules[1].blame: it is missing: write one of {BLAMES}",
        ),
        (
            'default.rules = [{blame = "site", body = "x"}, {blame = "me"}]',
            f"proxies.default.rules[2].blame: 'me' is not one of {BLAMES}",
        ),
        (
            'default.rules = [{blame = "site", status = 403}]',
            "proxies.default.rules[1]: there is no 'status': did you mean statuses?",
        ),
        (
            'default.rules = [{blame = "site", statuses = [99]}]',
            "proxies.default.rules[1].statuses[1]: 99 is not a whole number from 100 to 599",
        ),
        (
            'default.rules = [{blame = "site", body = "*"}]',
            "proxies.default.rules: rule 1: body is not a valid pattern: nothing to repeat at position 0",
        ),
        (
            'default.rules = [{blame = "site", location = "["}]',
            "proxies.default.rules: rule 1: location is not a valid pattern: unterminated character set at position 0",
        ),
        (
            'default.rules = [{blame = "site", reason = "x"}]',
            "proxies.default.rules: rule 1 (x) has no condition: write statuses, body, location, …",
        ),
        (
            'default.rules = [{blame = "site", body = ""}]',
            "proxies.default.rules[1].body: '' is not a text of 1 to 1,000 characters",
        ),
    ],
)
def test_errors_name_the_key_the_problem_and_the_remedy(text: str, message: str) -> None:
    with pytest.raises(BadSetting) as caught:
        read(text)
    assert str(caught.value) == message


def test_the_number_of_rules_of_a_target_is_limited() -> None:
    rules = [{"blame": "site", "statuses": 403}] * 60
    with pytest.raises(BadSetting, match=r'^proxies\.targets\."a\.example"\.rules: 120 rules .* at most 100$'):
        policies_from({"default": {"rules": rules}, "targets": {"a.example": {"rules": rules}}})


def as_documented(value: object) -> str:
    """Return a value as the documentation writes it."""
    return str(value).lower() if isinstance(value, bool) else f"{value:g}"


def test_the_documentation_has_every_key_with_its_default_and_valid_examples() -> None:
    page = (ROOT / "docs" / "proxies.md").read_text(encoding="utf-8")
    table = page.split("| key | default | |", 1)[1].split("\n\n", 1)[0]
    documented: dict[str, str] = {}
    for names, values in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| ([^|]+) \|", table, re.MULTILINE):
        documented.update(zip(re.findall(r"\w+", names), values.split(", "), strict=True))
    assert documented == {name: as_documented(value) for name, value in asdict(TargetPolicy()).items()}
    for example in re.findall(r"```toml\n(.*?)```", page, re.DOTALL):
        policies = policies_from(tomllib.loads(example)["proxies"])
        assert policies.policy_of("www.shop.example") != TargetPolicy() or policies.rules_of("www.shop.example")
