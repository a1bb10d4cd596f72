-- What both scripts of a pool begin with. KEYS[1] is what all keys begin with (KEYS[2] only says so), ARGV[1] the time
-- (unix seconds, "" for that of the server).

local COOL_MIN_S, DOUBLINGS_MAX, SMOOTHING = 1.0, 32, 0.2

local call, pack, unpack_one = redis.call, cmsgpack.pack, cmsgpack.unpack
local args

local function key(name) return KEYS[1] .. name end

local function time()
  local told = call('TIME')
  return tonumber(told[1]) + tonumber(told[2]) / 1e6
end

local now = ARGV[1] ~= '' and tonumber(ARGV[1]) or time()

local function smoothed(mean, newest)
  if not mean then return newest end
  return mean + (newest - mean) * SMOOTHING
end

-- `proxies.core.pool.backoff.cool_s`
local function cool_s(base_s, max_s, row, draw, asked_s)
  if asked_s and asked_s > 0 then return math.min(asked_s * (1 + draw / 10), math.max(max_s, COOL_MIN_S)) end
  return math.max(COOL_MIN_S, draw * math.min(max_s, base_s * 2.0 ^ math.min(row - 1, DOUBLINGS_MAX)))
end
