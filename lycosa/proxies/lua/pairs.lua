-- The proxies of one target, as they are kept: in the order of use, or until their time comes; and how fast they may be
-- used. This is the first part of the script of a target. ARGV[2] is its policy, packed.
--
--   m        string  counts, the order's place, the pace, packed
--   k        hash    kinds of wishes that are filled up, but for the one of those who wish nothing: the version
--   p        hash    proxies: what is known of them here, packed
--   r|TIER   zset    those that may be lent now, by rank
--   w        zset    those that wait for their time, by that
--   l        hash    leases by token: proxy|session
--   d        zset    tokens by deadline
--   s        hash    sessions: their proxy, and until when they keep it, packed
--   u        zset    sessions by that
--   x|IP     set     proxies that come out there

local FEW, FEW_PART, LOOKED_AT = 8, 4, 64
local DOWN_S, DOWN_MAX_S = 10.0, 60.0
local HOLD_S, GAP_SMOOTHING, GAP_MAX, INTERVAL_MAX_S, GAPS_MIN = 600.0, 1 / 32, 8.0, 60.0, 8
local MEMORY, LATENCY_REFERENCE_S, WORTH_MIN = 0.95, 1.0, 0.02
local SESSIONS_MAX, KINDS_MAX, TOKENS_PER_S = 100000, 1000, 1e6

-- In a short sorted set Redis looks at one member after the other, and reads the text of each number anew. A member that is
-- longer than this makes it one that is quick; it stays behind all others.
local LAST = string.rep('-', 65)
local NEVER = math.huge
local PAIRS, READY, WAITING, LEASES, DEADLINES = key('p'), key('r|'), key('w'), key('l'), key('d')
local SESSIONS, SESSION_ENDS = key('s'), key('u')

local policy = unpack_one(ARGV[2])

-- Of the target. `overdue_at`, `wakes_at`: before that no lease is overdue, and nobody's time comes.

local m

local function begin()
  call('ZADD', WAITING, 'inf', LAST)
  call('ZADD', DEADLINES, 'inf', LAST)
  m = {
    token = 0, stands = 0, granted = 0, leaked = 0, stale = 0, usable = 0, filled = false,
    gap_s = 0, gaps = 0, granted_at = 0, interval_s = 0, held_at = 0, overdue_at = NEVER, wakes_at = NEVER, tiers = {},
  }
end

local function open(text)
  m = {}
  m.token, m.stands, m.granted, m.leaked, m.stale, m.usable, m.filled, m.gap_s, m.gaps, m.granted_at, m.interval_s,
    m.held_at, m.overdue_at, m.wakes_at, m.tiers = cmsgpack.unpack(text)
end

local function packed_m()
  return pack(m.token, m.stands, m.granted, m.leaked, m.stale, m.usable, m.filled, m.gap_s, m.gaps, m.granted_at,
    m.interval_s, m.held_at, m.overdue_at, m.wakes_at, m.tiers)
end

local stored = call('GET', key('m'))
if stored then open(stored) else begin() end

-- Pairs ---------------------------------------------------------------------------------------------------------------

local loaded = {}

local function is_usable(pair) return not (pair.half or pair.barred or pair.dead) end

-- Fields one behind the other are packed in half of the time that a map takes.
local function opened(name, text)
  local rank, paced_until, rests_until, held, half, barred, bans, misses, uses, successes, failures, good, bad, latency_s,
    used_at, reason, queued, waits, known_latency_s, dead, exit_ip, tier, tags = cmsgpack.unpack(text)
  return {
    key = name, rank = rank, paced_until = paced_until, rests_until = rests_until, held = held, half = half,
    barred = barred, bans = bans, misses = misses, uses = uses, successes = successes, failures = failures, good = good,
    bad = bad, latency_s = latency_s, used_at = used_at, reason = reason, queued = queued, waits = waits,
    known_latency_s = known_latency_s, dead = dead, exit_ip = exit_ip, tier = tier, tags = tags,
  }
end

local function packed(pair)
  return pack(pair.rank, pair.paced_until, pair.rests_until, pair.held, pair.half, pair.barred, pair.bans, pair.misses,
    pair.uses, pair.successes, pair.failures, pair.good, pair.bad, pair.latency_s, pair.used_at, pair.reason,
    pair.queued, pair.waits, pair.known_latency_s, pair.dead, pair.exit_ip, pair.tier, pair.tags)
end

