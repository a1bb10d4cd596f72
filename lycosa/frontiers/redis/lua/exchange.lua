-- The one script. Arguments: now ("" for the clock of the server), a command, the worker, and what the command takes.

local commands = {}

local function write_all()
  write_hosts()
  write_groups()
  write_seen()
  write_counts()
end

local function soonest(name)
  return call('ZRANGE', key(name), 0, 0, 'WITHSCORES')[2] or ''
end

-- When something can be lent: "0" now, "" never as far as known; how much there is of what; what arrived so far; the
-- time; workers that are gone, each with its last commit, of which the other partitions may not know.
local function outlook()
  local due, waits = soonest('d'), soonest('r')
  if call('EXISTS', key('t')) == 1 then
    due = '0'
  elseif due == '' or (waits ~= '' and tonumber(waits) < tonumber(due)) then
    due = waits
  end
  local arrived = call('HGET', key('m'), 'arrived') or '0'
  return { due, call('HGETALL', key('c')), arrived, text(now), call('HGETALL', key('gone')) }
end

-- What a worker holds, for one that did not hear the answer to its last exchange.
local function said_before(worker)
  local leases = {}
  local all = call('HGETALL', key('L|' .. worker))
  for at = 1, #all, 2 do
    local lease = unpacked(all[at + 1])
    if lease.over == 0 then
      local host = host_of(lease.host)
      local tries = lease.kind == ROBOTS and host.rt or host.at
      local paced = delay_of(host) > 0 and 1 or 0
      leases[#leases + 1] = { all[at], lease.kind, lease.host, lease.record, host.ad, tries, paced }
    end
  end
  return { 'ok', 0, {}, leases, outlook() }
end

-- all: the serial number of the exchange, one more than that before; how many verbs, the verbs; how many records are
-- wanted now, and ahead. The same number again: the answer was lost, and nothing is done twice. Another: the server has
-- lost what came in between (a replica took over), or the worker has.
commands['exchange'] = function(worker)
  if not is_known(worker) then return { 'unknown' } end
  hear(worker)
  watch()
  local serial, last = number(), tonumber(call('HGET', key('n'), worker) or 0)
  if serial == last then return said_before(worker) end
  if serial ~= last + 1 then
    bury_here(worker)
    write_all()
    return { 'unknown' }
  end
  call('HSET', key('n'), worker, serial)
  for _ = 1, number() do verbs[argument()](worker) end
  local limit, ahead = number(), number()
  local leases = lend(worker, limit, ahead)
  write_all()
  return { 'ok', new, refused, leases, outlook() }
end

-- open: who joins, "" for a new worker, and its name; which crawl this is, and how many partitions it has, if it has
-- just begun ("" if it has not); the number of this partition; how many fields of the policy, name and value of each.
-- Answers who the worker is from now on, which crawl this is, and how many partitions it has; "" for no crawl.
commands['open'] = function(worker)
  local name, crawl, partitions, here = argument(), argument(), argument(), argument()
  if crawl ~= '' and call('HSETNX', key('m'), 'crawl', crawl) == 1 then
    call('HSET', key('m'), 'partitions', partitions, 'number', here)
  end
  local found = call('HMGET', key('m'), 'crawl', 'partitions')
  if not found[1] then return { 'ok', '', '', '' } end
  for _ = 1, number() do
    local field, value = argument(), argument()
    call('HSET', key('m'), field, value)
  end
  watch()
  if worker == '' then
    for _, other in ipairs(call('ZRANGE', key('w'), 0, -1)) do -- an earlier process of the same name has ended
      if string.sub(other, 1, #name + 1) == name .. '#' then bury_here(other) end
    end
  elseif call('SISMEMBER', key('buried'), worker) == 1 then
    return { 'unknown' }
  end
  if worker == '' then worker = name .. '#' .. call('HINCRBY', key('m'), 'workers', 1) end
  hear(worker)
  write_all()
  return { 'ok', worker, found[1], found[2] }
end

commands['beat'] = function(worker)
  if not is_known(worker) then return { 'unknown' } end
  hear(worker)
  watch()
  write_all()
  return { 'ok' }
end

-- Outboxes. Each record for another partition has a number, and the other partition remembers the last that it took. So
-- the same ones may be brought twice. What was brought stays in the outbox for a while: a replica that takes over the
-- other partition may not have it. One that takes over this partition numbers anew what it has lost: so the numbers
-- are those of one server, as its replication ID names it.
local RETAINED = 1000

local function numbers_of(to)
  local ever, length = tonumber(call('HGET', key('os'), to) or 0), call('LLEN', key('o|' .. to))
  return ever - length, ever, tonumber(call('HGET', key('of'), to) or ever - length)
end

-- what waits for another partition: which, how many at most, from which number on ("" what was not brought); answers
-- who numbers them, the number before all that are so numbered, the first number, and the records; "" for the first
-- when they are not here any more
commands['outgoing'] = function()
  local to, most, from = argument(), number(), argument()
  local before, _, brought = numbers_of(to)
  local first = from == '' and brought + 1 or tonumber(from)
  local server = string.match(call('INFO', 'replication'), 'master_replid:(%x+)')
  call('HSETNX', key('ob'), server, brought)
  local base = call('HGET', key('ob'), server)
  if first <= before then return { 'ok', server, base, '', {} } end
  return { 'ok', server, base, text(first), call('LRANGE', key('o|' .. to), first - before - 1, first - before - 2 + most) }
end

-- records of another partition: who numbered them, the number before all of those, the first number, how many, the
-- records; answers the last number that we have now, which is before the first when those in between are missing
commands['bring'] = function()
  local from, base, first, entries = argument(), number(), number(), number()
  local last = tonumber(call('HGET', key('oi'), from)) or base
  if first > last + 1 then return { 'ok', text(last) } end
  for each = first, first + entries - 1 do
    local record = argument()
    if each > last then
      take_in(record)
      call('HINCRBY', key('m'), 'arrived', 1)
    end
  end
  last = math.max(last, first + entries - 1)
  call('HSET', key('oi'), from, last)
  write_all()
  return { 'ok', text(last) }
end

-- another partition has all up to this number: which
commands['brought'] = function()
  local to, upto = argument(), number()
  local before, ever, brought = numbers_of(to)
  upto = math.min(upto, ever)
  if upto > brought then
    call('HSET', key('of'), to, upto)
    count('o|', brought - upto)
  end
  if upto - before > RETAINED then call('LTRIM', key('o|' .. to), upto - before - RETAINED, -1) end
  write_all()
  return { 'ok' }
end

-- claim a turn: the claim, the host; once more, when the answer was lost
commands['turn'] = function(worker)
  if not is_known(worker) then return { 'unknown' } end
  local claim, name = argument(), argument()
  local host = host_of(name)
  if call('HEXISTS', key('K|' .. worker), claim) == 1 then return { 'ok', '0', host.ad } end
  local group = group_of(host)
  local at = math.max(host.ra, group and group.ra or 0)
  local busy = host.uc ~= '' or host.fl >= asked('places') or full(group)
  if not busy and at <= now then
    host.cw, host.row = 0, host.row + 1
    starts(host, worker .. '|' .. claim)
    call('HSET', key('K|' .. worker), claim, name .. '\n' .. (group and group.address or ''))
    at = 0
  else
    host.cw = math.max(at, now) + CLAIM_WAITS_S
    if busy then at = now + CLAIM_AGAIN_S end
  end
  offer(host)
  write_all()
  return { 'ok', text(at), host.ad }
end

commands['leave'] = function(worker)
  bury_here(worker)
  write_all()
  return { 'ok', outlook() }
end

-- a worker is gone, as the first partition says: which, its last commit
commands['gone'] = function()
  local gone, committed = argument(), number()
  bury(gone, committed)
  call('SADD', key('buried'), gone) -- it may be on its way here to join
  write_all()
  return { 'ok' }
end

-- all other partitions know that a worker is gone
commands['known'] = function()
  call('HDEL', key('gone'), argument())
  return { 'ok' }
end

local command, worker = argument(), argument()
return commands[command](worker)
