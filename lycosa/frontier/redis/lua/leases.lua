-- Leases: which worker holds which record. The server does not end a lease because of its age: each worker ends its own
-- overdue leases. A blocked worker may end a lease too late, which does no harm: after SILENT_S without a call, the
-- server has removed the worker and all its leases.

local OUTAGE_S = 1 -- if all workers were silent for longer, no worker expires: the server was down, or no worker ran

local function packed_lease(lease)
  return cmsgpack.pack({
    lease.kind, lease.host, lease.lane, lease.at, lease.next_at, lease.address, lease.group_at, lease.group_next_at,
    lease.transferred, lease.record, lease.reason, lease.row, lease.since,
  })
end

-- `at` and `next_at` are the next possible start of the host before and after this lease, `group_at` and
-- `group_next_at` the same for its group; `transferred` is 1 if the transfer has ended before the lease.
local function unpacked_lease(data)
  local fields = cmsgpack.unpack(data)
  return {
    kind = fields[1], host = fields[2], lane = fields[3], at = fields[4], next_at = fields[5], address = fields[6],
    group_at = fields[7], group_next_at = fields[8], transferred = fields[9], record = fields[10], reason = fields[11],
    row = fields[12], since = fields[13],
  }
end

local function put_back(lease)
  local segment = segment_of(lease.lane)
  if is_served(segment) then enqueue(lease.host, lease.lane, lease.record, true) end
end

-- Commits.

-- Adds `by` to the count of done records: -1 if the record is not done after all.
local function count_done(lease, by)
  local segment = segment_of(lease.lane)
  if state_of(segment) == DROPPED then return end
  tally('done', segment, by)
  count_reason('done_reasons', segment, lease.reason, by)
end

-- Queues the acked records in this hash again, because they were never committed.
local function revert(acked_key)
  for _, data in ipairs(call('HVALS', acked_key)) do
    local lease = unpacked_lease(data)
    tally('uncommitted', segment_of(lease.lane), -1)
    count_done(lease, -1)
    put_back(lease)
  end
end

-- Stores the row of a done or dead record.
local function store_row(table_key, segment, row)
  local fingerprint = string.sub(row, 1, FINGERPRINT_CHARS)
  call('ZADD', table_key .. segment, 0, fingerprint .. next_stamp() .. string.sub(row, FINGERPRINT_CHARS + 1))
end

-- Commits what was acked: the leases, their counts by segment, and the held links. Returns how many of the links were
-- new in this partition.
local function commit_acked(acked_key, counts_key, links_key)
  local counts = call('HGETALL', counts_key)
  for i = 1, #counts, 2 do tally('uncommitted', counts[i], -tonumber(counts[i + 1])) end
  if meta('keep_done') == 1 then
    for _, data in ipairs(call('HVALS', acked_key)) do
      local lease = unpacked_lease(data)
      local segment = segment_of(lease.lane)
      if state_of(segment) ~= DROPPED and (lease.row or '') ~= '' then store_row(key.done, segment, lease.row) end
    end
  end
  local added = release_links(links_key)
  call('DEL', acked_key, counts_key, links_key)
  return added
end

-- Commits what was prepared. Returns how many of the held links were new in this partition.
local function commit_prepared(worker)
  local prepared = key.prepared_positions .. worker
  local positions = call('HGETALL', prepared)
  for i = 1, #positions, 2 do call('HSET', key.positions, positions[i], positions[i + 1]) end
  call('DEL', prepared)
  return commit_acked(key.prepared .. worker, key.prepared_counts .. worker, key.prepared_links .. worker)
end

-- Expired workers.

