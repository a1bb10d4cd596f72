"""Tokens in answers to get_peers. Announces are accepted only with such a token (BEP 5).

A token is a keyed hash of an IP address and an infohash, and is not stored. The key changes every 5 minutes, so a token
is valid for 5 to 10 minutes.
"""

from __future__ import annotations

from hashlib import blake2b
from hmac import compare_digest

TOKEN_PERIOD_S = 300
"""BEP 5: "a secret that changes every five minutes and tokens up to ten minutes old"."""
TOKEN_BYTES = 8
"""A forger has to guess 64 bits over the network within 10 minutes. libtorrent: 4 bytes."""
SECRET_BYTES = 32


class TokenIssuer:
    """Issues and checks tokens. The keys of all periods are derived from one secret of 32 random bytes."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._period = -1
        self._current = self._previous = blake2b()

    def issue(self, ip: bytes, infohash: bytes, now: float) -> bytes:
        if int(now // TOKEN_PERIOD_S) != self._period:
            self._rotate(int(now // TOKEN_PERIOD_S))
        keyed = self._current.copy()
        keyed.update(ip + infohash)
        return keyed.digest()

    def is_valid(self, token: bytes, ip: bytes, infohash: bytes, now: float) -> bool:
        """Whether the token was issued to this address, for this infohash, in the current or the previous period."""
        if compare_digest(token, self.issue(ip, infohash, now)):
            return True
        keyed = self._previous.copy()
        keyed.update(ip + infohash)
        return compare_digest(token, keyed.digest())

    def _rotate(self, period: int) -> None:
        self._period = period
        self._current, self._previous = self._key(period), self._key(period - 1)

    def _key(self, period: int) -> blake2b:
        # Each period has its own key: a leaked key does not reveal the others.
        key = blake2b(period.to_bytes(16, signed=True), key=self._secret, digest_size=SECRET_BYTES).digest()
        return blake2b(key=key, digest_size=TOKEN_BYTES)
