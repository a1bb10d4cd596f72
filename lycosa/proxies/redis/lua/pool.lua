-- All proxies of a pool, ordered by latency: implements `proxies.core.pool.pool.GlobalPool` and
-- `proxies.core.pool.health`. ARGV[2] is the command, ARGV[3] its packed arguments.

local DEAD_SCAN_SIZE = 1000 -- approximate number of proxies that one call of `list_dead` checks
local NEAREST_BATCH = 500
local EVICTED_MAX = 100 -- maximum number of targets evicted in one call

args = unpack_one(ARGV[3])

local function get(hash, field)
  local found = call('HGET', key[hash], field)
  return found and unpack_one(found)
end

local function number_in(name)
  return tonumber(call('GET', key[name]) or 0)
end

local function health_of(name)
  return get('health', name) or {
    latency_s = false, downs = 0, rests_until = 0, dead = false, exit_ip = '', checked_at = 0, good_at = 0, reason = '',
    dead_at = 0, down_at = 0,
  }
end

local function store_health(name, health)
  call('HSET', key.health, name, pack(health))
  call('ZADD', key.by_latency, health.latency_s or UNKNOWN_LATENCY_S, name)
end

local function is_cheaper(one, other)
  if one[1] ~= other[1] then return one[1] < other[1] end
  return one[2] < other[2]
end

