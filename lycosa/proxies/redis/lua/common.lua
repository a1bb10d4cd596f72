-- The code that both scripts of a pool share. KEYS[1] is the prefix of the keys; scripts.py has the names that follow
-- it. KEYS[2] is needed only on clusters. ARGV[1] is the time (unix seconds, "" for the server's clock).

local call, pack, unpack_one = redis.call, cmsgpack.pack, cmsgpack.unpack
local args -- the arguments of the command

local key = setmetatable({}, { __index = function(known, name)
  local full = KEYS[1] .. KEYS_BY_NAME[name]
  known[name] = full
  return full
end })

local function server_time()
  local time = call('TIME')
  return tonumber(time[1]) + tonumber(time[2]) / 1e6
end

local now = ARGV[1] ~= '' and tonumber(ARGV[1]) or server_time()

local function smoothed(mean, newest)
  if not mean then return newest end
  return mean + (newest - mean) * SMOOTHING
end

-- The same as `proxies.core.pool.backoff.cool_s`.
local function cool_s(base_s, max_s, row, draw, retry_after_s)
  if retry_after_s and retry_after_s > 0 then
    return math.min(retry_after_s * (1 + draw / 10), math.max(max_s, COOL_MIN_S))
  end
  return math.max(COOL_MIN_S, draw * math.min(max_s, base_s * 2.0 ^ math.min(row - 1, DOUBLINGS_MAX)))
end
