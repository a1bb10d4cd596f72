-- The stored members of one target: ready members in the order of use, waiting members by the time they become
-- eligible, and the guard that limits how fast they are used. The script of a target is common.lua, this file and
-- target.lua. ARGV[2] is the packed policy.

local FIT_BATCH = 64 -- number of ready members read at a time when searching for members that fit a request

-- Redis searches a short sorted set linearly and parses each score from text every time. One element longer than 64
-- bytes makes Redis use a skip list instead. The sentinel is such an element; its score is greater than all others.
local SENTINEL = string.rep('-', 65)
local NEVER = math.huge
local WAITING, LEASES, DEADLINES = key.waiting, key.leases, key.deadlines
local SESSIONS, SESSION_ENDS = key.sessions, key.session_ends

local ready_keys = setmetatable({}, { __index = function(known, tier)
  known[tier] = key.ready .. tier
  return known[tier]
end })
local ready_counts = setmetatable({}, { __index = function(known, tier)
  known[tier] = call('ZCARD', ready_keys[tier]) - 1 -- without the sentinel
  return known[tier]
end })

local policy = unpack_one(ARGV[2])

-- The state of the target:
--   token: the last token
--   virtual_time: the highest rank leased so far
--   granted, leaked, stale: the numbers of granted leases, of leases not released in time, and of late releases
--   usable: the number of usable members
--   filled: the fill version of the pool when the target was last filled, false if it needs a refill
--   filled_for: the policy's `members` when the target was last filled
--   since, count, each_s, limit_s, held_until: the guard, see `proxies.core.pool.rate_guard`
--   overdue_at: no lease expires before this time
--   due_at: no waiting member becomes eligible before this time
--   tiers: the tiers of its members
--   has_failing: whether there may be ready members whose uses have all failed (`only_failed`)
local target

local function new_target()
  call('ZADD', WAITING, 'inf', SENTINEL)
  call('ZADD', DEADLINES, 'inf', SENTINEL)
  target = {
    token = 0, virtual_time = 0, granted = 0, leaked = 0, stale = 0, usable = 0, filled = false, filled_for = 0,
    since = 0, count = 0, each_s = 0, limit_s = 0, held_until = 0, overdue_at = NEVER, due_at = NEVER, tiers = {},
    has_failing = false,
  }
end

local function open_target(data)
  target = {}
  target.token, target.virtual_time, target.granted, target.leaked, target.stale, target.usable, target.filled,
    target.since, target.count, target.each_s, target.limit_s, target.held_until, target.overdue_at, target.due_at,
    target.tiers, target.filled_for, target.has_failing = cmsgpack.unpack(data)
  target.filled_for = target.filled_for or 0
  target.has_failing = target.has_failing ~= false -- older versions did not store it
end

local function packed_target()
  return pack(target.token, target.virtual_time, target.granted, target.leaked, target.stale, target.usable,
    target.filled, target.since, target.count, target.each_s, target.limit_s, target.held_until, target.overdue_at,
    target.due_at, target.tiers, target.filled_for, target.has_failing)
end

local stored = call('GET', key.target)
if stored then open_target(stored) else new_target() end

-- Members -------------------------------------------------------------------------------------------------------------

local members = {} -- the members read so far; false for a missing or removed member

local function is_usable(member) return not (member.half_open or member.banned or member.dead) end

-- Members are stored as values in a fixed order, which packs twice as fast as a map.
local function unpacked_member(name, data)
  local rank, paced_until, rests_until, lease_count, half_open, banned, bans, misses, uses, successes, failures, good,
    bad, latency_s, used_at, reason, queued, waiting, known_latency_s, dead, exit_ip, tier, tags = cmsgpack.unpack(data)
  return {
    key = name, rank = rank, paced_until = paced_until, rests_until = rests_until, lease_count = lease_count,
    half_open = half_open, banned = banned, bans = bans, misses = misses, uses = uses, successes = successes,
    failures = failures, good = good, bad = bad, latency_s = latency_s, used_at = used_at, reason = reason,
    queued = queued, waiting = waiting, known_latency_s = known_latency_s, dead = dead, exit_ip = exit_ip, tier = tier,
    tags = tags,
  }
end

local function packed_member(member)
  return pack(member.rank, member.paced_until, member.rests_until, member.lease_count, member.half_open, member.banned,
    member.bans, member.misses, member.uses, member.successes, member.failures, member.good, member.bad,
    member.latency_s, member.used_at, member.reason, member.queued, member.waiting, member.known_latency_s, member.dead,
    member.exit_ip, member.tier, member.tags)
end

local function member_of(name)
  local member = members[name]
  if member == nil then
    local found = call('HGET', key.members, name)
    member = found and unpacked_member(name, found)
    if member then member.counted = is_usable(member) end
    members[name] = member
  end
  return member
end

local function write_members()
  for name, member in pairs(members) do
    if member and member.dirty then
      call('HSET', key.members, name, packed_member(member))
      member.dirty = nil
    end
  end
end

local function all_keys()
  write_members() -- so that the keys include new members
  return call('HKEYS', key.members)
end

-- Marks a member to be written at the end of the script, and updates the number of usable members now.
local function changed(member)
  member.dirty = true
  local usable = is_usable(member)
  if usable ~= member.counted then
    target.usable = target.usable + (usable and 1 or -1)
    member.counted = usable
  end
