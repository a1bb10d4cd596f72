-- Schedules hosts. With limits per IP address, all hosts of one address form a *group*, which is scheduled like a host,
-- and schedules its hosts. An *entity* (host or group) with work is *ready* if it may be contacted now, and *waiting*
-- if it may be contacted later. It is neither if it has no free slot, or while its robots.txt or address is being
-- fetched. So no scans are needed, and everything that is ready can be leased.

local NO_WORK = 1e300 -- rank of an entity with nothing queued
local LEASES_WANTED_S = 1 -- seconds for which leases count as wanted after a worker got fewer than it asked for

local entities, packed_entities = {}, {}

local function is_group(name)
  return string.byte(name) == 64 -- "@"
end

local function entity_key(name)
  return is_group(name) and key.group .. string.sub(name, 2) or key.host .. name
end

-- An entity is stored as values in a fixed order, which takes half the time and fewer bytes than a map. The fields:
--   in_flight         number of transfers                  next_at           next time it may be contacted
--   ready_member      its member in the ready set, or ""   ready_rank        its score in the ready set
--   is_waiting        1 if it is in the waiting set        queued            number of queued records
--   promote_at        value of `queued` at which its position in the ready set is computed again
--   claim_until       time until which the next start is reserved for a claim
--   claims_in_row     claims granted since the last lease
--   yield_until       time until which claims wait for a lease
--   group_hosts       of a group: number of its hosts
--   group_turns       of a group: number of turns it gave to its hosts
-- and of a host only:
--   counted_by_group  value of `queued` in its group's sum      first_rank      rank of its first lane
--   paused_until      end of its blocks and other pauses        crawl_delay     Crawl-delay of its robots.txt
--   throttle          delay of the auto-throttle, or false      started_at      time of the last start
--   preparing         1 while its robots.txt or address is being fetched
--   robots_at         time at which its robots.txt was fetched
--   robots_tries, address_tries   failures in a row
--   address           IP address                                address_until   time until which it is valid
--   claims            number of waiting claims                  unconfirmed     see `start`
local function packed_entity(it)
  return cmsgpack.pack(it.queued, it.first_rank, it.ready_member, it.ready_rank, it.is_waiting, it.promote_at,
    it.in_flight, it.next_at, it.started_at, it.paused_until, it.crawl_delay, it.throttle, it.preparing, it.robots_at,
    it.robots_tries, it.address_tries, it.address, it.address_until, it.claims, it.claim_until, it.claims_in_row,
    it.yield_until, it.unconfirmed, it.counted_by_group, it.group_hosts, it.group_turns)
end

local function unpacked_entity(name, data)
  local queued, first_rank, ready_member, ready_rank, is_waiting, promote_at, in_flight, next_at, started_at, paused_until,
    crawl_delay, throttle, preparing, robots_at, robots_tries, address_tries, address, address_until, claims, claim_until,
    claims_in_row, yield_until, unconfirmed, counted_by_group, group_hosts, group_turns = cmsgpack.unpack(data)
  return {
    name = name, queued = queued, first_rank = first_rank, ready_member = ready_member, ready_rank = ready_rank,
    is_waiting = is_waiting, promote_at = promote_at, in_flight = in_flight, next_at = next_at, started_at = started_at,
    paused_until = paused_until, crawl_delay = crawl_delay, throttle = throttle, preparing = preparing,
    robots_at = robots_at, robots_tries = robots_tries, address_tries = address_tries, address = address,
    address_until = address_until, claims = claims, claim_until = claim_until, claims_in_row = claims_in_row,
    yield_until = yield_until, unconfirmed = unconfirmed, counted_by_group = counted_by_group, group_hosts = group_hosts,
    group_turns = group_turns,
  }
end

local function new_entity(name)
  return {
    name = name, queued = 0, first_rank = NO_WORK, ready_member = '', ready_rank = 0, is_waiting = 0, promote_at = 0,
    in_flight = 0, next_at = 0, started_at = 0, paused_until = 0, crawl_delay = 0, throttle = false, preparing = 0,
    robots_at = 0, robots_tries = 0, address_tries = 0, address = '', address_until = 0, claims = 0, claim_until = 0,
    claims_in_row = 0, yield_until = 0, unconfirmed = '', counted_by_group = 0, group_hosts = 0, group_turns = 0,
  }
end

-- Returns the entity of this name: a host, or a group as "@ADDRESS".
local function entity(name)
  local it = entities[name]
  if it then return it end
  local data = call('GET', entity_key(name))
  it = data and unpacked_entity(name, data) or new_entity(name)
  entities[name], packed_entities[name] = it, data
  return it
end

local function group_of(host)
  if meta('resolves') == 0 or host.address == '' then return nil end
  return entity('@' .. host.address)
