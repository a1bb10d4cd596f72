"""Fingerprint rules, segment naming and scope of a crawl.

They come from the settings of a run, or from the description of a stored state.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from xxhash import xxh3_64_intdigest

from lycosa.app.imports import import_function, spider_function
from lycosa.config import Settings
from lycosa.core.errors import BadSetting
from lycosa.core.url import fingerprint
from lycosa.crawl.spiders.spider import Spider
from lycosa.frontier.core.keys import Fingerprint, FingerprintRules, is_function, parse_rules, split_rules
from lycosa.frontier.core.scope import Scope
from lycosa.frontier.core.segments import SegmentNaming, parse_segments

KEY_ARGUMENTS, SEGMENT_ARGUMENTS = "method, url, body", "request, now"
OWN_KEY, OWN_SEGMENT = ".key_resolver", ".segment_resolver"


def fingerprint_rules_of(settings: Settings, spider: Spider) -> FingerprintRules:
    """Return what identifies requests: what the setting says; without a function there, the spider's has the last word.

    Raises `BadSetting`, or `UsageError` for a spider's `key_resolver` that cannot be one.
    """
    asked = split_rules(settings.fingerprint_rules)
    if asked == ["none"]:
        return FingerprintRules()
    own = None if any(map(is_function, asked)) else spider_function(spider, "key_resolver", KEY_ARGUMENTS)
    return parse_rules(asked, own, spider.name + OWN_KEY) if own else _keys(asked)


def stored_fingerprint(key: Sequence[str]) -> Fingerprint:
    """Return what identifies requests in a state that describes it so. Raises `BadSetting` when only its spider can."""
    if key and key[-1].endswith(OWN_KEY):
        raise BadSetting(f"{key[-1]} identifies the requests of this crawl: only a run of its spider can say how")
    return _keys(key).fingerprint if key else fingerprint


def spider_fingerprint(named: Fingerprint, spider: str) -> Fingerprint:
    """Return what identifies the requests of one spider among several: each fetches a URL for itself."""
    return partial(_salted, named, spider_salt(spider))


def spider_salt(spider: str) -> int:
    """Return what sets the fingerprints of a spider among several apart from those of the others."""
    return xxh3_64_intdigest(spider.encode())


def _salted(named: Fingerprint, salt: int, method: str, url: str, body: bytes) -> int:
    return named(method, url, body) ^ salt


def _keys(asked: Sequence[str]) -> FingerprintRules:
    functions = [word for word in asked if is_function(word)]
    if len(functions) > 1:
        raise BadSetting(f"fingerprint_rules: {' and '.join(functions)}: there can be one function")
    shipped = [word for word in asked if not is_function(word)]
    if not functions:
        return parse_rules(shipped)
    return parse_rules(shipped, import_function("fingerprint_rules", functions[0], KEY_ARGUMENTS), functions[0])


def segment_naming_of(settings: Settings, spider: Spider) -> SegmentNaming:
    """Return how the segments are named: as the setting says; without one, by the spider's `segment_resolver`, if any.

    Raises `BadSetting`, or `UsageError` for a spider's resolver that cannot be one.
    """
    word = settings.segment
    if ":" in word:
        return parse_segments(word, spider.name, import_function("segment", word, SEGMENT_ARGUMENTS))
    own = None if word else spider_function(spider, "segment_resolver", SEGMENT_ARGUMENTS)
    return parse_segments(spider.name + OWN_SEGMENT, spider.name, own) if own else parse_segments(word, spider.name)


class Bounds(Protocol):
    """What of the settings, or of the description of a state, bounds a crawl."""

    @property
    def depth(self) -> int | None:
        """Most links away from a start URL."""
        ...

    @property
    def allow(self) -> Sequence[str]:
        """Globs."""
        ...

    @property
    def deny(self) -> Sequence[str]:
        """Globs."""
        ...


def scope_of(kind: str, seeds: Sequence[str], domains: Sequence[str], bounds: Bounds) -> Scope:
    """Return the scope of a crawl around its seeds, or of a spider (`kind` "") around its allowed domains."""
    exact = not kind
    if not kind:
        kind, seeds = ("domain", domains) if domains else ("any", ())
    return Scope.of(kind, seeds, depth_max=bounds.depth, allow=bounds.allow, deny=bounds.deny, exact=exact)
