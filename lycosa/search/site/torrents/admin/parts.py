"""What administration needs, and the ports of its long tasks: rules about names, and index rebuilds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from lycosa.search.rebuilds import TaskProgress
from lycosa.search.site.torrents.admin.site_store import SiteStore
from lycosa.storage.ports import RecordStore

EXAMPLES_MAX = 20


class AdminOptions(NamedTuple):
    """`hide_at_once`: takedown requests remove torrents at once. `over_http`: administration works over plain HTTP from
    other machines, too."""

    hide_at_once: bool = False
    over_http: bool = False


class RuleDraft(NamedTuple):
    """A rule that refuses torrents with one of the words or phrases in a name. `name` is also the name of its file."""

    name: str
    reason: str
    words: tuple[str, ...]


class InstalledRule(NamedTuple):
    """An installed rule file."""

    name: str
    reasons: tuple[str, ...]
    words: int


@dataclass(slots=True)
class RuleTrial:
    """A dry run of a rule; if `applied`, a run that removes the refused torrents."""

    draft: RuleDraft
    progress: TaskProgress
    refused: int = 0
    examples: list[tuple[str, str]] = field(default_factory=list)
    """Infohashes and names of the first refused torrents."""
    applied: bool = False


class NameRules(Protocol):
    """A store's rules about names. Only one trial runs at a time. Raises `UsageError`."""

    @property
    def trial(self) -> RuleTrial | None:
        """The last trial, which may be running."""

    async def installed(self) -> Sequence[InstalledRule]:
        """Return the installed rules, without the built-in ones. Installed rules apply to crawls and imports."""

    async def start(self, draft: RuleDraft) -> None:
        """Try a rule in the background: count what it would remove."""

    async def apply(self) -> None:
        """Install the tried rule, and, in the background, remove the torrents that it refuses."""

    def discard(self) -> None:
        """Stop and forget the trial. Raises `UsageError` while an installed rule is being applied."""

    async def remove(self, name: str) -> None:
        """Remove a rule, and stop applying it. The torrents that it removed stay on the deny-list."""


class IndexRebuild(Protocol):
    """Rebuilds the index in the background. The old one is searched until the new one replaces it."""

    async def start(self) -> None: ...

    async def progress(self) -> TaskProgress | None:
        """Return the progress of the last rebuild; None if there was none."""


class AdminParts(NamedTuple):
    """The database of the site, the record store, and the long tasks."""

    site: SiteStore
    store: RecordStore
    options: AdminOptions = AdminOptions()
    rules: NameRules | None = None
    rebuild: IndexRebuild | None = None


SAID: Mapping[str, str] = {
    "accepted": "The torrents were removed, and will not be stored again.",
    "refused": "The request was refused.",
    "denied": "The torrents were removed, and will not be stored again.",
    "allowed": "The torrents may be stored again.",
    "none": "No infohash was given, so nothing was changed.",
    "key-removed": "The key was removed.",
    "gone": "This request has already been decided.",
    "user-added": "The administrator can log in now.",
    "password-changed": "The password was changed.",
    "user-removed": "The administrator was removed.",
    "rule-removed": "The rule was removed. The torrents that it removed stay on the deny-list.",
    "rule-discarded": "The rule was discarded.",
}
"""Messages shown after a change, by the URL parameter `said`."""
