"""The public suffix list (publicsuffix.org): domains under which anybody can register, so cookies must not cover them.

The list takes 20 ms to load, so it is loaded on first use. Names are looked up as Unicode: the conversion of the list
to ASCII would take twice as long as loading it.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING

import ada_url

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList

ANSWERS_MAX = 16_384


@lru_cache(ANSWERS_MAX)
def is_suffix(domain: str) -> bool:
    """Whether a domain, as in a canonical URL, is a public suffix such as `com`, `co.uk` or `github.io`."""
    name = domain.removesuffix(".")
    if "xn--" in name:
        name = ada_url.idna_to_unicode(name)
    return "." not in name or _suffixes().is_public(name)


@lru_cache(ANSWERS_MAX)
def registrable(host: str) -> str:
    """Return the registrable domain of a host: `example.co.uk` for `shop.example.co.uk`.

    IP addresses, `localhost` and public suffixes such as `co.uk` are returned unchanged.
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