-- Removes a worker: ends its leases and claims, and requeues what it has not committed. `committed` is the number of
-- its last commit.
local function remove_worker(worker, committed)
  local leases = call('HGETALL', key.leases .. worker)
  for i = 1, #leases, 2 do
    local token, lease = leases[i], unpacked_lease(leases[i + 1])
    local host = entity(lease.host)
    assume_started(host, token)
    if lease.kind == PAGE then
      tally('leased', segment_of(lease.lane), -1)
      put_back(lease)
    else
      host.preparing = 0
    end
    if lease.transferred == 0 then finish(host, lease.address, token) else schedule(host) end
  end
  local prepared = tonumber(call('HGET', key.prepared_commits, worker))
  if prepared and prepared <= committed then commit_prepared(worker) else revert(key.prepared .. worker) end
  revert(key.acked .. worker)
  local claims = call('HGETALL', key.claimed .. worker)
  for i = 1, #claims, 2 do
    assume_started(entity(string.match(claims[i + 1], '^[^\n]*')), worker .. '|' .. claims[i])
    release_claim(worker, claims[i])
  end
  for _, name in ipairs({
    'leases', 'claimed', 'acked', 'acked_counts', 'acked_links', 'prepared', 'prepared_counts', 'prepared_links',
    'prepared_positions',
  }) do call('DEL', key[name] .. worker) end
  for _, name in ipairs({ 'serials', 'prepared_commits', 'prepared_servers', 'commits' }) do call('HDEL', key[name], worker) end
  call('ZREM', key.workers, worker)
  call('ZREM', key.starved, worker)
  call('HDEL', key.shared_leases, worker)
  call('HDEL', key.run_starts, worker)
  remove_limits(worker)
end

-- Expires a worker. Only the first partition decides this; workers pass it on to the other partitions.
local function expire_worker(worker)
  local committed = tonumber(call('HGET', key.commits, worker) or 0)
  remove_worker(worker, committed)
  retire(worker)
  if meta('partitions') > 1 then call('HSET', key.expired, worker, committed) end
end

local NEVER = 2 ^ 53 -- a serial number that no exchange reaches

-- Refuses all further exchanges of a worker. Only the first partition knows what the worker has committed; the other
-- partitions remove the worker when they get the command 'expire'. Until then they keep the worker in their lists: if
-- the first partition has lost the worker, 'expire_unknown' needs the entry.
local function give_up(worker)
  if meta('number') > 0 then return call('HSET', key.serials, worker, NEVER) end
  expire_worker(worker)
end

-- Expires workers that sent nothing for SILENT_S. If no worker sent anything for more than OUTAGE_S, or the clock was
-- set back, the last-seen times of all workers are shifted by the length of the gap.
local function expire_silent_workers()
  if meta('number') > 0 then return end
  local silence_s = now - tonumber(call('HGET', key.meta, 'seen') or now)
  call('HSET', key.meta, 'seen', text(now))
  if silence_s > OUTAGE_S or silence_s < 0 then
    local workers = call('ZRANGE', key.workers, 0, -1, 'WITHSCORES')
    for i = 1, #workers, 2 do
      call('ZADD', key.workers, text(math.min(now, tonumber(workers[i + 1]) + silence_s)), workers[i])
    end
    return
  end
  for _, worker in ipairs(call('ZRANGEBYSCORE', key.workers, '-inf', '(' .. text(now - SILENT_S))) do
    expire_worker(worker)
  end
end

local function mark_alive(worker)
  call('ZADD', key.workers, text(now), worker)
end

local function is_known(worker)
  return call('ZSCORE', key.workers, worker) ~= false
end

-- Leasing.

-- The reply that describes a lease to its worker.
local function lease_reply(token, lease, host)
  local tries = lease.kind == ROBOTS and host.robots_tries or host.address_tries
  local address_until = host.address_until > 0 and text(host.address_until) or '0'
  local has_delay = delay_of(host) > 0 and 1 or 0
  return { token, lease.kind, lease.host, lease.record, host.address, tries, has_delay, address_until }
end

local function add_lease(worker, host, kind, lane, record)
  local token, group = string.format('%d', next_number('token')), group_of(host)
  local lease = {
    kind = kind, host = host.name, lane = lane, at = host.next_at, next_at = 0, address = '', group_at = 0,
    group_next_at = 0, transferred = 0, record = record, reason = '', row = '', since = now,
  }
  if kind == RESOLVE then
    host.in_flight = host.in_flight + 1
  else
    if group then
      lease.address, lease.group_at = host.address, group.next_at
      if kind == PAGE then group.claims_in_row, group.yield_until = 0, 0 end
    end
    start(host, token)
    lease.next_at = host.next_at
    if group then lease.group_next_at = group.next_at end
  end
  call('HSET', key.leases .. worker, token, packed_lease(lease))
  return lease_reply(token, lease, host)
