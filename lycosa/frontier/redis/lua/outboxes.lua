-- Outboxes. Each record for another partition has a number. The other partition stores the last number that it took, so
-- delivering a record twice does no harm. Delivered records stay in the outbox for a while, because a replica that
-- takes over the other partition may not have them. A replica that takes over this partition may have lost the last
-- records, and uses their numbers again. So a number is valid only with the server that assigned it, identified by its
-- replication ID. Numbers that were delivered before a failover are valid for both servers. A server is stored (in
-- `outbox_servers`) only once a worker has read numbers that it assigned.

local RETAINED = 1000       -- number of last delivered records that always stay in the outbox
local RETAINED_S = 5        -- minimum time for which other delivered records stay; the maximum is twice as long
local RETAINED_MAX = 100000 -- maximum number of delivered records that stay
local SERVERS_MAX = 8       -- maximum number of stored servers: no partition is this many failovers behind

-- Returns three record numbers: the number before the first record in the outbox, the number of the last record, and
-- the number of the last delivered record.
local function outbox_numbers(to)
  local last, length = tonumber(call('HGET', key.outbox_last, to) or 0), call('LLEN', key.outbox .. to)
  return last - length, last, tonumber(call('HGET', key.outbox_delivered, to) or last - length)
end

-- Returns this server, and all servers that numbered records for a partition, this one last: "SERVER BASE SERVER BASE
-- ...". The numbers after BASE are those that SERVER assigned.
local function numbering_servers(to, delivered, are_handed_out)
  local server, servers = this_server(), call('HGET', key.outbox_servers, to) or ''
  if not string.find(servers, server .. ' %d+$') then
    servers = (servers == '' and '' or servers .. ' ') .. server .. ' ' .. text(delivered)
    if are_handed_out then call('HSET', key.outbox_servers, to, servers) end
  end
  return server, servers
end

-- Forgets all but the last SERVERS_MAX servers that numbered records for a partition. The partition has taken records
-- of this server, so it no longer needs the old servers.
local function forget_old_servers(to)
  local servers = {}
  for each in string.gmatch(call('HGET', key.outbox_servers, to) or '', '%x+ %d+') do servers[#servers + 1] = each end
  if #servers > SERVERS_MAX then
    call('HSET', key.outbox_servers, to, table.concat(servers, ' ', #servers - SERVERS_MAX + 1))
  end
end

-- Returns the number up to which delivered records may be removed. Every RETAINED_S the number of the last delivered
-- record is stored, and the previous stored number is kept: records up to it were delivered at least RETAINED_S ago.
local function expired_upto(to, delivered)
  local noted = call('HGET', key.outbox_retained, to)
  local at, before, since = unpack(noted and cmsgpack.unpack(noted) or { 0, 0, 0 })
  if now - at >= RETAINED_S then
    at, before, since = now, since, delivered
    call('HSET', key.outbox_retained, to, cmsgpack.pack({ at, before, since }))
  end
  return math.max(math.min(before, delivered - RETAINED), delivered - RETAINED_MAX)
end

-- Reads the outbox for a partition. Arguments: the partition, the maximum number of records, the first number ("" for
-- the first undelivered record). Returns this server and all servers that numbered the records, the first number ("" if
-- the record is no longer here), and the records.
commands['read_outbox'] = function()
  local to, limit, from = argument(), number(), argument()
  local before, _, delivered = outbox_numbers(to)
  local first, entries = from == '' and delivered + 1 or tonumber(from), {}
  local are_here = first > before
  if are_here then entries = call('LRANGE', key.outbox .. to, first - before - 1, first - before - 2 + limit) end
  local server, servers = numbering_servers(to, delivered, #entries > 0)
  return { 'ok', server, servers, are_here and text(first) or '', entries }
end

-- Returns the number of the last record taken from a partition, as numbered by its last server. Up to its base, a
-- server uses the numbers of the server before it.
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

-- Takes records from another partition. Arguments: the partition, its server and all servers that numbered the records,
-- the first number, the number of records, and each of them. Returns the number of the last record taken. It is less
-- than the first number if records in between are missing.
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

-- Marks all records up to a number as delivered to another partition. Arguments: the partition, the server that
-- assigned the number, the number.
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

-- Returns the data that may differ between partitions after a failover: for each other partition, the servers that
-- numbered its records and the last delivered number; and the workers that this partition knows.
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

-- Returns the last number taken from each of several partitions. Arguments: the count of partitions, and for each: the
-- partition, the servers that numbered its records.
commands['last_taken'] = function()
  local last = {}
  for _ = 1, number() do
    local from, servers = argument(), argument()
    last[#last + 1] = text(last_taken(from, servers))
  end
  return { 'ok', last }
end
