-- The proxies of one target, as they are kept: in the order of use, or until their time comes; and how fast they may be
-- used. This is the first part of the script of a target. ARGV[2] is its policy, packed.
--
--   m        string  counts, the order's place, the pace, packed
--   f        hash    kinds of wishes that are filled up, but for the one of those who wish nothing: the version, and for
--                    how many members, packed
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
local BAN_HOLD_S, DOWN_HOLD_S, FADE_S = 600.0, 60.0, 60.0
local WINDOW_S, WINDOW_MIN, FORGETTING, INTERVAL_MAX_S = 2.0, 16, 1.05, 5.0
local MEMORY, LATENCY_REFERENCE_S, WORTH_MIN = 0.95, 1.0, 0.02
local SESSIONS_MAX, KINDS_MAX, TOKENS_PER_S = 100000, 1000, 1e6

-- In a short sorted set Redis looks at one member after the other, and reads the text of each number anew. A member that is
-- longer than this makes it one that is quick; it stays behind all others.
local LAST = string.rep('-', 65)
local NEVER = math.huge
local PAIRS, WAITING, LEASES, DEADLINES = key('p'), key('w'), key('l'), key('d')
local SESSIONS, SESSION_ENDS = key('s'), key('u')

local READY = setmetatable({}, { __index = function(of, tier) -- worked out once for each tier
  of[tier] = key('r|' .. tier)
  return of[tier]
end })
local READY_COUNTS = setmetatable({}, { __index = function(of, tier)
  of[tier] = call('ZCARD', READY[tier]) - 1
  return of[tier]
end })

local policy = unpack_one(ARGV[2])

-- Of the target. `overdue_at`, `wakes_at`: before that no lease is overdue, and nobody's time comes.

local m

local function begin()
  call('ZADD', WAITING, 'inf', LAST)
  call('ZADD', DEADLINES, 'inf', LAST)
  m = {
    token = 0, stands = 0, granted = 0, leaked = 0, stale = 0, usable = 0, filled = false, filled_for = 0,
    since = 0, count = 0, each_s = 0, interval_s = 0, held_until = 0, overdue_at = NEVER, wakes_at = NEVER, tiers = {},
  }
end

local function open(text)
  m = {}
  m.token, m.stands, m.granted, m.leaked, m.stale, m.usable, m.filled, m.since, m.count, m.each_s, m.interval_s,
    m.held_until, m.overdue_at, m.wakes_at, m.tiers, m.filled_for = cmsgpack.unpack(text)
  m.filled_for = m.filled_for or 0
end

local function packed_m()
  return pack(m.token, m.stands, m.granted, m.leaked, m.stale, m.usable, m.filled, m.since, m.count, m.each_s,
    m.interval_s, m.held_until, m.overdue_at, m.wakes_at, m.tiers, m.filled_for)
end

local stored = call('GET', key('m'))
if stored then open(stored) else begin() end

-- Pairs ---------------------------------------------------------------------------------------------------------------

local loaded = {}

local function is_usable(pair) return not (pair.half_open or pair.banned or pair.dead) end

-- Fields one behind the other are packed in half of the time that a map takes.
local function opened(name, text)
  local rank, paced_until, rests_until, lease_count, half_open, banned, bans, misses, uses, successes, failures, good, bad,
    latency_s, used_at, reason, queued, waiting, known_latency_s, dead, exit_ip, tier, tags = cmsgpack.unpack(text)
  return {
    key = name, rank = rank, paced_until = paced_until, rests_until = rests_until,
    lease_count = lease_count, half_open = half_open, banned = banned, bans = bans, misses = misses, uses = uses, successes = successes, failures = failures, good = good,
    bad = bad, latency_s = latency_s, used_at = used_at, reason = reason, queued = queued, waiting = waiting,
    known_latency_s = known_latency_s, dead = dead, exit_ip = exit_ip, tier = tier, tags = tags,
  }
