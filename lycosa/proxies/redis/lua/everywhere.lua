-- All proxies of a pool, ordered by latency: what `proxies.core.pool.pool.Pool` and `proxies.core.pool.health.Health`
-- do.
--
--   p  hash    proxies: address with login, tags, prices, packed
--   h  hash    proxies: their health, packed
--   n  zset    proxies by latency
--   c  zset    prices (per GB, per request), packed, all with the score of the first
--   t  zset    targets, by when they were used last
--   a  string  when any proxy was reached last
--   v  string  a number that changes when targets may be filled up anew
--   e  string  one that changes when proxies have other tags or prices, or are gone
--
-- ARGV, further: the command, and its arguments, packed.

local DOWN_S, DOWN_MAX_S, DOWNS_MAX = 10.0, 3600.0, 5
local UNKNOWN_LATENCY_S = 0.5
local TARGETS_MAX, PROXIES_MAX, PRICES_MAX, FORGOTTEN_MAX = 10000, 1000000, 1000, 100
local UNCHECKED = 'not checked yet'
local LOOKED_AT = 1000 -- proxies among which dead ones are looked for at once

args = unpack_one(ARGV[3])

local function get(name, field)
  local found = call('HGET', key(name), field)
  return found and unpack_one(found)
end

local function health_of(name)
  return get('h', name) or {
    latency_s = false, downs = 0, rests_until = 0, dead = false, exit_ip = '', checked_at = 0, good_at = 0, reason = '',
    dead_at = 0, down_at = 0,
  }
end

local function keep(name, health)
  call('HSET', key('h'), name, pack(health))
  call('ZADD', key('n'), health.latency_s or UNKNOWN_LATENCY_S, name)
end

local function is_less(one, other)
  if one[1] ~= other[1] then return one[1] < other[1] end
  return one[2] < other[2]
end

