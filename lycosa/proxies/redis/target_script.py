"""Encodes calls to the script of a target and decodes its answers. Does no I/O."""

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

POLICY_FIELDS = frozenset(
    ("concurrency", "delay_s", "cool_s", "max_cool_s", "max_misses", "max_bans", "sticky_s", "guarded", "members")
)

PACKER = msgspec.msgpack.Encoder()
UNPACKER = msgspec.msgpack.Decoder()


class TargetCall(NamedTuple):
    """A command, its arguments, and the packed policy of the target."""

    command: str
    arguments: dict[str, Any]
    policy: bytes


class TargetState(NamedTuple):
    """A target on the server. `counters`: the target's own fields, by name. `leases`: the number of its leases.

    `interval_s`: the minimum time between two leases of one proxy.
    """

    members: dict[str, ProxyTargetState]
    counters: Mapping[str, Any]
    leases: int
    interval_s: float


class TargetScript:
    """Builds the calls for targets with one policy, which is sent with each call. Create it with `script_of`."""

    def __init__(self, policy: TargetPolicy) -> None:
        self._lease_s = policy.lease_s
        self._policy = PACKER.encode({name: value for name, value in asdict(policy).items() if name in POLICY_FIELDS})

    def acquire(
        self, draws: Sequence[float], request: ProxyRequest = ANY, lease_s: float | None = None, version: int = 0
    ) -> TargetCall:
        """`read_grants` decodes the answer."""
        lease_s = self._lease_s if lease_s is None else lease_s
        if not (request.tags or request.session or request.avoid):  # the most frequent call should be the smallest
            return self._call("acquire", draws=draws, lease_s=lease_s, version=version)
        wanted = {
            "tags": dict(request.tags),
            "avoid": list(request.avoid),
            "session": request.session,
            "kind": kind_of(request),
        }
        return self._call("acquire", draws=draws, lease_s=lease_s, version=version, **wanted)

    def renew(self, token: int, lease_s: float | None = None) -> TargetCall:
        """Answer: the new deadline, or False if the lease has ended."""
        return self._call("renew", token=str(token), lease_s=self._lease_s if lease_s is None else lease_s)

    def release(self, token: int, outcomes: Sequence[Outcome], draw: float) -> TargetCall:
        """Answer: the key of the proxy, or False if the lease had ended already."""
        return self._call("release", token=str(token), outcomes=outcomes, draw=draw)

    def learn(
        self, facts: Mapping[str, ProxyFacts], request: ProxyRequest | None = None, version: int = 0
    ) -> TargetCall:
        """Add or update members. With `request`, mark the target as filled for this kind of request."""
        filled = {} if request is None else {"fills": kind_of(request), "version": version}
        return self._call("learn", facts=facts, **filled)

    def update(self, facts: Mapping[str, ProxyFacts]) -> TargetCall:
        """Facts of proxies that are not members are ignored."""
        return self._call("learn", facts=facts, only_known=True)

    def forget(self, key: str) -> TargetCall:
        """Answer: False if the proxy is not a member."""
        return self._call("forget", key=key)

    def forget_idle(self, keys: Sequence[str]) -> TargetCall:
        """Forget dead proxies, except leased ones. Answer: the keys of the leased ones."""
        return self._call("forget_idle", keys=keys)

    def ban(self, key: str, until: float | None, reason: str) -> TargetCall:
        """`until`: unix seconds; None: for good. Answer: False if the proxy is not a member."""
        return self._call("ban", key=key, until=until, reason=reason)

    def unban(self, key: str) -> TargetCall:
        """Answer: False if the proxy is not a member."""
        return self._call("unban", key=key)

    def drop(self) -> TargetCall:
        """Forget the target, unless it has leases. Answer: whether it was forgotten."""
        return self._call("drop")

    def members(self, request: ProxyRequest) -> TargetCall:
        """Answer: the keys of all members, and the number of usable ones with the request's tags."""
        return self._call("members", tags=dict(request.tags), avoid=())

    def state(self) -> TargetCall:
        """`read_state` decodes the answer."""
        return self._call("state")

    def explain(self, request: ProxyRequest, version: int) -> TargetCall:
        """`read_explanation` decodes the answer."""
        return self._call("explain", session=request.session, kind=kind_of(request), version=version)

    def _call(self, command: str, **arguments: Any) -> TargetCall:
        return TargetCall(command, arguments, self._policy)


@lru_cache(1024)
def script_of(policy: TargetPolicy) -> TargetScript:
    """Return the cached `TargetScript` of a policy: each policy is packed only once."""
    return TargetScript(policy)


def kind_of(request: ProxyRequest) -> str:
    """Return the kind of a request: its tags as text. A target is filled for each kind separately."""
    if not request.tags:
        return ""
    return "\0".join(f"{name}={value}" for name, value in sorted(request.tags.items()))


def encode_calls(calls: Sequence[TargetCall]) -> bytes:
    """Return calls as one packed list, which is the fastest to pack and unpack."""
    return PACKER.encode([part for call in calls for part in call[:2]])


def decode_answers(answers: bytes) -> list[Any]:
    """Return one answer for each call."""
    return list(UNPACKER.decode(answers))


def read_grants(answer: Any) -> tuple[list[Grant] | Wait, bool]:
    """Return the answer to `acquire`, and whether the target is filled for this kind of request."""
    grants, retry_at, is_filled = answer
    if grants is False:
        return Wait(None if retry_at is False else float(retry_at)), bool(is_filled)
    return [
        Grant(token, key, float(deadline), rebound, drawn_from) for token, key, deadline, rebound, drawn_from in grants
    ], is_filled


def read_explanation(answer: Any, policy: TargetPolicy) -> TargetSnapshot:
    """Decode the answer to `explain`."""
    state, ends, bound, is_filled = answer
    members, counters, _, interval_s = read_state(state)
    deadlines: dict[str, float] = {}
    for key, deadline in ends:
        deadlines[key] = min(deadline, deadlines.get(key, deadline))
    virtual_time = float(counters["virtual_time"])
    return TargetSnapshot(policy, members, virtual_time, deadlines, bound or None, interval_s, is_filled)


def read_state(answer: Any) -> TargetState:
    """Decode the answer to `state`."""
    members, counters, leases, interval_s = answer
    return TargetState(
        {key: _member(key, fields) for key, fields in dict(members).items()}, counters, leases, float(interval_s)
    )


def _member(key: str, fields: dict[str, Any]) -> ProxyTargetState:
    facts = ProxyFacts(
        fields.pop("known_latency_s", None),
        0.0,  # a member stores one cool-down time, set by the pool or the target
        fields.pop("dead"),
        fields.pop("exit_ip"),
        fields.pop("tier"),
        dict(fields.pop("tags") or {}),
    )
    if fields["latency_s"] is False:
        fields["latency_s"] = None
    known = {name: value for name, value in fields.items() if name in ProxyTargetState.__slots__ and name != "key"}
    return ProxyTargetState(key, facts, **known)
