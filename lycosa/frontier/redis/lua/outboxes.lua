-- Outboxes. Each record for another partition has a number, and the other partition remembers the last number that it
-- took: so the same records may be delivered twice. Delivered records stay in the outbox for a while, because a replica
-- that takes over the other partition may not have them. A replica that takes over this partition numbers anew what it
-- has lost. So numbers belong to one server, as its replication ID names it, and only those that had been delivered
-- before are common to both. Servers whose numbers were never handed out are not remembered.

local RETAINED = 1000       -- so many of the last records stay for good,
local RETAINED_S = 5        -- the others for this long, and at most twice that,
local RETAINED_MAX = 100000 -- so many in all
local SERVERS_MAX = 8       -- whose numbers are known: no partition is so many failovers behind

-- Returns the number before the first record in the outbox, that of the last record, and of the last delivered one.
local function outbox_numbers(to)
  local last, length = tonumber(call('HGET', key.outbox_last, to) or 0), call('LLEN', key.outbox .. to)
  return last - length, last, tonumber(call('HGET', key.outbox_delivered, to) or last - length)
end

-- Some managed servers do not say who they are, and are taken to be one for ever: should a replica take over that lacks
-- the last links on their way, these are lost.
local function this_server()
  for _, field in ipairs({ { 'replication', 'master_replid' }, { 'server', 'run_id' } }) do
    local info = redis.pcall('INFO', field[1])
    local found = type(info) == 'string' and string.match(info, field[2] .. ':(%x+)')
    if found then return found end
  end
  return '0'
end

-- Returns this server, and all that numbered records for a partition: "SERVER BASE SERVER BASE ...", this one last,
-- each with the last number before its own.
local function numbering_servers(to, delivered, are_handed_out)
  local server, servers = this_server(), call('HGET', key.outbox_servers, to) or ''
  if not string.find(servers, server .. ' %d+$') then
    servers = (servers == '' and '' or servers .. ' ') .. server .. ' ' .. text(delivered)
    if are_handed_out then call('HSET', key.outbox_servers, to, servers) end
  end
  return server, servers
end

-- The other partition has records of this server: it need not know those of long before.
local function forget_old_servers(to)
  local servers = {}
  for each in string.gmatch(call('HGET', key.outbox_servers, to) or '', '%x+ %d+') do servers[#servers + 1] = each end
  if #servers > SERVERS_MAX then
    call('HSET', key.outbox_servers, to, table.concat(servers, ' ', #servers - SERVERS_MAX + 1))
  end
end

-- The number up to which delivered records are not kept any more. Every RETAINED_S the number of the last delivered
-- record is noted; records up to the number noted before that are at least RETAINED_S old.
local function expired_upto(to, delivered)
  local noted = call('HGET', key.outbox_retained, to)
  local at, before, since = unpack(noted and cmsgpack.unpack(noted) or { 0, 0, 0 })
  if now - at >= RETAINED_S then
    at, before, since = now, since, delivered
    call('HSET', key.outbox_retained, to, cmsgpack.pack({ at, before, since }))
  end
  return math.max(math.min(before, delivered - RETAINED), delivered - RETAINED_MAX)
end

-- Reads the outbox for a partition: which, how many records at most, from which number on ("" for the first one that
-- was not delivered). Returns this server and all that numbered its records, the first number, and the records; "" for
-- the first number when they are not here any more.
commands['read_outbox'] = function()
  local to, limit, from = argument(), number(), argument()
  local before, _, delivered = outbox_numbers(to)
  local first, entries = from == '' and delivered + 1 or tonumber(from), {}
  local are_here = first > before
  if are_here then entries = call('LRANGE', key.outbox .. to, first - before - 1, first - before - 2 + limit) end
  local server, servers = numbering_servers(to, delivered, #entries > 0)
  return { 'ok', server, servers, are_here and text(first) or '', entries }
end

-- The number of the last record taken from a partition, in the numbers of its last server. A number up to the base of a
-- server is what it was under the server before.
local function last_taken(from, servers)
  local last = 0
  for server, base in string.gmatch(servers, '(%x+) (%d+)') do
    last = tonumber(call('HGET', key.inbox_last, from .. '|' .. server)) or math.min(last, tonumber(base))
  end
  return last
end

-- Forgets servers of a partition that are not among `servers`.
local function forget_inbox_servers(from, servers)
  local known, old = 0, {}
  for _, field in ipairs(call('HKEYS', key.inbox_last)) do
    local partition, server = string.match(field, '^(.*)|(%x+)$')
    if partition == from then
      known = known + 1
      if not string.find(servers, server, 1, true) then old[#old + 1] = field end
    end
  end
  if known > SERVERS_MAX and #old > 0 then call('HDEL', key.inbox_last, unpack(old)) end
end

-- Takes records of another partition: which, its server and all that numbered them, the first number, how many, the
-- records. Returns the last number that was taken, which is before the first when records in between are missing.
commands['deliver'] = function()
  local from, server, servers, first, entries = argument(), argument(), argument(), number(), number()
  local last = last_taken(from, servers)
  if first > last + 1 then return { 'ok', text(last) } end
  for each = first, first + entries - 1 do
    local entry = argument()
    if each > last then
      push_packed(entry)
      call('HINCRBY', key.meta, 'arrived', 1)
    end
  end
  last = math.max(last, first + entries - 1)
  if call('HSET', key.inbox_last, from .. '|' .. server, last) == 1 then forget_inbox_servers(from, servers) end
  write_all()
  return { 'ok', text(last) }
end

-- Another partition has taken all records up to a number: which, the server that numbered them, the number.
commands['delivered'] = function()
  local to, server, upto = argument(), argument(), number()
  if server ~= this_server() then return { 'ok' } end -- these numbers were lost in a failover
  local before, last, delivered = outbox_numbers(to)
  upto = math.min(upto, last)
  if upto > delivered then
    call('HSET', key.outbox_delivered, to, upto)
    count('outgoing|', delivered - upto)
  end
  forget_old_servers(to)
  local expired = expired_upto(to, upto)
  if expired > before then call('LTRIM', key.outbox .. to, expired - before, -1) end
  write_all()
  return { 'ok' }
end

-- What a failover can have torn apart: for each other partition the servers that numbered its records, and the last
-- number that was delivered; and the workers that this partition knows.
commands['failover_state'] = function()
  local outboxes = {}
  for partition = 0, meta('partitions') - 1 do
    local to = tostring(partition)
    if partition ~= meta('number') and call('HEXISTS', key.outbox_last, to) == 1 then
      local _, _, delivered = outbox_numbers(to)
      local _, servers = numbering_servers(to, delivered)
      outboxes[#outboxes + 1] = { to, servers, text(delivered) }
    end
  end
  return { 'ok', outboxes, call('ZRANGE', key.workers, 0, -1) }
end

-- The last numbers that were taken: how many, each of them: from which partition, the servers that numbered its
-- records.
commands['last_taken'] = function()
  local last = {}
  for _ = 1, number() do
    local from, servers = argument(), argument()
    last[#last + 1] = text(last_taken(from, servers))
  end
  return { 'ok', last }
end