-- Prices in order: a tier is the place of a price among them, or of the next that is known.
local function tiers()
  local prices, of = {}, {}
  for _, packed in ipairs(call('ZRANGE', key('c'), 0, -1)) do prices[#prices + 1] = unpack_one(packed) end
  table.sort(prices, is_less)
  for number, price in ipairs(prices) do of[pack(price)] = number - 1 end
  return function(price)
    local tier = of[pack(price)]
    if tier then return tier end
    for number, known in ipairs(prices) do
      if is_less(price, known) then return number - 1 end
    end
    return math.max(0, #prices - 1)
  end
end

local tier_of

-- What targets know of a proxy.
local function facts(name, proxy, health)
  tier_of = tier_of or tiers()
  return {
    latency_s = health.latency_s or nil, rests_until = health.rests_until, dead = health.dead, exit_ip = health.exit_ip,
    tier = tier_of({ proxy.price_gb, proxy.price_request }), tags = proxy.tags,
  }
end

local function told(names)
  local all = {}
  for _, name in ipairs(names) do
    local proxy = get('p', name)
    if proxy then all[name] = facts(name, proxy, health_of(name)) end
  end
  return all
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

-- Whether targets know the same of both.
local function same(one, other)
  return one.price_gb == other.price_gb and one.price_request == other.price_request and same_tags(one.tags, other.tags)
end

local function know_price(price)
  return call('ZCARD', key('c')) < PRICES_MAX and call('ZADD', key('c'), 0, pack(price)) or 0
end

-- answers how many are new, whether tiers have changed, which targets have to hear, and what they have to know of some
function commands.add()
  local new, prices, other = 0, 0, {}
  for name, proxy in pairs(args.proxies) do
    local known = get('p', name)
    if known or call('HLEN', key('p')) < PROXIES_MAX then
      call('HSET', key('p'), name, pack(proxy))
      prices = prices + know_price({ proxy.price_gb, proxy.price_request })
      if not known then
        new = new + 1
        local health = health_of(name)
        if args.unchecked then health.dead, health.dead_at, health.reason = true, now, UNCHECKED end
        keep(name, health)
      elseif not same(known, proxy) then
        other[#other + 1] = name
      end
    end
  end
  call('INCR', key('v'))
  if #other > 0 then call('INCR', key('e')) end
  return { new, prices > 0, told(other) }
end

local function remove(name)
  call('HDEL', key('h'), name)
  call('ZREM', key('n'), name)
  return call('HDEL', key('p'), name)
end

-- answers how many there were
function commands.remove()
  local gone = 0
  for _, name in ipairs(args.keys) do gone = gone + remove(name) end
  call('INCR', key('e'))
  return gone
end

-- `proxies.core.pool.health.Health.dead_for_s`
local function is_dead_for(health, kept_s)
  if not health.dead then return false end
  local since = health.dead_at or 0
  if since == 0 then since = math.max(health.rests_until, health.good_at) end
  return math.max(0, now - since) >= kept_s
end

-- answers where to go on, "0" when all were seen, and some proxies that are dead for so long
function commands.dead()
  local cursor, found = unpack(call('HSCAN', key('h'), args.cursor, 'COUNT', LOOKED_AT))
  local names = {}
  for number = 1, #found, 2 do
    if is_dead_for(unpack_one(found[number + 1]), args.kept_s) then names[#names + 1] = found[number] end
  end
  return { cursor, names }
end

-- these were seen dead, and no target lends them; forgets and answers those that are dead for so long still
function commands.forget_dead()
  local gone = {}
  for _, name in ipairs(args.keys) do
    local health = get('h', name)
    if health and is_dead_for(health, args.kept_s) and remove(name) == 1 then gone[#gone + 1] = name end
  end
  return gone
end

-- answers how many there are
function commands.count() return call('HLEN', key('p')) end

-- a pool of this name is there from now on, with or without proxies
function commands.make() return call('SETNX', key('v'), 1) end

local function die(health)
  if not health.dead then health.dead, health.dead_at = true, now end
end

local reached_at = tonumber(call('GET', key('a')) or 0)

local function reached()
  reached_at = now
  call('SET', key('a'), string.format('%.17g', now))
end

local function down(health, reason, draw)
  if now < health.rests_until then return false end -- one that rests is not blamed for what was under way
  if health.dead then return false end -- nor does one that is dead rest longer for it
  local others_work = reached_at > (health.down_at or 0) -- else it is rather our own network
  if others_work or health.downs < DOWNS_MAX - 1 then health.downs = health.downs + 1 end
  health.down_at, health.reason = now, reason
  if health.downs >= DOWNS_MAX then die(health) end
  health.rests_until = now + cool_s(DOWN_S, DOWN_MAX_S, health.downs, draw)
  return true
end

local function hear(health, outcome, draw)
  if outcome.latency_s then health.latency_s = smoothed(health.latency_s, outcome.latency_s) end
  if outcome.blame == 'proxy' then return down(health, outcome.reason, draw) end
  if outcome.blame == 'unfit' then
    health.reason = outcome.reason
    die(health)
    return true
  end
  if outcome.blame ~= 'miss' then
    health.good_at, health.downs = now, 0
    if not health.dead then health.reason = '' end -- else it is for a check to say
  end
  return false
end

-- `proxies.core.pool.health.proves_reached`
local function proves_reached(outcome)
  local blame = outcome.blame
  if blame == 'proxy' then return false end
  if outcome.latency_s or (blame == 'nobody' and outcome.reason == '') then return true end
  return blame == 'none' or blame == 'site' or blame == 'unfit'
end

local function any_was_reached()
  for _, heard in pairs(args.heard) do
    for _, outcome in ipairs(heard.outcomes) do
      if proves_reached(outcome) then return true end
    end
  end
  return false
end

-- what uses said of proxies; answers what targets have to know of some
function commands.hear()
  local tell = {}
  if any_was_reached() then reached() end
  for name, heard in pairs(args.heard) do
    if call('HEXISTS', key('p'), name) == 1 then
      local health, has_to = health_of(name), false
      for _, outcome in ipairs(heard.outcomes) do has_to = hear(health, outcome, heard.draw) or has_to end
      keep(name, health)
      if has_to then tell[#tell + 1] = name end
    end
  end
  return told(tell)
end

-- a check has found a proxy well; answers what targets have to know, nothing when there is no such proxy
function commands.revive()
  local proxy = get('p', args.key)
  if not proxy then return {} end
  local health = health_of(args.key)
  health.dead, health.downs, health.rests_until, health.reason, health.good_at = false, 0, 0, '', now
  health.dead_at = 0
  health.exit_ip = ''
  if (proxy.tags.rotating or 'no') == 'no' then health.exit_ip = args.exit_ip end
  keep(args.key, health)
  call('INCR', key('v'))
  return told({ args.key })
end

local function fits(proxy)
  for name, value in pairs(args.tags) do
    if proxy.tags[name] ~= value then return false end
  end
  return true
end

-- Make room for this target. Answer those that are forgotten for it.
local function made_room(target)
  call('ZREM', key('t'), target)
  local over, forgotten = math.min(FORGOTTEN_MAX, call('ZCARD', key('t')) + 1 - TARGETS_MAX), {}
  for place, name in ipairs(over > 0 and call('ZPOPMIN', key('t'), over) or {}) do
    if place % 2 == 1 then forgotten[#forgotten + 1] = name end -- the others are their scores
  end
  return forgotten
end

-- a target wants so many more that fit, and has some; answers what it has to know of them, and the version
function commands.fill()
  local has, found, count, from = {}, {}, 0, 0
  for _, name in ipairs(args.has) do has[name] = true end
  local forgotten = made_room(args.target)
  call('ZADD', key('t'), now, args.target)
  while count < args.count do
    local names = call('ZRANGE', key('n'), from, from + 499)
    if #names == 0 then break end
    from = from + 500
    for _, name in ipairs(names) do
      local proxy, health = not has[name] and get('p', name), nil
      if proxy and fits(proxy) then health = health_of(name) end
      if health and not health.dead and count < args.count then
        found[name], count = facts(name, proxy, health), count + 1
      end
    end
  end
  return { found, tonumber(call('GET', key('v')) or 0), forgotten }
end

-- a target that was to be forgotten has leases
function commands.keep() return call('ZADD', key('t'), now, args.target) end

-- answers the proxy, false when there is none
function commands.proxy() return get('p', args.key) end

-- answers when targets may be filled up anew, and when proxies are others: each changes then
function commands.version() return { tonumber(call('GET', key('v')) or 0), tonumber(call('GET', key('e')) or 0) } end

-- answers what targets know of these proxies; one of them may be told so, which hears of them from now on
function commands.facts()
  local all = told(args.keys)
  if args.target and next(all) then call('ZADD', key('t'), now, args.target) end
  return all
end

-- answers proxies with their health, the nearest first
function commands.look()
  local all = {}
  for _, name in ipairs(call('ZRANGE', key('n'), 0, -1)) do
    all[#all + 1] = { name, get('p', name), health_of(name) }
  end
  return all
end

-- answers the nearest proxies, as many as asked for at most, in order; and the version
function commands.nearest()
  local names, all = call('ZRANGE', key('n'), 0, args.count - 1), {}
  local known = told(names)
  for _, name in ipairs(names) do all[#all + 1] = { name, get('p', name), known[name] } end
  return { all, tonumber(call('GET', key('v')) or 0) }
end

return pack(commands[ARGV[2]]())
