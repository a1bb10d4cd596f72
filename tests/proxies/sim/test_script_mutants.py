"""Mutants of the Lua scripts of a pool are found by the random histories.

A mutant is a piece of a script and its replacement. If the piece is no longer in the script, rewrite the mutant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis as driver

from lycosa.proxies.redis.scripts import POOL_SCRIPT, TARGET_SCRIPT
from tests.proxies.sim import test_pool_script, test_target_script

HISTORIES_MAX = 100

POOL = {
    "a cool-down has no jitter": ("return math.max(COOL_MIN_S, draw * ", "return math.max(COOL_MIN_S, "),
    "a cool-down is as long as the last": ("2.0 ^ math.min(row - 1, DOUBLINGS_MAX)", "1"),
    "a cool-down ends at once": ("local COOL_MIN_S = 1.0", "local COOL_MIN_S = 0.0"),
    "only the newest latency counts": ("return mean + (newest - mean) * SMOOTHING", "return newest"),
    "a proxy that cools down is blamed": ("if now < health.rests_until then return false end", ""),
    "no proxy was reached": ("  if any_was_reached() then note_reached() end\n", ""),
    "every proxy was reached": ("  if blame == 'proxy' then return false end", ""),
    "it is never our own network": ("if others_work or health.downs < DOWNS_MAX - 1 then", "if true then"),
    "it is always our own network": ("if others_work or health", "if health"),
    "the time of the last failure is lost": ("health.down_at, health.reason = now,", "health.reason ="),
    "a dead proxy cools down for longer": ("if health.dead then return false end", ""),
    "no proxy ever dies": ("if health.downs >= DOWNS_MAX then die(health) end", ""),
    "a dead proxy dies again": ("if not health.dead then health.dead, ", "if true then health.dead, "),
    "living proxies are forgotten": ("if not health.dead then return false end", ""),
    "dead proxies are forgotten at once": ("return math.max(0, now - since) >= kept_s", "return true"),
    "a proxy dies one failure too late": ("health.downs >= DOWNS_MAX", "health.downs > DOWNS_MAX"),
    "a miss counts as a response": ("if outcome.blame ~= 'miss' then\n    health", "if true then\n    health"),
    "a response does not reset the failures": ("health.good_at, health.downs = now, 0", "health.good_at = now"),
    "only the last outcome counts": (
        "must_know = record(health, outcome, report.draw) or must_know",
        "must_know = record(health, outcome, report.draw)",
    ),
    "targets do not learn of outcomes": ("if must_know then changed", "if false then changed"),
    "outcomes of removed proxies are recorded": ("if call('HEXISTS', key.proxies, name) == 1 then", "if true then"),
    "a removed proxy keeps its health": ("call('HDEL', key.health, name)", ""),
    "a removed proxy stays in the order": ("call('ZREM', key.by_latency, name)", ""),
    "latencies do not order": ("health.latency_s or UNKNOWN_LATENCY_S, name", "UNKNOWN_LATENCY_S, name"),
    "a proxy without a latency comes first": ("UNKNOWN_LATENCY_S = 0.5", "UNKNOWN_LATENCY_S = 0.0"),
    "prices per request do not order": ("return one[2] < other[2]", "return one[2] > other[2]"),
    "the dearest tier is the first": (
        "if one[1] ~= other[1] then return one[1] < other[1] end",
        "if one[1] ~= other[1] then return one[1] > other[1] end",
    ),
    "a new price changes no tiers": (
        "return { new, new_prices > 0, facts_by_key(changed) }",
        "return { new, false, facts_by_key(changed) }",
    ),
    "a proxy that is added again loses its health": (
        "        store_health(name, health)\n      elseif",
        "        store_health(name, health)\n      elseif call('HDEL', key.health, name) < 0 then\n      elseif",
    ),
    "added proxies start no refill": ("  call('INCR', key.fill_version)\n  if #changed", "  if #changed"),
    "other tags do not change the version": ("  if #changed > 0 then call('INCR', key.facts_version) end\n", ""),
    "a removal does not change the version": (
        "  call('INCR', key.facts_version)\n  return removed",
        "  return removed",
    ),
    "revived proxies start no refill": (
        "  store_health(args.key, health)\n  call('INCR', key.fill_version)",
        "  store_health(args.key, health)",
    ),
    "a rotating proxy has an exit": ("if (proxy.tags.rotating or 'no') == 'no' then", "if true then"),
    "a rotating proxy keeps its exit": ("health.exit_ip = ''\n", ""),
    "a check does not end a cool-down": (
        "health.dead, health.downs, health.rests_until, health.reason, health.good_at = false, 0, 0, '', now",
        "health.dead, health.downs, health.reason, health.good_at = false, 0, '', now",
    ),
    "a refill brings members again": ("for _, name in ipairs(args.has) do has[name] = true end", ""),
    "a refill brings dead proxies": ("if health and not health.dead and", "if health and"),
    "a refill brings one too many": ("and count < args.count then\n", "and count <= args.count then\n"),
    "tags are ignored": ("if proxy.tags[name] ~= value then return false end", ""),
    "targets have no order": (
        "  call('ZADD', key.targets, now, args.target)\n  while",
        "  call('ZADD', key.targets, 0, args.target)\n  while",
    ),
}

TARGET = {
    "late releases are accepted": (
        "  if not name then\n    target.stale = target.stale + 1\n    return false\n  end",
        "  if not name then return args.token end",
    ),
    "late releases are not counted": ("    target.stale = target.stale + 1\n", ""),
    "the proxy of an overdue lease is lost": (
        "    member.lease_count = member.lease_count - 1\n    changed(member)\n    place(member)\n",
        "    changed(member)\n",
    ),
    "overdue leases are not counted": ("    target.leaked = target.leaked + 1\n", ""),
    "tokens are used again": ("math.max(target.token + 1, math.floor(now", "math.max(1, math.floor(now"),
    "a proxy is leased twice": (
        "policy.concurrency == 0 or member.lease_count < policy.concurrency",
        "member.lease_count <= policy.concurrency",
    ),
    "a proxy on trial is leased twice": (
        " or not has_room or on_trial then return end",
        " or not has_room then return end",
    ),
    "a use is not counted": ("  member.uses = member.uses + 1\n", ""),
    "the uses of one lease count once": ("  member.uses = member.uses + math.max(0, #args.outcomes - 1)\n", ""),
    "new facts reset the counts": (
        "    leave_order(member)\n    leave_exit(member)\n    if facts.dead",
        "    leave_order(member)\n    member.uses = 0\n    leave_exit(member)\n    if facts.dead",
    ),
    "a returning member comes first": ("    member.rank = math.max(member.rank, target.virtual_time)\n", ""),
    "a new member comes first": ("key = name, rank = target.virtual_time", "key = name, rank = 0"),
    "the virtual time stands still": ("  target.virtual_time = math.max(target.virtual_time, member.rank)\n", ""),
    "all members cost the same": ("member.rank = member.rank + cost(member)", "member.rank = member.rank + 1"),
    "the first member is always drawn": ("math.floor(draw * math.min(draw_size, preferred(tier, found))) + 1", "1"),
    "members that only failed keep their place": ("rank, target.has_failing = rank + LAST, true", "rank = rank"),
    "members that only failed may be drawn": ("rank, target.has_failing = rank + LAST, true", "rank = rank + LAST"),
    "a session gets any proxy": ("if kept and (is_usable(kept) or kept.lease_count > 0) then", "if false then"),
    "a session keeps a banned proxy": ("if kept and (is_usable(kept) or kept.lease_count > 0) then", "if kept then"),
    "a session never ends": (
        "if bound and bound[2] > now then return bound[1] end",
        "if bound then return bound[1] end",
    ),
    "a release does not prolong the session": (
        "if session ~= '' and session_key(session)",
        "if false and session_key(session)",
    ),
    "tags are ignored": ("if member.tags[name] ~= value then return false end", ""),
    "an avoided proxy is leased": ("    if name == member.key then return false end\n", ""),
    "a dearer proxy is leased": (
        "if number < #target.tiers and has_usable(tier, #args.draws - #chosen) then break end",
        "",
    ),
    "a tier with too few proxies is waited for": ("has_usable(tier, #args.draws - #chosen)", "has_usable(tier, 1)"),
    "a tier with too few proxies is left out": (
        "for _, name in ipairs(found) do chosen",
        "for _, name in ipairs({}) do chosen",
    ),
    "a ban by hand is no loss": (
        "  note_lost(lost, BAN_HOLD_S)\n  place(member)\n  return true",
        "  place(member)\n  return true",
    ),
    "an unusable cheaper proxy is waited for": (
        "if is_usable(member) and member.tier == tier and fits(member) then",
        "if member.tier == tier and fits(member) then",
    ),
    "a ban by the site is none": ("if blame == 'site' or member.half_open", "if member.half_open"),
    "bans in a row are not counted": ("  member.bans = member.bans + 1\n", ""),
    "a tunnel does not weaken failures": ("member.failures = member.failures * DECAY --", "--"),
    "misses never ban": (" or member.misses >= policy.max_misses then", " then"),
    "a member that joins an exit shares no bans": ("  cool_down(member, last.rests_until, lost)\n", ""),
    "exits share no bans": (
        "    if other then\n      leave_order(other)",
        "    if false then\n      leave_order(other)",
    ),
    "a late response lifts a ban": ("if not member.half_open or member.rests_until <= now then", "if true then"),
    "the guard never holds": ("  if not policy.guarded or target.each_s == 0 or", "  if true or"),
    "the guard holds although it is off": (
        "  if not policy.guarded or target.each_s == 0 or",
        "  if target.each_s == 0 or",
    ),
    "the guard holds for a proxy that never worked": (" or not any_has_worked(lost) then", " then"),
    "a proxy that worked counts as one that never did": ("if member.uses > member.bad then return true end", ""),
    "the interval ignores how many proxies there are": (
        "* math.max(1, target.usable) / target.count",
        "/ target.count",
    ),
    "a pause counts fully": ("each_s = math.min(each_s, target.each_s * SLOWDOWN)", ""),
    "a second loss lowers the rate again": (
        "if now >= target.held_until then\n    target.limit_s",
        "if true then\n    target.limit_s",
    ),
    "a ban holds as short as a failure": ("local BAN_HOLD_S = 600.0", "local BAN_HOLD_S = 60.0"),
    "the limit never fades": ("  if halvings <= 0 then return", "  if true then return"),
    "a renewal is not stored": ("  set_deadline(args.token, now + args.lease_s)\n", ""),
    "a removed proxy stays leased": ("    if lease_of(token) == args.key then end_lease(token) end\n", ""),
    "overdue leases are looked for once": ("  target.overdue_at = math.min(target.overdue_at, deadline)\n", ""),
    "due members are looked for once": ("    target.due_at = math.min(target.due_at, at)\n", ""),
    "the next overdue lease is forgotten": (
        "target.overdue_at = first_score(DEADLINES) or NEVER",
        "target.overdue_at = NEVER",
    ),
    "the next due member is forgotten": ("target.due_at = first_score(WAITING) or NEVER", "target.due_at = NEVER"),
    "the sentinel is leased": (
        "known[tier] = call('ZCARD', ready_keys[tier]) - 1",
        "known[tier] = call('ZCARD', ready_keys[tier])",
    ),
    "a member that leaves is still counted as ready": (
        "count - call('ZREM', ready_keys",
        "count - 0 * call('ZREM', ready_keys",
    ),
    "a member that comes is not counted as ready": (
        "count + call('ZADD', ready_keys",
        "count + 0 * call('ZADD', ready_keys",
    ),
    "a removed member is counted": ("  if member.counted then target.usable = target.usable - 1 end\n", ""),
    "a ban by hand for good ends": (
        "cool_down(member, args['until']) else member.banned = true end",
        "cool_down(member, args['until']) end",
    ),
    "an unban leaves the cool-down": (
        "false, false, 0, 0, 0\n  changed",
        "false, false, 0, 0, member.rests_until\n  changed",
    ),
}


def replace_once(old: str, new: str) -> Callable[[bytes], bytes]:
    def change(text: bytes) -> bytes:
        assert text.count(old.encode()) == 1, f"{old!r} is in the script {text.count(old.encode())} times"
        return text.replace(old.encode(), new.encode())

    return change


def is_detected(redis: Any, make_history: Callable[..., Any], change: Callable[[bytes], bytes]) -> bool:
    with driver.Redis.from_url(redis.url) as client:
        for seed in range(HISTORIES_MAX):
            client.flushdb()
            history = make_history(client, seed, change)
            try:
                history.run()
            except (AssertionError, driver.exceptions.ResponseError, KeyError, TypeError) as error:
                print(f"seed {seed}: {error}"[:300])
                return True
    return False


def test_the_scripts_have_the_pieces_that_mutants_replace() -> None:
    for mutants, script in ((POOL, POOL_SCRIPT), (TARGET, TARGET_SCRIPT)):
        for old, new in mutants.values():
            replace_once(old, new)(script.text)


@pytest.mark.prove
@pytest.mark.redis
@pytest.mark.parametrize("name", POOL)
def test_each_mutant_of_the_pool_script_is_detected(redis: Any, name: str) -> None:
    assert is_detected(redis, test_pool_script.PoolComparison, replace_once(*POOL[name]))


@pytest.mark.prove
@pytest.mark.redis
@pytest.mark.parametrize("name", TARGET)
def test_each_mutant_of_the_target_script_is_detected(redis: Any, name: str) -> None:
    assert is_detected(redis, test_target_script.TargetComparison, replace_once(*TARGET[name]))
