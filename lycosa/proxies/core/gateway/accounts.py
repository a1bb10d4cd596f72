"""The accounts of the gateway: names and passwords, sent over HTTP (Basic, RFC 7617) or SOCKS (RFC 1929)."""

from __future__ import annotations

import hmac
import re
from base64 import b64decode
from binascii import Error
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache

from lycosa.core.errors import Forbidden, UsageError
from lycosa.proxies.core.gateway.username import LOGIN_FAILED, LOGIN_STATUS, GatewayUser, parse_username

ACCOUNTS_MAX = 10_000
LOGINS_MAX = 1_024

PASSWORD_MAX = 255
"""In bytes: the limit of SOCKS (RFC 1929)."""

NAME = re.compile(r"[\w.~@-]{1,64}", re.ASCII)
PASSWORD = re.compile(r"[^\ud800-\udfff]+")
"""Surrogates are excluded: they stand for bytes of the command line that are not UTF-8, and cannot be sent."""

LOGIN_MISSING = "send a user name and a password"


class Accounts:
    """Passwords by account name. Without accounts, every client is accepted."""

    def __init__(self, passwords: Mapping[str, str] | None = None) -> None:
        self._passwords = passwords or {}
        self._parse_cached = lru_cache(LOGINS_MAX)(self._parse_basic)

    def __bool__(self) -> bool:
        return bool(self._passwords)

    def __repr__(self) -> str:
        return f"Accounts({list(self._passwords)})"

    def log_in(self, name: str, password: str) -> GatewayUser:
        """Raises `Forbidden` (407)."""
        if not self._passwords:
            return parse_username(name)
        user = parse_username(name, self._passwords)  # refuses unknown accounts
        if not hmac.compare_digest(password.encode(), self._passwords[user.account].encode()):
            raise Forbidden(LOGIN_FAILED, LOGIN_STATUS)
        return user

    def log_in_basic(self, values: list[bytes]) -> GatewayUser:
        """Check Proxy-Authorization fields. Raises `Forbidden` (407)."""
        if len(values) > 1 or (not values and self._passwords):
            raise Forbidden(LOGIN_MISSING, LOGIN_STATUS)
        return self._parse_cached(values[0]) if values else GatewayUser()

    def _parse_basic(self, value: bytes) -> GatewayUser:
        scheme, _, encoded = value.partition(b" ")
        login = b""
        if scheme.lower() == b"basic":
            with suppress(Error):
                login = b64decode(encoded.strip(b" "), validate=True)
        try:
            text = login.decode()
        except UnicodeDecodeError:
            text = login.decode("latin-1")  # `requests` sends Latin-1, though our challenge says UTF-8
        name, colon, password = text.partition(":")
        if not colon:
            raise Forbidden(LOGIN_MISSING, LOGIN_STATUS)
        return self.log_in(name, password)


def read_accounts(lines: Iterable[str], where: str = "--user") -> dict[str, str]:
    """Return the passwords by name from NAME:PASSWORD lines. Raises `UsageError`, whose message has no password."""
    accounts: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, password = line.strip().partition(":")
        if not (NAME.fullmatch(name) and PASSWORD.fullmatch(password)) or len(password.encode()) > PASSWORD_MAX:
            raise UsageError(
                f"{where}, line {number}: write NAME:PASSWORD, the name of up to 64 letters, digits and . _ ~ @ -, "
                f"the password of up to {PASSWORD_MAX} bytes"
            )
        if name in accounts:
            raise UsageError(f"{where}, line {number}: the account {name} is listed twice")
        accounts[name] = password
    if len(accounts) > ACCOUNTS_MAX:
        raise UsageError(f"{where}: {len(accounts):,} accounts: write at most {ACCOUNTS_MAX:,}")
    return accounts
