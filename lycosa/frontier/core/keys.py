"""What identifies a request: its key, of which the fingerprint is the 64-bit hash. It is fetched at its own URL.

Without a choice the key is method, canonical URL and body (`core.url.fingerprint`). `FingerprintRules` changes that: it leaves out
parameters of the query that do not choose the page, sorts the others, and may ask a resolver of the user's.

A parameter is what stands between two `&` (WHATWG), its name is compared decoded, once; what is left is compared as it
is written, so that `a%26b=1` is one parameter and `%41` is not `A`. Where a choice concerns the query, empty parameters
do not count. A parameter with a bare `;` in it is never left out: old servers see several there. The method always
counts. Nothing here raises, whatever the canonical URL, but for a resolver that does; the time is linear in its length.
"""

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
"""(method in upper case, canonical URL, body) -> what identifies the request, besides its method.

It must give the same answer for the same request in every run: no clock, no chance, no counter.
"""

Fingerprint = Callable[[str, str, bytes], int]
"""(method, canonical URL, body) -> 64 unsigned bits."""

RESOLVED_KEY = 0x4C79_636F_7361_0003
"""Key of the hash of what a resolver returns. Changing it makes every state with a resolver foreign."""

SHIPPED = ("tracking", "sort", "jsonp", "slash")
WORDS = (*SHIPPED, "drop:NAME,...", "keep:NAME,...", "module:function")

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
"""Names that say where a visitor came from, in lower case: from the lists of AdGuard (TrackParamFilter, general_url)
and Brave (query-filter), and what the services beside them document as theirs. Not here is what some site uses for
content (ref, source, clickid, cid, s, si, spm, __s). A new name makes URLs that have it new once, no state foreign."""

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
"""The name of a function that a library made up: with a counter behind a known beginning, or with five digits."""
_NUMBER = re.compile(r"\d{9,20}(?:\.\d{1,20})?|0?\.\d{6,20}", re.ASCII)
"""A time since 1970 in seconds or finer, or what a random generator gives; small numbers choose pages."""
_MILLISECONDS = re.compile(r"1\d{12}(?<!000)", re.ASCII)
"""A time from 2001 to 2033 as clocks give it. Whole seconds are kept: a calendar links to those."""

_NAMES = re.compile(r"(drop|keep):(.*)", re.DOTALL)
_FUNCTION = re.compile(r"[\w.]+:[\w.]+")

DropRule = Callable[[str, str], bool]
"""(decoded name, decoded value) -> whether a parameter is left out."""


@dataclass(frozen=True, slots=True)
class FingerprintRules:
    """How a crawl identifies requests. Make it with `parse_rules`.

    `words` is the setting, sorted, with the name of the resolver last.
    """

    words: tuple[str, ...] = ()
    leaves: tuple[DropRule, ...] = ()
    sort: bool = False
    slash: bool = False
    resolver: KeyResolver | None = None

    def fingerprint(self, method: str, url: str, body: bytes = b"") -> int:
        """Return 64 unsigned bits that identify the request. Raises `BadSpider` when a resolver fails."""
        kept = self.reduced(url)
        if self.resolver is None:
            return fingerprint(method, kept, body)
        verb = method.upper()
        try:
            key = self.resolver(verb, kept, body)
        except Exception as error:
            told = f"{type(error).__name__}: {error}".split("\n", 1)[0]
            raise BadSpider(f"the key resolver {self.words[-1]} failed for {url}: {told}") from error
        if isinstance(key, bool) or not isinstance(key, (str, bytes, int)):
            what = f"the key resolver {self.words[-1]} returned a {type(key).__name__} for {url}"
            raise BadSpider(f"{what}: return a str, bytes or int")
        return _hashed(verb, key)

    def reduced(self, url: str) -> str:
        """Return what of a canonical URL counts."""
        address, mark, query = url.partition("?")
        if self.slash:
            origin = address.index("/", 8) + 1
            address = address[:origin] + address[origin:].rstrip("/")
        if not (mark and (self.leaves or self.sort)):
            return address + mark + query
        kept = [each for each in query.split("&") if each and (";" in each or not self._left_out(each))]
        if self.sort:
            kept.sort(key=lambda each: (*_decoded(each), each))
        return f"{address}?{'&'.join(kept)}" if kept else address

    def _left_out(self, parameter: str) -> bool:
        name, value = _decoded(parameter)
        return any(leaves(name, value) for leaves in self.leaves)


