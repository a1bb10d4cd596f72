-- The script of the workers. Arguments: now ("" for the clock of the server), a command, the worker, and what the command takes.

local commands = {}

-- What a worker holds, for one that did not hear the answer to its last exchange.
local function said_before(worker)
  local leases = {}
  local all = call('HGETALL', key('L|' .. worker))
  for at = 1, #all, 2 do
    local lease = unpacked(all[at + 1])
    if lease.over == 0 then leases[#leases + 1] = lent(all[at], lease, host_of(lease.host)) end
  end
  return { 'ok', 0, {}, leases, outlook(), {} }
end

-- all: the serial number of the exchange, one more than that before; how many verbs, the verbs; how many records are
-- wanted now, and ahead. The same number again: the answer was lost, and nothing is done twice. Another: the server has
-- lost what came in between (a replica took over), or the worker has.
commands['exchange'] = function(worker)
  if not is_known(worker) then return { 'unknown' } end
  hear(worker)
  watch()
  local serial, last = number(), tonumber(call('HGET', key('n'), worker) or 0)
  if serial <= last then
    write_all() -- what others lost by being silent
    return serial == last and said_before(worker) or { 'unknown' }
  end
  if serial > last + 1 then
    give_up(worker)
    write_all()
    return { 'unknown' }
  end
  call('HSET', key('n'), worker, serial)
  for _ = 1, number() do verbs[argument()](worker) end
  local limit, ahead = number(), number()
  local leases = no_room and {} or lend(worker, limit, ahead)
  write_all()
  return { 'ok', new, refused, leases, outlook(), turns }
end

local BURIED_MAX = 1000 -- who joins is not overtaken by so many that join later and are given up

local function number_of(worker)
  return tonumber(string.match(worker, '#(%d+)$')) or 0
end

-- Let a worker join no more. The first of very many are forgotten, and nobody joins whose number is not above theirs.
local function bar(worker)
  call('ZADD', key('buried'), number_of(worker), worker)
  if call('ZCARD', key('buried')) > BURIED_MAX then
    local forgotten = tonumber(call('ZPOPMIN', key('buried'))[2])
    call('HSET', key('m'), 'floor', math.max(forgotten, tonumber(call('HGET', key('m'), 'floor') or 0)))
  end
end

local function is_barred(worker)
  if call('ZSCORE', key('buried'), worker) then return true end
  return number_of(worker) <= tonumber(call('HGET', key('m'), 'floor') or 0) and not is_known(worker)
end

-- open: who joins, "" for a new worker, and its name; what `begin` takes; how many fields of the policy, name and value
-- of each. Answers who the worker is from now on, "" when it cannot be; our layout; and what `begin` does.
commands['open'] = function(worker)
  local name, partitions, keeps_done, spider = argument(), ARGV[cursor + 1], ARGV[cursor + 3], ARGV[cursor + 4]
  local found = begin(argument(), argument(), argument(), argument(), argument())
  local is_ours = found[3] == '' and found[1] ~= '' -- seeds were first
  if is_ours then found[3] = spider end
  if found[1] == '' or found[2] ~= partitions or found[3] ~= spider or found[4] ~= LAYOUT or found[6] ~= keeps_done then
    return { 'ok', '', LAYOUT, unpack(found) }
  end
  if is_ours then call('HSET', key('m'), 'spider', spider) end
  local limits = {}
  for _ = 1, number() do
    local field, value = argument(), argument()
    if GENTLER[field] then limits[field] = tonumber(value) else call('HSET', key('m'), field, value) end
  end
  policy = nil
  watch()
  if worker == '' then
    for _, other in ipairs(call('ZRANGE', key('w'), 0, -1)) do -- an earlier process of the same name has ended
      if string.sub(other, 1, #name + 1) == name .. '#' then bury_here(other) end
    end
  elseif is_barred(worker) then
    return { 'unknown' }
  end
  if worker == '' then worker = name .. '#' .. call('HINCRBY', key('m'), 'workers', 1) end
  call('HSET', key('lw'), worker, cmsgpack.pack(limits))
  limit()
  hear(worker)
  write_all()
  return { 'ok', worker, LAYOUT, unpack(found) }
end

-- all partitions were made
commands['whole'] = function()
  call('HSET', key('m'), 'whole', 1)
  return { 'ok' }
end

-- a sign of life: with a report, see `publish`
commands['beat'] = function(worker)
  if not is_known(worker) then return { 'unknown' } end
  hear(worker)
  publish(worker, argument())
  watch()
  write_all()
  return { 'ok' }
end

-- Outboxes. Each record for another partition has a number, and the other partition remembers the last that it took. So
-- the same ones may be brought twice. What was brought stays in the outbox for a while: a replica that takes over the
-- other partition may not have it. One that takes over this partition numbers anew what it has lost: so the numbers
-- are those of one server, as its replication ID names it, and only those that had been brought before are common to
-- both. Servers that numbered nothing that was ever handed out are not remembered.
local RETAINED = 1000       -- so many of the last stay for good,
local RETAINED_S = 5        -- the others for so long, and at most twice that,
local RETAINED_MAX = 100000 -- so many in all
local SERVERS_MAX = 8       -- whose numbers are known: nobody is so many failovers behind

local function numbers_of(to)
  local ever, length = tonumber(call('HGET', key('os'), to) or 0), call('LLEN', key('o|' .. to))
  return ever - length, ever, tonumber(call('HGET', key('of'), to) or ever - length)
end

-- Some that others run for us do not say who they are. They are taken to be the same for ever: should a replica take over
-- that lacks the last links on their way, they are missing.
local function server_here()
  for _, named in ipairs({ { 'replication', 'master_replid' }, { 'server', 'run_id' } }) do
    local told = redis.pcall('INFO', named[1])
    local found = type(told) == 'string' and string.match(told, named[2] .. ':(%x+)')
    if found then return found end
  end
  return '0'
end

-- Who numbered them: "SERVER BASE SERVER BASE ...", this server last, each with the number before its own.
local function numberers(to, brought, are_handed_out)
  local server, all = server_here(), call('HGET', key('ob'), to) or ''
  if not string.find(all, server .. ' %d+$') then
    all = (all == '' and '' or all .. ' ') .. server .. ' ' .. text(brought)
    if are_handed_out then call('HSET', key('ob'), to, all) end
  end
  return server, all
end

-- The other partition has something of this server: it need not know those long before.
local function forget_numberers(to)
  local all = {}
  for each in string.gmatch(call('HGET', key('ob'), to) or '', '%x+ %d+') do all[#all + 1] = each end
  if #all > SERVERS_MAX then call('HSET', key('ob'), to, table.concat(all, ' ', #all - SERVERS_MAX + 1)) end
end

-- The number up to which what was brought is over, and not kept any more: what had been brought at a time that is noted
-- anew, together with what was noted before, once it is RETAINED_S ago.
local function over_by(to, brought)
  local noted = call('HGET', key('ow'), to)
  local at, before, since = unpack(noted and cmsgpack.unpack(noted) or { 0, 0, 0 })
  if now - at >= RETAINED_S then
    at, before, since = now, since, brought
    call('HSET', key('ow'), to, cmsgpack.pack({ at, before, since }))
  end
  return math.max(math.min(before, brought - RETAINED), brought - RETAINED_MAX)
end

-- what waits for another partition: which, how many at most, from which number on ("" what was not brought); answers
-- who numbers them and all who did, the first number, and the records; "" for the first when they are not here any more
commands['outgoing'] = function()
  local to, most, from = argument(), number(), argument()
  local before, _, brought = numbers_of(to)
  local first, entries = from == '' and brought + 1 or tonumber(from), {}
  local are_here = first > before
  if are_here then entries = call('LRANGE', key('o|' .. to), first - before - 1, first - before - 2 + most) end
  local server, all = numberers(to, brought, #entries > 0)
  return { 'ok', server, all, are_here and text(first) or '', entries }
end

-- The last number that was taken of those of the last server. A number up to the base of a server is what it was under
-- the one before.
local function taken_of(from, all)
  local last = 0
  for server, base in string.gmatch(all, '(%x+) (%d+)') do
    last = tonumber(call('HGET', key('oi'), from .. '|' .. server)) or math.min(last, tonumber(base))
  end
  return last
end

-- Of those who numbered the records of a partition, forget some that do not count any more.
local function forget_servers(from, all)
  local known, old = 0, {}
  for _, field in ipairs(call('HKEYS', key('oi'))) do
    local whose, server = string.match(field, '^(.*)|(%x+)$')
    if whose == from then
      known = known + 1
      if not string.find(all, server, 1, true) then old[#old + 1] = field end
    end
  end
  if known > SERVERS_MAX and #old > 0 then call('HDEL', key('oi'), unpack(old)) end
end

-- records of another partition: which, who numbers them and all who did, the first number, how many, the records;
-- answers the last number that we have now, which is before the first when those in between are missing
commands['bring'] = function()
  local from, server, all, first, entries = argument(), argument(), argument(), number(), number()
  local last = taken_of(from, all)
  if first > last + 1 then return { 'ok', text(last) } end
  for each = first, first + entries - 1 do
    local record = argument()
    if each > last then
      take_in(record)
      call('HINCRBY', key('m'), 'arrived', 1)
    end
  end
  last = math.max(last, first + entries - 1)
  if call('HSET', key('oi'), from .. '|' .. server, last) == 1 then forget_servers(from, all) end
  write_all()
  return { 'ok', text(last) }
end

-- another partition has all up to this number of this server: which
commands['brought'] = function()
  local to, server, upto = argument(), argument(), number()
  if server ~= server_here() then return { 'ok' } end -- numbers that we have lost
  local before, ever, brought = numbers_of(to)
  upto = math.min(upto, ever)
  if upto > brought then
    call('HSET', key('of'), to, upto)
    count('o|', brought - upto)
  end
  forget_numberers(to)
  local over = over_by(to, upto)
  if over > before then call('LTRIM', key('o|' .. to), over - before, -1) end
  write_all()
  return { 'ok' }
end

-- shared cookies: the number of the last change that is known; answers that of the last one there is, and the cookies
-- that changed in between
commands['cookies'] = function()
  local last = call('HGET', key('m'), 'cookies') or '0'
  local known, cookies = argument(), {}
  if tonumber(known) > tonumber(last) then known = '0' end -- a replica took over that lacks the last ones
  for _, which in ipairs(call('ZRANGEBYSCORE', key('cn'), '(' .. known, last)) do
    cookies[#cookies + 1] = call('HGET', key('ck'), which)
  end
  return { 'ok', last, cookies }
end

-- What a failover can have torn apart. Answers for each other partition who numbered what waits for it and how many of
-- these were brought; and who takes part here, as far as this partition knows.
commands['state'] = function()
  local sent = {}
  for other = 0, asked('partitions') - 1 do
    local to = tostring(other)
    if other ~= asked('number') and call('HEXISTS', key('os'), to) == 1 then
      local _, _, brought = numbers_of(to)
      local _, all = numberers(to, brought)
      sent[#sent + 1] = { to, all, text(brought) }
    end
  end
  return { 'ok', sent, call('ZRANGE', key('w'), 0, -1) }
end

-- the last number taken of each: how many, each of them: which partition, who numbered them
commands['taken'] = function()
  local last = {}
  for _ = 1, number() do
    local from, all = argument(), argument()
    last[#last + 1] = text(taken_of(from, all))
  end
  return { 'ok', last }
end

-- Other partitions know these workers, and this one, the first, does not: it has lost that they joined, or that they
-- were given up. How many, and each of them.
commands['strangers'] = function()
  for _ = 1, number() do
    local worker = argument()
    if not is_known(worker) then call('HSETNX', key('gone'), worker, tonumber(call('HGET', key('kb'), worker) or 0)) end
  end
  return { 'ok', call('HGETALL', key('gone')) }
end

-- once more, when the answer was lost: what it committed last is not known any more, and was told
commands['leave'] = function(worker)
  if is_known(worker) then
    publish(worker, argument())
    bury_here(worker)
  end
  write_all()
  return { 'ok', outlook() }
end

-- a worker is gone, as the first partition says: which, its last commit
commands['gone'] = function()
  local gone, committed = argument(), number()
  bury(gone, committed)
  bar(gone) -- it may be on its way here to join
  write_all()
  return { 'ok' }
end

-- all other partitions know that a worker is gone
commands['known'] = function()
  call('HDEL', key('gone'), argument())
  return { 'ok' }
end

local command, worker = argument(), argument()
return may_write() or commands[command](worker)
