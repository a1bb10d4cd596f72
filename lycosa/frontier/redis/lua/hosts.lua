-- Whose turn it is. Hosts take turns, and all hosts of one IP address, where that is limited, take turns as one: a
-- *group*, which has turns of its own for its hosts. A unit (host or group) is among the ready when it may be contacted
-- now, among the waiting when it has work and its turn is to come, and nowhere while it has no work, no free place, or
-- is asked for its robots.txt: so nothing is ever scanned, and whatever is ready can be lent.
--
-- What a unit holds, packed; what is left out is 0, or "" for `tk`, `ad` and `uc`:
--   fl in flight   ra its next turn   tk its member of the ready, tr its rank there
--   wr 1 while it is among the waiting   cw a claim is waited for until   row claims in a row
--   yu they stand back until   q queued
--   gr it has a better place with so many   n hosts of a group   tn turns of a group for its hosts
-- and a host:
--   gq those of them that its group counts   rk rank of its first lane   pa paused until (by no start of ours)
--   dl delay it asks for   th delay of the throttle, none before the first   st last start   as 1 while it is asked
--   rb robots.txt fetched at
--   rt at  tries of robots.txt and of its address   ad address   au known until   cl claims in its line
--   uc the lease or claim of which nobody has said yet when the host heard of it: no other turn before that

local NO_WORK = 1e300
local CLAIMS_ROW = 8
local WANTED_S = 1 -- leases are wanted for so long after somebody got fewer than he asked for
local NOTHING = { __index = {
  q = 0, n = 0, gq = 0, gr = 0, tn = 0, fl = 0, ra = 0, pa = 0, dl = 0, st = 0, as = 0, rb = 0, rt = 0, at = 0, ad = '',
  au = 0,
  rk = NO_WORK, cl = 0, cw = 0, row = 0, yu = 0, tk = '', tr = 0, wr = 0, uc = '',
} }

local READY, WAITING = key('t'), key('r')
local units, packed_units = {}, {}

local function is_group(name)
  return string.byte(name) == 64 -- "@"
end

local function place_of(name)
  return is_group(name) and key('i|' .. string.sub(name, 2)) or key('h|' .. name)
end

-- The unit of this name: a host, or "@ADDRESS".
local function host_of(name)
  local unit = units[name]
  if unit then return unit end
  local data = call('GET', place_of(name))
  unit = data and cmsgpack.unpack(data) or {}
  setmetatable(unit, NOTHING)
  units[name], packed_units[name] = unit, data
  unit.name = name
  return unit
end

local function group_at(address)
  return host_of('@' .. address)
end

local function group_of(host)
  if asked('resolves') == 0 or host.ad == '' then return nil end
  return group_at(host.ad)
end

local function write_hosts()
  for name, unit in pairs(units) do
    unit.name = nil
    local data = cmsgpack.pack(unit)
    if data ~= packed_units[name] then
      call('SET', place_of(name), data)
      if not packed_units[name] and not is_group(name) then call('ZADD', key('a'), 0, name) end
    end
    unit.name = name
  end
end

local function delay_of(host)
  return math.max(host.dl, host.th or asked('start_delay'), asked('delay'))
end

local function full(group)
  local places = asked('ip_places')
  return places > 0 and group.fl >= places
end

-- Who wants leases, and got too few, is remembered for WANTED_S.
local function want()
  local wanted = asked('wanted')
  if now - wanted > WANTED_S / 4 or wanted > now then call('HSET', key('m'), 'wanted', text(now)) end
  policy.wanted = now
end

-- Whether the claims stand back: it is the turn of a lease.
local function yields(unit)
  if unit.row < CLAIMS_ROW or asked('wanted') == 0 or now - asked('wanted') > WANTED_S then return false end
  if is_group(unit.name) then return call('EXISTS', key('it' .. unit.name)) == 1 end
  return unit.q > 0 and unit.as == 0
end

-- When a lease may have the turn of this unit.
local function lease_at(unit)
  if unit.cw > now and not yields(unit) then return math.max(unit.ra, unit.cw) end
  return unit.ra
end

local function leave_ready(unit, ready)
  if unit.tk ~= '' then
    call('ZREM', ready, unit.tk)
    unit.tk = ''
  end
end

local function leave_waiting(unit, waiting)
  if unit.wr ~= 0 then
    call('ZREM', waiting, unit.name)
    unit.wr = 0
  end
end

-- First come, first served, except that a unit with much work left goes before some of those who came earlier: the more
-- work, the more of them, but only before (FAIR_TURN - 1) times as many as are ready now. So, as in
-- `frontier.core.fair_queue`, a unit with n others before it has its turn within FAIR_TURN * (n + 1) turns, and whoever
-- decides when the crawl ends is hardly ever kept waiting.
local FAIR_TURN = 8
local SHORT_S = 10 -- seconds of work with which nobody needs to hurry
local LONG = math.log(256) -- so many times that work goes before all it may
local TRANSFER_S = 0.2 -- what a transfer is taken to last where no delay says how long the work takes
local FIRST = 1e13 -- so that all have 14 digits

local pace, start_delay -- of all hosts

local function work_of(host)
  if not pace then
    pace, start_delay = math.max(asked('delay'), TRANSFER_S / asked('places')), asked('start_delay')
  end
  return host.q * math.max(pace, host.dl, host.th or start_delay)
end

