-- Claims: turns for transfers that are no records. They wait in the line of their host, first come, first served, and
-- before the leases, though not for ever: see `frontier.core.claims`, whose rules these are. What is different: nobody
-- can be woken here. The first in line is told when its turn will be, as far as is known, and asks again then; the
-- others about when theirs may be. A turn is kept for COMES_S for the claim that was told of it; then leases have it,
-- and who is behind it passes.
--
-- K|WORKER holds "HOST" of a claim that waits, and "HOST\nADDRESS" of one that has its turn; k|HOST its line, members
-- "CLAIM|WORKER"; ik@ADDRESS the hosts of a group that have a line, each with the number of the first in it.

local COMES_S = 0.5
local YIELD_S = 1 -- for so long the turn of a lease is kept for it
local AGAIN_S, AGAIN_MAX_S = 0.02, 1 -- between two questions of who waits for a place, or behind others
local PASSED_MAX = 100
local LOOKED_AT_MAX = 20

-- The line has another first.
local function line_moved(host)
  host.cw = host.cl > 0 and math.max(host.ra, now) + AGAIN_MAX_S or 0
  local group = group_of(host)
  if not group then return end
  local first = call('ZRANGE', key('k|' .. host.name), 0, 0, 'WITHSCORES')
  if first[1] then
    call('ZADD', key('ik' .. group.name), first[2], host.name)
  else
    call('ZREM', key('ik' .. group.name), host.name)
  end
end

local function join(worker, claim, host)
  call('HSET', key('K|' .. worker), claim, host.name)
  call('ZADD', key('k|' .. host.name), following('line'), claim .. '|' .. worker)
  host.cl = host.cl + 1
  if host.cl == 1 then line_moved(host) end
  offer(host)
end

local function leave_line(worker, claim, host)
  local place = call('ZRANK', key('k|' .. host.name), claim .. '|' .. worker)
  if not place then return end
  call('ZREM', key('k|' .. host.name), claim .. '|' .. worker)
  host.cl = host.cl - 1
  if place == 0 then line_moved(host) end
end

local function unclaim(worker, claim)
  local claimed = call('HGET', key('K|' .. worker), claim)
  if not claimed then return end
  call('HDEL', key('K|' .. worker), claim)
  local name, address = string.match(claimed, '^([^\n]*)\n(.*)$')
  if name then return ended(host_of(name), address, worker .. '|' .. claim) end
  leave_line(worker, claim, host_of(claimed))
  offer(host_of(claimed))
end

-- The first did not come: those before this one pass, as far as they are of the same worker. Returns its new place.
local function pass(host, place)
  local line = key('k|' .. host.name)
  local before = call('ZRANGE', line, 0, math.min(place, PASSED_MAX) - 1)
  local late = string.match(before[1], '|(.*)$')
  for _, each in ipairs(before) do
    local claim, worker = string.match(each, '^(%d+)|(.*)$')
    if worker ~= late then break end
    call('HDEL', key('K|' .. worker), claim) -- when it comes it joins anew
    call('ZREM', line, each)
    host.cl, place = host.cl - 1, place - 1
  end
  line_moved(host)
  return place
end

-- When the host may be contacted, as far as is known: transfers are taken to last a quarter longer than they did.
local function free_at(host, group)
  local at = host.ra
  if group then at = math.max(at, group.ra) end
  if host.fl >= asked('places') or (group and full(group)) then
    at = math.max(at, now + math.min(math.max((now - host.st) / 4, AGAIN_S), AGAIN_MAX_S))
  elseif host.uc ~= '' then
    at = math.max(at, now + AGAIN_S)
  end
  return at
end

local function stands_back(unit)
  if not yields(unit) then return 0 end
  if unit.yu == 0 then
    unit.yu = now + YIELD_S
  elseif unit.yu <= now then
    unit.row, unit.yu = 0, 0
    return 0
  end
  return math.min(unit.yu, now + 2 * AGAIN_S)
end

-- Whether the host may be contacted, as far as only it is asked.
local function is_free(host)
  return host.ra <= now and host.fl < asked('places') and host.uc == ''
end

-- The host of a group whose claim came first, of those that are free.
local function first_claimed(group)
  for _, name in ipairs(call('ZRANGE', key('ik' .. group.name), 0, LOOKED_AT_MAX - 1)) do
    local host = host_of(name)
    if is_free(host) and host.cw >= now and not yields(host) then return host end
  end
end

local function grant(worker, claim, host, group)
  call('HSET', key('K|' .. worker), claim, host.name .. '\n' .. (group and host.ad or ''))
  host.row, host.yu = host.row + 1, 0
  starts(host, worker .. '|' .. claim)
  leave_line(worker, claim, host)
  if group then
    group.row, group.yu = group.row + 1, 0
    group.cw = first_claimed(group) and math.max(group.ra, now) + AGAIN_MAX_S or 0
  end
end

-- Return 0 when the claim has its turn, else when to ask again.
local function ask(worker, claim, host)
  local said = call('HGET', key('K|' .. worker), claim)
  if said and string.find(said, '\n', 1, true) then return 0 end
  if not said then join(worker, claim, host) end
  local place = call('ZRANK', key('k|' .. host.name), claim .. '|' .. worker)
  if place > 0 and host.cw < now then place = pass(host, place) end
  local group = group_of(host)
  local at = free_at(host, group)
  if place > 0 then
    at = math.min(math.max(at, now) + place * math.max(delay_of(host), AGAIN_S), now + AGAIN_MAX_S)
    offer(host)
    return at
  end
  if at <= now then at = math.max(stands_back(host), group and stands_back(group) or 0) end
  if at <= now and group then
    local first = first_claimed(group)
    if first and first ~= host then at = now + AGAIN_S end
  end
  if at <= now then
    grant(worker, claim, host, group)
    at = 0
  else
    host.cw = at + COMES_S
    if group and is_free(host) and not yields(host) then
      group.cw = math.max(group.cw, at + COMES_S)
    end
  end
  offer(host)
  return at
end

-- The host has another address: its turns and its line are among those of that group now.
local function move(host, address)
  local ready, waiting, group = turns_of(host)
  leave_ready(host, ready)
  leave_waiting(host, waiting)
  host.ad = address
  if group then
    call('ZREM', key('ik' .. group.name), host.name)
    group.q, group.n, host.gq = group.q - host.gq, group.n - 1, 0
    offer_group(group)
  end
  group = group_of(host)
  if group then group.n = group.n + 1 end
  if group and host.cl > 0 then line_moved(host) end
  if group and host.st > 0 and asked('ip_delay') > 0 then group.ra = math.max(group.ra, host.st + asked('ip_delay')) end
end
