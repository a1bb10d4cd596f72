"""Errors put into the scripts of a pool are found by the random histories.

A mutant is a piece of a script and its replacement. When the piece is no longer in the script, rewrite the mutant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis as driver

from tests.proxies.sim import test_pool_script, test_target_script

HISTORIES_MAX = 100

EVERYWHERE = {
    "a rest has no jitter": ("return math.max(COOL_MIN_S, draw * ", "return math.max(COOL_MIN_S, "),
    "a rest is as long as the last": ("2.0 ^ math.min(row - 1, DOUBLINGS_MAX)", "1"),
    "a rest ends at once": (
        "COOL_MIN_S, DOUBLINGS_MAX, SMOOTHING = 1.0,",
        "COOL_MIN_S, DOUBLINGS_MAX, SMOOTHING = 0.0,",
    ),
    "the newest latency is all": ("return mean + (newest - mean) * SMOOTHING", "return newest"),
    "one that rests is blamed": ("if now < health.rests_until then return false end", ""),
    "nobody is reached": ("  if any_was_reached() then reached() end\n", ""),
    "everybody is reached": ("  if blame == 'proxy' then return false end", ""),
    "it is never our own network": ("if others_work or health.downs < DOWNS_MAX - 1 then", "if true then"),
    "it is always our own network": ("if others_work or health", "if health"),
    "nobody knows when it was down last": ("health.down_at, health.reason = now,", "health.reason ="),
    "who is dead rests longer": ("if health.dead then return false end", ""),
    "nobody is ever dead": ("if health.downs >= DOWNS_MAX then die(health) end", ""),
    "who is dead dies again": ("if not health.dead then health.dead, ", "if true then health.dead, "),
    "the living are forgotten": ("if not health.dead then return false end", ""),
    "the dead are forgotten at once": ("return math.max(0, now - since) >= kept_s", "return true"),
    "dead one too late": ("health.downs >= DOWNS_MAX", "health.downs > DOWNS_MAX"),
    "a miss is an answer": ("if outcome.blame ~= 'miss' then\n    health", "if true then\n    health"),
    "an answer forgives nothing": ("health.good_at, health.downs = now, 0", "health.good_at = now"),
    "the last use alone counts": (
        "has_to = hear(health, outcome, heard.draw) or has_to",
        "has_to = hear(health, outcome, heard.draw)",
    ),
    "targets do not hear of it": ("if has_to then tell", "if false then tell"),
    "who is removed is heard of": ("if call('HEXISTS', key('p'), name) == 1 then", "if true then"),
    "a removed one keeps its health": ("call('HDEL', key('h'), name)", ""),
    "a removed one stays among the nearest": ("call('ZREM', key('n'), name)", ""),
    "latencies do not order": ("health.latency_s or UNKNOWN_LATENCY_S, name", "UNKNOWN_LATENCY_S, name"),
    "what was not measured is the nearest": ("UNKNOWN_LATENCY_S = 0.5", "UNKNOWN_LATENCY_S = 0.0"),
    "prices per request do not order": ("return one[2] < other[2]", "return one[2] > other[2]"),
    "the dearest tier is the first": (
        "if one[1] ~= other[1] then return one[1] < other[1] end",
        "if one[1] ~= other[1] then return one[1] > other[1] end",
    ),
    "a new price is not told": ("return { new, prices > 0, told(other) }", "return { new, false, told(other) }"),
    "who is added again begins anew": (
        "        keep(name, health)\n      elseif",
        "        keep(name, health)\n      elseif call('HDEL', key('h'), name) < 0 then\n      elseif",
    ),
    "what is added does not fill up": ("  call('INCR', key('v'))\n  if #other", "  if #other"),
    "nobody hears of other tags": ("  if #other > 0 then call('INCR', key('e')) end\n", ""),
    "nobody hears of who is gone": ("  call('INCR', key('e'))\n  return gone", "  return gone"),
    "who is well again does not fill up": (
        "  keep(args.key, health)\n  call('INCR', key('v'))",
        "  keep(args.key, health)",
    ),
    "one that rotates has an exit": ("if (proxy.tags.rotating or 'no') == 'no' then", "if true then"),
    "one that rotates keeps its exit": ("health.exit_ip = ''\n", ""),
    "a check does not end a rest": (
        "health.dead, health.downs, health.rests_until, health.reason, health.good_at = false, 0, 0, '', now",
        "health.dead, health.downs, health.reason, health.good_at = false, 0, '', now",
    ),
    "what a target has is counted again": ("for _, name in ipairs(args.has) do has[name] = true end", ""),
    "the dead fill up": ("if health and not health.dead and", "if health and"),
    "one more than wanted": ("and count < args.count then\n", "and count <= args.count then\n"),
    "tags do not matter": ("if proxy.tags[name] ~= value then return false end", ""),
    "targets have no order": (
        "  call('ZADD', key('t'), now, args.target)\n  while",
        "  call('ZADD', key('t'), 0, args.target)\n  while",
    ),
}

TARGET = {
    "late returns are taken": (
        "  if not name then\n    m.stale = m.stale + 1\n    return false\n  end",
        "  if not name then return args.token end",
    ),
    "late returns are not counted": ("    m.stale = m.stale + 1\n", ""),
    "what leaks is lost": (
        "    pair.lease_count = pair.lease_count - 1\n    changed(pair)\n    place(pair)\n  end\n  m.overdue_at",
        "    changed(pair)\n  end\n  m.overdue_at",
    ),
    "what leaks is not counted": ("    m.leaked = m.leaked + 1\n", ""),
    "tokens are used again": ("math.max(m.token + 1, math.floor(now", "math.max(1, math.floor(now"),
    "two may have one": (
        "policy.concurrency == 0 or pair.lease_count < policy.concurrency",
        "pair.lease_count <= policy.concurrency",
    ),
    "several try one that was banned": (
        " or (pair.half_open and pair.lease_count > 0) then return end",
        " then return end",
    ),
    "a use is not counted": ("  pair.uses = pair.uses + 1\n", ""),
    "uses of one lease count once": ("  pair.uses = pair.uses + math.max(0, #args.outcomes - 1)\n", ""),
    "counts begin anew when it is learned again": (
        "    out(pair)\n    leave_exit(pair)\n    if facts.dead",
        "    out(pair)\n    pair.uses = 0\n    leave_exit(pair)\n    if facts.dead",
    ),
    "who comes back comes first": ("    pair.rank = math.max(pair.rank, m.stands)\n", ""),
    "who is new comes first": ("key = name, rank = m.stands", "key = name, rank = 0"),
    "the order does not move": ("  m.stands = math.max(m.stands, pair.rank)\n", ""),
    "all cost the same": ("pair.rank = pair.rank + cost(pair)", "pair.rank = pair.rank + 1"),
    "the first is lent": ("math.floor(draw * math.min(few, #found)) + 1", "1"),
    "a session draws anew": ("if kept and (is_usable(kept) or kept.lease_count > 0) then", "if false then"),
    "a session has what is banned": ("if kept and (is_usable(kept) or kept.lease_count > 0) then", "if kept then"),
    "a session is for ever": (
        "if bound and bound[2] > now then return bound[1] end",
        "if bound then return bound[1] end",
    ),
    "a return does not keep the session": (
        "if session ~= '' and session_key(session)",
        "if false and session_key(session)",
    ),
    "tags do not matter": ("if pair.tags[name] ~= value then return false end", ""),
    "what is to be avoided is lent": ("    if name == pair.key then return false end\n", ""),
    "a dearer one is lent": ("if number < #m.tiers and works(tier, #args.draws - #picked) then break end", ""),
    "too few are waited for": ("works(tier, #args.draws - #picked)", "works(tier, 1)"),
    "those of a tier that has too few are left out": (
        "for _, name in ipairs(found) do picked",
        "for _, name in ipairs({}) do picked",
    ),
    "a ban by hand is no loss": (
        "  lost(gone, BAN_HOLD_S)\n  place(pair)\n  return true",
        "  place(pair)\n  return true",
    ),
    "a cheaper one is waited for in vain": (
        "if is_usable(pair) and pair.tier == tier and fits(pair) then",
        "if pair.tier == tier and fits(pair) then",
    ),
    "a ban by the site is not one": ("if blame == 'site' or pair.half_open", "if pair.half_open"),
    "bans in a row are not counted": ("  pair.bans = pair.bans + 1\n", ""),
    "what comes through forgives nothing": ("pair.failures = pair.failures * MEMORY --", "--"),
    "misses never ban": (" or pair.misses >= policy.misses_max then", " then"),
    "who joins an exit shares no bans": ("  rest(pair, last.rests_until, gone)\n", ""),
    "exits do not share bans": ("    if other then\n      out(other)", "    if false then\n      out(other)"),
    "a late answer lifts a ban": ("if not pair.half_open or pair.rests_until <= now then", "if true then"),
    "nothing is slower after a loss": ("  if not policy.guarded or m.each_s == 0 or", "  if true or"),
    "all are slower, guarded or not": ("  if not policy.guarded or m.each_s == 0 or", "  if m.each_s == 0 or"),
    "all are slower for one that never worked": (" or not any_has_worked(gone) then", " then"),
    "who worked and who never did are the same": ("if pair.uses > pair.bad then return true end", ""),
    "the pace does not know how many there are": ("* math.max(1, m.usable) / m.count", "/ m.count"),
    "a pause counts whole": ("each_s = math.min(each_s, m.each_s * FORGETTING)", ""),
    "what slows all slows them more": ("if now >= m.held_until then m.interval_s", "if true then m.interval_s"),
    "a ban is forgotten like a failure": (
        "BAN_HOLD_S, DOWN_HOLD_S, FADE_S = 600.0,",
        "BAN_HOLD_S, DOWN_HOLD_S, FADE_S = 60.0,",
    ),
    "the limit never ends": ("  if halvings <= 0 then return", "  if true then return"),
    "a renewal is not kept": ("  ends_at(args.token, now + args.lease_s)\n", ""),
    "a removed one is still held": ("    if lease_of(token) == args.key then end_lease(token) end\n", ""),
    "what is overdue is looked for once": ("  m.overdue_at = math.min(m.overdue_at, deadline)\n", ""),
    "whose time comes is looked for once": ("    m.wakes_at = math.min(m.wakes_at, at)\n", ""),
    "the next one overdue is forgotten": ("m.overdue_at = first_score(DEADLINES) or NEVER", "m.overdue_at = NEVER"),
    "the next one to wake is forgotten": ("m.wakes_at = first_score(WAITING) or NEVER", "m.wakes_at = NEVER"),
    "the one behind all is lent": (
        "of[tier] = call('ZCARD', READY[tier]) - 1",
        "of[tier] = call('ZCARD', READY[tier])",
    ),
    "who goes is counted on": ("count - call('ZREM', READY", "count - 0 * call('ZREM', READY"),
    "who comes is not counted": ("count + call('ZADD', READY", "count + 0 * call('ZADD', READY"),
    "a removed one counts": ("  if pair.counted then m.usable = m.usable - 1 end\n", ""),
    "a ban by hand ends": ("rest(pair, args['until']) else pair.banned = true end", "rest(pair, args['until']) end"),
    "an unban leaves a rest": ("false, false, 0, 0, 0\n  changed", "false, false, 0, 0, pair.rests_until\n  changed"),
}


def changed(old: str, new: str) -> Callable[[bytes], bytes]:
    def change(text: bytes) -> bytes:
        assert text.count(old.encode()) == 1, f"{old!r} stands there {text.count(old.encode())} times"
        return text.replace(old.encode(), new.encode())

    return change


def found(redis: Any, history: Callable[..., Any], change: Callable[[bytes], bytes]) -> bool:
    with driver.Redis.from_url(redis.url) as client:
        for seed in range(HISTORIES_MAX):
            client.flushdb()
            whole = history(client, seed, change)
            try:
                whole.run()
            except (AssertionError, driver.exceptions.ResponseError, KeyError, TypeError) as wrong:
                print(f"seed {seed}: {wrong}"[:300])
                return True
    return False


@pytest.mark.prove
@pytest.mark.redis
@pytest.mark.parametrize("name", EVERYWHERE)
def test_a_mutant_of_all_proxies_is_found(redis: Any, name: str) -> None:
    assert found(redis, test_pool_script.Both, changed(*EVERYWHERE[name]))


@pytest.mark.prove
@pytest.mark.redis
@pytest.mark.parametrize("name", TARGET)
def test_a_mutant_of_a_target_is_found(redis: Any, name: str) -> None:
    assert found(redis, test_target_script.Both, changed(*TARGET[name]))
