"""The public suffix list (publicsuffix.org): domains that nobody owns, so that nobody may set a cookie for one.

The list comes with the library and takes some 20 ms to load, so it is loaded when it is asked for the first time. Names
are looked up as Unicode: turning the list into its ASCII form would take twice as long as all the rest.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING

import ada_url

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList

ANSWERS_MAX = 16_384
"""Domains whose answer is remembered."""


@lru_cache(ANSWERS_MAX)
def is_suffix(domain: str) -> bool:
    """True for a public suffix such as `com`, `co.uk`, `github.io`; `domain` as in a canonical URL."""
    name = domain.removesuffix(".")
    if "xn--" in name:
        name = ada_url.idna_to_unicode(name)
    return "." not in name or _suffixes().is_public(name)


@lru_cache(ANSWERS_MAX)
def registrable(host: str) -> str:
    """Return the domain that somebody registered, with which `host` ends; the host itself where there is none.

    `shop.example.co.uk` is of `example.co.uk`; IP addresses, `localhost` and `co.uk` stand for themselves.
    """
    if ":" in host or host.replace(".", "").isdigit():
        return host
    labels = host.removesuffix(".").split(".")
    for place in range(len(labels) - 2, -1, -1):
        if not is_suffix(".".join(labels[place:])):
            return ".".join(labels[place:])
    return host


@cache
def _suffixes() -> PublicSuffixList:
    from publicsuffixlist import PublicSuffixList

    return PublicSuffixList(accept_encoded_idn=False)
