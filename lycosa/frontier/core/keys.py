"""Identifies requests by a key. The fingerprint of a request is the 64-bit hash of its key.

By default the key is the method, the canonical URL and the body (`core.url.fingerprint`). `FingerprintRules` can leave
out or sort query parameters, and call a user's resolver (docs/keys-and-segments.md). The method always stays in the
key, and the request always goes to its full URL.

A parameter is the text between two `&` (WHATWG). Rules see its decoded name, but the key has it as written: `a%26b=1`
is one parameter, and `%41` differs from `A`. If a rule concerns the query, empty parameters are ignored. A parameter
with a bare `;` is always kept: old servers read it as several. The rules expect
canonical URLs; then only the resolver can raise an error. Without `sort`, the rules take linear time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import translate
from urllib.parse import unquote_plus

from xxhash import xxh3_64_intdigest

from lycosa.core.errors import BadSetting, BadSpider
from lycosa.core.url import fingerprint

KeyResolver = Callable[[str, str, bytes], str | bytes | int]
"""(method in upper case, canonical URL, body) -> the key of the request, without its method.

It must not use time, randomness or counters: the same request has the same key in every run.
"""

Fingerprint = Callable[[str, str, bytes], int]
"""(method, canonical URL, body) -> unsigned 64-bit integer."""

RESOLVED_KEY = 0x4C79_636F_7361_0003
"""Hash seed for the keys that a resolver returns. If it changed, stored states would not recognize their URLs."""

BUILT_IN = ("tracking", "sort", "jsonp", "slash")
WORDS = (*BUILT_IN, "drop:NAME,...", "keep:NAME,...", "module:function")

TRACKING_PREFIXES = ("utm_", "hsa_")
# fmt: off
TRACKING = frozenset({
    "_ga", "_gl", "gclid", "gclsrc", "dclid", "gbraid", "wbraid", "gad_source", "gad_campaignid", "srsltid",  # Google
    "fbclid", "fb_action_ids", "fb_action_types", "fb_ref", "fb_source", "igsh", "igshid",  # Facebook, Instagram
    "msclkid", "li_fat_id", "twclid", "ttclid", "rdt_cid",  # Microsoft, LinkedIn, X, TikTok, Reddit
    "yclid", "ysclid", "ymclid", "_openstat",  # Yandex
    "mc_cid", "mc_eid", "ml_subscriber", "ml_subscriber_hash", "mkt_tok", "_kx", "vero_conv", "vero_id",  # newsletters
    "_bhlid", "bsft_clkid", "bsft_eid", "bsft_mid", "bsft_uid", "oly_anon_id", "oly_enc_id", "ss_email_id",
    "__hsfp", "__hssc", "__hstc", "_hsenc", "_hsmi", "hsctatracking",  # HubSpot
    "s_cid", "s_kwcid", "ef_id", "sfmc_id", "sfmc_activityid",  # Adobe, Salesforce
    "mtm_campaign", "mtm_cid", "mtm_content", "mtm_group", "mtm_keyword", "mtm_medium", "mtm_placement", "mtm_source",
    "pk_campaign", "pk_cid", "pk_content", "pk_keyword", "pk_kwd", "pk_medium", "pk_source", "pk_vid",  # Matomo, Piwik
    "piwik_campaign", "piwik_keyword", "piwik_kwd",
    "itm_campaign", "itm_content", "itm_medium", "itm_source", "itm_term", "xtor", "wt_mc",  # campaigns within a site
    "irclickid", "irgwc", "sscid", "tduid", "wickedid", "rb_clickid", "admitad_uid", "unicorn_click_id",  # affiliates
    "_branch_match_id", "_branch_referrer", "guccounter", "guce_referrer", "guce_referrer_sig",
})
# fmt: on
"""Parameters that tell where a visitor came from, in lower case. Sources: the lists of AdGuard (TrackParamFilter,
general_url) and Brave (query-filter), and the documentation of the services named beside them.

