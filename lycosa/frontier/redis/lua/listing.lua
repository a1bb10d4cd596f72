-- The operations from outside the crawl: they need no worker. Long ones run in slices: a call handles a part, and
-- returns the position of the next call, "" at the end.

local SLICE_MAX = 1000 -- maximum number of hosts, records or sets that one call handles

local operations = {}

-- Returns the first number from `low` to `high` - 1 for which `is_after` is true; `high` if there is none.
local function first_after(low, high, is_after)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if is_after(middle) then high = middle else low = middle + 1 end
  end
  return low
end

local function hosts_from(name)
  return call('ZRANGE', key.hosts, '[' .. name, '+', 'BYLEX', 'LIMIT', 0, SLICE_MAX)
end

-- Returns the position after these hosts.
local function next_host(names)
  return #names == SLICE_MAX and names[#names] .. '\0' or ''
end

local function lanes_of(name)
  return call('ZRANGE', key.lanes .. name, 0, -1)
end

local function written(...)
  write_all()
  return { 'ok', ... }
end

-- Returns the status of the partition, the number of hosts, and the number of live workers.
operations['status'] = function()
  local alive = call('ZCOUNT', key.workers, text(now - SILENT_S), '+inf')
  return { 'ok', status(), call('ZCARD', key.hosts), alive }
end

-- Creates the crawl: see `begin_crawl`. It has no policy until the first worker joins. Hosts are scheduled with one
-- slot until then.
operations['begin'] = function()
  local found = begin_crawl(argument(), argument(), argument(), argument(), argument())
  call('HSETNX', key.meta, 'places', 1)
  return { 'ok', unpack(found) }
end

-- Marks the partition as one that is being deleted: nothing reads or changes it any more. Argument: 0 to look only, 1
-- to mark it unless it has workers, 2 to mark it in any case. Returns the number of live workers, and the counts.
operations['delete'] = function()
  local mode, alive = number(), call('ZCOUNT', key.workers, text(now - SILENT_S), '+inf')
  local counts = call('HGETALL', key.counts)
  if mode == 2 or (mode == 1 and alive == 0) then
    call('DEL', key.workers, key.serials)
    call('HSET', key.meta, 'layout', DELETED_LAYOUT)
  end
  return { 'ok', alive, counts }
end

-- Stores the description of the crawl and its start URLs. Arguments: 1 to keep an existing description (of a worker
-- that joined meanwhile); the description; the number of start URLs, and each of them.
operations['describe'] = function()
  local command = number() == 1 and 'SETNX' or 'SET'
  call(command, key.description, argument())
  for _ = 1, number() do call('ZADD', key.seeds, 'NX', call('ZCARD', key.seeds), argument()) end
  return { 'ok' }
end

-- Adds records. Arguments: the number of records, and each of them (see records.lua).
operations['push'] = function()
  local new = 0
  for _ = 1, number() do new = new + push_argument(true) end
  call('HINCRBY', key.meta, 'arrived', 1)
  return written(new)
end

-- Rows. Each call returns the rows of its slice and, except for 'ended', the parts of the position after the last row.