end

local function write_entities()
  for name, it in pairs(entities) do
    local data = packed_entity(it)
    if data ~= packed_entities[name] then
      call('SET', entity_key(name), data)
      if not packed_entities[name] and not is_group(name) then call('ZADD', key.hosts, 0, name) end
    end
  end
end

local function delay_of(host)
  return math.max(host.crawl_delay, host.throttle or meta('start_delay'), meta('delay'))
end

local function is_full(group)
  local places = meta('ip_places')
  return places > 0 and group.in_flight >= places
end

local function note_leases_wanted()
  local wanted = meta('wanted')
  if now - wanted > LEASES_WANTED_S / 4 or wanted > now then call('HSET', key.meta, 'wanted', text(now)) end
  meta_fields.wanted = now
end

-- Whether the next start is reserved for a lease, although claims wait.
local function yields_to_leases(it)
  if it.claims_in_row < CLAIMS_IN_ROW_MAX then return false end
  if meta('wanted') == 0 or now - meta('wanted') > LEASES_WANTED_S then return false end
  if is_group(it.name) then return call('EXISTS', key.ready .. it.name) == 1 end
  return it.queued > 0 and it.preparing == 0
end

-- Returns the earliest time of the next lease.
local function lease_at(it)
  if it.claim_until > now and not yields_to_leases(it) then return math.max(it.next_at, it.claim_until) end
  return it.next_at
end

local function leave_ready(it, ready)
  if it.ready_member ~= '' then
    call('ZREM', ready, it.ready_member)
    it.ready_member = ''
  end
end

local function leave_waiting(it, waiting)
  if it.is_waiting ~= 0 then
    call('ZREM', waiting, it.name)
    it.is_waiting = 0
  end
end

-- Ready entities are served in order of arrival, but an entity with more than SHORT_S of work is moved forward: the
-- more work, the further, but by at most FAIR_TURN - 1 times the number of ready entities. So, as in
-- `frontier.core.fair_queue`, an entity with n entities before it is served within FAIR_TURN * (n + 1) turns, and the
-- host with the most work, which determines when the crawl ends, hardly ever waits.
local WORK_FACTOR_LOG = math.log(256) -- an entity with 256 times SHORT_S of work moves forward by the maximum
local FIRST_TURN = 1e13 -- makes all turns 14 digits long
local READY_NAME = 16 -- position of the name in TURN|NAME

local least_pace_s, start_delay_s -- the same for all hosts

local function work_s_of(host)
  if not least_pace_s then
    least_pace_s, start_delay_s = math.max(meta('delay'), TRANSFER_S / meta('places')), meta('start_delay')
  end
  return host.queued * math.max(least_pace_s, host.crawl_delay, host.throttle or start_delay_s)
end

-- Returns the seconds of work of a group: of all its hosts together, but at least those of its first host alone.
local function work_s_of_group(group, first)
  local places = meta('ip_places') > 0 and meta('ip_places') or meta('places')
  return math.max(group.queued * math.max(meta('ip_delay'), TRANSFER_S / places), work_s_of(first))
end

local function turn_among(ready, group, work_s)
  local turn
  if group then
    group.group_turns = group.group_turns + 1
    turn = group.group_turns
  else
    turn = next_number('ready')
  end
  if work_s > SHORT_S then
    turn = turn - math.min(1, math.log(work_s / SHORT_S) / WORK_FACTOR_LOG) * (FAIR_TURN - 1) * call('ZCARD', ready)
  end
  return string.format('%014d|', FIRST_TURN + turn)
end

-- Adds an entity to the ready set. If it is in the set already, it keeps its position, or gets a better one if its work
-- has doubled. `group` is the group of a host, `first_host` the first ready host of a group.
local function enter_ready(it, ready, group, rank, first_host)
  local turn
  if it.ready_member ~= '' and it.ready_rank == rank then
    if it.queued < it.promote_at then return end
    it.promote_at = 2 * it.queued
    local work_s = first_host and work_s_of_group(it, first_host) or work_s_of(it)
    if work_s <= SHORT_S then return end
    turn = turn_among(ready, group, work_s)
    if turn >= string.sub(it.ready_member, 1, READY_NAME - 1) then return end
  else
    turn = turn_among(ready, group, first_host and work_s_of_group(it, first_host) or work_s_of(it))
  end
  leave_ready(it, ready)
  it.ready_member, it.ready_rank, it.promote_at = turn .. it.name, rank, 2 * it.queued
  call('ZADD', ready, text(rank), it.ready_member)
end

local function enter_waiting(it, waiting, at)
  call('ZADD', waiting, text(at), it.name)
  it.is_waiting = 1
end