Names that some sites use for content are not listed (ref, source, clickid, cid, s, si, spm, __s). Adding a name changes
the fingerprints of URLs with this parameter: existing crawls fetch them once more.
"""

CALLBACKS = frozenset({"callback", "jsonp", "jsoncallback", "jsonpcallback", "jsonp_callback", "json_callback"})
BUSTERS = frozenset(
    {"_", "_dc", "cachebust", "cachebuster", "cache_buster", "cache-buster", "cb", "nocache", "no_cache", "no-cache"}
    | {"rand", "random", "rnd"}
)
STAMPS = frozenset({"_t", "_ts", "t", "timestamp", "ts"})
_GENERATED = re.compile(
    r"angular\.callbacks\._\w+"
    r"|(?=[\w$.]*\d)(?:__jp|_?json|callback|cb|ext\.data|jquery|ng_json|reqwest|yui|zepto)[\w$.]*"
    r"|(?=(?:[a-z_$.]*\d){5})[a-z_$][\w$.]*",
    re.ASCII | re.IGNORECASE,
)
"""A generated function name: a known prefix with a counter, or any name with at least five digits."""
_NUMBER = re.compile(r"\d{9,20}(?:\.\d{1,20})?|0?\.\d{6,20}", re.ASCII)
"""A Unix time in seconds or finer units, or a random number. Shorter numbers do not match: they may be page numbers."""
_MILLISECONDS = re.compile(r"1\d{12}(?<!000)", re.ASCII)
"""A time from 2001 to 2033 in milliseconds. A number that ends in 000 does not match: links in calendars have whole
seconds."""

_NAMES = re.compile(r"(drop|keep):(.*)", re.DOTALL)
_FUNCTION = re.compile(r"[\w.]+:[\w.]+")

DropRule = Callable[[str, str], bool]
"""(decoded name, decoded value) -> whether a parameter is left out."""


@dataclass(frozen=True, slots=True)
class FingerprintRules:
    """`words` is the setting, sorted, with the name of the resolver last."""

    words: tuple[str, ...] = ()
    drop_rules: tuple[DropRule, ...] = ()
    sort: bool = False
    slash: bool = False
    resolver: KeyResolver | None = None

    def fingerprint(self, method: str, url: str, body: bytes = b"") -> int:
        """Raises `BadSpider` if the resolver fails."""
        reduced = self.reduce(url)
        if self.resolver is None:
            return fingerprint(method, reduced, body)
        verb = method.upper()
        try:
            key = self.resolver(verb, reduced, body)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".split("\n", 1)[0]
            raise BadSpider(f"the key resolver {self.words[-1]} failed for {url}: {reason}") from error
        if isinstance(key, bool) or not isinstance(key, (str, bytes, int)):
            problem = f"the key resolver {self.words[-1]} returned a {type(key).__name__} for {url}"
            raise BadSpider(f"{problem}: return a str, bytes or int")
        return _hash(verb, key)

    def reduce(self, url: str) -> str:
        """The part of a canonical URL that goes into the key."""
        address, mark, query = url.partition("?")
        if self.slash:
            origin = address.index("/", 8) + 1
            address = address[:origin] + address[origin:].rstrip("/")
        if not (mark and (self.drop_rules or self.sort)):
            return address + mark + query
        kept = [each for each in query.split("&") if each and (";" in each or not self._is_dropped(each))]
        if self.sort:
            kept.sort(key=lambda each: (*_decode(each), each))
        return f"{address}?{'&'.join(kept)}" if kept else address

    def _is_dropped(self, parameter: str) -> bool:
        name, value = _decode(parameter)
        return any(rule(name, value) for rule in self.drop_rules)


def split_rules(texts: Iterable[str]) -> list[str]:
    """Split at commas; `drop:` or `keep:` and everything after it are one word."""
    found = []
    for text in texts:
        rest = text
        while rest and not _NAMES.match(rest):
            word, _, rest = rest.partition(",")
            found.append(word.strip())
            rest = rest.strip()
        found += [rest] if rest else []
    return [word for word in found if word]


def is_function(word: str) -> bool:
    """Whether a word names a user's resolver: `module:function`."""
    return _FUNCTION.fullmatch(word) is not None and not _NAMES.match(word)