-- Returns a function from a price to its tier: the price's position among all known prices. An unknown price gets the
-- tier of the next higher known price, or the highest tier if no known price is higher.
local function tiers()
  local prices, places = {}, {}
  for _, packed in ipairs(call('ZRANGE', key.prices, 0, -1)) do prices[#prices + 1] = unpack_one(packed) end
  table.sort(prices, is_cheaper)
  for number, price in ipairs(prices) do places[pack(price)] = number - 1 end
  return function(price)
    local tier = places[pack(price)]
    if tier then return tier end
    for number, known in ipairs(prices) do
      if is_cheaper(price, known) then return number - 1 end
    end
    return math.max(0, #prices - 1)
  end
end

local tier_of

-- Returns the facts that targets store about a proxy.
local function facts_of(proxy, health)
  tier_of = tier_of or tiers()
  return {
    latency_s = health.latency_s or nil, rests_until = health.rests_until, dead = health.dead, exit_ip = health.exit_ip,
    tier = tier_of({ proxy.price_gb, proxy.price_request }), tags = proxy.tags,
  }
end

local function facts_by_key(names)
  local facts = {}
  for _, name in ipairs(names) do
    local proxy = get('proxies', name)
    if proxy then facts[name] = facts_of(proxy, health_of(name)) end
  end
  return facts
end

local commands = {}

local function same_tags(one, other)
  for name, value in pairs(one) do
    if other[name] ~= value then return false end
  end
  for name in pairs(other) do
    if one[name] == nil then return false end
  end
  return true
end

-- Whether both proxies have the same price and tags, so that targets need no update.
local function same_facts(one, other)
  return one.price_gb == other.price_gb and one.price_request == other.price_request and same_tags(one.tags, other.tags)
end

local function add_price(price)
  return call('ZCARD', key.prices) < PRICES_MAX and call('ZADD', key.prices, 0, pack(price)) or 0
end

-- Adds or updates proxies. Returns the number of new proxies, whether tiers have changed, and the facts of the known
-- proxies that have changed.
function commands.add()
  local new, new_prices, changed = 0, 0, {}
  for name, proxy in pairs(args.proxies) do
    local known = get('proxies', name)
    if known or call('HLEN', key.proxies) < PROXIES_MAX then
      call('HSET', key.proxies, name, pack(proxy))
      new_prices = new_prices + add_price({ proxy.price_gb, proxy.price_request })
      if not known then
        new = new + 1
        local health = health_of(name)
        if args.unchecked then health.dead, health.dead_at, health.reason = true, now, UNCHECKED end
        store_health(name, health)
      elseif not same_facts(known, proxy) then
        changed[#changed + 1] = name
      end
    end
  end
  call('INCR', key.fill_version)
  if #changed > 0 then call('INCR', key.facts_version) end
  return { new, new_prices > 0, facts_by_key(changed) }
end

local function remove(name)
  call('HDEL', key.health, name)
  call('ZREM', key.by_latency, name)
  return call('HDEL', key.proxies, name)
end

-- Returns the number of removed proxies.
function commands.remove()
  local removed = 0
  for _, name in ipairs(args.keys) do removed = removed + remove(name) end
  call('INCR', key.facts_version)
  return removed
end

-- Whether `proxies.core.pool.health.ProxyHealth.dead_for_s` would return at least `kept_s`.
local function is_dead_for(health, kept_s)
  if not health.dead then return false end
  local since = health.dead_at or 0
  if since == 0 then since = math.max(health.rests_until, health.good_at) end
  return math.max(0, now - since) >= kept_s
end

-- Checks one part of the proxies. Returns the cursor of the next part ("0" at the end) and the keys of the proxies in
-- this part that have been dead for `kept_s`.
function commands.list_dead()
  local cursor, found = unpack(call('HSCAN', key.health, args.cursor, 'COUNT', DEAD_SCAN_SIZE))
  local names = {}
  for i = 1, #found, 2 do
    if is_dead_for(unpack_one(found[i + 1]), args.kept_s) then names[#names + 1] = found[i] end
  end
  return { cursor, names }
end

-- Forgets those of the given proxies that have been dead for at least `kept_s`, and returns their keys. The caller has
-- made sure that no target leases them.
function commands.forget_dead()
  local forgotten = {}
  for _, name in ipairs(args.keys) do
    local health = get('health', name)
    if health and is_dead_for(health, args.kept_s) and remove(name) == 1 then forgotten[#forgotten + 1] = name end
  end
  return forgotten
end

function commands.count() return call('HLEN', key.proxies) end

-- Creates the pool if it does not exist.
function commands.create() return call('SETNX', key.fill_version, 1) end

local function die(health)
  if not health.dead then health.dead, health.dead_at = true, now end
end

local reached_at = number_in('reached_at')

local function note_reached()
  reached_at = now
  call('SET', key.reached_at, string.format('%.17g', now))
end

-- Counts a failed connection to the proxy. Returns whether its targets need an update.
local function count_down(health, reason, draw)
  if now < health.rests_until then return false end -- the request was sent before the cool-down began
  if health.dead then return false end -- the cool-down of a dead proxy is not extended
  -- If no proxy was reached since the last failure of this proxy, our own network is probably down.
  local others_work = reached_at > (health.down_at or 0)
  if others_work or health.downs < DOWNS_MAX - 1 then health.downs = health.downs + 1 end
  health.down_at, health.reason = now, reason
  if health.downs >= DOWNS_MAX then die(health) end
  health.rests_until = now + cool_s(DOWN_S, DOWN_MAX_S, health.downs, draw)
  return true
end

local function record(health, outcome, draw)
  if outcome.latency_s then health.latency_s = smoothed(health.latency_s, outcome.latency_s) end
  local has_failed = outcome.blame == 'proxy' or outcome.blame == 'miss'
  if health.reason == UNCHECKED and has_failed then health.reason = outcome.reason end
  if outcome.blame == 'proxy' then return count_down(health, outcome.reason, draw) end
  if outcome.blame == 'unfit' then
    health.reason = outcome.reason
    die(health)
    return true
  end
  if outcome.blame ~= 'miss' then
    health.good_at, health.downs = now, 0
    if not health.dead then health.reason = '' end -- only a check revives a dead proxy
  end
  return false
end

-- The same as `proxies.core.pool.health.proves_reached`.
local function proves_reached(outcome)
  local blame = outcome.blame
  if blame == 'proxy' then return false end
  if outcome.latency_s or (blame == 'nobody' and outcome.reason == '') then return true end
  return blame == 'none' or blame == 'site' or blame == 'unfit'
end

local function any_was_reached()
  for _, report in pairs(args.reports) do
    for _, outcome in ipairs(report.outcomes) do
      if proves_reached(outcome) then return true end
    end
  end
  return false
end

-- Records outcomes of uses. Returns the facts to send to the targets.
function commands.record()
  local changed = {}
  if any_was_reached() then note_reached() end
  for name, report in pairs(args.reports) do
    if call('HEXISTS', key.proxies, name) == 1 then
      local health, must_know = health_of(name), false
      for _, outcome in ipairs(report.outcomes) do must_know = record(health, outcome, report.draw) or must_know end
      store_health(name, health)
      if must_know then changed[#changed + 1] = name end
    end
  end
  return facts_by_key(changed)
end

-- Marks a proxy that passed a check as alive. Returns its facts to send to the targets; none if it does not exist.
function commands.revive()
  local proxy = get('proxies', args.key)
  if not proxy then return {} end
  local health = health_of(args.key)
  health.dead, health.downs, health.rests_until, health.reason, health.good_at = false, 0, 0, '', now
  health.dead_at = 0
  health.exit_ip = ''
  if (proxy.tags.rotating or 'no') == 'no' then health.exit_ip = args.exit_ip end
  store_health(args.key, health)
  call('INCR', key.fill_version)
  return facts_by_key({ args.key })
end

local function has_tags(proxy)
  for name, value in pairs(args.tags) do
    if proxy.tags[name] ~= value then return false end
  end
  return true
end

-- Makes room for a target. Returns the least recently used targets, which the caller must drop.
local function evict_targets(target)
  call('ZREM', key.targets, target)
  local excess, evicted = math.min(EVICTED_MAX, call('ZCARD', key.targets) + 1 - TARGETS_MAX), {}
  for i, name in ipairs(excess > 0 and call('ZPOPMIN', key.targets, excess) or {}) do
    if i % 2 == 1 then evicted[#evicted + 1] = name end -- every second element is a score
  end
  return evicted
end

-- Finds up to `count` proxies with the given tags for a target, without those in `has`. Returns their facts, the fill
-- version, and the targets that the caller must drop.
function commands.refill()
  local has, found, count, from = {}, {}, 0, 0
  for _, name in ipairs(args.has) do has[name] = true end
  local evicted = evict_targets(args.target)
  call('ZADD', key.targets, now, args.target)
  while count < args.count do
    local names = call('ZRANGE', key.by_latency, from, from + NEAREST_BATCH - 1)
    if #names == 0 then break end
    from = from + NEAREST_BATCH
    for _, name in ipairs(names) do
      local proxy, health = not has[name] and get('proxies', name), nil
      if proxy and has_tags(proxy) then health = health_of(name) end
      if health and not health.dead and count < args.count then
        found[name], count = facts_of(proxy, health), count + 1
      end
    end
  end
  return { found, number_in('fill_version'), evicted }
end

-- Lists an evicted target again: it was not dropped, because it has leases.
function commands.keep_target() return call('ZADD', key.targets, now, args.target) end

-- Returns the stored proxy, or false if it does not exist.
function commands.proxy() return get('proxies', args.key) end

-- Returns two numbers. The first changes when proxies are added or revived, so that targets may be filled again. The
-- second changes when tags or prices change, or `remove` removes a proxy.
function commands.versions() return { number_in('fill_version'), number_in('facts_version') } end

-- Returns the facts of proxies. If `target` is given, it will also receive later changes of these facts.
function commands.facts()
  local facts = facts_by_key(args.keys)
  if args.target and next(facts) then call('ZADD', key.targets, now, args.target) end
  return facts
end

-- Returns all proxies with their health, lowest latency first.
function commands.list()
  local all = {}
  for _, name in ipairs(call('ZRANGE', key.by_latency, 0, -1)) do
    all[#all + 1] = { name, get('proxies', name), health_of(name) }
  end
  return all
end

-- Returns the `count` proxies with the lowest latency and their facts, lowest latency first, and the fill version.
function commands.nearest()
  local names, all = call('ZRANGE', key.by_latency, 0, args.count - 1), {}
  local facts = facts_by_key(names)
  for _, name in ipairs(names) do all[#all + 1] = { name, get('proxies', name), facts[name] } end
  return { all, number_in('fill_version') }
end

return pack(commands[ARGV[2]]())
