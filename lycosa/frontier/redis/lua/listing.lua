-- The script of who looks into a crawl, or changes what a crawl itself never does: it is no worker, and joins nothing.
-- Arguments as in exchange.lua; the worker is "". What is long comes in slices: a call looks at so much, and says where
-- the next one goes on, "" at the end.

local LOOK_MAX = 1000

local looks = {}

-- The first of the numbers from `low` on that is behind, `high` if none is.
local function first_behind(low, high, is_behind)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if is_behind(middle) then high = middle else low = middle + 1 end
  end
  return low
end

local function hosts_from(name)
  return call('ZRANGE', key('a'), '[' .. name, '+', 'BYLEX', 'LIMIT', 0, LOOK_MAX)
end

-- Where to go on when all these hosts were looked at.
local function behind_hosts(names)
  return #names == LOOK_MAX and names[#names] .. '\0' or ''
end

local function answer(...)
  write_all()
  return { 'ok', ... }
end

-- what a worker is told, how many hosts there are, and how many workers
looks['outlook'] = function()
  local workers = call('ZCOUNT', key('w'), text(now - SILENT_S), '+inf')
  return { 'ok', outlook(), call('ZCARD', key('a')), workers }
end

-- begin the crawl: see `begin`. Until the first worker joins it has no policy, and hosts take their places all the same.
looks['begin'] = function()
  local found = begin(argument(), argument(), argument(), argument(), argument())
  call('HSETNX', key('m'), 'places', 1)
  return { 'ok', unpack(found) }
end

-- describe: 1 to leave what a worker said, which may have joined meanwhile; what crawl.json says of a state, its start URLs
looks['describe'] = function()
  local how = number() == 1 and 'HSETNX' or 'HSET'
  call(how, key('m'), 'described', argument())
  for _ = 1, number() do call('ZADD', key('sd'), 'NX', call('ZCARD', key('sd')), argument()) end
  return { 'ok' }
end

-- push from outside: how many, each as in `push`; nothing where the server is full
looks['push'] = function()
  local new = 0
  for _ = 1, number() do new = new + push() end
  call('HINCRBY', key('m'), 'arrived', 1)
  return answer(new)
end

-- Rows. Each slice answers its rows, and the parts of the place behind the last one.