-- The work of all its hosts one after the other, or that of the first one, if it is more.
local function work_of_group(group, first)
  local places = asked('ip_places') > 0 and asked('ip_places') or asked('places')
  return math.max(group.q * math.max(asked('ip_delay'), TRANSFER_S / places), work_of(first))
end

local function place_in(ready, group, work)
  local turn
  if group then
    group.tn = group.tn + 1
    turn = group.tn
  else
    turn = following('ready')
  end
  if work > SHORT_S then
    turn = turn - math.min(1, math.log(work / SHORT_S) / LONG) * (FAIR_TURN - 1) * call('ZCARD', ready)
  end
  return string.format('%014d|', FIRST + turn)
end

-- A unit that is ready keeps its place, or has a better one when its work has doubled.
local function enter(unit, ready, group, rank, first)
  local place
  if unit.tk ~= '' and unit.tr == rank then
    if unit.q < unit.gr then return end
    unit.gr = 2 * unit.q
    local work = first and work_of_group(unit, first) or work_of(unit)
    if work <= SHORT_S then return end
    place = place_in(ready, group, work)
    if place >= string.sub(unit.tk, 1, 15) then return end
  else
    place = place_in(ready, group, first and work_of_group(unit, first) or work_of(unit))
  end
  leave_ready(unit, ready)
  unit.tk, unit.tr, unit.gr = place .. unit.name, rank, 2 * unit.q
  call('ZADD', ready, text(rank), unit.tk)
end

local function wait(unit, waiting, at)
  call('ZADD', waiting, text(at), unit.name)
  unit.wr = 1
end

-- A group is ready when one of its hosts is, and waits for the next one that will be, at the same time.
local function offer_group(group)
  local first = call('ZRANGE', key('it' .. group.name), 0, 0, 'WITHSCORES')
  local soonest = call('ZRANGE', key('ir' .. group.name), 0, 0, 'WITHSCORES')
  local at, due = lease_at(group), tonumber(soonest[2])
  if full(group) then first, due = {}, nil end
  if first[1] and at <= now then
    enter(group, READY, nil, tonumber(first[2]), host_of(string.sub(first[1], 16)))
  else
    leave_ready(group, READY)
    if first[1] then due = at end
  end
  if due then wait(group, WAITING, math.max(due, at)) else leave_waiting(group, WAITING) end
end

-- Where a host takes its turns: its ready and its waiting, and the group whose they are.
local function turns_of(host)
  local group = group_of(host)
  if not group then return READY, WAITING end
  return key('it' .. group.name), key('ir' .. group.name), group
end

-- Put the host where it belongs. Lanes that have not begun keep it waiting until they do.
local function offer(host)
  local ready, waiting, group = READY, WAITING, nil
  if host.ad ~= '' then ready, waiting, group = turns_of(host) end
  if group then group.q, host.gq = group.q + host.q - host.gq, host.q end
  if host.q <= 0 or host.as == 1 or host.uc ~= '' or host.fl >= asked('places') then
    leave_ready(host, ready)
    leave_waiting(host, waiting)
  else
    local at = host.cw == 0 and host.ra or lease_at(host)
    if host.rk > at then at = host.rk end
    if at > now then
      leave_ready(host, ready)
      wait(host, waiting, at)
    else
      leave_waiting(host, waiting)
      enter(host, ready, group, host.rk)
    end
  end
  if group then offer_group(group) end
end

local function pause(host, until_)
  host.pa = math.max(host.pa, until_)
  if until_ > host.ra then
    host.ra = until_
    offer(host)
  end
end

-- A transfer to the host starts now, by this lease or claim; or later, when the worker is held up, and then it says so.
local function starts(host, by)
  host.fl = host.fl + 1
  host.st = now
  local delay = delay_of(host)
  if delay > 0 then
    host.ra = now + delay
    if asked('punctual') == 1 then host.uc = by end
  end
  local group = group_of(host)
  if group then
    group.fl = group.fl + 1
    group.ra = math.max(group.ra, now + asked('ip_delay'))
  end
end

-- A transfer is over; one that did not contact the host gives its turn back.
local function ended(host, address, by, turn)
  host.fl = math.max(0, host.fl - 1)
  if host.uc == by then host.uc = '' end
  if turn and host.ra == turn.next then host.ra = math.max(turn.at, host.pa) end
  if address ~= '' then
    local group = group_at(address)
    group.fl = math.max(0, group.fl - 1)
    if turn and group.ra == turn.group_next then group.ra = turn.group_at end
    offer_group(group)
  end
  offer(host)
end

-- The host whose turn it is, of what was taken from the ready: and the group whose turn that is. No host when it is
-- there no more: limits may have changed since.
local function turn_of(member)
  local name, group = string.sub(member, 16), nil
  if is_group(name) then
    group = host_of(name)
    group.tk = ''
    member = call('ZPOPMIN', key('it' .. name))[1]
    if not member then return nil, group end
    name = string.sub(member, 16)
  end
  local host = host_of(name)
  if host.tk ~= member then return nil, group end
  host.tk = ''
  return host, group
end

-- Move those whose time has come from the waiting to the ready.
local COME_MAX = 1000

local function come_in(waiting)
  for _, name in ipairs(call('ZRANGEBYSCORE', waiting, '-inf', text(now), 'LIMIT', 0, COME_MAX)) do
    call('ZREM', waiting, name)
    local unit = host_of(name)
    unit.wr = 0
    if is_group(name) then
      come_in(key('ir' .. name))
      offer_group(unit)
    else
      offer(unit)
    end
  end
end

local function come()
  come_in(WAITING)
end
