"""The Lua script of a target, compared with `TargetPool` in random histories."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest
import redis as driver

from lycosa.proxies.core.outcomes.outcome import Blame, Outcome
from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.pool.target import ProxyRequest, TargetPool, Wait
from lycosa.proxies.core.pool.target_state import ProxyFacts
from lycosa.proxies.redis.scripts import TARGET_SCRIPT
from lycosa.proxies.redis.target_script import (
    TargetCall,
    TargetScript,
    decode_answers,
    encode_calls,
    read_explanation,
    read_grants,
    read_state,
)
from tests.conftest import PROVE
from tests.proxies.sim.proxy_steps import run_comparison, run_histories

pytestmark = pytest.mark.redis

HISTORIES = 400 if PROVE else 8
KEYS = [f"proxy{number}" for number in range(14)]
BLAMES = [*[Blame.NONE] * 6, Blame.NOBODY, Blame.MISS, Blame.SITE, Blame.PROXY, Blame.UNFIT]


def unchanged(answer: Any) -> Any:
    return answer


class TargetComparison:
    """The same target in memory and on a server."""

    def __init__(self, client: Any, seed: int, change: Callable[[bytes], bytes] = lambda text: text) -> None:
        self.random = draw = random.Random(seed)
        self.policy = TargetPolicy(
            concurrency=draw.choice([1, 1, 2, 0]),
            delay_s=draw.choice([0.0, 0.5, 3.0]),
            lease_s=draw.choice([1.0, 5.0]),
            cool_s=draw.choice([2.0, 20.0]),
            max_misses=draw.choice([1, 2, 3]),
            max_bans=draw.choice([0, 3]),
            sticky_s=draw.choice([5.0, 600.0]),
            guarded=draw.random() < 0.7,
        )
        self.now = 1_000_000.0
        self.model = TargetPool(self.policy)
        self.script = TargetScript(self.policy)
        self.client = client
        self.sha = client.script_load(change(TARGET_SCRIPT.text))
        self.prefix = f"lycosa:proxies:{{{seed}}}:"
        self.tokens = [0]
        for key in KEYS[:8]:
            self.model.learn(key, ProxyFacts(), self.now)
        self.answers_of(self.script.learn({key: ProxyFacts() for key in KEYS[:8]}))
        self.batch: list[tuple[TargetCall, Callable[[Any], Any], Any]] = []

    def expect(self, call: TargetCall, reader: Callable[[Any], Any], expected: Any) -> None:
        """Add a call to the batch, with the expected answer."""
        self.batch.append((call, reader, expected))

    def send(self) -> None:
        """Send the batch and check the answers."""
        calls, self.batch = self.batch, []
        for answer, (call, reader, expected) in zip(self.answers_of(*[call for call, *_ in calls]), calls, strict=True):
            assert reader(answer) == expected, call

    def answers_of(self, *calls: TargetCall) -> list[Any]:
        arguments = (self.prefix, repr(self.now), calls[0].policy, encode_calls(calls))
        return decode_answers(self.client.execute_command("EVALSHA", self.sha, 1, *arguments))

    def run(self) -> None:
        run_comparison(self, self.policy)

    def step(self) -> None:
        self.now += self.random.choice([*[0.0, 0.01, 0.3, 2.0] * 12, 700.0])
        for _ in range(self.random.choice([1, 1, 2, 5])):
            self.random.choice([self.acquire] * 5 + [self.release] * 4 + [self.renew, self.learn, self.change])()
        self.send()

    def acquire(self) -> None:
        session = self.random.choice(["", "", "s1", "s2"])
        draws = [self.random.random() for _ in range(1 if session else self.random.choice([1, 1, 3]))]
        tags = self.random.choice([{}, {}, {"country": "de"}])
        request = ProxyRequest(tags, session, frozenset(self.random.sample(KEYS, self.random.choice([0, 0, 2]))))
        expected = self.model.acquire(self.now, draws, request)
        self.expect(self.script.acquire(draws, request), lambda answer: read_grants(answer)[0], expected)
        if not isinstance(expected, Wait):
            self.tokens += [grant.token for grant in expected]

    def release(self) -> None:
        token, draw = self.random.choice(self.tokens[-20:]), self.random.random()
        outcomes = [self.outcome() for _ in range(self.random.choice([0, 1, 1, 1, 3]))]
        expected = self.model.release(token, outcomes, self.now, draw)
        self.expect(self.script.release(token, outcomes, draw), unchanged, expected or False)

    def outcome(self) -> Outcome:
        rest_s, latency_s = self.random.choice([None, None, 7.0]), self.random.choice([None, 0.1, 1.5])
        return Outcome(self.random.choice(BLAMES), "x", rest_s, latency_s)

    def renew(self) -> None:
        token = self.random.choice(self.tokens[-20:])
        expected = self.model.renew(token, self.now)
        self.expect(self.script.renew(token), unchanged, expected or False)

    def learn(self) -> None:
        key = self.random.choice(KEYS)
        facts = ProxyFacts(
            self.random.choice([None, 0.2, 2.0]),
            self.random.choice([0.0, 0.0, self.now + 5]),
            self.random.random() < 0.1,
            self.random.choice(["", "", "9.9.9.9"]),
            self.random.choice([0, 0, 0, 1]),
            self.random.choice([{}, {"country": "de"}]),
        )
        self.model.learn(key, facts, self.now)
        self.expect(self.script.learn({key: facts}), unchanged, expected=True)

    def change(self) -> None:
        key, change = self.random.choice(KEYS), self.random.randrange(3)
        if change == 0:
            until = self.random.choice([None, self.now + 3])
            self.expect(self.script.ban(key, until, "by hand"), unchanged, self.model.ban(key, self.now, until))
        elif change == 1:
            self.expect(self.script.unban(key), unchanged, self.model.unban(key, self.now))
        else:
            self.expect(self.script.forget(key), unchanged, key in self.model.members)
            self.model.expire(self.now)  # `GlobalPool` does so before it forgets a proxy
            self.model.forget(key)

    def compare(self) -> None:
        self.model.expire(self.now)
        members, counts, leases, interval_s = read_state(self.answers_of(self.script.state())[0])
        assert leases == self.model.leases
        assert interval_s == self.model.interval_s(self.now)
        assert {name: counts[name] for name in ("granted", "leaked", "stale")} == {
            "granted": self.model.granted, "leaked": self.model.leaked, "stale": self.model.stale,
        }  # fmt: skip
        assert counts["usable"] == self.model.usable()
        snapshot = read_explanation(self.answers_of(self.script.explain(ProxyRequest(session="s1"), 0))[0], self.policy)
        assert snapshot.deadlines == self.model.deadlines()
        assert snapshot.bound == self.model.session_key("s1", self.now)
        assert (snapshot.virtual_time, snapshot.interval_s) == (self.model.virtual_time, interval_s)
        assert members.keys() == self.model.members.keys()
        for key, member in members.items():
            mine = self.model.members[key]
            for each in fields(member):
                if each.name != "facts":
                    assert getattr(member, each.name) == getattr(mine, each.name), (key, each.name)


def test_a_forgotten_target_leaves_no_keys(redis: Any) -> None:
    with driver.Redis.from_url(redis.url) as client:
        comparison = TargetComparison(client, 1)
        call, request = comparison.script, ProxyRequest({"country": "de"}, "s")
        facts = {key: ProxyFacts(exit_ip="9.9.9.9", tier=2, tags={"country": "de"}) for key in KEYS}
        comparison.answers_of(call.learn(facts, request, 3))
        ((lease,), is_filled) = read_grants(comparison.answers_of(call.acquire([0.5], request, version=3))[0])  # type: ignore[misc]
        assert is_filled
        assert comparison.answers_of(call.drop())[0] is False, "one proxy is leased"
        comparison.answers_of(call.release(lease.token, [Outcome(Blame.SITE, "403")], 0.5))
        assert comparison.answers_of(call.drop())[0] is True
        assert client.keys(f"{comparison.prefix}*") == []
        learned, members, dropped = comparison.answers_of(call.learn(facts), call.members(ProxyRequest()), call.drop())
        assert [learned, dropped] == [True, True]
        assert sorted(members[0]) == sorted(KEYS)
        _, (names, count) = comparison.answers_of(call.drop(), call.members(request))
        assert (names, count) == ([], 0)


@pytest.mark.parametrize("part", range(4))
def test_random_histories_are_equal_in_memory_and_on_a_server(redis: Any, part: int) -> None:
    run_histories(redis.url, TargetComparison, HISTORIES // 4)


def test_an_answer_shows_the_state_at_its_own_call_not_after_later_calls(redis: Any) -> None:
    """Answers are sent together, but `state` returns the state at its position in the batch."""
    with driver.Redis.from_url(redis.url) as client:
        comparison = TargetComparison(client, 1)
        call = comparison.script
        before, done, after = comparison.answers_of(call.state(), call.ban(KEYS[0], None, "by hand"), call.state())
        assert done is True
        assert [read_state(answer)[0][KEYS[0]].banned for answer in (before, after)] == [False, True]
