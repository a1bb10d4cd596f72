-- The view of a crawl for `lycosa top`, in one call for each partition.

local GROUP_SAMPLE = 5 -- ready and waiting hosts of a group in a sample, each

-- Adds to `names` random samples of about `limit` ready, `limit` waiting and `limit` leased hosts. Returns those of all
-- these hosts that have work or transfers.
local function sampled_hosts(limit, workers, names)
  -- A group stands for some of its hosts, which are in sets of its own.
  local function sample(suffix, count)
    for _, member in ipairs(call('ZRANDMEMBER', key.ready .. suffix, count)) do
      local name = string.sub(member, READY_NAME)
      if is_group(name) then sample(name, GROUP_SAMPLE) else names[#names + 1] = name end
    end
    for _, name in ipairs(call('ZRANDMEMBER', key.waiting .. suffix, count)) do
      if is_group(name) then sample(name, GROUP_SAMPLE) else names[#names + 1] = name end
    end
  end
  sample('', limit)
  for _, worker in ipairs(workers) do
    local leases = call('HRANDFIELD', key.leases .. worker, math.ceil(limit / #workers), 'WITHVALUES')
    for i = 2, #leases, 2 do names[#names + 1] = unpacked_lease(leases[i]).host end
  end
  local known, found = {}, {}
  for _, name in ipairs(names) do
    local host = entity(name)
    if not known[name] and (host.queued > 0 or host.in_flight > 0) then
      local rank = host.first_rank < NO_WORK and host.first_rank or 0
      local ready_at = text(math.max(host.next_at, rank))
      found[#found + 1] = { name, host.queued, host.in_flight, ready_at, text(delay_of(host)) }
    end
    known[name] = true
  end
  return found
end

-- Arguments: the sample size of each kind of hosts; the number of workers and their names, for a partition that does
-- not know them; names of further hosts to include. Returns the time; the number of partitions; the counts; workers
-- with the time of their last call and the number of their leases; reports; ended workers with the time of their end;
-- totals; hosts.
operations['watch'] = function()
  local limit, alive_at, workers, names = number(), {}, {}, {}
  for _ = 1, number() do workers[#workers + 1] = argument() end
  for i = cursor, #ARGV do names[#names + 1] = ARGV[i] end
  local known = call('ZRANGE', key.workers, 0, -1, 'WITHSCORES')
  for i = 1, #known, 2 do
    workers[(i + 1) / 2] = known[i]
    alive_at[known[i]] = known[i + 1]
  end
  local leased = {}
  for i, worker in ipairs(workers) do
    leased[i] = { worker, alive_at[worker] or '', call('HLEN', key.leases .. worker) }
  end
  return {
    'ok', text(now), call('HGET', key.meta, 'partitions') or '', call('HGETALL', key.counts), leased,
    call('HGETALL', key.reports), call('ZRANGE', key.ended, 0, -1, 'WITHSCORES'), call('HGETALL', key.totals),
    sampled_hosts(limit, workers, names),
  }
end
