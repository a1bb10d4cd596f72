"""Who may use the gateway: names and passwords, as HTTP (Basic, RFC 7617) and SOCKS bring them."""

from __future__ import annotations

import hmac
import re
from base64 import b64decode
from binascii import Error
from collections.abc import Iterable
from functools import lru_cache

from lycosa.core.errors import Forbidden, UsageError
from lycosa.proxies.core.gateway.username import STATUS, GatewayUser, parse_username

ACCOUNTS_MAX = 10_000
LOGINS_MAX = 1_024
"""Values of Proxy-Authorization whose meaning is remembered."""

PASSWORD_MAX = 255
"""Bytes of a password: SOCKS has no room for more (RFC 1929)."""

NAME = re.compile(r"[\w.~@-]{1,64}", re.ASCII)
WHO = "a user name and a password, please"
ANYBODY = GatewayUser()
WRONG = "unknown user name or wrong password"


class Accounts:
    """Names with their passwords; none at all, and everybody is let in, whatever password comes along."""

    def __init__(self, passwords: Iterable[tuple[str, str]] = ()) -> None:
        self._passwords = dict(passwords)
        self._read = lru_cache(LOGINS_MAX)(self._basic)

    def __bool__(self) -> bool:
        return bool(self._passwords)

    def __repr__(self) -> str:
        return f"Accounts({list(self._passwords)})"

    def log_in(self, user: str, password: str) -> GatewayUser:
        """Return what a user asks for. Raises `Forbidden` (407)."""
        if not self._passwords:
            return parse_username(user)
        asked = parse_username(user, self._passwords)
        if not hmac.compare_digest(password.encode(), self._passwords[asked.account].encode()):
            raise Forbidden(WRONG, STATUS)
        return asked

    def basic(self, values: list[bytes]) -> GatewayUser:
        """Return what the fields Proxy-Authorization of a request ask for. Raises `Forbidden` (407)."""
        if len(values) > 1 or (not values and self._passwords):
            raise Forbidden(WHO, STATUS)
        return self._read(values[0]) if values else ANYBODY

    def _basic(self, value: bytes) -> GatewayUser:
        scheme, _, coded = value.partition(b" ")
        try:
            login = b64decode(coded.strip(b" "), validate=True) if scheme.lower() == b"basic" else b""
        except Error:
            login = b""
        user, colon, password = _decoded(login).partition(":")
        if not colon:
            raise Forbidden(WHO, STATUS)
        return self.log_in(user, password)


def read_accounts(lines: Iterable[str], where: str = "--user") -> list[tuple[str, str]]:
    """Return the accounts of lines NAME:PASSWORD; empty ones and comments (#) say nothing. Raises `UsageError`.

    The error repeats no password.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, password = line.strip().partition(":")
        if not (NAME.fullmatch(name) and password and _is_text(password)) or len(password.encode()) > PASSWORD_MAX:
            raise UsageError(f"{where}, line {number}: write NAME:PASSWORD, the name of letters, digits and . _ ~ @ -")
        if name in found:
            raise UsageError(f"{where}, line {number}: {name} is there twice")
        found[name] = password
    if len(found) > ACCOUNTS_MAX:
        raise UsageError(f"{where}: {len(found):,} accounts, at most {ACCOUNTS_MAX:,}")
    return list(found.items())


def _decoded(login: bytes) -> str:
    """Return a login as text: UTF-8, as we ask for it, or what some clients send all the same."""
    try:
        return login.decode()
    except UnicodeDecodeError:
        return login.decode("latin-1")


def _is_text(password: str) -> bool:
    """Whether it can be sent: what a shell took from a line in another encoding than UTF-8 cannot."""
    return not any("\ud800" <= each <= "\udfff" for each in password)
