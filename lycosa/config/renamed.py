"""Old names of settings and options. They are refused with a message that gives the new name."""

from __future__ import annotations

from collections.abc import Mapping

SETTINGS: Mapping[str, str] = {
    "auto_throttle_max": "auto_throttle_max_delay",
    "backoff_max": "max_backoff",
    "blocked_after": "slow_callback_after",
    "close_after_idle_items": "close_after_no_items_for",
    "expect": "expected_urls",
    "key": "fingerprint_rules",
    "lease_max": "max_lease",
    "media_same_once": "media_deduplicate",
    "memory_max": "max_memory",
    "redirects_max": "max_redirects",
    "url_length_max": "max_url_length",
}
"""Old name -> new name, or "" if the setting was removed. The setting's command-line option was renamed, too."""

OPTIONS: Mapping[str, str] = {
    "--state-of": "--status",
}
"""Old name -> new name, or "" if the option was removed."""

POLICY_KEYS: Mapping[str, str] = {
    "bans_max": "max_bans",
    "cool_max_s": "max_cool_s",
    "misses_max": "max_misses",
}
"""Old key -> new key of `[proxies.default]` and `[proxies.targets.*]`."""


def renamed_setting(name: str) -> str:
    """Return the message for an old setting name; "" for any other name."""
    old = name.replace("-", "_")
    return _message(f"setting {name!r}", repr(SETTINGS[old]) if SETTINGS[old] else "") if old in SETTINGS else ""


def renamed_variable(prefix: str, name: str) -> str:
    """Return the message for the variable of an old setting; "" for any other variable."""
    if name not in SETTINGS:
        return ""
    return _message(prefix + name.upper(), prefix + SETTINGS[name].upper() if SETTINGS[name] else "")


def renamed_option(option: str) -> str:
    """Return the message for an old option; "" for any other option."""
    if option in OPTIONS:
        return _message(f"option {option}", OPTIONS[option])
    name = option.removeprefix("--").replace("-", "_")
    if not option.startswith("--") or name not in SETTINGS:
        return ""
    return _message(f"option {option}", f"--{SETTINGS[name].replace('_', '-')}" if SETTINGS[name] else "")


def renamed_policy(table: object) -> str:
    """Return the message for the first old key in a `proxies` table, with its place; "" if there is none."""
    if not isinstance(table, Mapping):
        return ""
    targets = table.get("targets")
    named = targets.items() if isinstance(targets, Mapping) else ()
    for place, policy in [
        ("default", table.get("default")),
        *((f'targets."{name!s:.60}"', each) for name, each in named),
    ]:
        for key in policy if isinstance(policy, Mapping) else ():
            if key in POLICY_KEYS:
                return f"proxies.{place}: {_message(repr(key), repr(POLICY_KEYS[key]))}"
    return ""


def _message(old: str, new: str) -> str:
    return f"{old} is now {new}" if new else f"{old} no longer exists"
