-- Whether everything fits together, and what does not is put right where it is certain what is right.

local FAULTS_MAX = 100 -- of one call; the others are only counted

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

-- What the workers hold: by host and by IP address what is in flight; hosts that are asked something; the names of
-- leases and claims; by segment what is lent, and what is not committed.
local function what_is_held()
  local held = { hosts = {}, addresses = {}, asked = {}, names = {}, leased = {}, uncommitted = {} }
  local function flies(name, address)
    add_to(held.hosts, name, 1)
    if address ~= '' then add_to(held.addresses, address, 1) end
  end
  for _, worker in ipairs(workers()) do
    local all = call('HGETALL', key('L|' .. worker))
    for at = 1, #all, 2 do
      local lease = unpacked(all[at + 1])
      held.names[all[at]] = true
      if lease.kind == PAGE then add_to(held.leased, segment_of(lease.lane), 1) else held.asked[lease.host] = true end
      if lease.over == 0 then flies(lease.host, lease.address) end
    end
    all = call('HGETALL', key('K|' .. worker))
    for at = 1, #all, 2 do
      local name, address = string.match(all[at + 1], '^([^\n]*)\n(.*)$')
      if name then -- it has its turn
        held.names[worker .. '|' .. all[at]] = true
        flies(name, address)
      end
    end
    for _, kind in ipairs({ 'U|', 'V|' }) do
      all = call('HGETALL', key(kind .. worker))
      for at = 1, #all, 2 do add_to(held.uncommitted, all[at], tonumber(all[at + 1])) end
    end
  end
  return held
end

-- Count the lanes of a host into `queued`, by segment. Return how many records it has.
local function check_lanes(host, queued)
  local total, first = 0, nil
  for _, lane in ipairs(call('ZRANGE', key('l|' .. host.name), 0, -1)) do
    local length = call('LLEN', key('q|' .. host.name .. '|' .. lane))
    if length == 0 then
      repaired('host %s: its lane %s is empty', host.name, lane)
      call('ZREM', key('l|' .. host.name), lane)
    else
      first = first or lane
      if state_of(segment_of(lane)) ~= 'dropped' then add_to(queued, segment_of(lane), length) end
    end
    total = total + length
  end
  host.rk = first and rank_of(first) or NO_WORK
  return total
end

local function is_among(unit, ready, waiting)
  if unit.tk ~= '' and not call('ZSCORE', ready, unit.tk) then unit.tk = '' end
  if unit.wr ~= 0 and not call('ZSCORE', waiting, unit.name) then unit.wr = 0 end
  return unit.tk ~= '' or unit.wr ~= 0
end

local function is_waiting(host)
  local ready, waiting, group = turns_of(host)
  if not is_among(host, ready, waiting) then return false end
  return not group or full(group) or is_among(group, READY, WAITING)
end

local function check_host(name, held, queued)
  local host = host_of(name)
  local records, flying = check_lanes(host, queued), held.hosts[name] or 0
  if host.q ~= records then
    repaired('host %s: %d URLs are queued, and %d were counted', name, records, host.q)
    host.q = records
  end
  if host.fl ~= flying then
    repaired('host %s: %d transfers are in flight, and %d were counted', name, flying, host.fl)
    host.fl = flying
  end
  if host.as == 1 and not held.asked[name] then
    repaired('host %s: nobody asks for its robots.txt or address, and it waits for that', name)
    host.as = 0
  end
  if host.uc ~= '' and not held.names[host.uc] then
    repaired('host %s: it waits for a transfer that is over', name)
    host.uc = ''
  end
  local claims = call('ZCARD', key('k|' .. name))
  if host.cl ~= claims then
    repaired('host %s: %d claims are in its line, and %d were counted', name, claims, host.cl)
    host.cl = claims
  end
  local group, flying_there = group_of(host), held.addresses[host.ad] or 0
  if group and group.fl ~= flying_there then
    repaired('address %s: %d transfers are in flight, and %d were counted', host.ad, flying_there, group.fl)
    group.fl = flying_there
  end
  local was_waiting = is_waiting(host)
  offer(host)
  if not was_waiting and is_waiting(host) then repaired('host %s: it has work, and would never have been asked', name) end
end

local told = {}

local function told_of(name)
  return told[name] or 0
end

local function compare(kind, segment, found, what)
  local before = told_of(kind .. segment)
  if found ~= before and state_of(segment) ~= 'dropped' then
    repaired("segment '%s': %d URLs are %s, and %d were counted", segment, found, what, before)
    count(kind .. segment, found - before)
  end
end

