-- The pool of one target, as `core.proxies.target.TargetPool` has it: every command does what the method of its name does,
-- with the same numbers. Arguments have those of the policy in `policy`.
--
--   m        string  counts, the order's place, the pace, packed
--   p        hash    proxies: what is known of them here, packed
--   r|TIER   zset    those that may be lent now, by rank
--   w        zset    those that wait for their time, by that
--   l        hash    leases by token: proxy, deadline, session, packed
--   d        zset    tokens by deadline
--   s        hash    sessions: their proxy, and until when they keep it, packed
--   u        zset    sessions by that
--   x|IP     set     proxies that come out there

local FEW, FEW_PART, LOOKED_AT = 8, 4, 64
local DOWN_S, DOWN_MAX_S = 10.0, 60.0
local HOLD_S, GAP_SMOOTHING, GAP_MAX, INTERVAL_MAX_S, GAPS_MIN = 600.0, 1 / 32, 8.0, 60.0, 8
local MEMORY, LATENCY_REFERENCE_S, WORTH_MIN = 0.95, 1.0, 0.02
local SESSIONS_MAX, KINDS_MAX = 100000, 1000

local policy = args.policy
local stored = call('GET', key('m'))
local m = stored and unpack_one(stored) or {
  token = 0, stands = 0, granted = 0, leaked = 0, stale = 0, usable = 0,
  gap_s = 0, gaps = 0, granted_at = 0, interval_s = 0, held_at = 0, tiers = {}, kinds = {}, kinds_count = 0,
}

-- Pairs ---------------------------------------------------------------------------------------------------------------

local loaded = {}

local function is_usable(pair) return not (pair.half or pair.barred or pair.dead) end

local function pair_of(name)
  local pair = loaded[name]
  if pair == nil then
    local found = call('HGET', key('p'), name)
    pair = found and unpack_one(found) or false
    if pair then pair.key, pair.counted = name, is_usable(pair) end
    loaded[name] = pair
  end
  return pair
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
  if pair.queued then call('ZREM', key('r|' .. pair.tier), pair.key) end
  if pair.waits then call('ZREM', key('w'), pair.key) end
  pair.queued, pair.waits = false, false
  changed(pair)
end

