-- The pool of one target, as `proxies.core.pool.target.TargetPool` has it: every command does what the method of its
-- name does, with the same numbers. ARGV[3] are commands, each with its arguments behind it, packed together. They are
-- done one after the other, as if each had come alone at this time; an answer for each is answered, packed together.

-- What comes back -----------------------------------------------------------------------------------------------------

local function banned(pair, outcome, draw)
  pair.bans = pair.bans + 1
  pair.misses = 0
  local until_ = now + cool_s(policy.cool_s, policy.cool_max_s, pair.bans, draw, outcome.rest_s)
  local gone = {}
  rest(pair, until_, gone)
  pair.banned = policy.bans_max > 0 and policy.bans_max <= pair.bans
  changed(pair)
  local exits = pair.exit_ip ~= '' and call('SMEMBERS', key('x|' .. pair.exit_ip)) or {}
  for _, name in ipairs(exits) do
    local other = name ~= pair.key and pair_of(name)
    if other then
      out(other)
      rest(other, until_, gone)
      other.reason = outcome.reason .. ', at the same exit'
      place(other)
    end
  end
  lost(gone, BAN_HOLD_S)
end

local function answered(pair, well)
  pair.successes = pair.successes * MEMORY + (well and 1 or 0)
  pair.failures = pair.failures * MEMORY + (well and 0 or 1)
  if well then pair.good = pair.good + 1 else pair.bad = pair.bad + 1 end
end

local function judge(pair, outcome, draw)
  local blame = outcome.blame
  if outcome.latency_s then pair.latency_s = smoothed(pair.latency_s, outcome.latency_s) end
  if blame == 'nobody' then
    pair.failures = pair.failures * MEMORY -- something came through, as in a tunnel
  else
    answered(pair, blame == 'none')
  end
  changed(pair)
  if blame == 'none' or blame == 'nobody' then
    if not pair.half_open or pair.rests_until <= now then
      pair.half_open, pair.bans, pair.misses, pair.reason = false, 0, 0, ''
      changed(pair)
    end
    return
  end
  pair.reason = outcome.reason
  if blame == 'proxy' or blame == 'unfit' then
    local gone = {}
    rest(pair, now + cool_s(DOWN_S, DOWN_MAX_S, 1, draw), gone)
    lost(gone, DOWN_HOLD_S)
    return
  end
  pair.misses = pair.misses + 1
  if blame == 'site' or pair.half_open or pair.misses >= policy.misses_max then banned(pair, outcome, draw) end
end

-- Leases and sessions -------------------------------------------------------------------------------------------------

-- The proxy of a lease, and its session; nothing when it is over.
local function lease_of(token)
  local held = call('HGET', LEASES, token)
  if not held then return nil end
  local bar = string.find(held, '|', 1, true)
  return string.sub(held, 1, bar - 1), string.sub(held, bar + 1)
end

local told = {} -- the last deadline, and as text: those that are lent together have the same

local function ends_at(token, deadline)
  if told.deadline ~= deadline then told.deadline, told.text = deadline, string.format('%.17g', deadline) end
  call('ZADD', DEADLINES, told.text, token)
  m.overdue_at = math.min(m.overdue_at, deadline)
end

local function end_lease(token)
  call('ZREM', DEADLINES, token)
  call('HDEL', LEASES, token)
end

local function expire()
  if now < m.overdue_at then return end
  for _, token in ipairs(call('ZRANGEBYSCORE', DEADLINES, '-inf', now)) do
    local pair = pair_of(lease_of(token))
    end_lease(token)
    m.leaked = m.leaked + 1
    out(pair)
    pair.lease_count = pair.lease_count - 1
    changed(pair)
    place(pair)
  end
  m.overdue_at = first_score(DEADLINES) or NEVER
end

local function bind(session, name)
  call('HSET', SESSIONS, session, pack({ name, now + policy.sticky_s }))
  call('ZADD', SESSION_ENDS, now + policy.sticky_s, session)
  if call('ZCARD', SESSION_ENDS) > SESSIONS_MAX then call('HDEL', SESSIONS, call('ZPOPMIN', SESSION_ENDS)[1]) end
