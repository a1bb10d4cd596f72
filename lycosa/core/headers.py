"""HTTP header fields as received: names are case-insensitive, repeated fields are kept.

Parsing is lazy and never raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class Headers:
    """The header fields of one response (RFC 9110 §5). Values are decoded as Latin-1, which loses no byte."""

    __slots__ = ("_fields", "_raw")

    def __init__(self, raw: bytes = b"") -> None:
        self._raw = raw
        self._fields: dict[str, list[str]] | None = None

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]]) -> Headers:
        return cls("".join(f"{name}: {value}\r\n" for name, value in pairs).encode("latin-1", "replace"))

    def _parsed(self) -> dict[str, list[str]]:
        if self._fields is None:
            self._fields = {}
            for line in self._raw.decode("latin-1").split("\r\n"):
                name, colon, value = line.partition(":")
                if colon:
                    self._fields.setdefault(name.strip().lower(), []).append(value.strip())
        return self._fields

    def may_have(self, name: bytes) -> bool:
        """Return False only if no field has this lower-case name; True may be a false positive. Does not parse."""
        if self._fields is not None:
            return name.decode("latin-1") in self._fields
        return name in self._raw.lower()  # the name may also occur in a value: hence "may"

    def get(self, name: str, default: str = "") -> str:
        """Return the last value of a field."""
        values = self._parsed().get(name.lower())
        return values[-1] if values else default

    def getlist(self, name: str) -> list[str]:
        return self._parsed().get(name.lower(), [])

    def items(self) -> Iterator[tuple[str, str]]:
        """Yield (lower-case name, value) pairs."""
        for name, values in self._parsed().items():
            for value in values:
                yield name, value

    def __getitem__(self, name: str) -> str:
        values = self._parsed().get(name.lower())
        if not values:
            raise KeyError(name)
        return values[-1]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._parsed()

    def __repr__(self) -> str:
        return f"Headers({dict(self.items())!r})"