local function know_tier(tier)
  for _, known in ipairs(m.tiers) do
    if known == tier then return end
  end
  m.tiers[#m.tiers + 1] = tier
  table.sort(m.tiers)
end

-- Put a pair that is in no line into the one it belongs to, if to any.
local function place(pair)
  local room = policy.concurrency == 0 or pair.held < policy.concurrency
  if pair.barred or pair.dead or not room or (pair.half and pair.held > 0) then return end
  if at_of(pair) > now then
    call('ZADD', key('w'), at_of(pair), pair.key)
    pair.waits = true
  else
    pair.rank = math.max(pair.rank, m.stands)
    know_tier(pair.tier)
    call('ZADD', key('r|' .. pair.tier), pair.rank, pair.key)
    pair.queued = true
  end
  changed(pair)
end

local function wake()
  for _, name in ipairs(call('ZRANGEBYSCORE', key('w'), '-inf', now)) do
    local pair = pair_of(name)
    out(pair)
    place(pair)
  end
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

-- So many proxies take part no more.
local function lost(count)
  if count == 0 then return end
  m.kinds, m.kinds_count = {}, 0
  if policy.guarded and m.gaps >= GAPS_MIN then
    m.interval_s = math.max(least_s(), math.min(m.gap_s * (m.usable + count), INTERVAL_MAX_S))
    m.held_at = now
  end
end

-- What comes back -----------------------------------------------------------------------------------------------------

local function banned(pair, outcome, draw)
  pair.bans = pair.bans + 1
  pair.misses = 0
  local until_ = now + cool_s(policy.cool_s, policy.cool_max_s, pair.bans, draw, outcome.rest_s)
  local count = rest(pair, until_)
  pair.barred = policy.bans_max > 0 and policy.bans_max <= pair.bans
  changed(pair)
  local exits = pair.exit_ip ~= '' and call('SMEMBERS', key('x|' .. pair.exit_ip)) or {}
  for _, name in ipairs(exits) do
    local other = name ~= pair.key and pair_of(name)
    if other then
      out(other)
      count = count + rest(other, until_)
      other.reason = outcome.reason .. ', at the same exit'
      place(other)
    end
  end
  lost(count)
end

local function answered(pair, well)
  pair.successes = pair.successes * MEMORY + (well and 1 or 0)
  pair.failures = pair.failures * MEMORY + (well and 0 or 1)
  if well then pair.good = pair.good + 1 else pair.bad = pair.bad + 1 end
end

local function judge(pair, outcome, draw)
  local blame = outcome.blame
  if outcome.latency_s then pair.latency_s = smoothed(pair.latency_s, outcome.latency_s) end
  if blame ~= 'nobody' then answered(pair, blame == 'none') end
  changed(pair)
  if blame == 'none' or blame == 'nobody' then
    if not pair.half or pair.rests_until <= now then
      pair.half, pair.bans, pair.misses, pair.reason = false, 0, 0, ''
      changed(pair)
    end
    return
  end
  pair.reason = outcome.reason
  if blame == 'proxy' or blame == 'unfit' then
    lost(rest(pair, now + cool_s(DOWN_S, DOWN_MAX_S, 1, draw)))
    return
  end
  pair.misses = pair.misses + 1
  if blame == 'site' or pair.half or pair.misses >= policy.misses_max then banned(pair, outcome, draw) end
end

-- Leases and sessions -------------------------------------------------------------------------------------------------

local function end_lease(token)
  call('ZREM', key('d'), token)
  call('HDEL', key('l'), token)
end

local function expire()
  for _, token in ipairs(call('ZRANGEBYSCORE', key('d'), '-inf', now)) do
    local pair = pair_of(unpack_one(call('HGET', key('l'), token))[1])
    end_lease(token)
    m.leaked = m.leaked + 1
    out(pair)
    pair.held = pair.held - 1
    changed(pair)
    place(pair)
  end
end

local function bind(session, name)
  call('HSET', key('s'), session, pack({ name, now + policy.sticky_s }))
  call('ZADD', key('u'), now + policy.sticky_s, session)
  if call('ZCARD', key('u')) > SESSIONS_MAX then call('HDEL', key('s'), call('ZPOPMIN', key('u'))[1]) end
end

local function session_key(session)
  local found = call('HGET', key('s'), session)
  local bound = found and unpack_one(found)
  if bound and bound[2] > now then return bound[1] end
  if bound then
    call('HDEL', key('s'), session)
    call('ZREM', key('u'), session)
  end
  return nil
end

-- Lending -------------------------------------------------------------------------------------------------------------

local function means(pair)
  for name, value in pairs(args.tags) do
    if pair.tags[name] ~= value then return false end
  end
  return true
end

local function fits(pair)
  for _, name in ipairs(args.avoid) do
    if name == pair.key then return false end
  end
  return means(pair)
end

local function first(tier, count)
  local plain = next(args.tags) == nil and #args.avoid == 0
  local found = {}
  for _, name in ipairs(call('ZRANGE', key('r|' .. tier), 0, (plain and count or LOOKED_AT) - 1)) do
    if plain or fits(pair_of(name)) then found[#found + 1] = name end
    if #found == count then break end
  end
  return found
end

local function works(tier)
  for _, name in ipairs(call('HKEYS', key('p'))) do
    local pair = pair_of(name)
    if is_usable(pair) and pair.tier == tier and fits(pair) then return true end
  end
  return false
end

-- As many ready pairs as there are draws, of the cheapest tier that works, or none; and among how many one was drawn.
local function chosen()
  local draws = args.draws
  for number, tier in ipairs(m.tiers) do
    local few = math.min(FEW, math.max(1, math.floor(call('ZCARD', key('r|' .. tier)) / FEW_PART)))
    local found = first(tier, #draws + few - 1)
    if #found >= #draws then
      local picked = {}
      for _, draw in ipairs(draws) do
        picked[#picked + 1] = pair_of(table.remove(found, math.floor(draw * math.min(few, #found)) + 1))
      end
      return picked, few
    end
    if number < #m.tiers and works(tier) then break end
  end
  return {}, 0
end

local function first_score(name)
  local found = call('ZRANGE', key(name), 0, 0, 'WITHSCORES')[2]
  return found and tonumber(found)
end

local function wait(bound)
  if bound and at_of(bound) > now and bound.held == 0 then return at_of(bound) end
  local turn, deadline = first_score('w'), first_score('d')
  if turn and deadline then return math.min(turn, deadline) end
  return turn or deadline or false
end

local function grant(pair, interval_s, until_, rebound, among)
  out(pair)
  m.stands = math.max(m.stands, pair.rank)
  pair.rank = pair.rank + cost(pair)
  pair.uses = pair.uses + 1
  pair.held = pair.held + 1
  pair.used_at = now
  pair.paced_until = now + interval_s
  changed(pair)
  m.granted = m.granted + 1
  place(pair)
  m.token = m.token + 1
  call('HSET', key('l'), m.token, pack({ pair.key, until_, args.session }))
  call('ZADD', key('d'), until_, m.token)
  return { m.token, pair.key, until_, rebound, among }
end

local commands = {}

-- answers the grants, or false and when to ask again; and whether the target has what the global pool can give
function commands.acquire()
  expire()
  wake()
  local filled = m.kinds[args.kind] == args.version
  local name = args.session ~= '' and session_key(args.session)
  local bound = name and pair_of(name)
  local picked, among, rebound
  if bound and (is_usable(bound) or bound.held > 0) then
    picked, among, rebound = bound.queued and { bound } or {}, 0, false
  else
    picked, among = chosen()
    rebound = bound and true or false
  end
  if #picked == 0 then return { false, wait(bound), filled } end
  pace_granted(#picked)
  local interval_s = math.max(policy.delay_s, least_s())
  if args.session ~= '' then bind(args.session, picked[1].key) end
  local grants = {}
  for _, pair in ipairs(picked) do
    grants[#grants + 1] = grant(pair, interval_s, now + args.lease_s, rebound, among)
  end
  return { grants, false, filled }
end

-- answers the new deadline, false when the lease is over
function commands.renew()
  expire()
  local held = call('HGET', key('l'), args.token)
  if not held then return false end
  local lease = unpack_one(held)
  lease[2] = now + args.lease_s
  call('HSET', key('l'), args.token, pack(lease))
  call('ZADD', key('d'), lease[2], args.token)
  return lease[2]
end

-- answers the proxy, false when the lease was over before
function commands.release()
  expire()
  local held = call('HGET', key('l'), args.token)
  if not held then
    m.stale = m.stale + 1
    return false
  end
  local lease = unpack_one(held)
  end_lease(args.token)
  local pair = pair_of(lease[1])
  out(pair)
  pair.held = pair.held - 1
  pair.uses = pair.uses + math.max(0, #args.outcomes - 1)
  changed(pair)
  for _, outcome in ipairs(args.outcomes) do judge(pair, outcome, args.draw) end
  if lease[3] ~= '' and session_key(lease[3]) == pair.key then bind(lease[3], pair.key) end
  place(pair)
  return pair.key
end

local function leave_exit(pair)
  if pair.exit_ip ~= '' then call('SREM', key('x|' .. pair.exit_ip), pair.key) end
end

local function learn(name, facts)
  local pair, count = pair_of(name), 0
  if not pair then
    pair = {
      key = name, rank = m.stands, paced_until = 0, rests_until = 0, held = 0, half = false, barred = false, bans = 0,
      misses = 0, uses = 0, successes = 0, failures = 0, good = 0, bad = 0, latency_s = false, used_at = 0, reason = '',
      queued = false, waits = false, counted = false, dead = false, exit_ip = '', tier = facts.tier,
    }
    loaded[name] = pair
  else
    out(pair)
    leave_exit(pair)
    if facts.dead and is_usable(pair) then count = 1 end
    pair.half = pair.half or (pair.dead and not facts.dead)
  end
  pair.known_latency_s, pair.dead, pair.exit_ip = facts.latency_s, facts.dead, facts.exit_ip
  pair.tier, pair.tags = facts.tier, facts.tags
  changed(pair)
  if pair.exit_ip ~= '' then call('SADD', key('x|' .. pair.exit_ip), name) end
  if facts.rests_until > math.max(now, pair.rests_until) then count = math.max(count, rest(pair, facts.rests_until)) end
  lost(count)
  place(pair)
end

-- what the global pool knows of some proxies, new ones, too, unless `only_known`; `kind` and `version`, if this fills the
-- target up
function commands.learn()
  for name, facts in pairs(args.facts) do
    if pair_of(name) or not args.only_known then learn(name, facts) end
  end
  if args.kind then
    if m.kinds_count >= KINDS_MAX then m.kinds, m.kinds_count = {}, 0 end
    m.kinds[args.kind], m.kinds_count = args.version, m.kinds_count + 1
  end
  return true
end

-- a proxy left the global pool
function commands.forget()
  local pair = pair_of(args.key)
  if not pair then return false end
  m.kinds, m.kinds_count = {}, 0
  out(pair)
  leave_exit(pair)
  if pair.counted then m.usable = m.usable - 1 end
  local leases = call('HGETALL', key('l'))
  for number = 1, #leases, 2 do
    if unpack_one(leases[number + 1])[1] == args.key then end_lease(leases[number]) end
  end
  call('HDEL', key('p'), args.key)
  loaded[args.key] = false
  return true
end

function commands.ban()
  local pair = pair_of(args.key)
  if not pair then return false end
  out(pair)
  pair.reason = args.reason
  if args['until'] then rest(pair, args['until']) else pair.barred = true end
  changed(pair)
  place(pair)
  return true
end

function commands.unban()
  local pair = pair_of(args.key)
  if not pair then return false end
  out(pair)
  pair.barred, pair.half, pair.bans, pair.misses, pair.rests_until = false, false, 0, 0, 0
  changed(pair)
  place(pair)
  return true
end

-- nothing is to be remembered of the target, unless it has leases
function commands.drop()
  expire()
  if call('HLEN', key('l')) > 0 then return false end
  for _, name in ipairs(call('HKEYS', key('p'))) do leave_exit(pair_of(name)) end
  for _, tier in ipairs(m.tiers) do call('DEL', key('r|' .. tier)) end
  for _, name in ipairs({ 'p', 'w', 'd', 's', 'u', 'm' }) do call('DEL', key(name)) end
  loaded, m = {}, nil
  return true
end

-- the proxies, as they are kept, and the counts
function commands.look()
  expire()
  local all = {}
  for _, name in ipairs(call('HKEYS', key('p'))) do all[name] = pair_of(name) end
  return { all, m, call('HLEN', key('l')), math.max(policy.delay_s, least_s()) }
end

-- the same; by proxy when the first of its leases ends; and which proxy a session has, or false
function commands.explain()
  local looked, ends, bound = commands.look(), {}, false
  for _, packed in ipairs(call('HVALS', key('l'))) do
    local lease = unpack_one(packed)
    ends[#ends + 1] = { lease[1], lease[2] }
  end
  if args.session ~= '' then bound = session_key(args.session) or false end
  return { looked, ends, bound }
end

local answer = commands[ARGV[2]]()
for name, pair in pairs(loaded) do
  if pair and pair.dirty then
    pair.dirty, pair.counted, pair.key = nil, nil, nil
    call('HSET', key('p'), name, pack(pair))
  end
end
if m then call('SET', key('m'), pack(m)) end
return pack(answer)
