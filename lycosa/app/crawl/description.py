"""What a state says of its crawl: written down by every run, for the next one and for `lycosa frontier`."""

from __future__ import annotations

from collections.abc import Sequence

from lycosa.app.crawl.spec import Crew, Member
from lycosa.core.errors import ForeignState
from lycosa.crawl.spiders.spider import domains_as_urls
from lycosa.frontier.core.description import Description, SpiderDescription
from lycosa.frontier.state_dir import StateDir


def remember_seeds(state: StateDir, crew: Crew) -> list[str]:
    """Add the seeds to those of earlier runs, which the scope is made of too. Return all of them.

    What bounds the crawl is written down beside them, for `lycosa frontier explain`.

    Raises `ForeignState` for the state of other spiders, whose requests these could not handle, or of other keys,
    by which all URLs would be new.
    """
    refuse_others(state.description, str(state.path), crew, "another --state, or -O to start afresh")
    seeds = list(dict.fromkeys([*state.description.seeds, *crew.target.seeds]))
    state.describe(description_of(crew, seeds))
    return seeds


def description_of(crew: Crew, seeds: list[str]) -> Description:
    """Return what a run is, with these start URLs."""
    target, settings = crew.target, crew.settings
    first = _described(crew.members[0])
    return Description(
        name=target.name,
        seeds=seeds,
        spider=crew.spiders,
        key=list(target.key),
        scope=settings.scope if target.generic else "",
        domains=first.domains,
        depth=first.depth,
        allow=first.allow,
        deny=first.deny,
        robots=first.robots,
        user_agent=first.user_agent,
        members=[_described(member) for member in crew.members] if len(crew.members) > 1 else [],
    )


def refuse_others(known: Description, place: str, crew: Crew, instead: str) -> None:
    """Raise `ForeignState` when what is known of `place` is of other spiders or keys; `instead` is what to give."""
    key = list(crew.target.key)
    several = sorted(member.spider.name for member in crew.members) if len(crew.members) > 1 else []
    if known.name and (known.spider != crew.spiders or sorted(each.name for each in known.members) != several):
        whose = _whose(known)
        raise ForeignState(f"{place} is the state of {whose}; give {instead}")
    if (known.name or known.imported) and known.key != key:
        message = f"{place} identifies requests {_by(known.key)}, this run {_by(key)}"
        raise ForeignState(f"{message}: all URLs would be new; give {instead}")


def _described(member: Member) -> SpiderDescription:
    settings = member.settings
    return SpiderDescription(
        member.spider.name,
        domains_as_urls(member.spider.allowed_domains),
        settings.depth,
        list(settings.allow),
        list(settings.deny),
        settings.robots,
        settings.user_agent,
    )


def _whose(known: Description) -> str:
    if known.members:
        return f"the spiders {', '.join(repr(each.name) for each in known.members)}"
    return f"the spider {known.spider!r}" if known.spider else "a crawl without a spider"


def _by(key: Sequence[str]) -> str:
    return f"by {', '.join(key)}" if key else "without --fingerprint-rules"