def parse_rules(words: Sequence[str], resolver: KeyResolver | None = None, name: str = "") -> FingerprintRules:
    """Parse words in any order. Raises `BadSetting`.

    `name` is the resolver's name. The resolver gets URLs reduced by the other rules.
    """
    plain = sorted({word for word in words if not _NAMES.match(word)})
    for word in plain:
        if word not in BUILT_IN:
            raise BadSetting(_unknown(word))
    drop, keep = _names("drop", words), _names("keep", words)
    rules: list[DropRule] = [_is_tracking] if "tracking" in plain else []
    rules += [_is_cache_buster] if "jsonp" in plain else []
    rules += [_has_name(drop)] if drop else []
    if keep:
        is_kept = _has_name(keep)
        rules.append(lambda each, value: not is_kept(each, value))
    described = [*plain, *([f"drop:{','.join(drop)}"] if drop else []), *([f"keep:{','.join(keep)}"] if keep else [])]
    described += [name] if resolver else []
    return FingerprintRules(tuple(described), tuple(rules), "sort" in plain, "slash" in plain, resolver)


def _names(verb: str, words: Sequence[str]) -> list[str]:
    found: set[str] = set()
    for word in words:
        if not word.startswith(f"{verb}:"):
            continue
        names = {each.strip() for each in word[len(verb) + 1 :].split(",")} - {""}
        wrong = next((each for each in names if ":" in each), None)
        if wrong is not None:
            problem = f"{wrong!r} in the rule '{verb}:' is not the name of a parameter"
            raise BadSetting(f"fingerprint_rules: {problem}: write it as a separate rule")
        if not names:
            raise BadSetting(
                f"fingerprint_rules: the rule '{verb}:' names no parameter: write one, as in {verb}:sessionid"
            )
        found |= names
    return sorted(found)


def _has_name(names: Sequence[str]) -> DropRule:
    """Return a test for these names and globs; case matters."""
    exact = frozenset(names)
    globs = [each for each in names if any(sign in each for sign in "*?[")]
    pattern = re.compile("|".join(map(translate, globs))) if globs else None
    return lambda name, _: name in exact or (pattern is not None and pattern.match(name) is not None)


def _is_tracking(name: str, _: str) -> bool:
    lower = name.lower()
    return lower in TRACKING or lower.startswith(TRACKING_PREFIXES)


def _is_cache_buster(name: str, value: str) -> bool:
    """Whether a parameter is the callback of a JSONP request, or has a new value each time to bypass caches."""
    lower = name.lower()
    if lower in CALLBACKS:
        return _GENERATED.fullmatch(value) is not None
    if lower in BUSTERS:
        return _NUMBER.fullmatch(value) is not None
    return lower in STAMPS and _MILLISECONDS.fullmatch(value) is not None


def _decode(parameter: str) -> tuple[str, str]:
    name, _, value = parameter.partition("=")
    return (unquote_plus(name), unquote_plus(value)) if "%" in parameter or "+" in parameter else (name, value)


def _hash(verb: str, key: str | bytes | int) -> int:
    """Also hash the kind of key and the length of the method, so that different keys never give the same input."""
    if isinstance(key, str):
        kind, data = "s", key.encode("utf-8", "surrogatepass")
    elif isinstance(key, bytes):
        kind, data = "b", key
    else:
        kind, data = "i", key.to_bytes(key.bit_length() // 8 + 1, "big", signed=True)
    head = f"{kind} {len(verb)} {verb}".encode("utf-8", "surrogatepass")
    return xxh3_64_intdigest(head + data, RESOLVED_KEY)


def _unknown(word: str) -> str:
    begin, _, rest = word.partition(":")
    near = next(iter(get_close_matches(begin.lower(), [*BUILT_IN, "drop", "keep"], n=1)), "")
    if near in {"drop", "keep"}:
        near += f":{rest or 'NAME,...'}"
    return f"fingerprint_rules: {word!r} is unknown: " + (
        f"did you mean {near}?" if near else f"write one of {', '.join(WORDS)}"
    )
