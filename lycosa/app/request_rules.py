"""The fingerprint rules, segment naming and scope of a crawl, from its settings or its stored description."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from xxhash import xxh3_64_intdigest

from lycosa.app.imports import import_function, spider_function, takes
from lycosa.config import Settings
from lycosa.core.errors import BadSetting
from lycosa.core.url import fingerprint
from lycosa.crawl.spiders.spider import Spider
from lycosa.frontier.core.keys import Fingerprint, FingerprintRules, is_function, parse_rules, split_rules
from lycosa.frontier.core.scope import Scope
from lycosa.frontier.core.segments import SegmentNaming, by_period, parse_segments

KEY_ARGUMENTS, SEGMENT_ARGUMENTS, PERIOD_ARGUMENTS = "method, url, body", "request, now", "request"
OWN_KEY, OWN_SEGMENT = ".key_resolver", ".segment_resolver"
"""Suffixes of the names of rules that only the spider's own code can apply."""


def fingerprint_rules_of(settings: Settings, spider: Spider) -> FingerprintRules:
    """Return the fingerprint rules of the setting, with the spider's `key_resolver` if the setting names no function.

    The setting `none` means no rules and no resolver.
    Raises `BadSetting`, or `UsageError` if the `key_resolver` does not take KEY_ARGUMENTS.
    """
    words = split_rules(settings.fingerprint_rules)
    if words == ["none"]:
        return FingerprintRules()
    own = None if any(map(is_function, words)) else spider_function(spider, "key_resolver", KEY_ARGUMENTS)
    return parse_rules(words, own, spider.name + OWN_KEY) if own else _parse_words(words)


def stored_fingerprint(key: Sequence[str]) -> Fingerprint:
    """Return the fingerprint function of stored rules. Raises `BadSetting` if only the spider's code can apply them."""
    if key and key[-1].endswith(OWN_KEY):
        raise BadSetting(f"{key[-1]} computes the fingerprints of this crawl: only a run of its spider can call it")
    return _parse_words(key).fingerprint if key else fingerprint


def spider_fingerprint(common: Fingerprint, spider: str) -> Fingerprint:
    """Return the fingerprint function of one of several spiders, so that each of them can fetch the same URL."""
    return partial(_salted, common, spider_salt(spider))


def spider_salt(spider: str) -> int:
    """Return the value that is XORed into a spider's fingerprints."""
    return xxh3_64_intdigest(spider.encode())


def _salted(common: Fingerprint, salt: int, method: str, url: str, body: bytes) -> int:
    return common(method, url, body) ^ salt


def _parse_words(words: Sequence[str]) -> FingerprintRules:
    functions = [word for word in words if is_function(word)]
    if len(functions) > 1:
        raise BadSetting(f"fingerprint_rules: {' and '.join(functions)}: only one function is allowed")
    shipped = [word for word in words if not is_function(word)]
    if not functions:
        return parse_rules(shipped)
    return parse_rules(shipped, import_function("fingerprint_rules", functions[0], KEY_ARGUMENTS), functions[0])


def segment_naming_of(settings: Settings, spider: Spider) -> SegmentNaming:
    """Return how segments are named: by the setting, else by the spider's `segment_resolver`.

    A resolver that takes `now` returns the segment of the run. Any other resolver returns the period of each request
    (such as `3d`): the run has one segment for each period. Raises `BadSetting`, or `UsageError` if the
    `segment_resolver` takes neither SEGMENT_ARGUMENTS nor PERIOD_ARGUMENTS.
    """
    word = settings.segment
    if ":" in word:
        resolver, name = import_function("segment", word, SEGMENT_ARGUMENTS, PERIOD_ARGUMENTS), word
    else:
        own = None if word else spider_function(spider, "segment_resolver", SEGMENT_ARGUMENTS, PERIOD_ARGUMENTS)
        if own is None:
            return parse_segments(word, spider.name)
        resolver, name = own, spider.name + OWN_SEGMENT
    if takes(resolver, SEGMENT_ARGUMENTS):
        return parse_segments(name, spider.name, resolver)
    return by_period(resolver, name)


class ScopeOptions(Protocol):
    """The maximum depth, and the globs of allowed and denied URLs."""

    @property
    def depth(self) -> int | None: ...

    @property
    def allow(self) -> Sequence[str]: ...

    @property
    def deny(self) -> Sequence[str]: ...


def scope_of(kind: str, seeds: Sequence[str], domains: Sequence[str], options: ScopeOptions) -> Scope:
    """Return the scope of this kind around the seeds.

    With `kind` "", the scope is a spider's allowed domains, or all URLs if it has none.
    """
    exact = not kind
    if not kind:
        kind, seeds = ("domain", domains) if domains else ("any", ())
    return Scope.of(kind, seeds, depth_max=options.depth, allow=options.allow, deny=options.deny, exact=exact)
