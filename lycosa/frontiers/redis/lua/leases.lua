-- Leases: who was lent what. They end with the worker, not with time: a worker watches over its own, and one that is
-- silent for SILENT_S gives back all it has. So a lease that comes back late comes from a worker that is not known.

local SILENT_S = 2
local AWAY_S = 1 -- a longer silence of everybody is not theirs: the server was away, or nobody worked
local PAGE, ROBOTS, RESOLVE = '0', '1', '2'

local function packed(lease)
  return cmsgpack.pack({
    lease.kind, lease.host, lease.lane, lease.at, lease.next, lease.address, lease.group_at, lease.group_next,
    lease.over, lease.record, lease.reason,
  })
end

local function unpacked(data)
  local fields = cmsgpack.unpack(data)
  return {
    kind = fields[1], host = fields[2], lane = fields[3], at = fields[4], next = fields[5], address = fields[6],
    group_at = fields[7], group_next = fields[8], over = fields[9], record = fields[10], reason = fields[11],
  }
end

local function put_back(lease)
  local segment = segment_of(lease.lane)
  if state_of(segment) == 'open' then enqueue(lease.host, lease.lane, lease.record, true) end
end

-- A record is done, or not after all.
local function done(lease, by)
  local segment = segment_of(lease.lane)
  if state_of(segment) == 'dropped' then return end
  count('a|' .. segment, by)
  because('y', segment, lease.reason, by)
end

-- What was acked and is in this hash becomes queued again: it was never committed.
local function revert(name)
  for _, data in ipairs(call('HVALS', key(name))) do
    local lease = unpacked(data)
    count('u|' .. segment_of(lease.lane), -1)
    done(lease, -1)
    put_back(lease)
  end
end

-- What was acked is committed; this hash says how much there was of each segment.
local function settle(name)
  local all = call('HGETALL', key(name))
  for at = 1, #all, 2 do count('u|' .. all[at], -tonumber(all[at + 1])) end
end

-- Give back everything of a worker, whose last commit was this one.
local function bury(worker, committed)
  local held = call('HGETALL', key('L|' .. worker))
  for at = 1, #held, 2 do
    local lease = unpacked(held[at + 1])
    local host = host_of(lease.host)
    if host.uc == held[at] then host.ra = math.max(host.ra, now + delay_of(host)) end -- it may just have been asked
    if lease.kind == PAGE then
      count('l|' .. segment_of(lease.lane), -1)
      put_back(lease)
    else
      host.as = 0
    end
    if lease.over == 0 then ended(host, lease.address, held[at]) else offer(host) end
  end
  local prepared = tonumber(call('HGET', key('pn'), worker))
  if prepared and prepared <= committed then settle('V|' .. worker) else revert('Q|' .. worker) end
  revert('P|' .. worker)
  local claims = call('HGETALL', key('K|' .. worker))
  for at = 1, #claims, 2 do
    local name, address = string.match(claims[at + 1], '^([^\n]*)\n(.*)$')
    ended(host_of(name), address, worker .. '|' .. claims[at])
  end
  for _, kind in ipairs({ 'L', 'P', 'U', 'Q', 'V', 'K' }) do call('DEL', key(kind .. '|' .. worker)) end
  for _, hash in ipairs({ 'n', 'pn', 'kb' }) do call('HDEL', key(hash), worker) end
  call('ZREM', key('w'), worker)
end

-- The first partition decides who lives, and tells the others by whoever comes by.
local function bury_here(worker)
  local committed = tonumber(call('HGET', key('kb'), worker) or 0)
  bury(worker, committed)
  if asked('partitions') > 1 then call('HSET', key('gone'), worker, committed) end
end

-- Bury whoever was not heard for SILENT_S. When nobody was heard for over AWAY_S, or the clock of the server was set back,
-- that is nobody's fault: all are taken to have been heard so much later, or sooner.
local function watch()
  if asked('number') > 0 then return end
  local away = now - tonumber(call('HGET', key('m'), 'seen') or now)
  call('HSET', key('m'), 'seen', text(now))
  if away > AWAY_S or away < 0 then
    local all = call('ZRANGE', key('w'), 0, -1, 'WITHSCORES')
    for at = 1, #all, 2 do call('ZADD', key('w'), text(math.min(now, tonumber(all[at + 1]) + away)), all[at]) end
    return
  end
  for _, worker in ipairs(call('ZRANGEBYSCORE', key('w'), '-inf', '(' .. text(now - SILENT_S))) do
    bury_here(worker)
  end
end

local function hear(worker)
  call('ZADD', key('w'), text(now), worker)
end

local function is_known(worker)
  return call('ZSCORE', key('w'), worker) ~= false
end

local function lend_to(worker, host, kind, lane, record)
  local id, group = token(), group_of(host)
  local lease = {
    kind = kind, host = host.name, lane = lane, at = host.ra, next = 0, address = '', group_at = 0, group_next = 0,
    over = 0, record = record, reason = '',
  }
  if kind == RESOLVE then
    host.fl = host.fl + 1
  else
    if group then lease.address, lease.group_at = group.address, group.ra end
    starts(host, id)
    lease.next = host.ra
    if group then lease.group_next = group.ra end
  end
  call('HSET', key('L|' .. worker), id, packed(lease))
  return { id, kind, host.name, record, host.ad, kind == ROBOTS and host.rt or host.at, delay_of(host) > 0 and 1 or 0 }
end

local function peeked(host)
  local lane = call('ZRANGE', key('l|' .. host.name), 0, 0)[1]
  return lane and call('LINDEX', key('q|' .. host.name .. '|' .. lane), 0) or ''
end

local function question(worker, host)
  if asked('resolves') == 1 and host.au <= now then
    host.as = 1
    return lend_to(worker, host, RESOLVE, '', '')
  end
  if asked('robots') == 1 and now - host.rb >= asked('robots_ttl') then
    host.as = 1
    return lend_to(worker, host, ROBOTS, '', peeked(host))
  end
end

local function lend_one(worker, host, leases)
  local lease = question(worker, host)
  if not lease then
    local lane, record = take(host)
    if lane then
      local segment = segment_of(lane)
      count('q|' .. segment, -1)
      count('l|' .. segment, 1)
      lease = lend_to(worker, host, PAGE, lane, record)
      host.row = 0
    end
  end
  if lease then leases[#leases + 1] = lease end
  offer(host)
end

-- Lend so many, and beyond them `ahead` of hosts that keep no pause: those may start when the worker likes.
local function lend(worker, limit, ahead)
  local leases = {}
  wake()
  come()
  while #leases < limit + ahead do
    local first = call('ZPOPMIN', key('t'), math.min(limit + ahead - #leases, 100))
    if #first == 0 then break end
    local paced = false
    for at = 1, #first, 2 do
      local host = host_of(string.sub(first[at], 16))
      host.tk = ''
      if paced or (#leases >= limit and (delay_of(host) > 0 or group_of(host))) then
        paced = true
        offer(host)
      else
        lend_one(worker, host, leases)
      end
    end
    if paced then break end
  end
  return leases
end

-- The lease of a token, nil when this worker does not hold it.
local function held(worker, id)
  local data = call('HGET', key('L|' .. worker), id)
  if not data then return nil end
  call('HDEL', key('L|' .. worker), id)
  return unpacked(data)
end

local function free(lease, id, contacted)
  local host = host_of(lease.host)
  if lease.kind ~= PAGE then host.as = 0 end
  if lease.over == 1 then return offer(host) end
  ended(host, lease.address, id, contacted == '0' and {
    at = lease.at, next = lease.next, group_at = lease.group_at, group_next = lease.group_next,
  } or nil)
end
