"""Which proxy came from which source, and when one that vanished from all of them has to go.

A source that fails, or has nothing to say, changes nothing: only a list that came and does not hold a proxy any more
starts its time (`keep_s`), and only when no other source has it. Proxies that somebody added by hand are not here, and
stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from lycosa.proxies.core.proxy import Proxy


@dataclass(slots=True)
class _Stock:
    """What one source has: its proxies by key, and since when those are missing that it had.

    `recalled` are those of an earlier run, as long as no list has come in this one; `untold` the pool did not hear of;
    `forgotten` it has forgotten, as they were dead.
    """

    proxies: dict[str, Proxy] = field(default_factory=dict)
    missing: dict[str, float] = field(default_factory=dict)
    recalled: set[str] = field(default_factory=set)
    untold: set[str] = field(default_factory=set)
    forgotten: set[str] = field(default_factory=set)


class Ledger:
    """The stocks of all sources. The first of them that has a proxy says its tags and prices."""

    def __init__(self, names: Iterable[str]) -> None:
        self._stocks = {name: _Stock() for name in names}

    def recall(self, name: str, keys: Iterable[str]) -> None:
        """A source had these proxies in an earlier run: their time begins when its next list does not hold them."""
        self._stocks[name].recalled.update(keys)

    def untold(self, name: str, proxies: Iterable[Proxy]) -> None:
        """The pool did not hear of these: they are told with the next list."""
        self._stocks[name].untold.update(each.key for each in proxies)

    def forgotten(self, keys: Iterable[str]) -> None:
        """The pool has forgotten these, as they were dead for long: what is listed all the same is told anew."""
        gone = set(keys)
        for stock in self._stocks.values():
            stock.recalled -= gone
            for key in gone & stock.missing.keys():
                del stock.missing[key]
            stock.untold |= gone & stock.proxies.keys()
            stock.forgotten |= gone & stock.proxies.keys()

    def was_forgotten(self, name: str, key: str) -> bool:
        """Whether the pool has forgotten a proxy that a source lists, and did not hear of it since."""
        return key in self._stocks[name].forgotten

    def returned(self, proxies: Iterable[Proxy]) -> None:
        """The pool has these again."""
        back = {each.key for each in proxies}
        for stock in self._stocks.values():
            stock.forgotten -= back

    def heard(self, name: str, proxies: Iterable[Proxy], now: float, *, whole: bool = True) -> list[Proxy]:
        """Take a list that came. Return what the pool does not know in this form: new ones, other tags and prices.

        One that is not `whole`, as a part of the source failed, says nothing of those that are not in it.
        """
        stock, listed = self._stocks[name], {each.key: each for each in proxies}
        before = stock.proxies
        for key in listed:
            stock.missing.pop(key, None)
        stock.proxies = listed if whole else {**before, **listed}
        if whole:
            stock.missing.update((key, now) for key in (*before, *stock.recalled) if key not in listed)
            stock.recalled.clear()
        untold = stock.untold
        stock.untold = {key for key in untold if key in stock.proxies and key not in listed}
        stock.forgotten &= stock.proxies.keys()
        changed = [proxy for key, proxy in listed.items() if key in untold or _facts(before.get(key)) != _facts(proxy)]
        return [proxy for proxy in changed if self._teller(proxy.key) == name]

    def gone(self, name: str, keep_s: float, now: float) -> tuple[list[str], list[Proxy]]:
        """Return the keys whose time is over and that no source has, and those another one has, in its words."""
        stock = self._stocks[name]
        over = [key for key, since in stock.missing.items() if now - since >= keep_s]
        for key in over:
            del stock.missing[key]
        others = [found for key in over if (found := self._found(key)) is not None]
        kept = {each.key for each in others} | {key for key in over if self._is_awaited(key)}
        return [key for key in over if key not in kept], others

    def count(self, name: str) -> int:
        """Return how many proxies the last list of a source had."""
        return len(self._stocks[name].proxies)

    def _teller(self, key: str) -> str:
        return next((name for name, stock in self._stocks.items() if key in stock.proxies), "")

    def _found(self, key: str) -> Proxy | None:
        return next(self._holders(key), None)

    def _holders(self, key: str) -> Iterator[Proxy]:
        return (stock.proxies[key] for stock in self._stocks.values() if key in stock.proxies)

    def _is_awaited(self, key: str) -> bool:
        """Whether another source had it, and its time there is not over."""
        return any(key in stock.missing or key in stock.recalled for stock in self._stocks.values())


def _facts(proxy: Proxy | None) -> object:
    return None if proxy is None else (dict(proxy.tags), proxy.price_gb, proxy.price_request)