-- A group is ready if one of its hosts is ready. It may also be in the waiting set, for its next waiting host.
local function schedule_group(group)
  local first = call('ZRANGE', key.ready .. group.name, 0, 0, 'WITHSCORES')
  local soonest = call('ZRANGE', key.waiting .. group.name, 0, 0, 'WITHSCORES')
  local at, due = lease_at(group), tonumber(soonest[2])
  if is_full(group) then first, due = {}, nil end
  if first[1] and at <= now then
    enter_ready(group, key.ready, nil, tonumber(first[2]), entity(string.sub(first[1], READY_NAME)))
  else
    leave_ready(group, key.ready)
    if first[1] then due = at end
  end
  if due then enter_waiting(group, key.waiting, math.max(due, at)) else leave_waiting(group, key.waiting) end
end

-- Returns the ready set and the waiting set of a host, and its group if the sets belong to one.
local function queues_of(host)
  local group = group_of(host)
  if not group then return key.ready, key.waiting end
  return key.ready .. group.name, key.waiting .. group.name, group
end

-- Moves a host to the set to which it belongs now. If the segment of its first lane has not begun, it waits until then.
local function schedule(host)
  local ready, waiting, group = key.ready, key.waiting, nil
  if host.address ~= '' then ready, waiting, group = queues_of(host) end
  if group then
    group.queued, host.counted_by_group = group.queued + host.queued - host.counted_by_group, host.queued
  end
  if host.queued <= 0 or host.preparing == 1 or host.unconfirmed ~= '' or host.in_flight >= meta('places') then
    leave_ready(host, ready)
    leave_waiting(host, waiting)
  else
    local at = host.claim_until == 0 and host.next_at or lease_at(host)
    if host.first_rank > at then at = host.first_rank end
    if at > now then
      leave_ready(host, ready)
      enter_waiting(host, waiting, at)
    else
      leave_waiting(host, waiting)
      enter_ready(host, ready, group, host.first_rank)
    end
  end
  if group then schedule_group(group) end
end

local function pause(host, until_)
  host.paused_until = math.max(host.paused_until, until_)
  if until_ > host.next_at then
    host.next_at = until_
    schedule(host)
  end
end

-- Starts a transfer for the lease or claim `by`. If the crawl keeps exact delays ('punctual'), the worker reports the
-- real start, which may come later. Until then the host is unconfirmed: nothing else starts there.
local function start(host, by)
  host.in_flight = host.in_flight + 1
  host.started_at = now
  local delay = delay_of(host)
  if delay > 0 then
    host.next_at = now + delay
    if meta('punctual') == 1 then host.unconfirmed = by end
  end
  local group = group_of(host)
  if group then
    group.in_flight = group.in_flight + 1
    group.next_at = math.max(group.next_at, now + meta('ip_delay'))
  end
end

-- Ends a transfer. If it did not contact the host, `turn` has the times before and after its start: each time that has
-- not changed since then is restored.
local function finish(host, address, by, turn)
  host.in_flight = math.max(0, host.in_flight - 1)
  if host.unconfirmed == by then host.unconfirmed = '' end
  if turn and host.next_at == turn.next_at then host.next_at = math.max(turn.at, host.paused_until) end
  if address ~= '' then
    local group = entity('@' .. address)
    group.in_flight = math.max(0, group.in_flight - 1)
    if turn and group.next_at == turn.group_next_at then group.next_at = turn.group_at end
    schedule_group(group)
  end
  schedule(host)
end

-- For a transfer of an expired worker: if its start was not confirmed, the host may have been contacted just now.
local function assume_started(host, by)
  if host.unconfirmed == by then host.next_at = math.max(host.next_at, now + delay_of(host)) end
end

-- Returns the host of a member that was removed from the ready set, and its group if the member was a group. Returns no
-- host if the group no longer has a ready host: the limits may have changed since the group became ready.
local function ready_host(member)
  local name, group = string.sub(member, READY_NAME), nil
  if is_group(name) then
    group = entity(name)
    group.ready_member = ''
    member = call('ZPOPMIN', key.ready .. name)[1]
    if not member then return nil, group end
    name = string.sub(member, READY_NAME)
  end
  local host = entity(name)
  if host.ready_member ~= member then return nil, group end
  host.ready_member = ''
  return host, group
end

local READY_BATCH_MAX = 1000

-- Moves entities that are due from the waiting set to the ready set.
local function schedule_due(waiting)
  for _, name in ipairs(call('ZRANGEBYSCORE', waiting, '-inf', text(now), 'LIMIT', 0, READY_BATCH_MAX)) do
    call('ZREM', waiting, name)
    local it = entity(name)
    it.is_waiting = 0
    if is_group(name) then
      schedule_due(key.waiting .. name)
      schedule_group(it)
    else
      schedule(it)
    end
  end
end