-- queued: segment; the only host, "" for all; behind which host, lane and stamp; how many at most
looks['queued'] = function()
  local segment, only, from, lane, last, most = argument(), argument(), argument(), argument(), number(), number()
  local names, rows = only ~= '' and { only } or hosts_from(from), {}
  for _, name in ipairs(names) do
    for _, its in ipairs(call('ZRANGE', key('l|' .. name), 0, -1)) do
      if segment_of(its) == segment and (name ~= from or its >= lane) then
        local list, first = key('q|' .. name .. '|' .. its), 0
        if name == from and its == lane then
          first = first_behind(0, call('LLEN', list), function(at)
            return stamp_of(call('LINDEX', list, at)) > last
          end)
        end
        for _, entry in ipairs(call('LRANGE', list, first, first + most - #rows - 1)) do
          rows[#rows + 1] = string.sub(entry, STAMP_BYTES + 1)
          if #rows == most then return { rows, name, its, text(stamp_of(entry)) } end
        end
      end
    end
  end
  return { rows, only ~= '' and '' or behind_hosts(names), '', '0' }
end

-- What of a segment the workers have or have not committed, in the order of its tokens, from behind one on.
local function held_of(worker, segment, last)
  local found = {}
  for _, kind in ipairs({ 'L', 'P', 'Q' }) do
    local all = call('HGETALL', key(kind .. '|' .. worker))
    for at = 1, #all, 2 do
      local lease, token = unpacked(all[at + 1]), tonumber(all[at])
      if token > last and lease.kind == PAGE and segment_of(lease.lane) == segment then
        lease.token, lease.acked = token, kind ~= 'L'
        found[#found + 1] = lease
      end
    end
  end
  table.sort(found, function(one, other) return one.token < other.token end)
  return found
end

local function workers()
  local names = call('ZRANGE', key('w'), 0, -1)
  table.sort(names)
  return names
end

-- When a lease is asked for again at the latest; its worker renews it itself.
local function lent_until(lease)
  return text(math.max(lease.since + asked('lease'), now))
end

-- lent, or not committed: segment, behind which worker and token, how many at most; each record with its time
looks['leased'] = function()
  local segment, from, last, most = argument(), argument(), number(), number()
  local rows = {}
  for _, worker in ipairs(workers()) do
    if worker >= from then
      for _, lease in ipairs(held_of(worker, segment, worker == from and last or 0)) do
        rows[#rows + 1] = lease.record
        rows[#rows + 1] = lent_until(lease)
        if #rows == 2 * most then return { rows, worker, text(lease.token) } end
      end
    end
  end
  return { rows, '', '0' }
end

local function stamp_of_sleeper(member)
  return tonumber(string.sub(member, 1, 14))
end

-- asleep: segment, behind which time ("" from the first on) and stamp, how many at most; each record with its time
looks['asleep'] = function()
  local segment, from, last, most = argument(), argument(), number(), number()
  local low, rows = 0, {}
  if from ~= '' then
    low = call('ZCOUNT', key('d'), '-inf', '(' .. from)
    low = first_behind(low, low + call('ZCOUNT', key('d'), from, from), function(at)
      return stamp_of_sleeper(call('ZRANGE', key('d'), at, at)[1]) > last
    end)
  end
  local found = call('ZRANGE', key('d'), low, low + LOOK_MAX - 1, 'WITHSCORES')
  for at = 1, #found, 2 do
    local _, lane, record = parts_of(found[at])
    if segment_of(lane) == segment then
      rows[#rows + 1] = record
      rows[#rows + 1] = found[at + 1]
    end
    if #rows == 2 * most or at == 2 * LOOK_MAX - 1 then
      return { rows, found[at + 1], text(stamp_of_sleeper(found[at])) }
    end
  end
  return { rows, '', '0' }
end

local function ended_from(kind, segment, place, most)
  local from = place == '' and '-' or '(' .. place .. '\255'
  return call('ZRANGE', key(kind .. '|' .. segment), from, '+', 'BYLEX', 'LIMIT', 0, most)
end

-- dead or done: "e" or "v", segment, behind which fingerprint and stamp, how many at most
looks['ended'] = function()
  return ended_from(argument(), argument(), argument(), number())
end

-- queue dead or done records again, or copies of them: "e" or "v", their segment, 1 for copies, how many, each of them:
-- its member; host, lane; reason; the fingerprint of a copy; record
looks['again'] = function()
  local kind, segment, copies, moved = argument(), argument(), argument() == '1', 0
  for _ = 1, number() do
    local member, name, lane = argument(), argument(), argument()
    local reason, fingerprint, record = argument(), argument(), argument()
    if copies then
      moved = moved + add(fingerprint, name, lane, 0, record)
    elseif state_of(segment) == 'open' and call('ZREM', key(kind .. '|' .. segment), member) == 1 then
      tally(kind == 'e' and 'x|' or 'a|', segment, -1)
      because(kind == 'e' and 'z' or 'y', segment, reason, -1)
      enqueue(name, lane, record)
      moved = moved + 1
    end
  end
  if moved > 0 then call('HINCRBY', key('m'), 'arrived', 1) end
  return answer(moved)
end

-- Where a fingerprint is. `needle` is near the beginning of its record.

local function has(record, needle)
  return string.find(string.sub(record, 1, 16), needle, 1, true) ~= nil
end

local function held_with(segment, needle)
  local found = {}
  for _, worker in ipairs(needle ~= '' and workers() or {}) do
    for _, lease in ipairs(held_of(worker, segment, 0)) do
      if has(lease.record, needle) then
        found[#found + 1] = { lease.record, lease.acked and 1 or 0, lease.acked and lease.reason or lent_until(lease) }
      end
    end
  end
  return found
end

-- find: fingerprint as in a set, the same in 16 hexadecimal digits, its needle ("" to look among the ended alone).
-- Answers for each segment that has it: the rows of what is dead, and done; what is lent or acked, each with its record,
-- 1 when it is acked, and why or until when. All of them may be others, which were never to be filtered.
looks['find'] = function()
  local fingerprint, digits, needle = argument(), argument(), argument()
  local found = {}
  for _, segment in ipairs(call('HKEYS', key('g'))) do
    local set = 's|' .. segment .. '|' .. set_of(hashed(fingerprint), seen_of(segment).k)
    if state_of(segment) ~= 'dropped' and call('SISMEMBER', key(set), fingerprint) == 1 then
      local ended = {}
      for at, kind in ipairs({ 'e', 'v' }) do
        ended[at] = call('ZRANGE', key(kind .. '|' .. segment), '[' .. digits, '(' .. digits .. '\255', 'BYLEX')
      end
      found[#found + 1] = { segment, ended[1], ended[2], held_with(segment, needle) }
    end
  end
  return found
end

local SEEK_MAX = 5000

-- a queued record: needle, segment; the only host, "" for all; from which host, lane and index on. Answers it, "" for
-- none, and where to go on.
looks['seek'] = function()
  local needle, segment, only, from, lane, first = argument(), argument(), argument(), argument(), argument(), number()
  local names, looked = only ~= '' and { only } or hosts_from(from), 0
  for _, name in ipairs(names) do
    for _, its in ipairs(call('ZRANGE', key('l|' .. name), 0, -1)) do
      if segment_of(its) == segment and (name ~= from or its >= lane) then
        if name ~= from or its ~= lane then first = 0 end
        for at, entry in ipairs(call('LRANGE', key('q|' .. name .. '|' .. its), first, first + SEEK_MAX - looked - 1)) do
          looked = looked + 1
          local record = string.sub(entry, STAMP_BYTES + 1)
          if has(record, needle) then return { record, name, its, first + at } end
          if looked == SEEK_MAX then return { '', name, its, math.max(0, first + at - 100) } end -- some may be gone by then
        end
      end
    end
  end
  return { '', only ~= '' and '' or behind_hosts(names), '', 0 }
end

-- what sleeps: needle, segment, the cursor of the scan; answers the cursor, and each record with its time
looks['seek_asleep'] = function()
  local needle, segment = argument(), argument()
  local scanned, found = call('ZSCAN', key('d'), argument(), 'COUNT', LOOK_MAX), {}
  for at = 1, #scanned[2], 2 do
    local _, lane, record = parts_of(scanned[2][at])
    if segment_of(lane) == segment and has(record, needle) then
      found[#found + 1] = { record, scanned[2][at + 1] }
    end
  end
  return { scanned[1], found }
end

-- Hosts.

-- The status of the robots.txt, and when that was. Its bytes come first, in a form that cmsgpack cannot read.
local function facts_of(facts)
  local size = ({ [0xc4] = 1, [0xc5] = 2, [0xc6] = 4 })[string.byte(facts, 2)]
  local length = struct.unpack('>I' .. size, facts, 3)
  return cmsgpack.unpack(string.sub(facts, 3 + size + length))
end

local function described(name)
  local host, status, at = host_of(name), -1, 0
  local facts, group = call('HGET', key('f'), name), group_of(host)
  if facts then
    status, at = facts_of(facts)
  end
  return {
    name, math.max(0, host.q), host.fl, text(host.ra), text(host.pa), text(delay_of(host)), text(host.st), host.ad,
    text(host.au), host.as, status, text(at), group and text(group.ra) or '0', group and group.fl or 0, group and group.n or 0,
  }
end

-- hosts: behind which, how many at most
looks['hosts'] = function()
  local from, found = '(' .. argument(), {}
  if from == '(' then from = '-' end
  for _, name in ipairs(call('ZRANGE', key('a'), from, '+', 'BYLEX', 'LIMIT', 0, number())) do
    found[#found + 1] = described(name)
  end
  return found
end

-- host: which
looks['host'] = function()
  local name = argument()
  return call('EXISTS', key('h|' .. name)) == 1 and { described(name) } or {}
end

-- Segments.

local LIVE = { 'q|', 'l|', 'd|', 'u|' }

-- archive, if nothing is to be done: segment; answers 1 if so
looks['archive'] = function()
  local segment = argument()
  if tonumber(call('HGET', key('c'), 'o|') or 0) > 0 then return 0 end
  for _, kind in ipairs(LIVE) do
    if tonumber(call('HGET', key('c'), kind .. segment) or 0) > 0 then return 0 end
  end
  call('HSET', key('g'), segment, 'archived')
  return 1
end

-- what was archived is open after all: segment
looks['reopen'] = function()
  call('HSET', key('g'), argument(), 'open')
  return 1
end

-- drop: segment; answers how many records it had. What is queued, asleep and seen of it lies about until it is cleared.
looks['drop'] = function()
  local segment, total = argument(), 0
  for _, kind in ipairs({ 'q|', 'l|', 'd|', 'x|', 'a|' }) do
    total = total + tonumber(call('HGET', key('c'), kind .. segment) or 0)
  end
  for _, kind in ipairs({ 'q|', 'l|', 'd|', 'x|', 'a|', 'u|' }) do call('HDEL', key('c'), kind .. segment) end
  for _, hash in ipairs({ 'y', 'z' }) do
    for _, field in ipairs(call('HKEYS', key(hash))) do
      if string.sub(field, 1, #segment + 1) == segment .. '\n' then call('HDEL', key(hash), field) end
    end
  end
  call('HSET', key('g'), segment, 'dropped')
  call('UNLINK', key('e|' .. segment), key('v|' .. segment))
  return total
end

-- clear what is queued of a dropped segment: segment, from which host on
looks['clear'] = function()
  local segment, names = argument(), hosts_from(argument())
  for _, name in ipairs(names) do
    local host
    for _, lane in ipairs(call('ZRANGE', key('l|' .. name), 0, -1)) do
      if segment_of(lane) == segment then
        host = host_of(name)
        discard_lane(host, lane)
      end
    end
    if host then offer(host) end
  end
  return answer(behind_hosts(names))
end

-- clear what sleeps of it: segment, from which place on
looks['clear_asleep'] = function()
  local segment, first = argument(), number()
  local found, left = call('ZRANGE', key('d'), first, first + LOOK_MAX - 1), 0
  for _, member in ipairs(found) do
    local _, lane = parts_of(member)
    if segment_of(lane) ~= segment then
      left = left + 1
    else
      call('ZREM', key('d'), member)
    end
  end
  return answer(#found == LOOK_MAX and text(first + left) or '')
end

-- clear what was seen of it: segment
looks['clear_seen'] = function()
  local segment = argument()
  local sets = seen_of(segment).k
  local left = math.max(0, sets - LOOK_MAX)
  for at = left, sets - 1 do call('UNLINK', key('s|' .. segment .. '|' .. at)) end
  if left > 0 then
    call('HSET', key('b'), 'k|' .. segment, left)
  else
    call('HDEL', key('b'), 'n|' .. segment, 'k|' .. segment)
  end
  return { 'ok', left > 0 and 'more' or '' }
end