local function check_outboxes()
  local waiting = 0
  local ever = call('HGETALL', key('os'))
  for at = 1, #ever, 2 do
    local last = tonumber(ever[at + 1])
    local before = last - call('LLEN', key('o|' .. ever[at]))
    local brought = tonumber(call('HGET', key('of'), ever[at]) or before)
    if brought < before or brought > last then
      fault('outbox for partition %s: %d were brought, of those from %d to %d', ever[at], brought, before, last)
    end
    waiting = waiting + last - brought
  end
  compare('o|', '', waiting, 'in outboxes')
end

local function check_segment(segment, held, reasons, asleep)
  compare('l|', segment, held.leased[segment] or 0, 'leased')
  compare('u|', segment, held.uncommitted[segment] or 0, 'done and not committed')
  compare('x|', segment, call('ZCARD', key('e|' .. segment)), 'dead')
  compare('a|', segment, reasons[segment] or 0, 'done')
  if asked('keep_done') == 1 then
    local kept = call('ZCARD', key('v|' .. segment)) + (held.uncommitted[segment] or 0)
    if kept ~= told_of('a|' .. segment) then
      fault("segment '%s': %d URLs that are done are kept, and %d were counted", segment, kept, told_of('a|' .. segment))
    end
  end
  local known = seen_of(segment).n
  local there = told_of('q|' .. segment) + told_of('l|' .. segment) + told_of('x|' .. segment) + told_of('a|' .. segment)
  there = there + asleep
  if known > there then
    fault("segment '%s': %d fingerprints are known, but in no state", segment, known - there)
  end
end

-- check: from which host on, how many at most; with the last of them all the rest. Answers the next host, "" at the
-- end; what is wrong, and how much more; by segment what is queued at these hosts; by segment what is counted
looks['check'] = function()
  local from, most = argument(), number()
  local names = call('ZRANGE', key('a'), '[' .. from, '+', 'BYLEX', 'LIMIT', 0, most)
  local held, queued = what_is_held(), {}
  local all = call('HGETALL', key('c'))
  for at = 1, #all, 2 do told[all[at]] = tonumber(all[at + 1]) end
  for _, name in ipairs(names) do check_host(name, held, queued) end
  local following_host = #names == most and names[#names] .. '\0' or ''
  local states_now = call('HGETALL', key('g'))
  if following_host == '' then
    local reasons, asleep, dropped = {}, 0, false
    local why = call('HGETALL', key('y'))
    for at = 1, #why, 2 do add_to(reasons, string.match(why[at], '^([^\n]*)\n'), tonumber(why[at + 1])) end
    for at = 1, #states_now, 2 do
      local segment = states_now[at]
      if states_now[at + 1] == 'dropped' then
        dropped = true
      else
        asleep = asleep + told_of('d|' .. segment)
        check_segment(segment, held, reasons, told_of('d|' .. segment))
        if from == '' then compare('q|', segment, queued[segment] or 0, 'queued') end
      end
    end
    local sleepers = call('ZCARD', key('d'))
    if sleepers < asleep or (sleepers > asleep and not dropped) then
      fault('%d URLs are asleep, and %d were counted', sleepers, asleep)
    end
    check_outboxes()
  end
  local sums, counts = {}, {}
  for segment, length in pairs(queued) do
    sums[#sums + 1], sums[#sums + 2] = segment, length
  end
  for at = 1, #states_now, 2 do
    if states_now[at + 1] ~= 'dropped' then
      counts[#counts + 1], counts[#counts + 2] = states_now[at], told_of('q|' .. states_now[at])
    end
  end
  return answer(following_host, faults, more_faults, sums, counts)
end

-- how many fingerprints a segment has: segment, from which set on; answers how many there are in these sets, the next
-- set ("" at the end), and how many were counted
looks['check_seen'] = function()
  local segment, first, found = argument(), number(), 0
  local seen = seen_of(segment)
  local last = math.min(seen.k, first + LOOK_MAX) - 1
  for at = first, last do found = found + call('SCARD', key('s|' .. segment .. '|' .. at)) end
  return { found, last + 1 < seen.k and text(last + 1) or '', seen.n }
end

-- What comes from outside is refused while the server is full: whoever brings it has it, and can bring it again.
local GROWING = { push = true, again = true }

local function refused(command)
  local layout = call('HGET', key('m'), 'layout')
  if layout and layout ~= LAYOUT then
    local kept = 'LAYOUT the crawl is kept by another version of Lycosa: its layout is %s, that of this one %s'
    return redis.error_reply(string.format(kept, layout, LAYOUT))
  end
  local wrong = may_write()
  if no_room and GROWING[command] then wrong = redis.error_reply('OOM the server is full') end
  return wrong
end

local command, _ = argument(), argument()
return refused(command) or looks[command]()
