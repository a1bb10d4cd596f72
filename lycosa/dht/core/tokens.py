"""The tokens of get_peers, without which nobody can announce (BEP 5).

A token fits the IP address it was sent to and the infohash that was asked for, for 5 to 10 minutes. No token is
stored: it is a keyed hash, and the key changes every 5 minutes.
"""

from __future__ import annotations

from hashlib import blake2b
from hmac import compare_digest

TOKEN_PERIOD_S = 300
"""How long one key is used. BEP 5: "a secret that changes every five minutes and tokens up to ten minutes old"."""
TOKEN_BYTES = 8
"""A forger guesses one of 2^64, over the network, within 10 minutes. libtorrent has 4 bytes."""
SECRET_BYTES = 32


class TokenIssuer:
    """Makes tokens and recognises them. One secret, of 32 random bytes, gives the keys of all periods."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._period = -1
        self._current = self._previous = blake2b()

    def issue(self, ip: bytes, infohash: bytes, now: float) -> bytes:
        """Return the token for a packed IP address and an infohash."""
        if int(now // TOKEN_PERIOD_S) != self._period:
            self._rotate(int(now // TOKEN_PERIOD_S))
        keyed = self._current.copy()
        keyed.update(ip + infohash)
        return keyed.digest()

    def is_valid(self, token: bytes, ip: bytes, infohash: bytes, now: float) -> bool:
        """Return whether this token was issued to this IP address, for this infohash, less than 10 minutes ago."""
        if compare_digest(token, self.issue(ip, infohash, now)):
            return True
        keyed = self._previous.copy()
        keyed.update(ip + infohash)
        return compare_digest(token, keyed.digest())

    def _rotate(self, period: int) -> None:
        self._period = period
        self._current, self._previous = self._key(period), self._key(period - 1)

    def _key(self, period: int) -> blake2b:
        # A key of its own for each period: a leaked one gives no other away.
        key = blake2b(period.to_bytes(16, signed=True), key=self._secret, digest_size=SECRET_BYTES).digest()
        return blake2b(key=key, digest_size=TOKEN_BYTES)
