"""Build the web application of a pool: its API and its pages."""

from __future__ import annotations

from pathlib import Path

from starlette.applications import Starlette

from lycosa.app.proxies.pools import project_policies
from lycosa.proxies.api.app import build_app
from lycosa.proxies.core.pool_url import parse_pool_address
from lycosa.proxies.ports import ProxyPool


def build_pool_site(pool: ProxyPool, address: str, key: str) -> Starlette:
    """Build the application for the pool at an address, with the policies of the current folder's project.

    Without a `key` only clients on this machine are allowed. Raises `BadSetting`.
    """
    rules_of = project_policies(Path()).rules_of
    return build_app(pool, key=key, name=parse_pool_address(address).text, rules_of=rules_of)