end

local function session_key(session)
  local found = call('HGET', SESSIONS, session)
  local bound = found and unpack_one(found)
  if bound and bound[2] > now then return bound[1] end
  if bound then
    call('HDEL', SESSIONS, session)
    call('ZREM', SESSION_ENDS, session)
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

local function is_plain() return next(args.tags) == nil and #args.avoid == 0 end

local function first(tier, count)
  local plain = is_plain()
  local found, from, step = {}, 0, plain and count or LOOKED_AT
  repeat
    local names = call('ZRANGE', READY[tier], from, from + step - 1)
    for _, name in ipairs(names) do
      if name ~= LAST and (plain or fits(pair_of(name))) then found[#found + 1] = name end
      if #found == count then return found end
    end
    from = from + step
  until plain or #names < step
  return found
end

-- Whether so many of a tier take part.
local function works(tier, count)
  for _, name in ipairs(all_keys()) do
    local pair = pair_of(name)
    if is_usable(pair) and pair.tier == tier and fits(pair) then
      count = count - 1
      if count == 0 then return true end
    end
  end
  return false
end

-- Add as many of the first pairs as are missing. False when they are too few, which are answered, too.
local function drawn(tier, few, picked)
  local draws = args.draws
  local missing = #draws - #picked
  local found = first(tier, missing + few - 1)
  if #found < missing then return false, found end
  for _ = 1, missing do
    local draw = draws[#picked + 1]
    picked[#picked + 1] = pair_of(table.remove(found, math.floor(draw * math.min(few, #found)) + 1))
  end
  return true
end

-- The same for who wants one, any: the others need not be looked at.
local function drawn_any(tier, few)
  local at = math.floor(args.draws[1] * few)
  local found = call('ZRANGE', READY[tier], at, at)
  return { pair_of(found[1]) }
end

-- As many ready pairs as there are draws, of the cheapest tier that works, or none; and among how many one was drawn.
-- A tier that has too few for all gives those that are ready; the others come from the next.
local function chosen()
  local any = #args.draws == 1 and is_plain()
  local picked = {}
  for number, tier in ipairs(m.tiers) do
    local ready, are_enough, found = READY_COUNTS[tier], false, {}
    if ready > 0 then
      local few = math.min(FEW, math.max(1, math.floor(ready / FEW_PART)))
      if any then return drawn_any(tier, few), few end
      are_enough, found = drawn(tier, few, picked)
      if are_enough then return picked, few end
    end
    if number < #m.tiers and works(tier, #args.draws - #picked) then break end
    for _, name in ipairs(found) do picked[#picked + 1] = pair_of(name) end
  end
  return {}, 0
end

local function wait(kept)
  if kept and at_of(kept) > now and kept.lease_count == 0 then return at_of(kept) end
  local turn, deadline = first_score(WAITING), first_score(DEADLINES)
  if turn and deadline then return math.min(turn, deadline) end
  return turn or deadline or false
end

local function grant(pair, interval_s, deadline, rebound, among)
  out(pair)
  m.stands = math.max(m.stands, pair.rank)
  pair.rank = pair.rank + cost(pair)
  pair.uses = pair.uses + 1
  pair.lease_count = pair.lease_count + 1
  pair.used_at = now
  pair.paced_until = now + interval_s
  changed(pair)
  m.granted = m.granted + 1
  place(pair)
  m.token = math.max(m.token + 1, math.floor(now * TOKENS_PER_S))
  local token = string.format('%.0f', m.token)
  call('HSET', LEASES, token, pair.key .. '|' .. args.session)
  ends_at(token, deadline)
  return { m.token, pair.key, deadline, rebound, among }
end

local commands = {}

-- answers the grants, or false and when to ask again; and whether the target has what the global pool can give
function commands.acquire()
  expire()
  wake()
  local filled = is_filled(args.kind, args.version)
  local name = args.session ~= '' and session_key(args.session)
  local bound = name and pair_of(name)
  local kept = bound and means(bound) and bound
  local picked, among, rebound
  if kept and (is_usable(kept) or kept.lease_count > 0) then
    picked, among, rebound = kept.queued and { kept } or {}, 0, false
  else
    picked, among = chosen()
    rebound = bound and true or false
  end
  if #picked == 0 then return { false, wait(kept), filled } end
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
  if not lease_of(args.token) then return false end
  ends_at(args.token, now + args.lease_s)
  return now + args.lease_s
end

-- answers the proxy, false when the lease was over before
function commands.release()
  expire()
  local name, session = lease_of(args.token)
  if not name then
    m.stale = m.stale + 1
    return false
  end
  end_lease(args.token)
  local pair = pair_of(name)
  out(pair)
  pair.lease_count = pair.lease_count - 1
  pair.uses = pair.uses + math.max(0, #args.outcomes - 1)
  changed(pair)
  for _, outcome in ipairs(args.outcomes) do judge(pair, outcome, args.draw) end
  if session ~= '' and session_key(session) == pair.key then bind(session, pair.key) end
  place(pair)
  return pair.key
end

local function leave_exit(pair)
  if pair.exit_ip ~= '' then call('SREM', key('x|' .. pair.exit_ip), pair.key) end
end

-- Let one that is known to come out here from now on rest with those that were banned here.
local function share_bans(pair, gone)
  local last
  for _, name in ipairs(call('SMEMBERS', key('x|' .. pair.exit_ip))) do
    local other = name ~= pair.key and pair_of(name)
    if other and other.bans > 0 and other.rests_until > now then
      local later = not last or other.rests_until > last.rests_until
      if later or (other.rests_until == last.rests_until and name > last.key) then last = other end
    end
  end
  if not last then return end
  pair.reason = last.reason .. ', at the same exit'
  rest(pair, last.rests_until, gone)
end

local function learn(name, facts)
  local pair, gone = pair_of(name), {}
  local exit_before = pair and pair.exit_ip or ''
  if not pair then
    pair = {
      key = name, rank = m.stands, paced_until = 0, rests_until = 0, lease_count = 0, half_open = false, banned = false,
      bans = 0,
      misses = 0, uses = 0, successes = 0, failures = 0, good = 0, bad = 0, latency_s = false, used_at = 0, reason = '',
      queued = false, waiting = false, counted = false, dead = false, exit_ip = '', tier = facts.tier,
    }
    loaded[name] = pair
  else
    out(pair)
    leave_exit(pair)
    if facts.dead and is_usable(pair) then gone = { pair } end
    pair.half_open = pair.half_open or (pair.dead and not facts.dead)
  end
  pair.known_latency_s, pair.dead, pair.exit_ip = facts.latency_s, facts.dead, facts.exit_ip
  pair.tier, pair.tags = facts.tier, facts.tags
  changed(pair)
  if pair.exit_ip ~= '' then call('SADD', key('x|' .. pair.exit_ip), name) end
  if pair.exit_ip ~= '' and pair.exit_ip ~= exit_before then share_bans(pair, gone) end
  if facts.rests_until > math.max(now, pair.rests_until) then rest(pair, facts.rests_until, gone) end
  lost(gone, DOWN_HOLD_S)
  place(pair)
end

-- what the global pool knows of some proxies, new ones, too, unless `only_known`; the kind of wish that this fills up,
-- and the version, if it does
function commands.learn()
  if args.fills == '' then
    m.filled, m.filled_for = args.version, policy.members
  elseif args.fills then
    if call('HLEN', key('f')) >= KINDS_MAX then call('DEL', key('f')) end
    call('HSET', key('f'), args.fills, pack(args.version, policy.members))
  end
  for name, facts in pairs(args.facts) do -- of which some may rest, so that it is not filled up yet
    if pair_of(name) or not args.only_known then learn(name, facts) end
  end
  return true
end

local function forget(pair)
  nothing_is_filled()
  out(pair)
  leave_exit(pair)
  if pair.counted then m.usable = m.usable - 1 end
  call('HDEL', PAIRS, pair.key)
  loaded[pair.key] = false
end

-- a proxy left the global pool
function commands.forget()
  expire()
  local pair = pair_of(args.key)
  if not pair then return false end
  for _, token in ipairs(call('HKEYS', LEASES)) do
    if lease_of(token) == args.key then end_lease(token) end
  end
  forget(pair)
  return true
end

-- these are dead, and are to leave the global pool: forgets those that nobody has, answers the others
function commands.forget_idle()
  expire()
  local lent = {}
  for _, name in ipairs(args.keys) do
    local pair = pair_of(name)
    if pair and pair.lease_count > 0 then lent[#lent + 1] = name elseif pair then forget(pair) end
  end
  return lent
end

function commands.ban()
  local pair = pair_of(args.key)
  if not pair then return false end
  out(pair)
  local gone = is_usable(pair) and { pair } or {}
  pair.reason = args.reason
  if args['until'] then rest(pair, args['until']) else pair.banned = true end
  changed(pair)
  lost(gone, BAN_HOLD_S)
  place(pair)
  return true
end

function commands.unban()
  local pair = pair_of(args.key)
  if not pair then return false end
  out(pair)
  pair.banned, pair.half_open, pair.bans, pair.misses, pair.rests_until = false, false, 0, 0, 0
  changed(pair)
  place(pair)
  return true
end

-- nothing is to be remembered of the target, unless it has leases
function commands.drop()
  expire()
  if call('HLEN', LEASES) > 0 then return false end
  for _, name in ipairs(all_keys()) do leave_exit(pair_of(name)) end
  for _, tier in ipairs(m.tiers) do
    call('DEL', READY[tier])
    READY_COUNTS[tier] = nil
  end
  for _, name in ipairs({ 'p', 'f', 'w', 'd', 's', 'u', 'm' }) do call('DEL', key(name)) end
  loaded, m = {}, nil
  return true
end

-- what has to be known to fill it up: all proxies that it has, and how many of the usable ones have the tags
function commands.members()
  local names, count = all_keys(), m.usable
  if not is_plain() then
    count = 0
    for _, name in ipairs(names) do
      local pair = pair_of(name)
      if is_usable(pair) and means(pair) then count = count + 1 end
    end
  end
  return { names, count }
end

-- the proxies, as they are kept, and the counts: as they are now, since answers are packed when all commands are done
function commands.look()
  expire()
  local all = {}
  for _, name in ipairs(all_keys()) do all[name] = pair_of(name) end
  return unpack_one(pack({ all, m, call('HLEN', LEASES), math.max(policy.delay_s, least_s()) }))
end

-- the same; by proxy when each of its leases ends; which proxy a session has, or false; whether it is filled up
function commands.explain()
  local told, ends, bound = commands.look(), {}, false
  local deadlines = call('ZRANGE', DEADLINES, 0, -1, 'WITHSCORES')
  for number = 1, #deadlines - 2, 2 do
    local name = lease_of(deadlines[number])
    ends[#ends + 1] = { name, tonumber(deadlines[number + 1]) }
  end
  if args.session ~= '' then bound = session_key(args.session) or false end
  return { told, ends, bound, is_filled(args.kind, args.version) }
end

-- All of them ---------------------------------------------------------------------------------------------------------

local PLAIN = { __index = { tags = {}, avoid = {}, session = '', kind = '' } } -- what is not said

local calls, answers = unpack_one(ARGV[3]), {}
for number = 1, #calls, 2 do
  args = setmetatable(calls[number + 1], PLAIN)
  if not m then begin() end -- the one before has dropped it
  answers[#answers + 1] = commands[calls[number]]()
end

write()
if m then call('SET', key('m'), packed_m()) end
return pack(answers)
