-- Checks that the stored data is consistent. A fault is repaired if the correct value is certain.

local FAULTS_MAX = 100 -- maximum number of faults that one call lists; the others are only counted

local faults, more_faults = {}, 0

local function fault(...)
  if #faults < FAULTS_MAX then
    faults[#faults + 1] = string.format(...)
  else
    more_faults = more_faults + 1
  end
end

local function repaired(form, ...)
  fault(form .. ': repaired', ...)
end

local function add_to(sums, name, by)
  sums[name] = (sums[name] or 0) + by
end

-- Returns what the workers hold: transfers in flight by host and by IP address; hosts whose robots.txt or address is
-- leased; the names of leases and granted claims; leased and uncommitted records by segment.
local function held_by_workers()
  local held = { hosts = {}, addresses = {}, preparing = {}, names = {}, leased = {}, uncommitted = {} }
  local function count_transfer(name, address)
    add_to(held.hosts, name, 1)
    if address ~= '' then add_to(held.addresses, address, 1) end
  end
  for _, worker in ipairs(sorted_workers()) do
    local all = call('HGETALL', key.leases .. worker)
    for i = 1, #all, 2 do
      local lease = unpacked_lease(all[i + 1])
      held.names[all[i]] = true
      if lease.kind == PAGE then
        add_to(held.leased, segment_of(lease.lane), 1)
      else
        held.preparing[lease.host] = true
      end
      if lease.transferred == 0 then count_transfer(lease.host, lease.address) end
    end
    all = call('HGETALL', key.claimed .. worker)
    for i = 1, #all, 2 do
      local name, address = string.match(all[i + 1], '^([^\n]*)\n(.*)$')
      if name then -- it was granted
        held.names[worker .. '|' .. all[i]] = true
        count_transfer(name, address)
      end
    end
    for _, counts_key in ipairs({ key.acked_counts, key.prepared_counts }) do
      all = call('HGETALL', counts_key .. worker)
      for i = 1, #all, 2 do add_to(held.uncommitted, all[i], tonumber(all[i + 1])) end
    end
  end
  return held
end

-- Adds the number of queued records of a host to `queued`, by segment. Returns their total.
local function check_lanes(host, queued)
  local total, first = 0, nil
  for _, lane in ipairs(lanes_of(host.name)) do
    local length = call('LLEN', queue_key(host.name, lane))
    if length == 0 then
      repaired('host %s: its lane %s is empty', host.name, lane)
      call('ZREM', key.lanes .. host.name, lane)
    else
      first = first or lane
      if state_of(segment_of(lane)) ~= DROPPED then add_to(queued, segment_of(lane), length) end
    end
    total = total + length
  end
  host.first_rank = first and rank_of(first) or NO_WORK
  return total
end

-- Returns whether an entity is in the ready or waiting set. Clears the entity's fields that wrongly say so.
local function is_scheduled_in(it, ready, waiting)
  if it.ready_member ~= '' and not call('ZSCORE', ready, it.ready_member) then it.ready_member = '' end
  if it.is_waiting ~= 0 and not call('ZSCORE', waiting, it.name) then it.is_waiting = 0 end
  return it.ready_member ~= '' or it.is_waiting ~= 0
end

local function is_scheduled(host)
  local ready, waiting, group = queues_of(host)
  if not is_scheduled_in(host, ready, waiting) then return false end
  return not group or is_full(group) or is_scheduled_in(group, key.ready, key.waiting)
end

local function check_host(name, held, queued)
  local host = entity(name)
  local records, transfers = check_lanes(host, queued), held.hosts[name] or 0
  if host.queued ~= records then
    repaired('host %s: %d URLs are queued, but the count is %d', name, records, host.queued)
    host.queued = records
  end
  if host.in_flight ~= transfers then
    repaired('host %s: %d transfers are in flight, but the count is %d', name, transfers, host.in_flight)
    host.in_flight = transfers
  end
  if host.preparing == 1 and not held.preparing[name] then
    repaired('host %s: it waits for its robots.txt or address, but no worker has leased either', name)
    host.preparing = 0
  end
  if host.unconfirmed ~= '' and not held.names[host.unconfirmed] then
    repaired('host %s: it is waiting for a transfer that has ended', name)
    host.unconfirmed = ''
  end
  local claims = call('ZCARD', key.claims .. '|' .. name)
  if host.claims ~= claims then
    repaired('host %s: %d claims wait, but the count is %d', name, claims, host.claims)
    host.claims = claims
  end
  local group, group_transfers = group_of(host), held.addresses[host.address] or 0
  if group and group.in_flight ~= group_transfers then
    repaired('address %s: %d transfers are in flight, but the count is %d', host.address, group_transfers,
      group.in_flight)
    group.in_flight = group_transfers
  end
  local was_scheduled = is_scheduled(host)
  schedule(host)
  if not was_scheduled and is_scheduled(host) then
    repaired('host %s: it has work, but was not scheduled', name)
  end
end

local counted = {} -- the stored counts

local function counted_of(state, segment)
  return counted[state .. '|' .. segment] or 0
end

local function compare(state, segment, found, what)
  local before = counted_of(state, segment)
  if found ~= before and state_of(segment) ~= DROPPED then
    repaired("segment '%s': %d URLs are %s, but the count is %d", segment, found, what, before)
    count(state .. '|' .. segment, found - before)
  end
end

local function check_outboxes()
  local waiting = 0
  local numbers = call('HGETALL', key.outbox_last)
  for i = 1, #numbers, 2 do
    local partition, last = numbers[i], tonumber(numbers[i + 1])
    local before = last - call('LLEN', key.outbox .. partition)
    local delivered = tonumber(call('HGET', key.outbox_delivered, partition) or before)
    if delivered < before or delivered > last then
      fault('outbox for partition %s: the last delivered number is %d, not between %d and %d', partition, delivered,
        before, last)
    end
    waiting = waiting + last - delivered
  end
  compare('outgoing', '', waiting, 'in outboxes')
end

local function check_segment(segment, held, reasons)
  compare('leased', segment, held.leased[segment] or 0, 'leased')
  compare('uncommitted', segment, held.uncommitted[segment] or 0, 'done but not committed')
  compare('dead', segment, call('ZCARD', key.dead .. segment), 'dead')
  compare('done', segment, reasons[segment] or 0, 'done')
  local done = counted_of('done', segment)
  if meta('keep_done') == 1 then
    local kept = call('ZCARD', key.done .. segment) + (held.uncommitted[segment] or 0)
    if kept ~= done then
      fault("segment '%s': %d done URLs are kept, but the count is %d", segment, kept, done)
    end
  end
  local known, in_some_state = seen_of(segment).count, done
  for _, state in ipairs({ 'queued', 'leased', 'delayed', 'dead' }) do
    in_some_state = in_some_state + counted_of(state, segment)
  end
  if known > in_some_state then
    fault("segment '%s': %d known fingerprints belong to no URL in any state", segment, known - in_some_state)
  end
end

local function check_segments(states, held, queued)
  local reasons, delayed, any_dropped = {}, 0, false
  local why = call('HGETALL', key.done_reasons)
  for i = 1, #why, 2 do add_to(reasons, string.match(why[i], '^([^\n]*)\n'), tonumber(why[i + 1])) end
  for i = 1, #states, 2 do
    local segment = states[i]
    if states[i + 1] == DROPPED then
      any_dropped = true
    else
      delayed = delayed + counted_of('delayed', segment)
      check_segment(segment, held, reasons)
      if queued then compare('queued', segment, queued[segment] or 0, 'queued') end
    end
  end
  local found = call('ZCARD', key.delayed)
  if found < delayed or (found > delayed and not any_dropped) then
    fault('%d URLs are delayed, but the count is %d', found, delayed)
  end
end

-- Checks some hosts; the call for the last hosts also checks everything else. Arguments: the first host, the maximum
-- number of hosts. Returns the next host ("" at the end); the faults, and the number of further faults; the number of
-- queued records of these hosts by segment; the stored count of queued records by segment.
operations['check'] = function()
  local from, limit = argument(), number()
  local names = call('ZRANGE', key.hosts, '[' .. from, '+', 'BYLEX', 'LIMIT', 0, limit)
  local held, queued = held_by_workers(), {}
  local counts = call('HGETALL', key.counts)
  for i = 1, #counts, 2 do counted[counts[i]] = tonumber(counts[i + 1]) end
  for _, name in ipairs(names) do check_host(name, held, queued) end
  local following = #names == limit and names[#names] .. '\0' or ''
  local states = call('HGETALL', key.segments)
  if following == '' then
    check_segments(states, held, from == '' and queued) -- `queued` is complete only if this call checked all hosts
    check_outboxes()
  end
  local sums, expected = {}, {}
  for segment, length in pairs(queued) do
    sums[#sums + 1], sums[#sums + 2] = segment, length
  end
  for i = 1, #states, 2 do
    if states[i + 1] ~= DROPPED then
      expected[#expected + 1], expected[#expected + 2] = states[i], counted_of('queued', states[i])
    end
  end
  return written(following, faults, more_faults, sums, expected)
end

-- Counts some of the fingerprints of a segment. Arguments: segment, the first set. Returns the number of fingerprints
-- in these sets, the next set ("" at the end), and the stored count of all fingerprints.
operations['check_seen'] = function()
  local segment, first, found = argument(), number(), 0
  local seen = seen_of(segment)
  local last = math.min(seen.sets, first + SLICE_MAX) - 1
  for set = first, last do found = found + call('SCARD', seen_key(segment, set)) end
  return { found, last + 1 < seen.sets and text(last + 1) or '', seen.count }
end

-- Operations that are refused while the server is full: the caller still has the records, and can retry.
local GROWING = { push = true, requeue = true }

local function refuse(command)
  local layout = command ~= 'delete' and call('HGET', key.meta, 'layout')
  if layout == DELETED_LAYOUT then return redis.error_reply('LAYOUT the crawl is being deleted') end
  if layout and layout ~= LAYOUT then
    local message = 'LAYOUT the crawl belongs to another version of Lycosa: its layout is %s, ours is %s'
    return redis.error_reply(string.format(message, layout, LAYOUT))
  end
  if GROWING[command] and call('HEXISTS', key.meta, 'expires_at') == 1 then return { 'expires' } end
  local wrong = refuse_to_write()
  if is_server_full and GROWING[command] then wrong = redis.error_reply('OOM the server is full') end
  return wrong
end

local command, _ = argument(), argument()
return refuse(command) or operations[command]()