-- Lists queued records. Arguments: segment; a host, or "" for all; host, lane and stamp of the last row; the maximum
-- number of rows.
operations['queued'] = function()
  local segment, only, from, lane, last, limit = argument(), argument(), argument(), argument(), number(), number()
  local names, rows = only ~= '' and { only } or hosts_from(from), {}
  for _, name in ipairs(names) do
    for _, each in ipairs(lanes_of(name)) do
      if segment_of(each) == segment and (name ~= from or each >= lane) then
        local list, first = queue_key(name, each), 0
        if name == from and each == lane then
          first = first_after(0, call('LLEN', list), function(i) return stamp_of(call('LINDEX', list, i)) > last end)
        end
        for _, entry in ipairs(call('LRANGE', list, first, first + limit - #rows - 1)) do
          rows[#rows + 1] = record_of(entry)
          if #rows == limit then return { rows, name, each, text(stamp_of(entry)) } end
        end
      end
    end
  end
  return { rows, only ~= '' and '' or next_host(names), '', '0' }
end

local sorted_workers
do -- the main function of a script may have at most 200 local variables

-- Returns the leases of a segment that a worker holds, or has acked but not committed, sorted by token. Leaves out
-- tokens up to `last`.
local function leases_of(worker, segment, last)
  local found = {}
  for _, name in ipairs({ 'leases', 'acked', 'prepared' }) do
    local all = call('HGETALL', key[name] .. worker)
    for i = 1, #all, 2 do
      local lease, token = unpacked_lease(all[i + 1]), tonumber(all[i])
      if token > last and lease.kind == PAGE and segment_of(lease.lane) == segment then
        lease.token, lease.acked = token, name ~= 'leases'
        found[#found + 1] = lease
      end
    end
  end
  table.sort(found, function(one, other) return one.token < other.token end)
  return found
end

function sorted_workers()
  local names = call('ZRANGE', key.workers, 0, -1)
  table.sort(names)
  return names
end

-- Returns when a lease ends if it is not renewed. Workers do not report renewals: if that time has passed, returns the
-- current time.
local function leased_until(lease)
  return text(math.max(lease.since + meta('lease'), now))
end

-- Lists leased and uncommitted records, each with the time of `leased_until`. Arguments: segment; worker and token of
-- the last row; the maximum number of rows.
operations['leased'] = function()
  local segment, from, last, limit = argument(), argument(), number(), number()
  local rows = {}
  for _, worker in ipairs(sorted_workers()) do
    if worker >= from then
      for _, lease in ipairs(leases_of(worker, segment, worker == from and last or 0)) do
        rows[#rows + 1] = lease.record
        rows[#rows + 1] = leased_until(lease)
        if #rows == 2 * limit then return { rows, worker, text(lease.token) } end
      end
    end
  end
  return { rows, '', '0' }
end

local function stamp_of_delayed(member)
  return tonumber(string.sub(member, 1, STAMP_CHARS))
end

-- Lists delayed records, each with the time at which it is due. Arguments: segment; time ("" for the first call) and
-- stamp of the last row; the maximum number of rows.
operations['delayed'] = function()
  local segment, from, last, limit = argument(), argument(), number(), number()
  local low, rows = 0, {}
  if from ~= '' then
    low = call('ZCOUNT', key.delayed, '-inf', '(' .. from)
    low = first_after(low, low + call('ZCOUNT', key.delayed, from, from), function(i)
      return stamp_of_delayed(call('ZRANGE', key.delayed, i, i)[1]) > last
    end)
  end
  local found = call('ZRANGE', key.delayed, low, low + SLICE_MAX - 1, 'WITHSCORES')
  for i = 1, #found, 2 do
    local _, lane, record = parse_delayed(found[i])
    if segment_of(lane) == segment then
      rows[#rows + 1] = record
      rows[#rows + 1] = found[i + 1]
    end
    if #rows == 2 * limit or i == 2 * SLICE_MAX - 1 then
      return { rows, found[i + 1], text(stamp_of_delayed(found[i])) }
    end
  end
  return { rows, '', '0' }
end

-- Lists dead or done records. Arguments: 'dead' or 'done'; segment; the fingerprint and stamp of the last row as one
-- string ("" for the first call); the maximum number of rows.
operations['ended'] = function()
  local name, segment, place, limit = argument(), argument(), argument(), argument()
  local from = place == '' and '-' or '(' .. place .. '\255'
  return call('ZRANGE', key[name] .. segment, from, '+', 'BYLEX', 'LIMIT', 0, limit)
end

-- Queues dead or done records again, or queues copies of them. Arguments: 'dead' or 'done', their segment, 1 to queue
-- copies, the number of records, and for each: its member, host, lane, reason, the fingerprint of a copy, record.
operations['requeue'] = function()
  local name, segment, copies, moved = argument(), argument(), argument() == '1', 0
  for _ = 1, number() do
    local member, host, lane = argument(), argument(), argument()
    local reason, fingerprint, record = argument(), argument(), argument()
    if copies then
      moved = moved + add(fingerprint, host, lane, 0, record, true)
    elseif state_of(segment) == OPEN and call('ZREM', key[name] .. segment, member) == 1 then
      tally(name, segment, -1)
      count_reason(name .. '_reasons', segment, reason, -1)
      enqueue(host, lane, record)
      moved = moved + 1
    end
  end
  if moved > 0 then call('HINCRBY', key.meta, 'arrived', 1) end
  return written(moved)
end

-- Finding a fingerprint. The `needle` of a fingerprint occurs near the beginning of each record that has it.

local function has(record, needle)
  return string.find(string.sub(record, 1, 16), needle, 1, true) ~= nil
end

local function leases_with(segment, needle)
  local found = {}
  for _, worker in ipairs(needle ~= '' and sorted_workers() or {}) do
    for _, lease in ipairs(leases_of(worker, segment, 0)) do
      if has(lease.record, needle) then
        local detail = lease.acked and lease.reason or leased_until(lease)
        found[#found + 1] = { lease.record, lease.acked and 1 or 0, detail }
      end
    end
  end
  return found
end

-- Finds a fingerprint in all states except queued and delayed. Arguments: the fingerprint as in the sets, the same
-- in hexadecimal digits, its needle ("" to search dead and done records only). Returns for each segment that has it:
-- the rows of dead records; the rows of done records; the leased or acked records, each with 1 if it is acked (else 0),
-- and its reason or the time until which it is leased. Some of these rows may be duplicates, pushed with dont_filter.
operations['find'] = function()
  local fingerprint, digits, needle = argument(), argument(), argument()
  local found = {}
  for _, segment in ipairs(call('HKEYS', key.segments)) do
    local set = seen_key(segment, set_of(hash_of(fingerprint), seen_of(segment).sets))
    if state_of(segment) ~= DROPPED and call('SISMEMBER', set, fingerprint) == 1 then
      local ended = {}
      for i, name in ipairs({ 'dead', 'done' }) do
        ended[i] = call('ZRANGE', key[name] .. segment, '[' .. digits, '(' .. digits .. '\255', 'BYLEX')
      end
      found[#found + 1] = { segment, ended[1], ended[2], leases_with(segment, needle) }
    end
  end
  return found
end

local SEEK_MAX = 5000 -- maximum number of queued records that one call searches

-- Finds a queued record. Arguments: needle, segment; a host, or "" for all; the first host, lane and index. Returns the
-- record ("" for none), and the position of the next call.
operations['seek_queued'] = function()
  local needle, segment, only, from, lane, first = argument(), argument(), argument(), argument(), argument(), number()
  local names, looked_at = only ~= '' and { only } or hosts_from(from), 0
  for _, name in ipairs(names) do
    for _, each in ipairs(lanes_of(name)) do
      if segment_of(each) == segment and (name ~= from or each >= lane) then
        if name ~= from or each ~= lane then first = 0 end
        for i, entry in ipairs(call('LRANGE', queue_key(name, each), first, first + SEEK_MAX - looked_at - 1)) do
          looked_at = looked_at + 1
          if has(record_of(entry), needle) then return { record_of(entry), name, each, first + i } end
          -- Some of these records may be leased before the next call, so the next call begins a little earlier.
          if looked_at == SEEK_MAX then return { '', name, each, math.max(0, first + i - 100) } end
        end
      end
    end
  end
  return { '', only ~= '' and '' or next_host(names), '', 0 }
end

-- Finds delayed records. Arguments: needle, segment, the cursor of the scan. Returns the next cursor, and each record
-- with the time at which it is due.
operations['seek_delayed'] = function()
  local needle, segment = argument(), argument()
  local scanned, found = call('ZSCAN', key.delayed, argument(), 'COUNT', SLICE_MAX), {}
  for i = 1, #scanned[2], 2 do
    local _, lane, record = parse_delayed(scanned[2][i])
    if segment_of(lane) == segment and has(record, needle) then
      found[#found + 1] = { record, scanned[2][i + 1] }
    end
  end
  return { scanned[1], found }
end

-- Hosts.

-- Returns the status of the robots.txt, and the time at which it was fetched. Skips the bytes of the file, which are
-- the first field: cmsgpack cannot read their msgpack type (bin).
local function robots_of(facts)
  local size = ({ [0xc4] = 1, [0xc5] = 2, [0xc6] = 4 })[string.byte(facts, 2)]
  local length = struct.unpack('>I' .. size, facts, 3)
  return cmsgpack.unpack(string.sub(facts, 3 + size + length))
end

local function host_view(name)
  local host, status, fetched_at = entity(name), -1, 0
  local facts, group = call('HGET', key.host_facts, name), group_of(host)
  if facts then
    status, fetched_at = robots_of(facts)
  end
  return {
    name, math.max(0, host.queued), host.in_flight, text(host.next_at), text(host.paused_until), text(delay_of(host)),
    text(host.started_at), host.address, text(host.address_until), host.preparing, status, text(fetched_at),
    group and text(group.next_at) or '0', group and group.in_flight or 0, group and group.group_hosts or 0,
  }
end

-- Lists hosts. Arguments: the last host of the previous call ("" for none), the maximum number of hosts.
operations['hosts'] = function()
  local from, found = '(' .. argument(), {}
  if from == '(' then from = '-' end
  for _, name in ipairs(call('ZRANGE', key.hosts, from, '+', 'BYLEX', 'LIMIT', 0, number())) do
    found[#found + 1] = host_view(name)
  end
  return found
end

operations['host'] = function()
  local name = argument()
  return call('EXISTS', key.host .. name) == 1 and { host_view(name) } or {}
end

-- Expires the robots.txt of a host. Arguments: host; its facts, in which the time of the robots.txt is 0.
operations['expire_robots'] = function()
  local name, facts = argument(), argument()
  local host = entity(name)
  call('HSET', key.host_facts, name, facts)
  host.robots_at, host.robots_tries = 0, 0
  schedule(host)
  return written()
end

-- Segments.

local function count_of(state, segment)
  return tonumber(call('HGET', key.counts, state .. '|' .. segment) or 0)
end

-- Closes a segment: it accepts no more records from outside. Argument: segment.
operations['close'] = function()
  local segment = argument()
  local state = state_of(segment)
  if state == 'new' or state == OPEN then call('HSET', key.segments, segment, CLOSING) end
  return 1
end

operations['reopen'] = function()
  local segment = argument()
  if state_of(segment) == CLOSING then call('HSET', key.segments, segment, OPEN) end
  return 1
end

-- Returns how many records of a segment are work, and how many have ended. All records on the way to other partitions
-- count as work, whatever their segment.
local function work_of(segment)
  local work = count_of('outgoing', '')
  for _, state in ipairs({ 'queued', 'leased', 'delayed', 'uncommitted' }) do work = work + count_of(state, segment) end
  return work, count_of('done', segment) + count_of('dead', segment)
end

operations['work'] = function()
  return { work_of(argument()) }
end

-- Archives a segment if it has no work left. Argument: segment. Returns 1 if it is archived, else 0.
operations['archive'] = function()
  local segment = argument()
  if is_served(segment) and work_of(segment) == 0 then call('HSET', key.segments, segment, ARCHIVED) end
  return call('HGET', key.segments, segment) == ARCHIVED and 1 or 0
end

-- Drops a segment. Argument: segment. Returns the number of its records. Queued and delayed records and fingerprints
-- stay until they are cleared.
operations['drop'] = function()
  local segment, total = argument(), 0
  for _, state in ipairs({ 'queued', 'leased', 'delayed', 'dead', 'done', 'uncommitted' }) do
    if state ~= 'uncommitted' then total = total + count_of(state, segment) end
    call('HDEL', key.counts, state .. '|' .. segment)
  end
  for _, hash in ipairs({ key.done_reasons, key.dead_reasons }) do
    for _, field in ipairs(call('HKEYS', hash)) do
      if string.sub(field, 1, #segment + 1) == segment .. '\n' then call('HDEL', hash, field) end
    end
  end
  call('HSET', key.segments, segment, DROPPED)
  call('UNLINK', key.dead .. segment, key.done .. segment)
  return total
end

-- Removes queued records of a dropped segment. Arguments: segment, the first host.
operations['clear_queued'] = function()
  local segment, names = argument(), hosts_from(argument())
  for _, name in ipairs(names) do
    local host
    for _, lane in ipairs(lanes_of(name)) do
      if segment_of(lane) == segment then
        host = entity(name)
        discard_lane(host, lane)
      end
    end
    if host then schedule(host) end
  end
  return written(next_host(names))
end

-- Removes delayed records of a dropped segment. Arguments: segment, the first index.
operations['clear_delayed'] = function()
  local segment, first = argument(), number()
  local found, left = call('ZRANGE', key.delayed, first, first + SLICE_MAX - 1), 0
  for _, member in ipairs(found) do
    local _, lane = parse_delayed(member)
    if segment_of(lane) ~= segment then
      left = left + 1
    else
      call('ZREM', key.delayed, member)
    end
  end
  return written(#found == SLICE_MAX and text(first + left) or '')
end

-- Removes fingerprints of a dropped segment, the last sets first. Argument: segment.
operations['clear_seen'] = function()
  local segment = argument()
  local sets = seen_of(segment).sets
  local left = math.max(0, sets - SLICE_MAX)
  for number = left, sets - 1 do call('UNLINK', seen_key(segment, number)) end
  if left > 0 then
    call('HSET', key.seen_counts, 'sets|' .. segment, left)
  else
    call('HDEL', key.seen_counts, 'count|' .. segment, 'sets|' .. segment)
  end
  return { 'ok', left > 0 and 'more' or '' }
end

end
