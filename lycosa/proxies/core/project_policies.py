"""What a project says of how proxies are used: the table `proxies` of its file, read.

    [proxies.default]                       # for every target
    lease_s = 60

    [proxies.targets."shop.example"]        # for this one, and for names below it
    delay_s = 2.5
    [[proxies.targets."shop.example".rules]]
    blame = "site"
    body = "unusual traffic"

    [proxies.targets."*.example.org"]       # a pattern

Of several tables that mean a target one counts: the one of its very name, else that of the nearest domain above it,
else the first pattern. What it does not say is as in `default`, whose rules come after its own. What a key means:
`TargetPolicy`, `OutcomeRule`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from difflib import get_close_matches
from fnmatch import translate
from typing import Any, NamedTuple

from lycosa.core.errors import BadProxy, BadSetting
from lycosa.core.units import DAY_S
from lycosa.proxies.core.outcomes.outcome import Blame, OutcomeRule, checked_rules
from lycosa.proxies.core.policy import TargetPolicy

TABLE = "proxies"
DEFAULT, TARGETS, RULES = "default", "targets", "rules"

OTHERS = frozenset({"sources", "checks"})
"""Tables beside these two, which others read."""

TABLES_MAX = 10_000
"""Targets with a table of their own."""

KNOWN_MAX = 10_000
"""Targets of which is remembered what holds for them."""

TARGET_MAX = 255
"""Characters of the name of a target: those of a domain (RFC 1035)."""

TEXT_MAX = 1_000
SHOWN_MAX = 60
WILD = frozenset("*?[")


class Range(NamedTuple):
    """Numbers from `low` to `high`; `whole` ones only."""

    low: float
    high: float
    whole: bool = False

    def __str__(self) -> str:
        return f"a {'whole ' if self.whole else ''}number from {self.low:g} to {self.high:,.0f}"


RANGES = {
    "concurrency": Range(0, 10_000, whole=True),
    "delay_s": Range(0, DAY_S),
    "lease_s": Range(0.1, DAY_S),
    "members": Range(1, 100_000, whole=True),
    "cool_s": Range(0.001, 30 * DAY_S),
    "cool_max_s": Range(1, 30 * DAY_S),
    "misses_max": Range(1, 1_000, whole=True),
    "bans_max": Range(0, 1_000, whole=True),
    "sticky_s": Range(0, 30 * DAY_S),
}
SWITCHES = frozenset({"guarded"})
RULE_RANGES = {"shorter": Range(1, 1 << 40, whole=True), "longer": Range(0, 1 << 40, whole=True)}
STATUS = Range(100, 599, whole=True)
TEXTS = frozenset({"reason", "body", "location"})
POLICY_KEYS = [field.name for field in fields(TargetPolicy)]
RULE_KEYS = ["blame", "reason", "statuses", "body", "location", "shorter", "longer"]


class TargetSettings(NamedTuple):
    """What holds for a target."""

    policy: TargetPolicy
    rules: tuple[OutcomeRule, ...] = ()


class Policies:
    """See the module. Make it with `policies_from`; without a table all is as it is by itself."""

    def __init__(
        self, default: TargetSettings | None = None, named: Mapping[str, TargetSettings] | None = None
    ) -> None:
        self._default = default or TargetSettings(TargetPolicy())
        self._named = {name: entry for name, entry in (named or {}).items() if not WILD & set(name)}
        patterns = ((name, entry) for name, entry in (named or {}).items() if name not in self._named)
        self._patterns = [(re.compile(translate(name)), entry) for name, entry in patterns]
        self._known: dict[str, TargetSettings] = {}

    def policy_of(self, target: str) -> TargetPolicy:
        """Return how the proxies of a target are used."""
        return self._of(target).policy

    def rules_of(self, target: str) -> tuple[OutcomeRule, ...]:
        """Return what answers of a target mean: its own rules, then those for all."""
        return self._of(target).rules

    def _of(self, target: str) -> TargetSettings:
        found = self._known.get(target)
        if found is None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            found = self._known[target] = self._found(target.lower())
        return found

    def _found(self, target: str) -> TargetSettings:
        for name in _upwards(target):
            if name in self._named:
                return self._named[name]
        return next((entry for pattern, entry in self._patterns if pattern.match(target)), self._default)


def policies_from(table: Mapping[str, Any]) -> Policies:
    """Read the table `proxies`. Raises `BadSetting`: which key is wrong, and what is right."""
    _refuse_unknown(table, (DEFAULT, TARGETS, *sorted(OTHERS)), TABLE)
    default = _entry(
        _table(table.get(DEFAULT, {}), f"{TABLE}.{DEFAULT}"), f"{TABLE}.{DEFAULT}", TargetSettings(TargetPolicy())
    )
    targets = _table(table.get(TARGETS, {}), f"{TABLE}.{TARGETS}")
    if len(targets) > TABLES_MAX:
        raise BadSetting(f"{TABLE}.{TARGETS}: {len(targets):,} tables, at most {TABLES_MAX:,}: patterns mean several")
    named: dict[str, TargetSettings] = {}
    for name, value in targets.items():
        path = f"{TABLE}.{TARGETS}.{_quoted(name)}"
        if not 0 < len(name) <= TARGET_MAX or "://" in name:
            raise BadSetting(f'{path}: no target: write a domain, "shop.example", or a pattern, "*.example"')
        if name.lower() in named:
            raise BadSetting(f"{path}: there is this target already, in other letters")
        named[name.lower()] = _entry(_table(value, path), path, default)
    return Policies(default, named)


def _entry(table: Mapping[str, Any], path: str, base: TargetSettings) -> TargetSettings:
    """Return what a table says, on top of another one."""
    _refuse_unknown(table, (*POLICY_KEYS, RULES), path)
    values = {name: _value(name, value, f"{path}.{name}") for name, value in table.items() if name != RULES}
    policy = TargetPolicy(**{**asdict(base.policy), **values})
    if policy.cool_s > policy.cool_max_s:
        what = f"cool_s ({policy.cool_s:g}) is more than cool_max_s ({policy.cool_max_s:g})"
        raise BadSetting(f"{path}: {what}: write cool_max_s, too")
    return TargetSettings(policy, _rules(table.get(RULES, []), f"{path}.{RULES}", base.rules))


def _rules(told: object, path: str, more: Sequence[OutcomeRule]) -> tuple[OutcomeRule, ...]:
    if not isinstance(told, list):
        raise BadSetting(f"{path}: {_shown(told)} is no list of rules: write [[{path}]]")
    rules = [_rule(each, f"{path}[{number}]") for number, each in enumerate(told, 1)]
    try:
        return checked_rules([*rules, *more])
    except BadProxy as wrong:
        raise BadSetting(f"{path}: {wrong}") from None


def _rule(told: object, path: str) -> OutcomeRule:
    table = _table(told, path)
    _refuse_unknown(table, RULE_KEYS, path)
    blames = [each.value for each in Blame]
    blame = table.get("blame")
    if blame not in blames:
        wrong = f"{_shown(blame)} is nobody" if "blame" in table else "it is missing"
        raise BadSetting(f"{path}.blame: {wrong}: write one of {', '.join(blames)}")
    values = {name: _value(name, value, f"{path}.{name}") for name, value in table.items() if name != "blame"}
    rule = OutcomeRule(Blame(blame), **values)
    _refuse_no_pattern(rule, path)
    try:
        checked_rules([rule])
    except BadProxy as wrong:
        raise BadSetting(f"{path}: {wrong}") from None
    return rule


def _refuse_no_pattern(rule: OutcomeRule, path: str) -> None:
    """Raise `BadSetting` for a pattern that is none in the bytes of a body, where it is looked for."""
    try:
        re.compile(rule.body.encode())
    except re.error as wrong:
        raise BadSetting(f"{path}.body: {_shown(rule.body)} is not a pattern: {wrong}") from None


def _value(name: str, value: object, path: str) -> Any:
    if name == "statuses":
        several = value if isinstance(value, list) else [value]
        return frozenset(int(_number(STATUS, each, path)) for each in several)
    if name in TEXTS:
        if isinstance(value, str) and 0 < len(value) <= TEXT_MAX:
            return value
        raise BadSetting(f"{path}: {_shown(value)} is not a text of 1 to {TEXT_MAX:,} characters")
    if name in SWITCHES:
        if isinstance(value, bool):
            return value
        raise BadSetting(f"{path}: {_shown(value)} is not true or false")
    allowed = RANGES.get(name) or RULE_RANGES[name]
    return _number(allowed, value, path)


def _number(allowed: Range, value: object, path: str) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and allowed.low <= value <= allowed.high and (not allowed.whole or isinstance(value, int)):  # type: ignore[operator]
        return value if allowed.whole else float(value)  # type: ignore[arg-type,return-value]
    raise BadSetting(f"{path}: {_shown(value)} is not {allowed}")


def _table(value: object, path: str) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    raise BadSetting(f"{path}: {_shown(value)} is no table: write [{path}]")


def _refuse_unknown(table: Mapping[str, Any], names: Collection[str], path: str) -> None:
    """Raise `BadSetting` for a key that is not known, with the one that may be meant, or with all."""
    for key in table:
        if key not in names:
            near = get_close_matches(str(key), names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"write {', '.join(names)}"
            raise BadSetting(f"{path}: there is no {_shown(key)}: {hint}")


def _upwards(target: str) -> Iterator[str]:
    """Yield a target, without its port if it has one, then the domains above it, the nearest first."""
    yield target
    host = re.sub(r":\d+$", "", target)
    while host:
        yield host
        host = host.partition(".")[2]


def _quoted(name: str) -> str:
    return f'"{name[:SHOWN_MAX]}"'


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"
