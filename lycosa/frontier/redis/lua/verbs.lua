-- The verbs of an exchange: what a worker tells the server. Each verb is followed by its arguments, which the comments
-- below list. `new` counts new records; `refused` lists the tokens of leases that the worker no longer holds.

local verbs, new, refused, start_answers = {}, 0, {}, {}

local function ended_lease(worker)
  local token = argument()
  local lease = remove_lease(worker, token)
  if not lease then refused[#refused + 1] = token end
  return lease, token
end

-- A new record from outside the crawl. Arguments: a pushed record (see records.lua).
verbs['push'] = function()
  new = new + push_argument(true)
  call('HINCRBY', key.meta, 'arrived', 1)
end

-- Ends a lease successfully. Arguments: token, reason, contacted, the row to store ("" for none), the number of links,
-- and for each link its partition ("" for this one) and a pushed record.
verbs['ack'] = function(worker)
  local lease, token = ended_lease(worker)
  local reason, contacted, row, links = argument(), argument(), argument(), number()
  local segment = lease and lease.kind == PAGE and segment_of(lease.lane)
  local dropped = segment and state_of(segment) == DROPPED
  for _ = 1, links do
    local partition = argument()
    if not lease or dropped then
      cursor = cursor + 5
    elseif ARGV[cursor] == '' then -- no fingerprint: the link is never a duplicate
      hold_link(worker, partition)
    elseif partition == '' then
      new = new + push_argument()
    else
      send(partition, packed_push_argument())
    end
  end
  if not lease then return end
  if segment and not dropped then
    lease.reason, lease.row = reason, row
    call('HSET', key.acked .. worker, token, packed_lease(lease))
    tally('leased', segment, -1)
    tally('uncommitted', segment, 1)
    call('HINCRBY', key.acked_counts .. worker, segment, 1)
    count_done(lease, 1)
  end
  free_slot(lease, token, contacted)
end

-- Ends a lease that failed. Arguments: token, contacted, when to retry ("" for never), reason, record (or its row, if
-- it is dead).
verbs['nack'] = function(worker)
  local lease, token = ended_lease(worker)
  local contacted, retry_at, reason, record = argument(), argument(), argument(), argument()
  if not lease then return end
  if lease.kind ~= PAGE then
    local host = entity(lease.host)
    local tries = lease.kind == ROBOTS and 'robots_tries' or 'address_tries'
    host[tries] = host[tries] + 1
    pause(host, tonumber(retry_at) or now)
  else
    local segment = segment_of(lease.lane)
    tally('leased', segment, -1)
    if is_served(segment) then
      if retry_at == '' then
        store_row(key.dead, segment, record)
        tally('dead', segment, 1)
        count_reason('dead_reasons', segment, reason, 1)
      else
        delay(lease.host, lease.lane, record, tonumber(retry_at))
      end
    end
  end
  free_slot(lease, token, contacted)
end

-- Gives a lease back. Arguments: token, record ("" if unchanged).
verbs['release'] = function(worker)
  local lease, token = ended_lease(worker)
  local record = argument()
  if not lease then return end
  if lease.kind == PAGE then
    tally('leased', segment_of(lease.lane), -1)
    if record ~= '' then lease.record = record end
    put_back(lease)
  end
  free_slot(lease, token, '1')
end

-- Frees the slot of a lease whose transfer is over, but whose callback still runs. Arguments: token, 1 if the host was
-- contacted.
verbs['transferred'] = function(worker)
  local token, contacted = argument(), argument()
  local data = call('HGET', key.leases .. worker, token)
  if not data then return end
  local lease = unpacked_lease(data)
  if lease.kind ~= PAGE or lease.transferred == 1 then return end
  lease.transferred = 1
  call('HSET', key.leases .. worker, token, packed_lease(lease))
  finish(entity(lease.host), lease.address, token, contacted == '0' and lease or nil)
end

-- Begins a run of the worker. Argument: its start by the worker's clock, from which the segments of the run are named.
verbs['begin_run'] = function(worker)
  call('HSET', key.run_starts, worker, argument())
end

-- Pauses a host. Arguments: host, until when.
verbs['block'] = function()
  local name, until_ = argument(), number()
  pause(entity(name), until_)
end

-- Confirms a start. Arguments: host, when its transfer really started, which may be some time after it was leased.
verbs['started'] = function()
  local name, at = argument(), number()
  local host = entity(name)
  local delay_s = delay_of(host)
  if delay_s == 0 then return end
  host.unconfirmed = ''
  host.started_at = math.max(host.started_at, math.min(at, now))
  host.next_at = math.max(host.next_at, host.started_at + delay_s)
  schedule(host)
end

-- Sets the delay of the auto-throttle. Arguments: host, delay (seconds).
verbs['throttle'] = function()
  local name, delay_s = argument(), number()
  local host = entity(name)
  host.throttle = delay_s
  host.next_at = math.max(host.paused_until, host.started_at > 0 and host.started_at + delay_of(host) or 0)
  schedule(host)
end

-- Stores the robots.txt of a host. Arguments: host, when it was fetched, from when its Crawl-delay counts, the
-- Crawl-delay, all facts.
verbs['host_facts'] = function()
  local name, fetched_at, since, crawl_delay, facts = argument(), number(), number(), number(), argument()
  local host = entity(name)
  call('HSET', key.host_facts, name, facts)
  host.robots_at, host.robots_tries, host.crawl_delay = fetched_at, 0, crawl_delay
  pause(host, since + delay_of(host))
end

-- Sets the address of a host. Arguments: host, address, until when it is valid.
verbs['address'] = function()
  local name, address, until_ = argument(), argument(), number()
  local host = entity(name)
  host.address_tries, host.address_until = 0, until_
  if host.address ~= address then move_to_address(host, address) end
  schedule(host)
end

-- Adds a claim. Arguments: claim, host.
verbs['claim'] = function(worker)
  local claim, host = argument(), entity(argument())
  if call('HEXISTS', key.claimed .. worker, claim) == 0 then add_claim(worker, claim, host) end
end

-- Asks whether a claim may start. Arguments: claim, host.
verbs['try_start'] = function(worker)
  local claim, host = argument(), entity(argument())
  local at = try_start(worker, claim, host)
  start_answers[#start_answers + 1] = {
    claim, text(at), host.address, text(host.address_until), delay_of(host) > 0 and 1 or 0,
  }
end

-- Ends a claim. Arguments: claim.
verbs['release_claim'] = function(worker)
  release_claim(worker, argument())
end

local COOKIES_MAX = 100000

-- Sets or deletes a shared cookie. Arguments: the id of the cookie; its jar and content, packed together.
verbs['cookie'] = function()
  local which, cookie = argument(), argument()
  call('HSET', key.cookies, which, cookie)
  call('ZADD', key.cookie_changes, next_number('cookies'), which)
  if call('ZCARD', key.cookie_changes) > COOKIES_MAX then
    call('HDEL', key.cookies, call('ZPOPMIN', key.cookie_changes)[1])
  end
end

-- Commits. With one partition a commit is one step. With several, the acked records of the other partitions are first
-- prepared there, under the number of the commit. Then the first partition commits. After that, or when the worker is
-- removed, the other partitions commit what they have prepared. A server that has several partitions may restart
-- without its last writes between these steps. So both sides compare server ids. `is_decision_doubtful`: the server of
-- a prepared partition has changed, so the commit of the first partition may be lost while the prepared records are
-- still there. The first partition commits only on the server that it was on before the others prepared. If its server
-- has changed, the worker first asks the others whether they still have what they prepared.

local function set_positions(positions_key)
  for _ = 1, number() do
    local sink, position = argument(), argument()
    call('HSET', positions_key, sink, position)
  end
end

-- Prepares a commit. Arguments: its number, the number of positions, the sink and position of each. The positions are
-- stored in every partition: a replica that takes over the first one may have lost a commit that the others know.
verbs['prepare'] = function(worker)
  local commit = argument()
  new = new + commit_prepared(worker)
  for acked, prepared in pairs({
    [key.acked] = key.prepared, [key.acked_counts] = key.prepared_counts, [key.acked_links] = key.prepared_links,
  }) do
    if call('EXISTS', acked .. worker) == 1 then call('RENAME', acked .. worker, prepared .. worker) end
  end
  set_positions(key.prepared_positions .. worker)
  call('HSET', key.prepared_commits, worker, commit)
  call('HSET', key.prepared_servers, worker, this_server())
end

-- Commits. Arguments: the number of the commit, the number of positions, the sink and position of each.
verbs['commit'] = function(worker)
  call('HSET', key.commits, worker, argument())
  new = new + commit_acked(key.acked .. worker, key.acked_counts .. worker, key.acked_links .. worker)
  set_positions(key.positions)
end

-- Commits what was prepared, after the first partition has committed. No arguments.
verbs['commit_prepared'] = function(worker)
  new = new + commit_prepared(worker)
  call('HDEL', key.prepared_commits, worker)
  call('HDEL', key.prepared_servers, worker)
end

-- Whether this partition prepared a commit of the worker on another server, or on this one before a restart. The first
-- partition may be on the same server, and may have lost the commit in this change.
local function is_decision_doubtful(worker)
  local server = call('HGET', key.prepared_servers, worker)
  return server and server ~= this_server()
end

local commands = {}
