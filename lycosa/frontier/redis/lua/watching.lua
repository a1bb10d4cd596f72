-- What is seen of a crawl as a whole: by whoever watches it, in one call for each partition.

-- Hosts with work or transfers: so many at random of those that are ready, that wait, and that are asked now; and these.
local function sampled(most, workers, names)
  for _, member in ipairs(call('ZRANDMEMBER', key('t'), most)) do names[#names + 1] = string.sub(member, 16) end
  for _, name in ipairs(call('ZRANDMEMBER', key('r'), most)) do names[#names + 1] = name end
  for _, worker in ipairs(workers) do
    local leases = call('HRANDFIELD', key('L|' .. worker), math.ceil(most / #workers), 'WITHVALUES')
    for at = 2, #leases, 2 do names[#names + 1] = unpacked(leases[at]).host end
  end
  local told, found = {}, {}
  for _, name in ipairs(names) do
    local host = host_of(name)
    if not told[name] and (host.q > 0 or host.fl > 0) then
      local rank = host.rk < NO_WORK and host.rk or 0
      found[#found + 1] = { name, host.q, host.fl, text(math.max(host.ra, rank)), text(delay_of(host)) }
    end
    told[name] = true
  end
  return found
end

-- look: how many hosts of a kind; how many workers, their names, for a partition that knows none; names of hosts to look
-- at in any case, as many as follow. Answers the time, partitions, counts, workers with when they were heard and how much
-- they were lent, reports, when those ended that have, totals, hosts.
looks['look'] = function()
  local most, heard, workers, names = number(), {}, {}, {}
  for _ = 1, number() do workers[#workers + 1] = argument() end
  for at = cursor, #ARGV do names[#names + 1] = ARGV[at] end
  local known = call('ZRANGE', key('w'), 0, -1, 'WITHSCORES')
  for at = 1, #known, 2 do
    workers[(at + 1) / 2] = known[at]
    heard[known[at]] = known[at + 1]
  end
  local lent = {}
  for at, worker in ipairs(workers) do
    lent[at] = { worker, heard[worker] or '', call('HLEN', key('L|' .. worker)) }
  end
  return {
    'ok', text(now), call('HGET', key('m'), 'partitions') or '', call('HGETALL', key('c')), lent, call('HGETALL', key('ws')),
    call('ZRANGE', key('we'), 0, -1, 'WITHSCORES'), call('HGETALL', key('wt')), sampled(most, workers, names),
  }
end