end

local function first_record(host)
  local lane = call('ZRANGE', key.lanes .. host.name, 0, 0)[1]
  local entry = lane and call('LINDEX', queue_key(host.name, lane), 0)
  return entry and record_of(entry) or ''
end

-- Leases the address or the robots.txt of a host if it must be fetched before the next page; otherwise returns nil.
local function lease_prerequisite(worker, host)
  if meta('resolves') == 1 and host.address_until <= now then
    host.preparing = 1
    return add_lease(worker, host, RESOLVE, '', '')
  end
  if meta('robots') == 1 and now - host.robots_at >= meta('robots_ttl') then
    host.preparing = 1
    return add_lease(worker, host, ROBOTS, '', first_record(host))
  end
end

local function lease_from(worker, host, leases)
  local lease = lease_prerequisite(worker, host)
  if not lease then
    local lane, record = take(host)
    if lane then
      local segment = segment_of(lane)
      tally('queued', segment, -1)
      tally('leased', segment, 1)
      lease = add_lease(worker, host, PAGE, lane, record)
      host.claims_in_row, host.yield_until = 0, 0
    end
  end
  if lease then leases[#leases + 1] = lease end
  schedule(host)
end

-- Sharing. A worker is starved when it got fewer leases than it asked for. While several workers are starved, each may
-- use an equal part of the slots of a host. It may use further slots only if no other starved worker had fewer leases
-- in this time. Without this rule, a worker that frees a slot, and asks for leases in the same call, would always get
-- the slot back.

local sharing = { waits = false } -- `waits`: hosts are ready, but this worker has used its part of their slots
do -- the main function of a script may have at most 200 local variables

-- Returns the number of starved workers including this one, the number of leases that this one got while sharing, and
-- the lowest such number of the others; nil if no other worker is starved.
function sharing.of(worker)
  if meta('wanted') == 0 or now - meta('wanted') > LEASES_WANTED_S then return nil end
  local starved = call('ZRANGEBYSCORE', key.starved, text(now - LEASES_WANTED_S), '+inf')
  local workers, least = 1, nil
  for _, other in ipairs(starved) do
    if other ~= worker then
      local served = tonumber(call('HGET', key.shared_leases, other) or 0)
      workers, least = workers + 1, math.min(least or served, served)
    end
  end
  if not least then return nil end
  return { workers = workers, least = least, served = tonumber(call('HGET', key.shared_leases, worker) or least) }
end

-- Returns the number of running transfers of a worker by host.
local function transfers_of(worker)
  local transfers = {}
  for _, data in ipairs(call('HVALS', key.leases .. worker)) do
    local lease = unpacked_lease(data)
    if lease.transferred == 0 then transfers[lease.host] = (transfers[lease.host] or 0) + 1 end
  end
  return transfers
end

function sharing.allows(share, worker, host)
  if delay_of(host) > 0 or share.served <= share.least then return true end
  share.transfers = share.transfers or transfers_of(worker)
  return (share.transfers[host.name] or 0) < math.floor(meta('places') / share.workers)
end

function sharing.count(share, host)
  share.served = share.served + 1
  if share.transfers then share.transfers[host.name] = (share.transfers[host.name] or 0) + 1 end
end

-- Records whether the worker is starved after this call. When a worker begins to share, its number of leases starts at
-- the lowest number of the other starved workers.
function sharing.record_starved(worker, share, is_starved)
  if is_starved then
    note_leases_wanted()
    if call('ZREMRANGEBYSCORE', key.starved, '-inf', '(' .. text(now - LEASES_WANTED_S)) > 0 and not share then
      call('DEL', key.shared_leases)
    end
    call('ZADD', key.starved, text(now), worker)
  elseif share then
    call('ZREM', key.starved, worker)
  end
  if share then call('HSET', key.shared_leases, worker, share.served) end
end

end

-- Leases up to `limit` records, and up to `ahead` more from hosts with neither a delay nor a group: the worker may
-- start their transfers at any time.
local function lease_records(worker, limit, ahead)
  local leases, denied = {}, {}
  promote_due()
  schedule_due(key.waiting)
  local share = limit > 0 and sharing.of(worker)
  if share then ahead = 0 end
  while #leases < limit + ahead do
    local members = call('ZPOPMIN', key.ready, math.min(limit + ahead - #leases, 100))
    if #members == 0 then break end
    local only_limited = false
    for i = 1, #members, 2 do
      local host, group = ready_host(members[i])
      if host and (only_limited or (#leases >= limit and (delay_of(host) > 0 or group))) then
        only_limited = true
        schedule(host)
      elseif host and share and not sharing.allows(share, worker, host) then
        denied[#denied + 1] = host
      elseif host then
        lease_from(worker, host, leases)
        if share then sharing.count(share, host) end
      end
      if group then schedule_group(group) end
    end
    if only_limited then break end
  end
  for _, host in ipairs(denied) do schedule(host) end
  sharing.waits = #leases == 0 and #denied > 0
  if limit > 0 then sharing.record_starved(worker, share, #leases < limit) end
  return leases
end

-- Removes and returns the lease with this token; nil if this worker does not hold it.
local function remove_lease(worker, token)
  local data = call('HGET', key.leases .. worker, token)
  if not data then return nil end
  call('HDEL', key.leases .. worker, token)
  return unpacked_lease(data)
end

-- Frees the slot of an ended lease on its host.
local function free_slot(lease, token, contacted)
  local host = entity(lease.host)
  if lease.kind ~= PAGE then host.preparing = 0 end
  if lease.transferred == 1 then return schedule(host) end
  finish(host, lease.address, token, contacted == '0' and lease or nil)
end

-- The end of a call.

local function write_all()
  write_entities()
  write_seen()
  write_counts()
end

local is_server_full = false

-- Returns the server's error if it refuses writes, unless it is at its maxmemory; else nil. A server at its maxmemory
-- refuses writes that may need memory, but none after the script has written (a DEL is enough). So this function probes
-- first: the script still runs as a whole, but leases nothing until memory is free.
local function refuse_to_write()
  local reply = redis.pcall('SETRANGE', key.memory_probe, 0, '')
  if type(reply) == 'table' and reply.err then
    local is_full_error = string.find(reply.err, 'OOM', 1, true) or string.find(reply.err, 'maxmemory', 1, true)
    if not is_full_error then return reply end
    is_server_full = true
    call('DEL', key.memory_probe) -- the first write: from now on the server accepts all others
  end
  if clock_to_note then
    call('HSET', key.meta, 'real', text(clock_to_note[1]), 'ahead', text(clock_to_note[2]))
  end
end

local function earliest_time(zset)
  return call('ZRANGE', zset, 0, 0, 'WITHSCORES')[2] or ''
end

-- The status of the partition: when a record can be leased ("0": now, "": no record is scheduled); the counts; how
-- often records have arrived so far; the time; the expired workers that other partitions may not know of yet,
-- each with the number of its last commit; 1 if the server is full.
local function status()
  local due, waits = earliest_time(key.delayed), earliest_time(key.waiting)
  if sharing.waits then
    due = text(now + 0.02) -- by then the other workers have used their parts, or are no longer starved
  elseif call('EXISTS', key.ready) == 1 then
    due = '0'
  elseif due == '' or (waits ~= '' and tonumber(waits) < tonumber(due)) then
    due = waits
  end
  local arrived = call('HGET', key.meta, 'arrived') or '0'
  return {
    due, call('HGETALL', key.counts), arrived, text(now), call('HGETALL', key.expired), is_server_full and 1 or 0,
  }
end

-- Creates the crawl, unless it exists or `crawl` is "". Arguments: its number, the number of partitions, the number of
-- this partition, whether done records are kept, the name of the spider. Returns the number of the crawl, the number of
-- partitions, spider, layout, whether all partitions were created, whether done records are kept; "" if unknown.
local function begin_crawl(crawl, partitions, here, keep_done, spider)
  if crawl ~= '' and call('HSETNX', key.meta, 'crawl', crawl) == 1 then
    call('HSET', key.meta, 'partitions', partitions, 'number', here, 'keep_done', keep_done, 'spider', spider,
      'layout', LAYOUT)
  end
  local found = call('HMGET', key.meta, 'crawl', 'partitions', 'spider', 'layout', 'whole', 'keep_done')
  for i = 1, 6 do found[i] = found[i] or '' end
  return found
end
