-- Leases: who was lent what. They end with the worker, not with time: a worker watches over its own, and one that is
-- silent for SILENT_S gives back all it has. So a lease that comes back late comes from a worker that is not known.

local SILENT_S = 2
local AWAY_S = 1 -- a longer silence of everybody is not theirs: the server was away, or nobody worked
local PAGE, ROBOTS, RESOLVE = '0', '1', '2'

local function packed(lease)
  return cmsgpack.pack({
    lease.kind, lease.host, lease.lane, lease.at, lease.next, lease.address, lease.group_at, lease.group_next,
    lease.over, lease.record, lease.reason, lease.row, lease.since,
  })
end

local function unpacked(data)
  local fields = cmsgpack.unpack(data)
  return {
    kind = fields[1], host = fields[2], lane = fields[3], at = fields[4], next = fields[5], address = fields[6],
    group_at = fields[7], group_next = fields[8], over = fields[9], record = fields[10], reason = fields[11],
    row = fields[12], since = fields[13],
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
  tally('a|', segment, by)
  because('y', segment, lease.reason, by)
end

-- What was acked and is in this hash becomes queued again: it was never committed.
local function revert(name)
  for _, data in ipairs(call('HVALS', key(name))) do
    local lease = unpacked(data)
    tally('u|', segment_of(lease.lane), -1)
    done(lease, -1)
    put_back(lease)
  end
end

-- Keep the row of a record that is done or dead: in `v` or `e`.
local function keep(kind, segment, row)
  call('ZADD', key(kind .. '|' .. segment), 0, string.sub(row, 1, 16) .. stamp() .. string.sub(row, 17))
end

-- What was acked and is in the first hash is committed: the second says how much there was of each segment, the list what
-- was kept back. Return how many records are new.
local function settle(acked, amounts, kept)
  local all = call('HGETALL', key(amounts))
  for at = 1, #all, 2 do tally('u|', all[at], -tonumber(all[at + 1])) end
  if asked('keep_done') == 1 then
    for _, data in ipairs(call('HVALS', key(acked))) do
      local lease = unpacked(data)
      local segment = segment_of(lease.lane)
      if state_of(segment) ~= 'dropped' and (lease.row or '') ~= '' then keep('v', segment, lease.row) end
    end
  end
  local added = let_go(kept)
  call('DEL', key(acked), key(amounts), key(kept))
  return added
end

-- What was prepared is committed. Return how many records are new.
local function decide(worker)
  local prepared = key('R|' .. worker)
  local positions = call('HGETALL', prepared)
  for at = 1, #positions, 2 do call('HSET', key('p'), positions[at], positions[at + 1]) end
  call('DEL', prepared)
  return settle('Q|' .. worker, 'V|' .. worker, 'X|' .. worker)
end

-- Give back everything of a worker, whose last commit was this one.
local function bury(worker, committed)
  local held = call('HGETALL', key('L|' .. worker))
  for at = 1, #held, 2 do
    local lease = unpacked(held[at + 1])
    local host = host_of(lease.host)
    if host.uc == held[at] then host.ra = math.max(host.ra, now + delay_of(host)) end -- it may just have been asked
    if lease.kind == PAGE then
      tally('l|', segment_of(lease.lane), -1)
      put_back(lease)
    else
      host.as = 0
    end
    if lease.over == 0 then ended(host, lease.address, held[at]) else offer(host) end
  end
  local prepared = tonumber(call('HGET', key('pn'), worker))
  if prepared and prepared <= committed then decide(worker) else revert('Q|' .. worker) end
  revert('P|' .. worker)
  local claims = call('HGETALL', key('K|' .. worker))
  for at = 1, #claims, 2 do
    local host = host_of(string.match(claims[at + 1], '^[^\n]*'))
    if host.uc == worker .. '|' .. claims[at] then host.ra = math.max(host.ra, now + delay_of(host)) end
    unclaim(worker, claims[at])
  end
  for _, kind in ipairs({ 'L', 'P', 'U', 'W', 'Q', 'V', 'X', 'R', 'K' }) do call('DEL', key(kind .. '|' .. worker)) end
  for _, hash in ipairs({ 'n', 'pn', 'kb' }) do call('HDEL', key(hash), worker) end
  call('ZREM', key('w'), worker)
  unlimit(worker)
end

-- The first partition decides who lives, and tells the others by whoever comes by.
local function bury_here(worker)
  local committed = tonumber(call('HGET', key('kb'), worker) or 0)
  bury(worker, committed)
  retire(worker)
  if asked('partitions') > 1 then call('HSET', key('gone'), worker, committed) end
end

local NEVER = 2 ^ 53 -- the number of an exchange behind which none comes

-- Hear nothing more of a worker. Another partition does not know what it has committed: it is told when it is buried.
-- Until then it is among its workers, for the first partition may have lost it, too: see `strangers`.
local function give_up(worker)
  if asked('number') > 0 then return call('HSET', key('n'), worker, NEVER) end
  bury_here(worker)
end

-- Bury whoever was not heard for SILENT_S. When nobody was heard for over AWAY_S, or the clock leapt, that is nobody's
-- fault: all are taken to have been heard so much later, or sooner.
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

-- What a worker is told of its lease.
local function lent(id, lease, host)
  local tries = lease.kind == ROBOTS and host.rt or host.at
  local known_until = host.au > 0 and text(host.au) or '0'
  return { id, lease.kind, lease.host, lease.record, host.ad, tries, delay_of(host) > 0 and 1 or 0, known_until }
end

local function lend_to(worker, host, kind, lane, record)
  local id, group = string.format('%d', following('token')), group_of(host)
  local lease = {
    kind = kind, host = host.name, lane = lane, at = host.ra, next = 0, address = '', group_at = 0, group_next = 0,
    over = 0, record = record, reason = '', row = '', since = now,
  }
  if kind == RESOLVE then
    host.fl = host.fl + 1
  else
    if group then
      lease.address, lease.group_at = host.ad, group.ra
      if kind == PAGE then group.row, group.yu = 0, 0 end
    end
    starts(host, id)
    lease.next = host.ra
    if group then lease.group_next = group.ra end
  end
  call('HSET', key('L|' .. worker), id, packed(lease))
  return lent(id, lease, host)
end

local function peeked(host)
  local lane = call('ZRANGE', key('l|' .. host.name), 0, 0)[1]
  local entry = lane and call('LINDEX', key('q|' .. host.name .. '|' .. lane), 0)
  return entry and string.sub(entry, STAMP_BYTES + 1) or ''
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
      tally('q|', segment, -1)
      tally('l|', segment, 1)
      lease = lend_to(worker, host, PAGE, lane, record)
      host.row, host.yu = 0, 0
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
      local host, group = turn_of(first[at])
      if host and (paced or (#leases >= limit and (delay_of(host) > 0 or group))) then
        paced = true
        offer(host)
      elseif host then
        lend_one(worker, host, leases)
      end
      if group then offer_group(group) end
    end
    if paced then break end
  end
  if #leases < limit then want() end
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

local function write_all()
  write_hosts()
  write_seen()
  write_counts()
end

local function soonest(name)
  return call('ZRANGE', key(name), 0, 0, 'WITHSCORES')[2] or ''
end

-- Whether the server has reached its maxmemory.
local no_room = false

-- What a server says that has reached its maxmemory: it refuses the first step of a script, and none after it has changed
-- something. So a script happens as a whole even then; but nothing more is lent, until there is room.
local function may_write()
  local said = redis.pcall('SETRANGE', key('room'), 0, '')
  if type(said) == 'table' and said.err then
    if not string.find(said.err, 'OOM', 1, true) and not string.find(said.err, 'maxmemory', 1, true) then return said end
    no_room = true
    call('DEL', key('room'))
  end
  if noted then call('HSET', key('m'), 'real', text(noted[1]), 'ahead', text(noted[2])) end
end

-- When something can be lent: "0" now, "" never as far as known; how much there is of what; what arrived so far; the
-- time; workers that are gone, each with its last commit, of which the other partitions may not know; 1 when the server
-- is full.
local function outlook()
  local due, waits = soonest('d'), soonest('r')
  if call('EXISTS', key('t')) == 1 then
    due = '0'
  elseif due == '' or (waits ~= '' and tonumber(waits) < tonumber(due)) then
    due = waits
  end
  local arrived = call('HGET', key('m'), 'arrived') or '0'
  return { due, call('HGETALL', key('c')), arrived, text(now), call('HGETALL', key('gone')), no_room and 1 or 0 }
end

-- Begin the crawl, unless that is done or none is named: which, how many partitions, the number of this one, whether
-- what is done is kept, whose it is. Answers which crawl there is, how many partitions it has, whose it is, its layout,
-- whether all of it was made, and whether it keeps what is done; "" for what is not known.
local function begin(crawl, partitions, here, keeps_done, spider)
  if crawl ~= '' and call('HSETNX', key('m'), 'crawl', crawl) == 1 then
    call('HSET', key('m'), 'partitions', partitions, 'number', here, 'keep_done', keeps_done, 'spider', spider)
    call('HSET', key('m'), 'layout', LAYOUT)
  end
  local found = call('HMGET', key('m'), 'crawl', 'partitions', 'spider', 'layout', 'whole', 'keep_done')
  for at = 1, 6 do found[at] = found[at] or '' end
  return found
end