local function pair_of(name)
  local pair = loaded[name]
  if pair == nil then
    local found = call('HGET', PAIRS, name)
    pair = found and opened(name, found)
    if pair then pair.counted = is_usable(pair) end
    loaded[name] = pair
  end
  return pair
end

-- Write those that have changed.
local function write()
  for name, pair in pairs(loaded) do
    if pair and pair.dirty then
      call('HSET', PAIRS, name, packed(pair))
      pair.dirty = nil
    end
  end
end

local function all_keys()
  write() -- new ones, too
  return call('HKEYS', PAIRS)
end

-- Note that a pair has changed: it is written at the end, and counted now.
local function changed(pair)
  pair.dirty = true
  local usable = is_usable(pair)
  if usable ~= pair.counted then
    m.usable = m.usable + (usable and 1 or -1)
    pair.counted = usable
  end
end

local function at_of(pair) return math.max(pair.paced_until, pair.rests_until) end

local function rest(pair, until_)
  local was = is_usable(pair)
  pair.half = true
  pair.rests_until = math.max(pair.rests_until, until_)
  changed(pair)
  return was and 1 or 0
end

local function cost(pair)
  local success = (pair.successes + 1) / (pair.successes + pair.failures + 2)
  local latency_s = pair.latency_s or pair.known_latency_s or 0
  local near = LATENCY_REFERENCE_S / (LATENCY_REFERENCE_S + latency_s)
  return 1 / math.max(WORTH_MIN, success * success * near)
end

-- The order of use ----------------------------------------------------------------------------------------------------

-- Take it out, wherever it is.
local function out(pair)
  if pair.queued then call('ZREM', READY .. pair.tier, pair.key) end
  if pair.waits then call('ZREM', WAITING, pair.key) end
  pair.queued, pair.waits = false, false
  changed(pair)
end

local function know_tier(tier)
  for _, known in ipairs(m.tiers) do
    if known == tier then return end
  end
  call('ZADD', READY .. tier, 'inf', LAST)
  m.tiers[#m.tiers + 1] = tier
  table.sort(m.tiers)
end

-- Put a pair that is in no line into the one it belongs to, if to any.
local function place(pair)
  local room = policy.concurrency == 0 or pair.held < policy.concurrency
  if pair.barred or pair.dead or not room or (pair.half and pair.held > 0) then return end
  local at = at_of(pair)
  if at > now then
    call('ZADD', WAITING, at, pair.key)
    m.wakes_at = math.min(m.wakes_at, at)
    pair.waits = true
  else
    pair.rank = math.max(pair.rank, m.stands)
    know_tier(pair.tier)
    call('ZADD', READY .. pair.tier, pair.rank, pair.key)
    pair.queued = true
  end
  changed(pair)
end

local function first_score(of)
  local found = call('ZRANGE', of, 0, 0, 'WITHSCORES')[2]
  return found ~= 'inf' and tonumber(found)
end

local function wake()
  if now < m.wakes_at then return end
  for _, name in ipairs(call('ZRANGEBYSCORE', WAITING, '-inf', now)) do
    local pair = pair_of(name)
    out(pair)
    place(pair)
  end
  m.wakes_at = first_score(WAITING) or NEVER
end

-- The pace ------------------------------------------------------------------------------------------------------------

local function pace_granted(count)
  if m.granted_at ~= 0 then
    local gap_s = math.max(0.0, now - m.granted_at) / count
    if m.gaps >= GAPS_MIN then gap_s = math.min(gap_s, m.gap_s * GAP_MAX) end
    m.gaps = m.gaps + 1
    m.gap_s = m.gap_s + (gap_s - m.gap_s) * math.max(GAP_SMOOTHING, 1 / m.gaps)
  end
  m.granted_at = now
end

local function least_s()
  local over_s = now - m.held_at - HOLD_S
  if m.interval_s == 0 or over_s <= 0 then return m.interval_s end
  local halvings = over_s / HOLD_S
  return halvings < 16 and m.interval_s * 0.5 ^ halvings or 0.0
end

local function is_filled(kind, version)
  if kind == '' then return m.filled == version end
  return call('HGET', key('k'), kind) == tostring(version)
end

local function nothing_is_filled()
  m.filled = false
  call('DEL', key('k'))
end

-- So many proxies take part no more.
local function lost(count)
  if count == 0 then return end
  nothing_is_filled()
  if policy.guarded and m.gaps >= GAPS_MIN then
    m.interval_s = math.max(least_s(), math.min(m.gap_s * (m.usable + count), INTERVAL_MAX_S))
    m.held_at = now
  end
end
