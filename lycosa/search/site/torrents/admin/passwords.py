"""Names and passwords of administrators. Passwords are hashed with Argon2, from the extra `admin`."""

from __future__ import annotations

from typing import Any

from lycosa.core.errors import UsageError

NAME_MAX = 60
LENGTH_MIN, LENGTH_MAX = 12, 1000


def check_name(name: str) -> None:
    """Raise `UsageError` if a new administrator cannot have this name."""
    if not 1 <= len(name) <= NAME_MAX or not name.isprintable() or name != name.strip():
        raise UsageError(
            "{name!r} cannot be the name of an administrator: write 1 to {most} printable characters, with no space at"
            " the beginning or end",
            name=name[:NAME_MAX],
            most=NAME_MAX,
        )


def hash_password(password: str) -> str:
    """Return the hash to store. Raises `UsageError` for a password that is too short or too long."""
    if not LENGTH_MIN <= len(password) <= LENGTH_MAX:
        raise UsageError("a password has {least} to {most:,} characters", least=LENGTH_MIN, most=LENGTH_MAX)
    return str(_argon2().PasswordHasher().hash(password))


def is_password(hashed: str | None, password: str) -> bool:
    """Return whether this is the password. Without a hash, take as long as a check would, then return False."""
    argon2 = _argon2()
    hasher = argon2.PasswordHasher()
    if hashed is None:
        hasher.hash(password[:LENGTH_MAX])
        return False
    try:
        return bool(hasher.verify(hashed, password[:LENGTH_MAX]))
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        return False


def _argon2() -> Any:
    try:
        import argon2
    except ImportError:
        raise UsageError("administrators need argon2: pip install 'lycosa[admin]'") from None
    return argon2
