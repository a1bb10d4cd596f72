"""Records which source lists which proxy, and when a proxy that is no longer listed must be removed.

The grace period of a proxy (`keep_s`) starts with the first complete list that lacks it. At its end the proxy is
removed, unless another source lists it or its grace period at another source still runs. A source that fails starts no
grace periods; running ones continue. Proxies added by hand are not recorded, and stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from lycosa.proxies.core.proxy import Proxy


@dataclass(slots=True)
class _SourceEntry:
    """The proxies of one source by key. `missing`: when a proxy was first missing from the list, by key.

    `recalled`: keys listed in an earlier run, until the first complete list of this run. `not_added`: keys to be added
    to the pool with the next list. `forgotten`: keys that the pool has forgotten as dead.
    """

    proxies: dict[str, Proxy] = field(default_factory=dict)
    missing: dict[str, float] = field(default_factory=dict)
    recalled: set[str] = field(default_factory=set)
    not_added: set[str] = field(default_factory=set)
    forgotten: set[str] = field(default_factory=set)


class Ledger:
    """The proxies of all sources. The first source that has a proxy sets its tags and prices."""

    def __init__(self, names: Iterable[str]) -> None:
        self._sources = {name: _SourceEntry() for name in names}

    def recall(self, name: str, keys: Iterable[str]) -> None:
        """Record what a source listed in an earlier run. Proxies that its next list lacks count as missing."""
        self._sources[name].recalled.update(keys)

    def not_added(self, name: str, proxies: Iterable[Proxy]) -> None:
        """Record proxies that could not be added to the pool. They are added with the next list."""
        self._sources[name].not_added.update(each.key for each in proxies)

    def forgotten(self, keys: Iterable[str]) -> None:
        """Record that the pool has forgotten proxies as dead. Those in the next list are added again."""
        removed = set(keys)
        for source in self._sources.values():
            source.recalled -= removed
            for key in removed & source.missing.keys():
                del source.missing[key]
            source.not_added |= removed & source.proxies.keys()
            source.forgotten |= removed & source.proxies.keys()

    def was_forgotten(self, name: str, key: str) -> bool:
        """Return whether the pool has forgotten a proxy that this source lists, and has not got it back since."""
        return key in self._sources[name].forgotten

    def returned(self, proxies: Iterable[Proxy]) -> None:
        """Record that the pool has these proxies again."""
        back = {each.key for each in proxies}
        for source in self._sources.values():
            source.forgotten -= back

    def update(self, name: str, proxies: Iterable[Proxy], now: float, *, complete: bool = True) -> list[Proxy]:
        """Record the list of a source. Return the proxies to add to the pool: new, or with new tags or prices.

        A list is not `complete` if a part of it could not be read. Proxies that it lacks then do not count as missing.
        """
        source, listed = self._sources[name], {each.key: each for each in proxies}
        before = source.proxies
        for key in listed:
            source.missing.pop(key, None)
        source.proxies = listed if complete else {**before, **listed}
        if complete:
            source.missing.update((key, now) for key in (*before, *source.recalled) if key not in listed)
            source.recalled.clear()
        due = source.not_added
        source.not_added = {key for key in due if key in source.proxies and key not in listed}
        source.forgotten &= source.proxies.keys()
        changed = [proxy for key, proxy in listed.items() if key in due or _extras(before.get(key)) != _extras(proxy)]
        # Only the first source sets tags and prices. Otherwise sources would overwrite each other's forever.
        return [proxy for proxy in changed if self._first_source(proxy.key) == name]

    def pop_expired(self, name: str, keep_s: float, now: float) -> tuple[list[str], list[Proxy]]:
        """Remove the proxies of a source that have been missing for `keep_s`.

        Return the keys to remove from the pool, and the expired proxies that another source still lists, as listed
        there. These must be added to the pool again, which updates their tags and prices.
        """
        source = self._sources[name]
        expired = [key for key, since in source.missing.items() if now - since >= keep_s]
        for key in expired:
            del source.missing[key]
        others = [proxy for key in expired if (proxy := next(self._listings(key), None)) is not None]
        kept = {each.key for each in others} | {key for key in expired if self._is_kept(key)}
        return [key for key in expired if key not in kept], others

    def _first_source(self, key: str) -> str:
        return next((name for name, source in self._sources.items() if key in source.proxies), "")

    def _listings(self, key: str) -> Iterator[Proxy]:
        return (source.proxies[key] for source in self._sources.values() if key in source.proxies)

    def _is_kept(self, key: str) -> bool:
        """Return whether the proxy is in its grace period at another source.

        Also True if a source that listed it in an earlier run has not been read completely in this run.
        """
        return any(key in source.missing or key in source.recalled for source in self._sources.values())


def _extras(proxy: Proxy | None) -> object:
    return None if proxy is None else (dict(proxy.tags), proxy.price_gb, proxy.price_request)
