"""A resolver with a table of names, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lycosa.core.errors import BadSetting, ConnectFailed
from lycosa.http.resolver import NOT_FOUND, NUMERIC_TTL_S, TTL_S, numeric_address


class StaticResolver:
    """The `Resolver` port by a table of names; numeric names are resolved, too.

    Raises `BadSetting` if an address in the table is not an IP address.
    """

    def __init__(self, table: Mapping[str, Sequence[str]], ttl_s: float = TTL_S) -> None:
        for name, addresses in table.items():
            for address in addresses:
                if not numeric_address(address):
                    raise BadSetting(
                        f"{address!r}, an address of {name}, is not an IP address: write one like 192.0.2.1"
                    )
        self._table = {name: tuple(map(numeric_address, addresses)) for name, addresses in table.items()}
        self._ttl_s = ttl_s

    async def resolve(self, name: str) -> tuple[Sequence[str], float]:
        if numeric := numeric_address(name):
            return (numeric,), NUMERIC_TTL_S
        addresses = self._table.get(name, ())
        if not addresses:
            raise ConnectFailed(NOT_FOUND)
        return addresses, self._ttl_s