end

local function packed(pair)
  return pack(pair.rank, pair.paced_until, pair.rests_until, pair.lease_count, pair.half_open, pair.banned,
    pair.bans, pair.misses, pair.uses, pair.successes, pair.failures, pair.good, pair.bad, pair.latency_s, pair.used_at, pair.reason,
    pair.queued, pair.waiting, pair.known_latency_s, pair.dead, pair.exit_ip, pair.tier, pair.tags)
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

-- Note in `gone` that it was usable before.
local function rest(pair, until_, gone)
  if gone and is_usable(pair) then gone[#gone + 1] = pair end
  pair.half_open = true
  pair.rests_until = math.max(pair.rests_until, until_)
  changed(pair)
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
  if pair.queued then
    local count = READY_COUNTS[pair.tier]
    READY_COUNTS[pair.tier] = count - call('ZREM', READY[pair.tier], pair.key)
  end
  if pair.waiting then call('ZREM', WAITING, pair.key) end
  pair.queued, pair.waiting = false, false
  changed(pair)
end

local function know_tier(tier)
  for _, known in ipairs(m.tiers) do
    if known == tier then return end
  end
  call('ZADD', READY[tier], 'inf', LAST)
  m.tiers[#m.tiers + 1] = tier
  table.sort(m.tiers)
end

-- Put a pair that is in no line into the one it belongs to, if to any.
local function place(pair)
  local room = policy.concurrency == 0 or pair.lease_count < policy.concurrency
  if pair.banned or pair.dead or not room or (pair.half_open and pair.lease_count > 0) then return end
  local at = at_of(pair)
  if at > now then
    call('ZADD', WAITING, at, pair.key)
    m.wakes_at = math.min(m.wakes_at, at)
    pair.waiting = true
  else
    pair.rank = math.max(pair.rank, m.stands)
    know_tier(pair.tier)
    local count = READY_COUNTS[pair.tier]
    READY_COUNTS[pair.tier] = count + call('ZADD', READY[pair.tier], pair.rank, pair.key)
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

local function least_s()
  if m.interval_s == 0 then return 0.0 end
  local halvings = (now - m.held_until) / FADE_S
  if halvings <= 0 then return m.interval_s end
  return halvings < 16 and m.interval_s * 0.5 ^ halvings or 0.0
end

local function pace_measured()
  local each_s = (now - m.since) * math.max(1, m.usable) / m.count
  if m.each_s ~= 0 then each_s = math.min(each_s, m.each_s * FORGETTING) end
  m.each_s = math.max(each_s, least_s())
  m.since, m.count = now, 0
end

local function pace_granted(count)
  if m.since == 0 then
    m.since = now
    return
  end
  m.count = m.count + count
  if m.count >= WINDOW_MIN and now - m.since >= WINDOW_S then pace_measured() end
end

-- With as many members as this policy has, at least: another process may have another one.
local function is_filled(kind, version)
  if kind == '' then return m.filled == version and m.filled_for >= policy.members end
  local found = call('HGET', key('f'), kind)
  if not found then return false end
  local filled, filled_for = cmsgpack.unpack(found)
  return filled == version and filled_for >= policy.members
end

local function nothing_is_filled()
  m.filled = false
  call('DEL', key('f'))
end

local function any_has_worked(gone)
  for _, pair in ipairs(gone) do
    if pair.uses > pair.bad then return true end -- it did not fail, or not yet: of a tunnel nobody sees more
  end
  return false
end

-- These take part no more; the load of those that have worked here would be that of the others now.
local function lost(gone, hold_s)
  if #gone == 0 then return end
  nothing_is_filled()
  if not policy.guarded or m.each_s == 0 or not any_has_worked(gone) then return end
  if now >= m.held_until then m.interval_s = math.min(math.max(m.each_s, least_s()), INTERVAL_MAX_S) end
  m.held_until = math.max(m.held_until, now + hold_s)
end
