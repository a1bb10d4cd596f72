"""Deliberate bugs in the script of the Redis frontier are found by `test_redis_history` (C6, C7).

A mutant is a piece of the script and its replacement. If the piece is not in the script any more, rewrite the mutant.
"""

from __future__ import annotations

import pytest

from lycosa.frontier.redis.scripts import WORKER_SCRIPT
from tests.frontier.sim.redis.history import History
from tests.frontier.sim.redis.test_redis_history import shrink_script

HISTORIES_MAX = 800

MUTANTS = {
    "a slice that is delivered twice is taken twice": ("if each > last then", "if true then"),
    "an uncontacted host does not get its turn back": (
        "if turn and host.next_at == turn.next_at then",
        "if false then",
    ),
    "a turn is given back whatever came in between": ("if turn and host.next_at == turn.next_at then", "if turn then"),
    "a turn is given back though the host is blocked": ("math.max(turn.at, host.paused_until)", "turn.at"),
    "a contacted host gets its turn back at the ack": (
        "return schedule(host) end\n  finish(host, lease.address, token, contacted == '0' and",
        "return schedule(host) end\n  finish(host, lease.address, token, contacted == '1' and",
    ),
    "a contacted host gets its turn back after the transfer": (
        "finish(entity(lease.host), lease.address, token, contacted == '0' and",
        "finish(entity(lease.host), lease.address, token, contacted == '1' and",
    ),
    "a split moves the wrong fingerprints": ("% (half * 2) == new then moving", "% half == new then moving"),
    "a split forgets what it moves": ("call('SADD', to, unpack(part))", ""),
    "a set is used before it exists": ("return number < sets and number or hash % half", "return number"),
    "the last commit does not count": ("prepared <= committed then", "prepared < committed then"),
    "whatever is prepared is committed": ("if prepared and prepared <= committed then", "if prepared then"),
    "whatever is prepared is reverted": ("if prepared and prepared <= committed then", "if false then"),
    "a commit is not noted": ("call('HSET', key.commits, worker, argument())", "argument()"),
    "a prepare is not noted": ("call('HSET', key.prepared_commits, worker, commit)", ""),
    "acked records stay acked": ("  revert(key.acked .. worker)\n", ""),
    "a reverted record stays done": ("    count_done(lease, -1)\n", ""),
    "a leave counts twice": ("  if is_known(worker) then\n    publish", "  if true then\n    publish"),
    "a late exchange expires the worker": ("if serial <= last then", "if serial == last then"),
    "a repeated exchange forgets which workers it expired": ("    write_all() -- changes", "    -- changes"),
    "a repeated exchange is done twice": ("if serial <= last then", "if serial < last then"),
    "lost exchanges in between are not noticed": ("if serial > last + 1 or", "if"),
    "another partition expires a worker whose commits it does not know": (
        "then return call('HSET', key.serials, worker, NEVER) end",
        "then end",
    ),
    "a delay counts from the lease": ("host.next_at = math.max(host.next_at, host.started_at + delay_s)", ""),
    "a start need not be reported": ("if meta('punctual') == 1 then host.unconfirmed = by end", ""),
    "an expired worker has reported its starts": ("    assume_started(host, token)\n", ""),
    "an expired worker may go on": ("return call('ZSCORE', key.workers, worker) ~= false", "return true"),
    "an expired worker may join": ("  refuse_rejoin(worker)", ""),
    "a silent worker never expires": (
        "ipairs(call('ZRANGEBYSCORE', key.workers, '-inf'",
        "ipairs(call('ZRANGEBYSCORE', key.workers, 'inf'",
    ),
    "a jump of the clock expires workers": ("if silence_s > OUTAGE_S or silence_s < 0 then", "if false then"),
    "other partitions do not learn of expired workers": ("call('HSET', key.expired, worker, committed)", ""),
    "an earlier process of the same name lives on": (
        "== name .. '#' then expire_worker(other) end",
        "== name .. '#' then mark_alive(other) end",
    ),
    "arrivals are not counted": ("      call('HINCRBY', key.meta, 'arrived', 1)\n", ""),
    "outboxes are not counted": ("  count('outgoing|', 1)\n", ""),
    "an outbox is trimmed too far": ("expired - before, -1)", "upto - before + 1, -1)"),
    "the last record comes first": ("local entry = call('LPOP', list)", "local entry = call('RPOP', list)"),
    "a record that is put back goes to the end": (
        "local head = at_front and call('LINDEX', list, 0)",
        "local head = nil",
    ),
    "a host forgets its first lane": (
        "host.first_rank = math.min(host.first_rank, rank_of(lane))",
        "host.first_rank = rank_of(lane)",
    ),
    "segments begin at once": ("    if host.first_rank > at then at = host.first_rank end\n", ""),
    "records with dont_filter have to be new": (
        "(fingerprint ~= '' and not add_fingerprint(segment, fingerprint))",
        "not add_fingerprint(segment, '0' .. fingerprint)",
    ),
    "segments share their fingerprints": (
        "return key.seen .. segment .. '|' .. number",
        "return key.seen .. '|' .. number",
    ),
    "a due record stays delayed in the counts": ("tally('delayed', segment_of(lane), -1)\n", "\n"),
    "a block ends the block before": (
        "host.paused_until = math.max(host.paused_until, until_)",
        "host.paused_until = until_",
    ),
    "a throttle ends a block": ("math.max(host.paused_until, host.started_at", "math.max(0, host.started_at"),
    "an expired worker keeps its places": (
        "if lease.transferred == 0 then finish(host, lease.address, token) else",
        "if true then",
    ),
    "a host whose time comes is not scheduled": (
        "    else\n      schedule(it)\n    end\n",
        "    end\n",
    ),
    "a claim takes no place": ("  start(host, worker .. '|' .. claim)\n", ""),
    "a claim passes those before it": (
        "if position > 0 and host.claim_until < now then position = pass_late_claims(host, position) end",
        "position = 0",
    ),
    "a claim that does not ask is not passed": ("if position > 0 and host.claim_until < now then", "if false then"),
    "leases go before claims": ("return math.max(it.next_at, it.claim_until) end", "return it.next_at end"),
    "a start is kept for ever for a claim that does not ask": (
        "host.claim_until = at + CLAIM_KEPT_S",
        "host.claim_until = at + 1e6",
    ),
    "claims never yield to leases": ("if it.claims_in_row < CLAIMS_IN_ROW_MAX then", "if true then"),
    "the claims of an expired worker wait on": ("    release_claim(worker, claims[i])\n", ""),
    "a claim keeps its place when it is over": (
        "if name then return finish(entity(name), address, worker .. '|' .. claim) end",
        "if name then return end",
    ),
    "a callback keeps its place": (
        "  finish(entity(lease.host), lease.address, token, contacted == '0' and lease or nil)\n",
        "",
    ),
    "an expired worker has reported the starts of its claims": (
        "    assume_started(entity(string.match(claims[i + 1], '^[^\\n]*')), worker .. '|' .. claims[i])\n",
        "",
    ),
    "robots.txt is fetched by several workers": (
        "host.preparing = 1\n    return add_lease(worker, host, ROBOTS",
        "return add_lease(worker, host, ROBOTS",
    ),
    "robots.txt never expires": ("now - host.robots_at >= meta('robots_ttl')", "host.robots_at == 0"),
    "an expired worker's prerequisite is never leased again": (
        "    else\n      host.preparing = 0\n    end\n",
        "    end\n",
    ),
    "a Crawl-delay is ignored": (
        "host.robots_at, host.robots_tries, host.crawl_delay = fetched_at, 0, crawl_delay",
        "host.robots_at, host.robots_tries = fetched_at, 0",
    ),
    "a failed prerequisite was not tried": ("host[tries] = host[tries] + 1", ""),
    "other workers do not get a robots.txt": ("call('HSET', key.host_facts, name, facts)", ""),
    "an address never expires": (
        "meta('resolves') == 1 and host.address_until <= now",
        "meta('resolves') == 1 and host.address_until == 0",
    ),
    "an address has room for all": ("    group.in_flight = group.in_flight + 1\n", ""),
    "an address keeps no delay": ("    group.next_at = math.max(group.next_at, now + meta('ip_delay'))\n", ""),
    "a turn of an address is given back whatever came in between": (
        "if turn and group.next_at == turn.group_next_at then",
        "if turn then",
    ),
    "a host that moves stays ready at its old address": (
        "  leave_ready(host, ready)\n  leave_waiting(host, waiting)\n  host.address",
        "  host.address",
    ),
    "a host that moves was never contacted": ("if host.started_at > 0 and meta('ip_delay') > 0 then", "if false then"),
    "claims pass each other at an address": ("if first and first ~= host then at", "if false then at"),
}


def test_the_script_has_the_pieces_that_mutants_replace() -> None:
    text = WORKER_SCRIPT.text.decode()
    assert [name for name, (old, _) in MUTANTS.items() if text.count(old) != 1] == []


@pytest.mark.prove
@pytest.mark.redis
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found(redis, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    shrink_script(redis.url, monkeypatch, MUTANTS[name])
    for seed in range(HISTORIES_MAX):
        try:
            History(redis.url, seed).run()
        except Exception as found:
            print(f"{name}: seed {seed}: {found}"[:300])
            return
    pytest.fail(f"not found in {HISTORIES_MAX} histories")
