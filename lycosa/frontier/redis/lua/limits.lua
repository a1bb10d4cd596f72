-- Limits: what of the policy makes a crawl gentle. Each worker that lives has told what it wants, and the gentlest holds
-- for all, until it ends or is given up: so whoever joins makes no crawl ruder, and nobody's delay is broken by others.
--
--   lw  hash  workers: the limits that they want, packed

local function fewer(one, other) -- 0 is any number
  if one == 0 or other == 0 then return math.max(one, other) end
  return math.min(one, other)
end

local GENTLER = {
  delay = math.max, start_delay = math.max, ip_delay = math.max, robots = math.max, resolves = math.max,
  places = fewer, ip_places = fewer,
}

-- Let the gentlest hold. Addresses that are looked up already are so on, while anybody is there: hosts take turns by them.
local function limit()
  local all, held = call('HVALS', key('lw')), {}
  for _, wanted in ipairs(all) do
    for name, value in pairs(cmsgpack.unpack(wanted)) do
      held[name] = held[name] and GENTLER[name](held[name], value) or value
    end
  end
  if #all > 1 then held.resolves = math.max(held.resolves or 0, asked('resolves')) end
  for name, value in pairs(held) do call('HSET', key('m'), name, text(value)) end
  policy = nil
end

-- A worker is gone: the others may do as they want.
local function unlimit(worker)
  if call('HDEL', key('lw'), worker) == 1 then limit() end
end
