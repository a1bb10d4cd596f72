"""What is broken on purpose in the script of the Redis frontier is found by `test_redis_history` (C6, C7).

A mutant is a piece of the script and what stands there instead. One that is not there any more has to be rewritten.
"""

from __future__ import annotations

import pytest

from tests.frontier.sim.redis.history import History
from tests.frontier.sim.redis.test_redis_history import shrunk

HISTORIES_MAX = 800

MUTANTS = {
    "a slice that is brought twice is taken twice": ("if each > last then", "if true then"),
    "a turn is never given back": ("if turn and host.ra == turn.next then", "if false then"),
    "a turn is given back whatever came in between": ("if turn and host.ra == turn.next then", "if turn then"),
    "a turn is given back though the host is blocked": ("math.max(turn.at, host.pa)", "turn.at"),
    "who contacted its host gives the turn back": ("contacted == '0' and", "contacted == '1' and"),
    "a split moves the wrong ones": ("% (half * 2) == new then leaving", "% half == new then leaving"),
    "a split forgets what it moves": ("call('SADD', to, unpack(part))", ""),
    "a set is looked for before it is there": ("return at < k and at or hash % half", "return at"),
    "the last commit is not counted": ("prepared <= committed then", "prepared < committed then"),
    "what is prepared is committed": ("if prepared and prepared <= committed then", "if prepared then"),
    "what is prepared is reverted": ("if prepared and prepared <= committed then", "if false then"),
    "a commit is not noted": ("call('HSET', key('kb'), worker, argument())", "argument()"),
    "a prepare is not noted": ("call('HSET', key('pn'), worker, commit)", ""),
    "what is acked stays acked": ("  revert('P|' .. worker)\n", ""),
    "a reverted URL stays done": ("    done(lease, -1)\n", ""),
    "a leave counts twice": ("  if is_known(worker) then\n    publish", "  if true then\n    publish"),
    "a late exchange buries": ("if serial <= last then", "if serial == last then"),
    "a repeated exchange forgets whom it buried": ("    write_all() -- what", "    -- what"),
    "a repeated exchange is done twice": ("if serial <= last then", "if serial < last then"),
    "what is missing in between is not missed": ("if serial > last + 1 then", "if false then"),
    "another partition buries, and knows no commit": (
        "then return call('HSET', key('n'), worker, NEVER) end",
        "then end",
    ),
    "a start counts from when it was lent": ("host.ra = math.max(host.ra, host.st + delay)", ""),
    "a start need not be told": ("if asked('punctual') == 1 then host.uc = by end", ""),
    "the buried have told of their starts": ("if host.uc == held[at] then host.ra", "if false then host.ra"),
    "the buried may talk": ("return call('ZSCORE', key('w'), worker) ~= false", "return true"),
    "the buried may join": ("  bar(gone)", ""),
    "the silent are not buried": (
        "ipairs(call('ZRANGEBYSCORE', key('w'), '-inf'",
        "ipairs(call('ZRANGEBYSCORE', key('w'), 'inf'",
    ),
    "a jump of the clock buries": ("if away > AWAY_S or away < 0 then", "if false then"),
    "the others are not told of the buried": ("call('HSET', key('gone'), worker, committed)", ""),
    "an earlier process lives on": ("== name .. '#' then bury_here(other) end", "== name .. '#' then hear(other) end"),
    "what arrives is not counted": ("      call('HINCRBY', key('m'), 'arrived', 1)\n", ""),
    "outboxes are not counted": ("  count('o|', 1)\n", ""),
    "an outbox is trimmed too far": ("over - before, -1)", "upto - before + 1, -1)"),
    "late before early": ("local entry = call('LPOP', list)", "local entry = call('RPOP', list)"),
    "a record that is given back goes to the end": (
        "local head = front and call('LINDEX', list, 0)",
        "local head = nil",
    ),
    "the first lane is that of yesterday": ("host.rk = math.min(host.rk, rank_of(lane))", "host.rk = rank_of(lane)"),
    "segments do not wait for their time": ("    if host.rk > at then at = host.rk end\n", ""),
    "what need not be new has to be": (
        "(fingerprint ~= '' and not learn(segment, fingerprint))",
        "not learn(segment, '0' .. fingerprint)",
    ),
    "a segment does not know its own": (
        "if call('SADD', key('s|' .. segment .. '|' .. at)",
        "if call('SADD', key('s||' .. at)",
    ),
    "what sleeps is woken as dead": ("tally('d|', segment_of(lane), -1)\n", "\n"),
    "a block ends the block before": ("host.pa = math.max(host.pa, until_)", "host.pa = until_"),
    "a throttle ends a block": ("math.max(host.pa, host.st > 0 and", "math.max(0, host.st > 0 and"),
    "places are not given back by the buried": (
        "if lease.over == 0 then ended(host, lease.address, held[at]) else",
        "if true then",
    ),
    "a host whose turn comes is not offered": (
        "    else\n      offer(unit)\n    end\n",
        "    end\n",
    ),
    "a claim takes no turn": ("  starts(host, worker .. '|' .. claim)\n", ""),
    "a claim passes those before it": (
        "if place > 0 and host.cw < now then place = pass(host, place) end",
        "place = 0",
    ),
    "nobody passes who does not come": ("if place > 0 and host.cw < now then", "if false then"),
    "leases go before claims": ("return math.max(unit.ra, unit.cw) end", "return unit.ra end"),
    "a turn is kept for ever for who does not come": ("host.cw = at + COMES_S", "host.cw = at + 1e6"),
    "claims never stand back": ("if unit.row < CLAIMS_ROW or", "if true or"),
    "the claims of the dead wait on": ("    unclaim(worker, claims[at])\n", ""),
    "a claim keeps its place when it is over": (
        "if name then return ended(host_of(name), address, worker .. '|' .. claim) end",
        "if name then return end",
    ),
    "a callback keeps its place while it claims": ("  ended(host_of(lease.host), lease.address, id)\n", ""),
    "the buried have told of the starts of their claims": (
        "if host.uc == worker .. '|' .. claims[at] then",
        "if false then",
    ),
    "robots.txt is asked for by everybody": (
        "host.as = 1\n    return lend_to(worker, host, ROBOTS",
        "return lend_to(worker, host, ROBOTS",
    ),
    "robots.txt holds for ever": ("now - host.rb >= asked('robots_ttl')", "host.rb == 0"),
    "a question goes with the dead": ("    else\n      host.as = 0\n    end\n", "    end\n"),
    "a Crawl-delay is not heard": ("host.rb, host.rt, host.dl = fetched, 0, delay", "host.rb, host.rt = fetched, 0"),
    "a question without an answer was not tried": ("host[tries] = host[tries] + 1", ""),
    "others do not hear of a robots.txt": ("call('HSET', key('f'), name, facts)", ""),
    "an address holds for ever": (
        "asked('resolves') == 1 and host.au <= now",
        "asked('resolves') == 1 and host.au == 0",
    ),
    "an address has room for all": ("    group.fl = group.fl + 1\n", ""),
    "an address keeps no pause": ("    group.ra = math.max(group.ra, now + asked('ip_delay'))\n", ""),
    "a turn of an address is given back whatever came in between": (
        "if turn and group.ra == turn.group_next then",
        "if turn then",
    ),
    "who moves takes its turns along": (
        "  leave_ready(host, ready)\n  leave_waiting(host, waiting)\n  host.ad",
        "  host.ad",
    ),
    "who moves was never contacted": ("if group and host.st > 0 and asked('ip_delay') > 0 then", "if false then"),
    "claims pass each other at an address": ("if first and first ~= host then at", "if false then at"),
}


@pytest.mark.prove
@pytest.mark.redis
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found(redis, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    shrunk(redis.url, monkeypatch, MUTANTS[name])
    for seed in range(HISTORIES_MAX):
        try:
            History(redis.url, seed).run()
        except Exception as found:
            print(f"{name}: seed {seed}: {found}"[:300])
            return
    pytest.fail(f"not found in {HISTORIES_MAX} histories")
