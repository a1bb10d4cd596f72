-- The pool of one target. A command does the same as the `proxies.core.pool.target.TargetPool` method of that name, if
-- there is one, with the same constants. ARGV[3] is a packed list of commands, each followed by its arguments. They are
-- executed in order, as if each had been sent alone at this time. The script returns the packed list of their answers.

-- Outcomes ------------------------------------------------------------------------------------------------------------

-- Starts the cool-down of a member and of all members with the same exit address.
local function count_ban(member, outcome, draw)
  member.bans = member.bans + 1
  member.misses = 0
  local until_ = now + cool_s(policy.cool_s, policy.max_cool_s, member.bans, draw, outcome.rest_s)
  local lost = {}
  cool_down(member, until_, lost)
  member.banned = policy.max_bans > 0 and policy.max_bans <= member.bans
  changed(member)
  local exits = member.exit_ip ~= '' and call('SMEMBERS', key.exit .. member.exit_ip) or {}
  for _, name in ipairs(exits) do
    local other = name ~= member.key and member_of(name)
    if other then
      leave_order(other)
      cool_down(other, until_, lost)
      other.reason = outcome.reason .. SAME_EXIT
      place(other)
    end
  end
  note_lost(lost, BAN_HOLD_S)
end

local function count_response(member, success)
  member.successes = member.successes * DECAY + (success and 1 or 0)
  member.failures = member.failures * DECAY + (success and 0 or 1)
  if success then member.good = member.good + 1 else member.bad = member.bad + 1 end
end

local function record(member, outcome, draw)
  local blame = outcome.blame
  if outcome.latency_s then member.latency_s = smoothed(member.latency_s, outcome.latency_s) end
  if blame == 'nobody' then
    member.failures = member.failures * DECAY -- the proxy passed data on, as in a tunnel
  else
    count_response(member, blame == 'none')
  end
  changed(member)
  if blame == 'none' or blame == 'nobody' then
    if not member.half_open or member.rests_until <= now then
      member.half_open, member.bans, member.misses, member.reason = false, 0, 0, ''
      changed(member)
    end
    return
  end
  member.reason = outcome.reason
  if blame == 'proxy' or blame == 'unfit' then
    local lost = {}
    cool_down(member, now + cool_s(TARGET_DOWN_S, TARGET_DOWN_MAX_S, 1, draw), lost)
    note_lost(lost, DOWN_HOLD_S)
    return
  end
  member.misses = member.misses + 1
  if blame == 'site' or member.half_open or member.misses >= policy.max_misses then count_ban(member, outcome, draw) end
end

-- Leases and sessions -------------------------------------------------------------------------------------------------

-- Returns the key of the proxy and the session of a lease; nil if the lease has ended.
local function lease_of(token)
  local lease = call('HGET', LEASES, token)
  if not lease then return nil end
  local bar = string.find(lease, '|', 1, true)
  return string.sub(lease, 1, bar - 1), string.sub(lease, bar + 1)
end

local last_deadline, last_deadline_text -- cached: leases granted together have the same deadline

local function set_deadline(token, deadline)
  if last_deadline ~= deadline then
    last_deadline, last_deadline_text = deadline, string.format('%.17g', deadline)
  end
  call('ZADD', DEADLINES, last_deadline_text, token)
  target.overdue_at = math.min(target.overdue_at, deadline)
end

local function end_lease(token)
  call('ZREM', DEADLINES, token)
  call('HDEL', LEASES, token)
end

local function expire()
  if now < target.overdue_at then return end
  for _, token in ipairs(call('ZRANGEBYSCORE', DEADLINES, '-inf', now)) do
    local member = member_of(lease_of(token))
    end_lease(token)
    target.leaked = target.leaked + 1
    leave_order(member)
    member.lease_count = member.lease_count - 1
    changed(member)
    place(member)
  end
  target.overdue_at = first_score(DEADLINES) or NEVER
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

-- Acquiring -----------------------------------------------------------------------------------------------------------

local function has_tags(member)
  for name, value in pairs(args.tags) do
    if member.tags[name] ~= value then return false end
  end
  return true
end

local function fits(member)
  for _, name in ipairs(args.avoid) do
    if name == member.key then return false end
  end
  return has_tags(member)
end

local function fits_all() return next(args.tags) == nil and #args.avoid == 0 end