end

-- Whether the member is on trial and all its uses have failed. All other members are then leased first.
local function only_failed(member) return member.half_open and member.bad > 0 and member.bad >= member.uses end

local function eligible_at(member) return math.max(member.paced_until, member.rests_until) end

-- Lets the member cool down. If the member was usable before, adds it to the list `lost` (unless `lost` is nil).
local function cool_down(member, until_, lost)
  if lost and is_usable(member) then lost[#lost + 1] = member end
  member.half_open = true
  member.rests_until = math.max(member.rests_until, until_)
  changed(member)
end

local function cost(member)
  local success = (member.successes + 1) / (member.successes + member.failures + 2)
  local latency_s = member.latency_s or member.known_latency_s or 0
  local nearness = LATENCY_REFERENCE_S / (LATENCY_REFERENCE_S + latency_s)
  return 1 / math.max(WORTH_MIN, success * success * nearness)
end

-- The order of use ----------------------------------------------------------------------------------------------------

-- Removes a member from the order, whether it is ready, waiting or neither.
local function leave_order(member)
  if member.queued then
    local count = ready_counts[member.tier]
    ready_counts[member.tier] = count - call('ZREM', ready_keys[member.tier], member.key)
  end
  if member.waiting then call('ZREM', WAITING, member.key) end
  member.queued, member.waiting = false, false
  changed(member)
end

local function add_tier(tier)
  for _, known in ipairs(target.tiers) do
    if known == tier then return end
  end
  call('ZADD', ready_keys[tier], 'inf', SENTINEL)
  target.tiers[#target.tiers + 1] = tier
  table.sort(target.tiers)
end

-- Adds a member that is not in the order to the ready or the waiting members. Does nothing while the member must not be
-- leased: if it is banned, dead, on trial and leased, or at its limit of concurrent leases.
local function place(member)
  local has_room = policy.concurrency == 0 or member.lease_count < policy.concurrency
  local on_trial = member.half_open and member.lease_count > 0
  if member.banned or member.dead or not has_room or on_trial then return end
  local at = eligible_at(member)
  if at > now then
    call('ZADD', WAITING, at, member.key)
    target.due_at = math.min(target.due_at, at)
    member.waiting = true
  else
    member.rank = math.max(member.rank, target.virtual_time)
    add_tier(member.tier)
    local count, rank = ready_counts[member.tier], member.rank
    if only_failed(member) then
      rank, target.has_failing = rank + LAST, true
    end
    ready_counts[member.tier] = count + call('ZADD', ready_keys[member.tier], rank, member.key)
    member.queued = true
  end
  changed(member)
end

local function first_score(zset)
  local found = call('ZRANGE', zset, 0, 0, 'WITHSCORES')[2]
  return found ~= 'inf' and tonumber(found)
end

local function place_due()
  if now < target.due_at then return end
  for _, name in ipairs(call('ZRANGEBYSCORE', WAITING, '-inf', now)) do
    local member = member_of(name)
    leave_order(member)
    place(member)
  end
  target.due_at = first_score(WAITING) or NEVER
end

-- The guard -----------------------------------------------------------------------------------------------------------

-- Returns the guard's minimum time between two leases of one member.
local function guard_interval_s()
  if target.limit_s == 0 then return 0.0 end
  local halvings = (now - target.held_until) / FADE_S
  if halvings <= 0 then return target.limit_s end
  return halvings < 16 and target.limit_s * 0.5 ^ halvings or 0.0
end

local function end_window()
  local each_s = (now - target.since) * math.max(1, target.usable) / target.count
  if target.each_s ~= 0 then each_s = math.min(each_s, target.each_s * SLOWDOWN) end
  target.each_s = math.max(each_s, guard_interval_s())
  target.since, target.count = now, 0
end

local function count_leases(count)
  if target.since == 0 then
    target.since = now -- the time before the first lease is not an interval
    return
  end
  target.count = target.count + count
  if target.count >= WINDOW_MIN and now - target.since >= WINDOW_S then end_window() end
end

-- Whether the target was filled for this kind of request at this fill version of the pool, up to at least
-- `policy.members` members. Another process, whose policy asks for fewer members, may have filled it with fewer.
local function is_filled(kind, version)
  if kind == '' then return target.filled == version and target.filled_for >= policy.members end
  local found = call('HGET', key.filled, kind)
  if not found then return false end
  local filled, filled_for = cmsgpack.unpack(found)
  return filled == version and filled_for >= policy.members
end

local function request_refill()
  target.filled = false
  call('DEL', key.filled)
end

local function any_has_worked(lost)
  for _, member in ipairs(lost) do
    if member.uses > member.bad then return true end -- a use did not fail, or has no result, as in a tunnel
  end
  return false
end

-- Requests a refill after members were lost. If a lost member has worked here, also limits the rate of the others, so
-- that its load does not move to them at once.
local function note_lost(lost, hold_s)
  if #lost == 0 then return end
  request_refill()
  if not policy.guarded or target.each_s == 0 or not any_has_worked(lost) then return end
  if now >= target.held_until then
    target.limit_s = math.min(math.max(target.each_s, guard_interval_s()), INTERVAL_MAX_S)
  end
  target.held_until = math.max(target.held_until, now + hold_s)
end
