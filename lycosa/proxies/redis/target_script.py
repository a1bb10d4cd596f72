"""The script of one target: what it is sent, and what it answers. Nothing here talks to a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from lycosa.proxies.core.explain import TargetSnapshot
from lycosa.proxies.core.outcomes.outcome import Outcome
from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.pool.target import ANY, Grant, ProxyRequest, Wait
from lycosa.proxies.core.pool.target_state import ProxyFacts, ProxyTargetState

USED = ("concurrency", "delay_s", "cool_s", "cool_max_s", "misses_max", "bans_max", "sticky_s", "guarded", "members")
"""What of a policy the script has to know."""

PACKER = msgspec.msgpack.Encoder()
UNPACKER = msgspec.msgpack.Decoder()


class Call(NamedTuple):
    """A command, its arguments, and the packed policy of the target."""

    command: str
    arguments: dict[str, Any]
    policy: bytes


class TargetScript:
    """The calls for targets of one policy, which is sent with them. Make it with `script_of`."""

    def __init__(self, policy: TargetPolicy) -> None:
        self._lease_s = policy.lease_s
        self._policy = PACKER.encode({name: value for name, value in asdict(policy).items() if name in USED})

    def acquire(
        self, draws: Sequence[float], request: ProxyRequest = ANY, lease_s: float | None = None, version: int = 0
    ) -> Call:
        """Lend as many proxies as there are draws, or none: see `granted`."""
        lease_s = self._lease_s if lease_s is None else lease_s
        if not (request.tags or request.session or request.avoid):  # the usual one takes less to say
            return self._call("acquire", draws=draws, lease_s=lease_s, version=version)
        named = {
            "tags": dict(request.tags),
            "avoid": list(request.avoid),
            "session": request.session,
            "kind": kind_of(request),
        }
        return self._call("acquire", draws=draws, lease_s=lease_s, version=version, **named)

    def renew(self, token: int, lease_s: float | None = None) -> Call:
        """Set another deadline; it is answered, or False."""
        return self._call("renew", token=str(token), lease_s=self._lease_s if lease_s is None else lease_s)

    def release(self, token: int, outcomes: Sequence[Outcome], draw: float) -> Call:
        """End a lease; the key of its proxy is answered, or False."""
        return self._call("release", token=str(token), outcomes=outcomes, draw=draw)

    def learn(self, facts: Mapping[str, ProxyFacts], request: ProxyRequest | None = None, version: int = 0) -> Call:
        """Tell what the global pool knows of proxies; of all that fit `request`, if it is given."""
        filled = {} if request is None else {"fills": kind_of(request), "version": version}
        return self._call("learn", facts=facts, **filled)

    def update(self, facts: Mapping[str, ProxyFacts]) -> Call:
        """Tell what the global pool knows of those that the target has."""
        return self._call("learn", facts=facts, only_known=True)

    def forget(self, key: str) -> Call:
        """A proxy left the global pool."""
        return self._call("forget", key=key)

    def forget_idle(self, keys: Sequence[str]) -> Call:
        """Dead proxies are to leave the global pool; the keys of those that are lent are answered."""
        return self._call("forget_idle", keys=keys)

    def ban(self, key: str, until: float | None, reason: str) -> Call:
        """Lend it no more, or not before a time."""
        return self._call("ban", key=key, until=until, reason=reason)

    def unban(self, key: str) -> Call:
        """Lift bans and rests."""
        return self._call("unban", key=key)

    def drop(self) -> Call:
        """Forget the target, unless it has leases."""
        return self._call("drop")

    def members(self, request: ProxyRequest) -> Call:
        """Ask for the keys of all proxies, and how many of the usable ones fit."""
        return self._call("members", tags=dict(request.tags), avoid=())

    def look(self) -> Call:
        """Ask for all there is: see `looked`."""
        return self._call("look")

    def explain(self, request: ProxyRequest, version: int) -> Call:
        """Ask for all there is, what a session has, and whether there may be more: see `seen`."""
        return self._call("explain", session=request.session, kind=kind_of(request), version=version)

    def _call(self, command: str, **arguments: Any) -> Call:
        return Call(command, arguments, self._policy)


@lru_cache(1024)
def script_of(policy: TargetPolicy) -> TargetScript:
    """Return the calls for targets of this policy."""
    return TargetScript(policy)


def kind_of(request: ProxyRequest) -> str:
    """Return the kind of a wish as text."""
    if not request.tags:
        return ""
    return "\0".join(f"{name}={value}" for name, value in sorted(request.tags.items()))


def together(calls: Sequence[Call]) -> bytes:
    """Return calls as the script takes them: one text for all, which costs both sides least."""
    return PACKER.encode([part for call in calls for part in call[:2]])


def apart(answers: bytes) -> list[Any]:
    """Return what was answered to each."""
    return list(UNPACKER.decode(answers))


def granted(answer: Any) -> tuple[list[Grant] | Wait, bool]:
    """Read what `acquire` answers, and whether the target has all that the global pool can give for this wish."""
    grants, at, filled = answer
    if grants is False:
        return Wait(None if at is False else float(at)), bool(filled)
    return [Grant(token, key, float(until), rebound, among) for token, key, until, rebound, among in grants], filled


def seen(answer: Any, policy: TargetPolicy) -> TargetSnapshot:
    """Read what `explain` answers."""
    told, ends, bound, is_filled = answer
    pairs, counts, _, interval_s = looked(told)
    deadlines: dict[str, float] = {}
    for key, until in ends:
        deadlines[key] = min(until, deadlines.get(key, until))
    return TargetSnapshot(policy, pairs, float(counts["stands"]), deadlines, bound or None, interval_s, is_filled)


def looked(answer: Any) -> tuple[dict[str, ProxyTargetState], dict[str, Any], int, float]:
    """Read what `look` answers: the proxies, the counts, how many leases are out, the least time between two."""
    pairs, counts, leases, interval_s = answer
    return {key: _pair(key, told) for key, told in dict(pairs).items()}, counts, leases, float(interval_s)


def _pair(key: str, told: dict[str, Any]) -> ProxyTargetState:
    latency_s, known_s = told.pop("latency_s"), told.pop("known_latency_s", None)
    rests = 0.0  # what the global pool says of rests is among those of the pair
    facts = ProxyFacts(
        known_s, rests, told.pop("dead"), told.pop("exit_ip"), told.pop("tier"), dict(told.pop("tags") or {})
    )
    told = {name: value for name, value in told.items() if name in ProxyTargetState.__slots__ and name != "key"}
    return ProxyTargetState(key, facts, **told, latency_s=None if latency_s is False else latency_s)
