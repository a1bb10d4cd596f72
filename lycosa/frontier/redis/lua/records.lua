-- Records: what is known, what is queued, what sleeps.

local BUCKET = 256 -- fingerprints in a set, on average: below 512 Redis keeps them as 8 bytes each
local LEAST = -9   -- as many decimal digits of a fingerprint choose its set

local buckets = {}

local function seen_of(segment)
  local seen = buckets[segment]
  if not seen then
    local found = call('HMGET', key('b'), 'n|' .. segment, 'k|' .. segment)
    seen = { n = tonumber(found[1] or 0), k = tonumber(found[2] or 1) }
    buckets[segment] = seen
  end
  return seen
end

local function write_seen()
  for segment, seen in pairs(buckets) do
    if seen.changed then call('HSET', key('b'), 'n|' .. segment, seen.n, 'k|' .. segment, seen.k) end
  end
end

local function hashed(fingerprint)
  return tonumber(string.sub(fingerprint, LEAST))
end

-- Linear hashing (Litwin 1980): sets are split one at a time, in order, as they fill.
local function set_of(hash, k)
  local half = 1
  while half * 2 <= k do half = half * 2 end
  local at = hash % (half * 2)
  return at < k and at or hash % half
end

local function split(segment, seen)
  local half = 1
  while half * 2 <= seen.k do half = half * 2 end
  local old, new = seen.k - half, seen.k
  local from, to = key('s|' .. segment .. '|' .. old), key('s|' .. segment .. '|' .. new)
  local leaving = {}
  for _, each in ipairs(call('SMEMBERS', from)) do
    if hashed(each) % (half * 2) == new then leaving[#leaving + 1] = each end
  end
  for first = 1, #leaving, 1000 do
    local part = { unpack(leaving, first, math.min(first + 999, #leaving)) }
    call('SREM', from, unpack(part))
    call('SADD', to, unpack(part))
  end
  seen.k = seen.k + 1
end

-- True when it is new.
local function learn(segment, fingerprint)
  local seen = seen_of(segment)
  local at = set_of(hashed(fingerprint), seen.k)
  if call('SADD', key('s|' .. segment .. '|' .. at), fingerprint) == 0 then return false end
  seen.n, seen.changed = seen.n + 1, true
  if seen.n > seen.k * BUCKET then split(segment, seen) end
  return true
end

-- A lane is "RANK|PRIORITY|SEGMENT": those of the oldest segment first, then the best priority.
local function rank_of(lane)
  return tonumber(string.sub(lane, 1, 17))
end

local function segment_of(lane)
  return string.sub(lane, 40)
end

local states = {}

local function state_of(segment)
  local state = states[segment]
  if not state then
    state = call('HGET', key('g'), segment) or 'new'
    states[segment] = state
  end
  return state
end

-- Count what is in a segment. Of one that was dropped nothing is counted, though some of it may still lie about.
local function tally(kind, segment, by)
  if state_of(segment) ~= 'dropped' then count(kind .. segment, by) end
end

-- A record in a list has a stamp before it, 6 bytes. Stamps rise from the head of a list to its tail, so that a listing
-- finds where it was, whatever is taken and put back meanwhile.
local STAMP_BYTES = 6
local STAMP_FIRST = 2 ^ 40 -- room for what is put back before all others

local function stamped(at, record)
  return struct.pack('>I6', at) .. record
end

local function stamp_of(entry)
  return (struct.unpack('>I6', entry))
end

local function enqueue(name, lane, record, front)
  local host, list = host_of(name), key('q|' .. name .. '|' .. lane)
  local head = front and call('LINDEX', list, 0)
  if head then
    call('LPUSH', list, stamped(stamp_of(head) - 1, record))
  elseif call('RPUSH', list, stamped(STAMP_FIRST + following('turn'), record)) == 1 then
    call('ZADD', key('l|' .. name), 0, lane)
  end
  host.q = host.q + 1
  host.rk = math.min(host.rk, rank_of(lane))
  tally('q|', segment_of(lane), 1)
  offer(host)
end

local function sleep(name, lane, record, due)
  call('ZADD', key('d'), text(due), stamp() .. '|' .. name .. '\n' .. lane .. '\n' .. record)
  tally('d|', segment_of(lane), 1)
end

-- Host, lane and record of a sleeper.
local function parts_of(sleeper)
  local first = string.find(sleeper, '|', 1, true)
  local second = string.find(sleeper, '\n', first, true)
  local third = string.find(sleeper, '\n', second + 1, true)
  return string.sub(sleeper, first + 1, second - 1), string.sub(sleeper, second + 1, third - 1),
    string.sub(sleeper, third + 1)
end

local WAKE_MAX = 1000

local function wake()
  local due = call('ZRANGEBYSCORE', key('d'), '-inf', text(now), 'LIMIT', 0, WAKE_MAX)
  for _, member in ipairs(due) do
    call('ZREM', key('d'), member)
    local name, lane, record = parts_of(member)
    if state_of(segment_of(lane)) ~= 'dropped' then
      tally('d|', segment_of(lane), -1)
      enqueue(name, lane, record)
    end
  end
end

-- The host has nothing more in this lane.
local function close_lane(host, lane)
  call('ZREM', key('l|' .. host.name), lane)
  local following_lane = call('ZRANGE', key('l|' .. host.name), 0, 0)[1]
  host.rk = following_lane and rank_of(following_lane) or NO_WORK
end

-- Throw away what the host has in this lane, whose segment was dropped.
local function discard_lane(host, lane)
  local list = key('q|' .. host.name .. '|' .. lane)
  host.q = math.max(0, host.q - call('LLEN', list))
  call('UNLINK', list)
  close_lane(host, lane)
end

-- Take the first record of the host: lane and record, nil when it has none.
local function take(host)
  while true do
    local lane = call('ZRANGE', key('l|' .. host.name), 0, 0)[1]
    if not lane then
      host.q, host.rk = 0, NO_WORK
      return nil
    end
    if state_of(segment_of(lane)) == 'dropped' then
      discard_lane(host, lane)
    else
      local list = key('q|' .. host.name .. '|' .. lane)
      local entry = call('LPOP', list)
      if call('EXISTS', list) == 0 then close_lane(host, lane) end
      if entry then
        host.q = math.max(0, host.q - 1)
        return lane, string.sub(entry, STAMP_BYTES + 1)
      end
    end
  end
end

local function is_open(segment)
  if state_of(segment) == 'new' then
    call('HSET', key('g'), segment, 'open')
    states[segment] = 'open'
  end
  return states[segment] == 'open'
end

-- Take in a record: its fingerprint, "" for one that is never a duplicate; host, lane, when due (0: at once), record.
local function add(fingerprint, name, lane, due, record)
  local segment = segment_of(lane)
  if not is_open(segment) or (fingerprint ~= '' and not learn(segment, fingerprint)) then return 0 end
  if due > 0 then
    sleep(name, lane, record, due)
  else
    enqueue(name, lane, record)
  end
  return 1
end

local function push()
  return add(argument(), argument(), argument(), number(), argument())
end

local function packed_argument()
  return cmsgpack.pack({ argument(), argument(), argument(), number(), argument() })
end

-- A record of another partition waits in the outbox until somebody has brought it there: in the order of its numbers.
local function send(partition, entry)
  call('RPUSH', key('o|' .. partition), entry)
  call('HINCRBY', key('os'), partition, 1)
  count('o|', 1)
end

local function take_in(entry)
  return add(unpack(cmsgpack.unpack(entry)))
end

-- What may be a duplicate waits for the commit of its parent, with its partition ("" this one): of a parent that is
-- fetched again it would come again.
local function keep_back(worker, partition)
  call('RPUSH', key('W|' .. worker), partition .. '|' .. packed_argument())
end

-- Queue what was kept back. Return how many are new here.
local function let_go(name)
  local added = 0
  for _, kept in ipairs(call('LRANGE', key(name), 0, -1)) do
    local at = string.find(kept, '|', 1, true)
    local partition, entry = string.sub(kept, 1, at - 1), string.sub(kept, at + 1)
    if partition == '' then added = added + take_in(entry) else send(partition, entry) end
  end
  return added
end
