-- Code shared by all parts: the keys of one partition, the arguments, the clock, the counters.
--
-- KEYS[1] is the prefix of the keys, which layout.py describes. KEYS[2] is needed for clusters: see scripts.py.
-- ARGV: now ("" for the clock of the server), a command, the worker ("" for none), and the arguments of the command.

local prefix = KEYS[1]
local call = redis.call

-- Full key names, by the names in layout.py.
local key = setmetatable({}, { __index = function(known, name)
  local full = prefix .. KEYS_BY_NAME[name]
  known[name] = full
  return full
end })

local cursor = 1 -- index of the next argument

local function argument()
  cursor = cursor + 1
  return ARGV[cursor - 1]
end

local function number()
  return tonumber(argument())
end

-- Formats a float without losing precision.
local function text(value)
  return string.format('%.17g', value)
end

local server_id

-- Returns the id of this server, '0' for managed servers that do not reveal their id. It changes with a failover and
-- with a restart; a partition that moves gets the id of its new server. If a replica of a managed server takes over
-- without the last undelivered links, these links are lost.
local function this_server()
  for _, field in ipairs({ { 'replication', 'master_replid' }, { 'server', 'run_id' } }) do
    if server_id then return server_id end
    local info = redis.pcall('INFO', field[1])
    server_id = type(info) == 'string' and string.match(info, field[2] .. ':(%x+)')
  end
  server_id = server_id or '0'
  return server_id
end

-- If the clock of the server was set back, or a replica with a slower clock took over, time runs on from its last noted
-- value, at half speed until the clock has caught up. So time goes back by about CLOCK_NOTED_S at most, and pauses may
-- take up to twice as long.
local CLOCK_NOTED_S = 0.25
local CATCH_UP_RATE = 0.5

local now = argument()
local clock_to_note

if now == '' then
  local time, last = call('TIME'), call('HMGET', key.meta, 'crawl', 'real', 'ahead')
  local real, before, ahead = tonumber(time[1]) + tonumber(time[2]) / 1e6, tonumber(last[2]), tonumber(last[3] or 0)
  now = real
  if before then
    if real < before then
      ahead = ahead + before - real
    else
      ahead = math.max(0, ahead - (real - before) * CATCH_UP_RATE)
    end
    now = real + ahead
  end
  local is_old = not before or real < before or real - before > CLOCK_NOTED_S
  if last[1] and is_old then clock_to_note = { real, ahead } end -- written by `refuse_to_write`
else
  now = tonumber(now)
end

-- Changes of counters in this call, written once at its end.
local count_changes, reason_changes, serial_numbers = {}, {}, {}

local function count(field, by)
  count_changes[field] = (count_changes[field] or 0) + by
end

local function count_reason(hash, segment, reason, by)
  local changes = reason_changes[hash] or {}
  reason_changes[hash] = changes
  local field = segment .. '\n' .. reason
  changes[field] = (changes[field] or 0) + by
end

-- Returns the next value of a counter in `meta`.
local function next_number(name)
  serial_numbers[name] = (serial_numbers[name] or tonumber(call('HGET', key.meta, name) or 0)) + 1
  return serial_numbers[name]
end

local function next_stamp()
  return string.format('%0' .. STAMP_CHARS .. 'd', next_number('turn'))
end

-- Maximum number of reasons in a hash, summed over all segments: parts of reasons may come from the network. All others
-- are counted as 'other reasons', except HTTP statuses.
local REASONS_MAX = 10000

local function write_reason(hash, field, by)
  local is_new = call('HINCRBY', hash, field, by) == by
  if is_new and (by < 0 or (call('HLEN', hash) > REASONS_MAX and not string.match(field, '\n%d%d%d$'))) then
    call('HDEL', hash, field)
    call('HINCRBY', hash, string.match(field, '^[^\n]*\n') .. 'other reasons', by)
  end
end

local function write_counts()
  for field, by in pairs(count_changes) do
    -- Every reply carries all counts, so fields that are 0 are removed.
    if by ~= 0 and call('HINCRBY', key.counts, field, by) == 0 then call('HDEL', key.counts, field) end
  end
  for hash, changes in pairs(reason_changes) do
    for field, by in pairs(changes) do
      if by ~= 0 then write_reason(key[hash], field, by) end
    end
  end
  for name, last in pairs(serial_numbers) do call('HSET', key.meta, name, last) end
end

-- The fields of `meta` as numbers. They include the policy, which is the same for all workers: see limits.lua.
local meta_fields

local function meta(name)
  if not meta_fields then
    meta_fields = {}
    local all = call('HGETALL', key.meta)
    for i = 1, #all, 2 do meta_fields[all[i]] = tonumber(all[i + 1]) end
  end
  return meta_fields[name] or 0
end