def split_rules(texts: Iterable[str]) -> list[str]:
    """Return the words of a setting: commas part them, but all that follows `drop:` or `keep:` belongs to it."""
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
    """Whether a word names a resolver of the user's, `module:function`."""
    return _FUNCTION.fullmatch(word) is not None and not _NAMES.match(word)


def parse_rules(shipped: Sequence[str], resolver: KeyResolver | None = None, name: str = "") -> FingerprintRules:
    """Return what these words mean, in any order; the resolver `name` sees what they leave. Raises `BadSetting`."""
    plain = sorted({word for word in shipped if not _NAMES.match(word)})
    for word in plain:
        if word not in SHIPPED:
            raise BadSetting(_unknown(word))
    drop, keep = _names("drop", shipped), _names("keep", shipped)
    leaves: list[DropRule] = [_is_tracking] if "tracking" in plain else []
    leaves += [_is_chance] if "jsonp" in plain else []
    leaves += [_named(drop)] if drop else []
    if keep:
        kept = _named(keep)
        leaves.append(lambda each, value: not kept(each, value))
    described = [*plain, *([f"drop:{','.join(drop)}"] if drop else []), *([f"keep:{','.join(keep)}"] if keep else [])]
    described += [name] if resolver else []
    return FingerprintRules(tuple(described), tuple(leaves), "sort" in plain, "slash" in plain, resolver)


def _names(verb: str, shipped: Sequence[str]) -> list[str]:
    """Return the names behind all the words `drop:...` or `keep:...`, sorted."""
    names: set[str] = set()
    for word in shipped:
        if not word.startswith(f"{verb}:"):
            continue
        given = {each.strip() for each in word[len(verb) + 1 :].split(",")} - {""}
        wrong = next((each for each in given if ":" in each), None)
        if wrong is not None:
            raise BadSetting(
                f"fingerprint_rules: {wrong!r} behind {verb}: is no name of a parameter: write it as a key of its own"
            )
        if not given:
            raise BadSetting(f"fingerprint_rules: {verb}: names no parameter: write one, as in {verb}:sessionid")
        names |= given
    return sorted(names)


def _named(names: Sequence[str]) -> DropRule:
    """Return the test for parameters of these names or globs, case counting."""
    exact = frozenset(names)
    globs = [each for each in names if any(sign in each for sign in "*?[")]
    pattern = re.compile("|".join(map(translate, globs))) if globs else None
    return lambda name, _: name in exact or (pattern is not None and pattern.match(name) is not None)


def _is_tracking(name: str, _: str) -> bool:
    lower = name.lower()
    return lower in TRACKING or lower.startswith(TRACKING_PREFIXES)


def _is_chance(name: str, value: str) -> bool:
    """Whether it is the callback of a JSONP request, or there to get past caches."""
    lower = name.lower()
    if lower in CALLBACKS:
        return _GENERATED.fullmatch(value) is not None
    if lower in BUSTERS:
        return _NUMBER.fullmatch(value) is not None
    return lower in STAMPS and _MILLISECONDS.fullmatch(value) is not None


def _decoded(parameter: str) -> tuple[str, str]:
    name, _, value = parameter.partition("=")
    return (unquote_plus(name), unquote_plus(value)) if "%" in parameter or "+" in parameter else (name, value)


def _hashed(verb: str, key: str | bytes | int) -> int:
    """Return the hash of a key. Kind and length of the parts are hashed with them, so that none can pose as another."""
    if isinstance(key, str):
        kind, data = "s", key.encode("utf-8", "surrogatepass")
    elif isinstance(key, bytes):
        kind, data = "b", key
    else:
        kind, data = "i", key.to_bytes(key.bit_length() // 8 + 1, "big", signed=True)
    head = f"{kind} {len(verb)} {verb}".encode("utf-8", "surrogatepass")
    return xxh3_64_intdigest(head + data, RESOLVED_KEY)


def _unknown(word: str) -> str:
    """Return what to say of a word that means nothing."""
    begin, _, rest = word.partition(":")
    near = next(iter(get_close_matches(begin.lower(), [*SHIPPED, "drop", "keep"], n=1)), "")
    if near in {"drop", "keep"}:
        near += f":{rest or 'NAME,...'}"
    return f"fingerprint_rules: {word!r} is unknown: " + (
        f"did you mean {near}?" if near else f"write one of {', '.join(WORDS)}"
    )
