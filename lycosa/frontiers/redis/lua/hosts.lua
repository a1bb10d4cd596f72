-- Whose turn it is. A host is in `t` when it may be contacted now, in `r` when it has work and its turn is to come, and
-- in neither while it has no work, no free place, or is asked for its robots.txt: so nothing is ever scanned.
--
-- What h|HOST holds, packed; what is left out is 0, or "" for `tk`, `ad` and `uc`:
--   q queued   fl in flight   ra its next turn   pa paused until (by no start of ours)   bl blocked until
--   dl delay it asks for   th delay of the throttle   st last start   as 1 while it is asked   rb robots.txt fetched at
--   rt at  tries of robots.txt and of its address   ad address   au known until   rk rank of its first lane
--   cw a claim waits until   row claims in a row   tk its member of `t`   wr 1 while it is in `r`
--   uc the lease or claim of which nobody has said yet when the host heard of it: no other turn before that

local NO_WORK = 1e300
local CLAIMS_ROW = 8
local CLAIM_WAITS_S = 0.25 -- the leases stand back for so long from where a claim waits
local CLAIM_AGAIN_S = 0.02
local NOTHING = { __index = {
  q = 0, fl = 0, ra = 0, pa = 0, bl = 0, dl = 0, th = 0, st = 0, as = 0, rb = 0, rt = 0, at = 0, ad = '', au = 0,
  rk = NO_WORK, cw = 0, row = 0, tk = '', wr = 0, uc = '',
} }

local hosts, packed_hosts = {}, {}

local function host_of(name)
  local host = hosts[name]
  if host then return host end
  local data = call('GET', key('h|' .. name))
  host = data and cmsgpack.unpack(data) or {}
  setmetatable(host, NOTHING)
  host.name = nil
  hosts[name], packed_hosts[name] = host, data
  host.name = name
  return host
end

local function write_hosts()
  for name, host in pairs(hosts) do
    host.name, host.in_rank = nil, nil
    local data = cmsgpack.pack(host)
    if data ~= packed_hosts[name] then call('SET', key('h|' .. name), data) end
  end
end

local function delay_of(host)
  return math.max(host.dl, host.th, asked('delay'))
end

-- Addresses: what the hosts of one IP address share.
local groups = {}

local function group_of(host)
  if asked('resolves') == 0 or host.ad == '' then return nil end
  local group = groups[host.ad]
  if not group then
    local found = call('HMGET', key('i|' .. host.ad), 'fl', 'ra')
    group = { address = host.ad, fl = tonumber(found[1] or 0), ra = tonumber(found[2] or 0) }
    groups[host.ad] = group
  end
  return group
end

local function write_groups()
  for address, group in pairs(groups) do
    if group.changed then call('HSET', key('i|' .. address), 'fl', group.fl, 'ra', text(group.ra)) end
  end
end

local function full(group)
  local places = asked('ip_places')
  return group ~= nil and places > 0 and group.fl >= places
end

local function ready_at(host)
  local at = math.max(host.ra, host.rk)
  local group = group_of(host)
  if group then at = math.max(at, group.ra) end
  if host.cw > now and host.row < CLAIMS_ROW then at = math.max(at, host.cw) end
  return at
end

local function leave(host)
  if host.tk ~= '' then
    call('ZREM', key('t'), host.tk)
    host.tk = ''
  end
  if host.wr ~= 0 then
    call('ZREM', key('r'), host.name)
    host.wr = 0
  end
end

-- Put the host where it belongs. Lanes that have not begun keep it waiting until they do.
local function offer(host)
  if host.q <= 0 or host.as == 1 or host.uc ~= '' or host.fl >= asked('places') then return leave(host) end
  local group = group_of(host)
  if full(group) then
    leave(host)
    return call('SADD', key('j|' .. group.address), host.name)
  end
  local at = ready_at(host)
  if at > now then
    if host.tk ~= '' then leave(host) end
    call('ZADD', key('r'), text(at), host.name)
    host.wr = 1
    return
  end
  if host.tk ~= '' and host.in_rank == host.rk then return end
  leave(host)
  host.tk = stamp() .. '|' .. host.name
  host.in_rank = host.rk
  call('ZADD', key('t'), text(host.rk), host.tk)
end

local function pause(host, until_)
  host.pa = math.max(host.pa, until_)
  if until_ > host.ra then
    host.ra = until_
    offer(host)
  end
end

local function block(host, until_)
  host.bl = math.max(host.bl, until_)
  pause(host, until_)
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
    group.fl, group.changed = group.fl + 1, true
    if asked('ip_delay') > 0 then group.ra = math.max(group.ra, now + asked('ip_delay')) end
  end
end

-- A transfer is over; one that did not contact the host gives its turn back.
local function ended(host, address, by, turn)
  host.fl = math.max(0, host.fl - 1)
  if host.uc == by then host.uc = '' end
  if turn and host.ra == turn.next then host.ra = math.max(turn.at, host.pa) end
  if address ~= '' then
    local group = group_of({ ad = address })
    if group then
      group.fl, group.changed = math.max(0, group.fl - 1), true
      if turn and group.ra == turn.group_next then group.ra = turn.group_at end
      local waiting = call('SPOP', key('j|' .. address))
      if waiting then offer(host_of(waiting)) end
    end
  end
  offer(host)
end

-- Move those whose time has come from the waiting to the ready.
local COME_MAX = 1000

local function come()
  for _, name in ipairs(call('ZRANGEBYSCORE', key('r'), '-inf', text(now), 'LIMIT', 0, COME_MAX)) do
    local host = host_of(name)
    call('ZREM', key('r'), name)
    host.wr = 0
    offer(host)
  end
end
