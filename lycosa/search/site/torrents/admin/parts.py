"""What administration works on, and the ports of its long tasks: rules about names, and rebuilding the index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from lycosa.search.rebuilds import TaskProgress
from lycosa.search.site.torrents.admin.site_store import SiteStore
from lycosa.storage.ports import RecordStore

EXAMPLES_MAX = 20
"""Torrents that a dry run shows."""


class AdminOptions(NamedTuple):
    """Whether a takedown request hides torrents at once, and whether administration works over plain HTTP."""

    hide_at_once: bool = False
    over_http: bool = False


class RuleDraft(NamedTuple):
    """A rule about names: it refuses torrents with one of the words or phrases in a name. Its file has this name."""

    name: str
    reason: str
    words: tuple[str, ...]


class InstalledRule(NamedTuple):
    """A file of rules that holds: its name, its reasons, and how many words it has."""

    name: str
    reasons: tuple[str, ...]
    words: int


@dataclass(slots=True)
class RuleTrial:
    """A rule that is tried on the stored torrents, or applied: then what it refuses is removed."""

    draft: RuleDraft
    progress: TaskProgress
    refused: int = 0
    examples: list[tuple[str, str]] = field(default_factory=list)
    """Infohashes and names of the first refused torrents."""
    applied: bool = False


class NameRules(Protocol):
    """The rules about names of a store. One trial at a time. Raises `UsageError` for what cannot be done."""

    @property
    def trial(self) -> RuleTrial | None:
        """The last trial, which may be running."""

    async def installed(self) -> Sequence[InstalledRule]:
        """Return the rules that hold for crawls and imports, besides those of the package."""

    async def start(self, draft: RuleDraft) -> None:
        """Try a rule in the background: count what it would remove."""

    async def apply(self) -> None:
        """Apply the rule that was tried: it holds from now on, and what it refuses is removed in the background."""

    def discard(self) -> None:
        """Forget the trial. One that runs ends; what it removed stays removed."""

    async def remove(self, name: str) -> None:
        """Remove a rule. What it removed stays on the deny-list."""


class IndexRebuild(Protocol):
    """Rebuilds the index in the background. The old one is searched until the new one replaces it."""

    async def start(self) -> None:
        """Start, unless it runs already."""

    async def progress(self) -> TaskProgress | None:
        """Return how far the last rebuilding is; None if there was none."""


class AdminParts(NamedTuple):
    """What administration works on: the site's own file, the store of the torrents, and the long tasks."""

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
    "none": "There was no infohash: nothing was changed.",
    "key-removed": "The key was removed.",
    "gone": "This request has already been decided.",
    "user-added": "The administrator can log in now.",
    "password-changed": "The password was changed.",
    "user-removed": "The administrator was removed.",
    "rule-removed": "The rule was removed. The torrents that it removed stay on the deny-list.",
    "rule-discarded": "The rule was discarded.",
}
"""What pages say after a change, by the word in their address."""
