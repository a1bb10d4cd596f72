"""The table `proxies` of the project file: how the proxies of each target are used.

    [proxies.default]                       # for every target
    lease_s = 60

    [proxies.targets."shop.example"]        # for this target and its subdomains
    delay_s = 2.5

    [[proxies.targets."shop.example".rules]]
    blame = "site"
    body = "unusual traffic"

    [proxies.targets."*.example.org"]       # a pattern

One table applies to a target: the table with its name, else the table of its nearest parent domain, else the first
pattern that matches. `default` supplies the keys that this table lacks; the rules of `default` are tried after the
table's own. The keys are the fields of `TargetPolicy` and `OutcomeRule`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from fnmatch import translate
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType

from lycosa.core.errors import BadProxy, BadSetting
from lycosa.core.units import DAY_S
from lycosa.proxies.core.outcomes.outcome import OutcomeRule, checked_rules
from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.tables import read_table

TABLE = "proxies"
TARGETS_MAX = 10_000

CACHE_MAX = 10_000

TARGET_MAX = 255
"""In characters: the limit for a domain (RFC 1035)."""

SHOWN_MAX = 60
WILDCARDS = frozenset("*?[")


class TargetTable(msgspec.Struct):
    """The table of a target: fields of `TargetPolicy`, and rules."""

    concurrency: Annotated[int, Meta(ge=0, le=10_000)] | UnsetType = UNSET
    delay_s: Annotated[float, Meta(ge=0, le=DAY_S)] | UnsetType = UNSET
    lease_s: Annotated[float, Meta(ge=0.1, le=DAY_S)] | UnsetType = UNSET
    members: Annotated[int, Meta(ge=1, le=100_000)] | UnsetType = UNSET
    cool_s: Annotated[float, Meta(ge=0.001, le=30 * DAY_S)] | UnsetType = UNSET
    max_cool_s: Annotated[float, Meta(ge=1, le=30 * DAY_S)] | UnsetType = UNSET
    max_misses: Annotated[int, Meta(ge=1, le=1_000)] | UnsetType = UNSET
    max_bans: Annotated[int, Meta(ge=0, le=1_000)] | UnsetType = UNSET
    sticky_s: Annotated[float, Meta(ge=0, le=30 * DAY_S)] | UnsetType = UNSET
    guarded: bool | UnsetType = UNSET
    rules: list[OutcomeRule] = []


class ProxiesTable(msgspec.Struct):
    """The table `proxies`. Targets are read one by one, so that an error can name its target."""

    default: TargetTable = msgspec.field(default_factory=TargetTable)
    targets: Annotated[dict[str, Any], Meta(max_length=TARGETS_MAX)] = {}
    checks: Any = None
    sources: Any = None


class TargetSettings(NamedTuple):
    """The policy of a target, and its rules."""

    policy: TargetPolicy
    rules: tuple[OutcomeRule, ...] = ()


class Policies:
    """The settings of all targets. A target without a table has the default policy."""

    def __init__(
        self, default: TargetSettings | None = None, named: Mapping[str, TargetSettings] | None = None
    ) -> None:
        self._default = default or TargetSettings(TargetPolicy())
        self._named = {name: each for name, each in (named or {}).items() if not WILDCARDS & set(name)}
        patterns = ((name, each) for name, each in (named or {}).items() if name not in self._named)
        self._patterns = [(re.compile(translate(name)), each) for name, each in patterns]
        self._cache: dict[str, TargetSettings] = {}

    def policy_of(self, target: str) -> TargetPolicy:
        return self._of(target).policy

    def rules_of(self, target: str) -> tuple[OutcomeRule, ...]:
        """Return the rules of a target, then the rules for all targets."""
        return self._of(target).rules

    def _of(self, target: str) -> TargetSettings:
        found = self._cache.get(target)
        if found is None:
            if len(self._cache) >= CACHE_MAX:
                self._cache.clear()
            found = self._cache[target] = self._find(target.lower())
        return found

    def _find(self, target: str) -> TargetSettings:
        for name in _upwards(target):
            if name in self._named:
                return self._named[name]
        return next((each for pattern, each in self._patterns if pattern.match(target)), self._default)


def policies_from(values: Mapping[str, Any]) -> Policies:
    """Read the table `proxies`. Raises `BadSetting`."""
    table = read_table(values, ProxiesTable, TABLE)
    default = _settings(table.default, f"{TABLE}.default", TargetSettings(TargetPolicy()))
    named: dict[str, TargetSettings] = {}
    for name, value in table.targets.items():
        place = f'{TABLE}.targets."{name[:SHOWN_MAX]}"'
        if not 0 < len(name) <= TARGET_MAX or "://" in name:
            raise BadSetting(f'{place}: not a target: write a domain, "shop.example", or a pattern, "*.example"')
        if name.lower() in named:
            raise BadSetting(f"{place}: another table is for the same target (upper and lower case are equal)")
        named[name.lower()] = _settings(read_table(value, TargetTable, place), place, default)
    return Policies(default, named)


def _settings(table: TargetTable, place: str, base: TargetSettings) -> TargetSettings:
    """Return the settings of a table; `base` supplies what the table lacks."""
    values = {name: value for name in asdict(base.policy) if (value := getattr(table, name)) is not UNSET}
    policy = replace(base.policy, **values)
    if policy.cool_s > policy.max_cool_s:
        wrong = f"cool_s ({policy.cool_s:g}) is more than max_cool_s ({policy.max_cool_s:g})"
        raise BadSetting(f"{place}: {wrong}: set max_cool_s too")
    try:
        return TargetSettings(policy, checked_rules([*table.rules, *base.rules]))
    except BadProxy as error:
        raise BadSetting(f"{place}.rules: {error}") from None


def _upwards(target: str) -> Iterator[str]:
    """Yield a target, the target without its port, then its parent domains, nearest first."""
    yield target
    host = re.sub(r":\d+$", "", target)
    while host:
        yield host
        host = host.partition(".")[2]
