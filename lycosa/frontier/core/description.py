"""The description of a crawl, stored as `crawl.json` in its state folder or on a server."""

from __future__ import annotations

import msgspec

FORMAT = "lycosa-crawl"
VERSION = 3
"""Earlier versions cannot be read: since version 3, fingerprints are stored in levels (`lsm.levels`)."""


class SpiderDescription(msgspec.Struct):
    """The options of one spider in the last run."""

    name: str
    domains: list[str] = []
    depth: int | None = None
    allow: list[str] = []
    deny: list[str] = []
    robots: bool = True
    user_agent: str = ""


class Description(msgspec.Struct):
    """The stored data of a crawl other than its records.

    `seeds` are the canonical start URLs of all runs, in order. `key` holds the `--fingerprint-rules`, empty for the
    default. `imported` is True if URLs were imported but no crawl was started yet; then `name` is empty. The other
    fields are the options of the last run, for `explain`; with several spiders, `members` has the options of each.
    """

    format: str = FORMAT
    version: int = VERSION
    name: str = ""
    seeds: list[str] = []
    spider: str = ""
    key: list[str] = []
    scope: str = ""
    domains: list[str] = []
    depth: int | None = None
    allow: list[str] = []
    deny: list[str] = []
    robots: bool = True
    user_agent: str = ""
    imported: bool = False
    members: list[SpiderDescription] = []