-- Returns the names of the first ready members of a tier that fit the request, at most `count`.
local function first_ready(tier, count)
  local all_fit = fits_all()
  local found, from, step = {}, 0, all_fit and count or FIT_BATCH
  repeat
    local names = call('ZRANGE', ready_keys[tier], from, from + step - 1)
    for _, name in ipairs(names) do
      if name ~= SENTINEL and (all_fit or fits(member_of(name))) then found[#found + 1] = name end
      if #found == count then return found end
    end
    from = from + step
  until all_fit or #names < step
  return found
end

-- Whether at least `count` usable members of a tier fit the request.
local function has_usable(tier, count)
  for _, name in ipairs(all_keys()) do
    local member = member_of(name)
    if is_usable(member) and member.tier == tier and fits(member) then
      count = count - 1
      if count == 0 then return true end
    end
  end
  return false
end

-- Returns how many members may be drawn: the first ones of `found` or, if `found` is nil, of all ready members of the
-- tier. Members whose uses have all failed come last, and may be drawn only if there are no other members.
local function preferred(tier, found)
  if not target.has_failing then return found and #found or ready_counts[tier] end -- the usual case
  local count = call('ZCOUNT', ready_keys[tier], '-inf', '(' .. LAST)
  if #target.tiers == 1 and count == ready_counts[tier] then target.has_failing = false end
  if not found then return count > 0 and count or ready_counts[tier] end
  if count == ready_counts[tier] then return #found end
  for place_found, name in ipairs(found) do
    if only_failed(member_of(name)) then return place_found > 1 and place_found - 1 or #found end
  end
  return #found
end

-- Adds members to `chosen` until there is one for each random number in `args.draws`, and returns true. Each is drawn
-- from the first `draw_size` ready members. If too few members are ready, adds none, and returns false and the names of
-- the ready members.
local function draw_missing(tier, draw_size, chosen)
  local draws = args.draws
  local missing = #draws - #chosen
  local found = first_ready(tier, missing + draw_size - 1)
  if #found < missing then return false, found end
  for _ = 1, missing do
    local draw = draws[#chosen + 1]
    local place_drawn = math.floor(draw * math.min(draw_size, preferred(tier, found))) + 1
    chosen[#chosen + 1] = member_of(table.remove(found, place_drawn))
  end
  return true
end

-- Like `draw_missing`, but for a request for any one member: reads only the drawn member.
local function draw_any(tier, draw_size)
  local place_drawn = math.floor(args.draws[1] * draw_size)
  return { member_of(call('ZRANGE', ready_keys[tier], place_drawn, place_drawn)[1]) }
end

-- Returns one ready member for each draw, or none at all, and how many members each was drawn from. The cheapest tier
-- is tried first. If it has enough usable members, but too few of them are ready, the request waits. If it has too few
-- usable members, it supplies those that are ready, and the next tier supplies the others.
local function choose()
  local any_one = #args.draws == 1 and fits_all()
  local chosen = {}
  for number, tier in ipairs(target.tiers) do
    local ready, are_enough, found = ready_counts[tier], false, {}
    if ready > 0 then
      local draw_size = math.min(DRAW_MAX, math.max(1, math.floor(preferred(tier) / DRAW_SHARE)))
      if any_one then return draw_any(tier, draw_size), draw_size end
      are_enough, found = draw_missing(tier, draw_size, chosen)
      if are_enough then return chosen, draw_size end
    end
    if number < #target.tiers and has_usable(tier, #args.draws - #chosen) then break end
    for _, name in ipairs(found) do chosen[#chosen + 1] = member_of(name) end
  end
  return {}, 0
end

-- Returns when to try again. If the session's member `bound` is not leased and becomes eligible later, this is the time
-- when it becomes eligible. Otherwise it is the time when the next member becomes eligible or the next lease expires;
-- false if neither will happen.
local function retry_at(bound)
  if bound and eligible_at(bound) > now and bound.lease_count == 0 then return eligible_at(bound) end
  local eligible, deadline = first_score(WAITING), first_score(DEADLINES)
  if eligible and deadline then return math.min(eligible, deadline) end
  return eligible or deadline or false
end

local function grant(member, interval_s, deadline, rebound, drawn_from)
  leave_order(member)
  target.virtual_time = math.max(target.virtual_time, member.rank)
  member.rank = member.rank + cost(member)
  member.uses = member.uses + 1
  member.lease_count = member.lease_count + 1
  member.used_at = now
  member.paced_until = now + interval_s
  changed(member)
  target.granted = target.granted + 1
  place(member)
  target.token = math.max(target.token + 1, math.floor(now * TOKENS_PER_S))
  local token = string.format('%.0f', target.token)
  call('HSET', LEASES, token, member.key .. '|' .. args.session)
  set_deadline(token, deadline)
  return { target.token, member.key, deadline, rebound, drawn_from }
end

local commands = {}

-- Returns three values: the grants, or false; the time to try again, or false; and whether a refill would bring no
-- further members for this request.
function commands.acquire()
  expire()
  place_due()
  local filled = is_filled(args.kind, args.version)
  local name = args.session ~= '' and session_key(args.session)
  local bound = name and member_of(name)
  local kept = bound and has_tags(bound) and bound
  local chosen, drawn_from, rebound
  if kept and (is_usable(kept) or kept.lease_count > 0) then
    chosen, drawn_from, rebound = kept.queued and { kept } or {}, 0, false
  else
    chosen, drawn_from = choose()
    rebound = bound and true or false
  end
  if #chosen == 0 then return { false, retry_at(kept), filled } end
  count_leases(#chosen)
  local interval_s = math.max(policy.delay_s, guard_interval_s())
  if args.session ~= '' then bind(args.session, chosen[1].key) end
  local grants = {}
  for _, member in ipairs(chosen) do
    grants[#grants + 1] = grant(member, interval_s, now + args.lease_s, rebound, drawn_from)
  end
  return { grants, false, filled }
end

-- Returns the new deadline, or false if the lease has ended.
function commands.renew()
  expire()
  if not lease_of(args.token) then return false end
  set_deadline(args.token, now + args.lease_s)
  return now + args.lease_s
end

-- Returns the key of the proxy, or false if the lease had already ended.
function commands.release()
  expire()
  local name, session = lease_of(args.token)
  if not name then
    target.stale = target.stale + 1
    return false
  end
  end_lease(args.token)
  local member = member_of(name)
  leave_order(member)
  member.lease_count = member.lease_count - 1
  member.uses = member.uses + math.max(0, #args.outcomes - 1)
  changed(member)
  for _, outcome in ipairs(args.outcomes) do record(member, outcome, args.draw) end
  if session ~= '' and session_key(session) == member.key then bind(session, member.key) end
  place(member)
  return member.key
end

-- Members -------------------------------------------------------------------------------------------------------------

local function leave_exit(member)
  if member.exit_ip ~= '' then call('SREM', key.exit .. member.exit_ip, member.key) end
end

-- `proxies.core.pool.target_state.cool_down_like`: a member whose exit address has become known cools down like the
-- banned members with the same exit address, until the latest end of their cool-downs.
local function share_bans(member, lost)
  local last
  for _, name in ipairs(call('SMEMBERS', key.exit .. member.exit_ip)) do
    local other = name ~= member.key and member_of(name)
    if other and other.bans > 0 and other.rests_until > now then
      local later = not last or other.rests_until > last.rests_until
      if later or (other.rests_until == last.rests_until and name > last.key) then last = other end
    end
  end
  if not last then return end
  member.reason = last.reason .. SAME_EXIT
  cool_down(member, last.rests_until, lost)
end

local function new_member(name, tier)
  return {
    key = name, rank = target.virtual_time, paced_until = 0, rests_until = 0, lease_count = 0, half_open = false,
    banned = false, bans = 0, misses = 0, uses = 0, successes = 0, failures = 0, good = 0, bad = 0, latency_s = false,
    used_at = 0, reason = '', queued = false, waiting = false, counted = false, dead = false, exit_ip = '', tier = tier,
  }
end

local function learn(name, facts)
  local member, lost = member_of(name), {}
  local exit_before = member and member.exit_ip or ''
  if not member then
    member = new_member(name, facts.tier)
    members[name] = member
  else
    leave_order(member)
    leave_exit(member)
    if facts.dead and is_usable(member) then lost = { member } end
    member.half_open = member.half_open or (member.dead and not facts.dead) -- a revived member starts on trial
  end
  member.known_latency_s, member.dead, member.exit_ip = facts.latency_s, facts.dead, facts.exit_ip
  member.tier, member.tags = facts.tier, facts.tags
  changed(member)
  if member.exit_ip ~= '' then call('SADD', key.exit .. member.exit_ip, name) end
  if member.exit_ip ~= '' and member.exit_ip ~= exit_before then share_bans(member, lost) end
  if facts.rests_until > math.max(now, member.rests_until) then cool_down(member, facts.rests_until, lost) end
  note_lost(lost, DOWN_HOLD_S)
  place(member)
end

-- Updates members with the facts of proxies. Adds new members, unless `only_known`. `fills`, if given, is the kind of
-- request for which the target counts as filled from now on, at the pool's fill version `version`.
function commands.learn()
  if args.fills == '' then
    target.filled, target.filled_for = args.version, policy.members
  elseif args.fills then
    if call('HLEN', key.filled) >= KINDS_MAX then call('DEL', key.filled) end
    call('HSET', key.filled, args.fills, pack(args.version, policy.members))
  end
  for name, facts in pairs(args.facts) do -- last, because a member that cools down clears `filled` again
    if member_of(name) or not args.only_known then learn(name, facts) end
  end
  return true
end

local function forget(member)
  request_refill()
  leave_order(member)
  leave_exit(member)
  if member.counted then target.usable = target.usable - 1 end
  call('HDEL', key.members, member.key)
  members[member.key] = false
end

-- Forgets a proxy that has left the global pool, and ends its leases.
function commands.forget()
  expire()
  local member = member_of(args.key)
  if not member then return false end
  for _, token in ipairs(call('HKEYS', LEASES)) do
    if lease_of(token) == args.key then end_lease(token) end
  end
  forget(member)
  return true
end

-- Forgets the given dead proxies that are not leased here, and returns the leased ones. The global pool then removes
-- the dead proxies that no target has leased.
function commands.forget_idle()
  expire()
  local leased = {}
  for _, name in ipairs(args.keys) do
    local member = member_of(name)
    if member and member.lease_count > 0 then leased[#leased + 1] = name elseif member then forget(member) end
  end
  return leased
end

function commands.ban()
  local member = member_of(args.key)
  if not member then return false end
  leave_order(member)
  local lost = is_usable(member) and { member } or {}
  member.reason = args.reason
  if args['until'] then cool_down(member, args['until']) else member.banned = true end
  changed(member)
  note_lost(lost, BAN_HOLD_S)
  place(member)
  return true
end

function commands.unban()
  local member = member_of(args.key)
  if not member then return false end
  leave_order(member)
  member.banned, member.half_open, member.bans, member.misses, member.rests_until = false, false, 0, 0, 0
  changed(member)
  place(member)
  return true
end

-- Forgets the target, unless it has leases.
function commands.drop()
  expire()
  if call('HLEN', LEASES) > 0 then return false end
  for _, name in ipairs(all_keys()) do leave_exit(member_of(name)) end
  for _, tier in ipairs(target.tiers) do
    call('DEL', ready_keys[tier])
    ready_counts[tier] = nil
  end
  call('DEL', key.members, key.filled, WAITING, DEADLINES, SESSIONS, SESSION_ENDS, key.target)
  members, target = {}, nil
  return true
end

-- Returns the keys of all members, and the number of usable members with the requested tags.
function commands.members()
  local names, count = all_keys(), target.usable
  if not fits_all() then
    count = 0
    for _, name in ipairs(names) do
      local member = member_of(name)
      if is_usable(member) and has_tags(member) then count = count + 1 end
    end
  end
  return { names, count }
end

-- Returns the members, the target, the number of leases, and the minimum time between two leases of one member.
function commands.state()
  expire()
  local all = {}
  for _, name in ipairs(all_keys()) do all[name] = member_of(name) end
  local interval_s = math.max(policy.delay_s, guard_interval_s())
  -- A copy: answers are packed after all commands have run, and later commands may change the members.
  return unpack_one(pack({ all, target, call('HLEN', LEASES), interval_s }))
end

-- Returns the state, a pair of proxy key and deadline for each lease, the key of the session's proxy or false, and
-- whether the target is filled for this kind of request.
function commands.explain()
  local state, ends, bound = commands.state(), {}, false
  local deadlines = call('ZRANGE', DEADLINES, 0, -1, 'WITHSCORES')
  for i = 1, #deadlines - 2, 2 do -- the last element is the sentinel
    ends[#ends + 1] = { (lease_of(deadlines[i])), tonumber(deadlines[i + 1]) }
  end
  if args.session ~= '' then bound = session_key(args.session) or false end
  return { state, ends, bound, is_filled(args.kind, args.version) }
end

-- All commands --------------------------------------------------------------------------------------------------------

local DEFAULTS = { __index = { tags = {}, avoid = {}, session = '', kind = '' } } -- for omitted arguments

local calls, answers = unpack_one(ARGV[3]), {}
for i = 1, #calls, 2 do
  args = setmetatable(calls[i + 1], DEFAULTS)
  if not target then new_target() end -- the previous command has dropped the target
  answers[#answers + 1] = commands[calls[i]]()
end

write_members()
if target then call('SET', key.target, packed_target()) end
return pack(answers)
