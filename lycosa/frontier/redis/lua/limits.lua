-- Limits: the part of the policy that makes a crawl polite. Each live worker has sent the limits that it wants. The
-- strictest of them apply to all workers, so a worker that joins cannot make the crawl less polite.

local function smaller_limit(one, other) -- 0 means no limit
  if one == 0 or other == 0 then return math.max(one, other) end
  return math.min(one, other)
end

local GENTLER = {
  delay = math.max, start_delay = math.max, ip_delay = math.max, robots = math.max, resolves = math.max,
  places = smaller_limit, ip_places = smaller_limit,
}

local function apply_limits()
  local wanted, effective = call('HVALS', key.worker_limits), {}
  for _, limits in ipairs(wanted) do
    for name, value in pairs(cmsgpack.unpack(limits)) do
      effective[name] = effective[name] and GENTLER[name](effective[name], value) or value
    end
  end
  -- Without `resolves`, the groups of hosts would be ignored. So it stays on while there are several workers.
  if #wanted > 1 then effective.resolves = math.max(effective.resolves or 0, meta('resolves')) end
  for name, value in pairs(effective) do call('HSET', key.meta, name, text(value)) end
  meta_fields = nil
end

local function remove_limits(worker)
  if call('HDEL', key.worker_limits, worker) == 1 then apply_limits() end
end
