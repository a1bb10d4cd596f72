-- Claims: transfers without a record (inline fetches, media). The claims of a host wait in one queue, first come, first
-- served. They are granted before its leases, within the limits of `frontier.core.claims`. A script, however, cannot
-- wake a worker. So the reply to the first claim of a host gives the expected time of its start, and the worker asks
-- again at that time; the replies to the other claims are estimates. The start is reserved for the first claim until
-- CLAIM_KEPT_S after that time; from then on leases and later claims may go first.

local add_claim, release_claim, try_start, move_to_address
do -- all other names are local to this block

local CLAIM_KEPT_S = 0.5
local ASK_AGAIN_MIN_S, ASK_AGAIN_MAX_S = 0.02, 1 -- seconds between two requests for a claim; the first may wait longer
local PASSED_MAX = 100
local CLAIMING_HOSTS_MAX = 20 -- hosts of a group that are checked for claims

local function claims_key(host)
  return key.claims .. '|' .. host.name
end

-- Updates the host and its group after another claim has become the first claim of the host.
local function first_claim_changed(host)
  host.claim_until = host.claims > 0 and math.max(host.next_at, now) + ASK_AGAIN_MAX_S or 0
  local group = group_of(host)
  if not group then return end
  local first = call('ZRANGE', claims_key(host), 0, 0, 'WITHSCORES')
  if first[1] then
    call('ZADD', key.claims .. group.name, first[2], host.name)
  else
    call('ZREM', key.claims .. group.name, host.name)
  end
end

function add_claim(worker, claim, host)
  call('HSET', key.claimed .. worker, claim, host.name)
  call('ZADD', claims_key(host), next_number('line'), claim .. '|' .. worker)
  host.claims = host.claims + 1
  if host.claims == 1 then first_claim_changed(host) end
  schedule(host)
end

local function remove_claim(worker, claim, host)
  local position = call('ZRANK', claims_key(host), claim .. '|' .. worker)
  if not position then return end
  call('ZREM', claims_key(host), claim .. '|' .. worker)
  host.claims = host.claims - 1
  if position == 0 then first_claim_changed(host) end
end

-- Ends a claim, granted or not.
function release_claim(worker, claim)
  local claimed = call('HGET', key.claimed .. worker, claim)
  if not claimed then return end
  call('HDEL', key.claimed .. worker, claim)
  local name, address = string.match(claimed, '^([^\n]*)\n(.*)$')
  if name then return finish(entity(name), address, worker .. '|' .. claim) end
  remove_claim(worker, claim, entity(claimed))
  schedule(entity(claimed))
end

-- Called when the first claim did not ask again in time. Drops the first claim and the claims of the same worker that
-- follow it directly, but only claims before `position`. Returns the new position of the claim that was at `position`.
local function pass_late_claims(host, position)
  local before = call('ZRANGE', claims_key(host), 0, math.min(position, PASSED_MAX) - 1)
  local late_worker = string.match(before[1], '|(.*)$')
  for _, each in ipairs(before) do
    local claim, worker = string.match(each, '^(%d+)|(.*)$')
    if worker ~= late_worker then break end
    call('HDEL', key.claimed .. worker, claim) -- added again when its worker asks again
    call('ZREM', claims_key(host), each)
    host.claims, position = host.claims - 1, position - 1
  end
  first_claim_changed(host)
  return position
end

-- Returns an estimate of when the host may be contacted. Transfers in flight are assumed to take another quarter of the
-- time that they have taken so far.
local function free_at(host, group)
  local at = host.next_at
  if group then at = math.max(at, group.next_at) end
  if host.in_flight >= meta('places') or (group and is_full(group)) then
    local left_s = math.max((now - host.started_at) / 4, ASK_AGAIN_MIN_S)
    at = math.max(at, now + math.min(left_s, ASK_AGAIN_MAX_S))
  elseif host.unconfirmed ~= '' then
    at = math.max(at, now + ASK_AGAIN_MIN_S)
  end
  return at
end

-- If the next start is reserved for a lease, returns when the claim may ask again, else 0.
local function yields_until(it)
  if not yields_to_leases(it) then return 0 end
  if it.yield_until == 0 then
    it.yield_until = now + YIELD_S
  elseif it.yield_until <= now then
    it.claims_in_row, it.yield_until = 0, 0
    return 0
  end
  return math.min(it.yield_until, now + 2 * ASK_AGAIN_MIN_S)
end

-- Whether the host may be contacted, ignoring its group.
local function is_free(host)
  return host.next_at <= now and host.in_flight < meta('places') and host.unconfirmed == ''
end

-- Returns the host with the oldest claim, among the hosts of the group that may be contacted now; nil if there is none.
local function first_claiming_host(group)
  for _, name in ipairs(call('ZRANGE', key.claims .. group.name, 0, CLAIMING_HOSTS_MAX - 1)) do
    local host = entity(name)
    if is_free(host) and host.claim_until >= now and not yields_to_leases(host) then return host end
  end
end

local function grant_claim(worker, claim, host, group)
  call('HSET', key.claimed .. worker, claim, host.name .. '\n' .. (group and host.address or ''))
  host.claims_in_row, host.yield_until = host.claims_in_row + 1, 0
  start(host, worker .. '|' .. claim)
  remove_claim(worker, claim, host)
  if group then
    group.claims_in_row, group.yield_until = group.claims_in_row + 1, 0
    group.claim_until = first_claiming_host(group) and math.max(group.next_at, now) + ASK_AGAIN_MAX_S or 0
  end
end

-- Returns 0 if the claim may start now, else when to ask again.
function try_start(worker, claim, host)
  local claimed = call('HGET', key.claimed .. worker, claim)
  if claimed and string.find(claimed, '\n', 1, true) then return 0 end
  if not claimed then add_claim(worker, claim, host) end
  local position = call('ZRANK', claims_key(host), claim .. '|' .. worker)
  if position > 0 and host.claim_until < now then position = pass_late_claims(host, position) end
  local group = group_of(host)
  local at = free_at(host, group)
  if position > 0 then
    at = math.min(math.max(at, now) + position * math.max(delay_of(host), ASK_AGAIN_MIN_S), now + ASK_AGAIN_MAX_S)
    schedule(host)
    return at
  end
  if at <= now then at = math.max(yields_until(host), group and yields_until(group) or 0) end
  if at <= now and group then
    local first = first_claiming_host(group)
    if first and first ~= host then at = now + ASK_AGAIN_MIN_S end
  end
  if at <= now then
    grant_claim(worker, claim, host, group)
    at = 0
  else
    host.claim_until = at + CLAIM_KEPT_S
    if group and is_free(host) and not yields_to_leases(host) then
      group.claim_until = math.max(group.claim_until, at + CLAIM_KEPT_S)
    end
  end
  schedule(host)
  return at
end

-- Sets a new address of the host, and moves the host and its claims to the group of that address.
function move_to_address(host, address)
  local ready, waiting, group = queues_of(host)
  leave_ready(host, ready)
  leave_waiting(host, waiting)
  host.address = address
  if group then
    call('ZREM', key.claims .. group.name, host.name)
    group.queued, host.counted_by_group = group.queued - host.counted_by_group, 0
    group.group_hosts = group.group_hosts - 1
    schedule_group(group)
  end
  group = group_of(host)
  if not group then return end
  group.group_hosts = group.group_hosts + 1
  if host.claims > 0 then first_claim_changed(host) end
  if host.started_at > 0 and meta('ip_delay') > 0 then
    group.next_at = math.max(group.next_at, host.started_at + meta('ip_delay'))
  end
end

end
