-- What the scripts of a queue share: each is run as its first line, this file, and the rest of it.
--
-- KEYS, all with the hash tag of the queue:
--   state     hash  version era order packing maxsize shut next unfinished; seen since: see beat.lua
--   waiting   zset  place -> its number; in a PriorityQueue 0, because there the places themselves are in order
--   values    hash  place -> packed item: of what waits, is leased, or was handed out in a reply not yet confirmed
--   attempts  hash  place -> how often it was leased without an ack
--   leased    zset  member:token:place, in the order of the text: the leases of a member lie side by side
--   members   zset  member -> when it was heard last
--   got       hash  member -> items that it got and has not reported done
--   replies   hash  member:slot -> the last call and its reply, for one that asks again because it heard nothing
--   gone      zset  member -> when it left; its replies are kept for a while
--   items     zset  member that waits for an item -> since when
--   room      zset  member that waits for room -> how much
--   done      set   members that wait for the end of all tasks
--   bell      BELL .. member is a list; an entry wakes the member
-- ARGV: member, slot, number of the call, number of the last call of this slot whose reply arrived, more.
-- Times are milliseconds of this server.
local STATE, WAITING, VALUES, ATTEMPTS, LEASED = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local MEMBERS, GOT, REPLIES, GONE = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local ITEMS, ROOM, DONE, BELL = KEYS[10], KEYS[11], KEYS[12], KEYS[13]
local me, slot, number, confirmed = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local call = redis.call
local CHUNK = 1000 -- Lua takes some thousand arguments in one call

local function now_ms()
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function state(field)
  return tonumber(call('HGET', STATE, field) or 0)
end

local function refusal()
  if call('EXISTS', STATE) == 0 then return {'gone'} end
  if not call('ZSCORE', MEMBERS, me) then return {'stranger'} end
end

local function in_chunks(command, key, list)
  for first = 1, #list, CHUNK do
    call(command, key, unpack(list, first, math.min(first + CHUNK - 1, #list)))
  end
end

local function ring(member)
  call('LPUSH', BELL .. member, 1)
end

-- As many members as there are items: one that was woken takes an item, or waits again.
local function wake_items()
  local size = call('ZCARD', WAITING)
  if size == 0 then return end
  local woken = call('ZPOPMIN', ITEMS, size)
  for i = 1, #woken, 2 do ring(woken[i]) end
end

local function wake_room()
  local waits = call('ZRANGE', ROOM, 0, -1, 'WITHSCORES')
  if #waits == 0 then return end
  local maxsize = state('maxsize')
  local room = maxsize > 0 and maxsize - call('ZCARD', WAITING) or math.huge
  for i = 1, #waits, 2 do
    room = room - waits[i + 1]
    if room < 0 then return end
    call('ZREM', ROOM, waits[i])
    ring(waits[i])
  end
end

local function wake_done()
  for _, member in ipairs(call('SMEMBERS', DONE)) do ring(member) end
  call('DEL', DONE)
end

local function finish_tasks(count)
  local left = math.max(0, state('unfinished') - count)
  call('HSET', STATE, 'unfinished', left)
  if left == 0 then wake_done() end
end

local function give_back(place, tried)
  if call('HEXISTS', VALUES, place) == 0 then return end
  call('ZADD', WAITING, tonumber(place) or 0, place)
  if tried then call('HINCRBY', ATTEMPTS, place, 1) end
end

local function forget(places)
  in_chunks('HDEL', VALUES, places)
  in_chunks('HDEL', ATTEMPTS, places)
end

local function place_of(lease)
  return string.match(lease, '^[^:]*:[^:]*:(.*)$')
end

local function leases_of(member)
  return call('ZRANGEBYLEX', LEASED, '[' .. member .. ':', '(' .. member .. ';')
end

-- What a reply handed out is gone when it arrived, and back in its place when it did not. (A server that lost its last
-- calls in a crash may have the reply to one before the last that arrived.)
local function settle(member, record, arrived)
  local places, token = record[3], record[4]
  if not places or (arrived and token) then return end
  if arrived then return forget(places) end
  for _, place in ipairs(places) do
    if not token or call('ZREM', LEASED, member .. ':' .. token .. ':' .. place) == 1 then give_back(place) end
  end
  if not token then
    if call('ZSCORE', MEMBERS, member) then call('HINCRBY', GOT, member, -#places)
    else call('HINCRBY', STATE, 'unfinished', #places) end
  end
  wake_items()
end

-- The reply to this very call, when it has been run before.
local function answered()
  local packed = call('HGET', REPLIES, me .. ':' .. slot)
  if not packed then return nil end
  local record = cmsgpack.unpack(packed)
  if record[1] == number then return record end
  settle(me, record, tonumber(record[1]) <= tonumber(confirmed))
  call('HDEL', REPLIES, me .. ':' .. slot)
end

local function answer(status, places, token)
  local record = {number, status, places or false, token or false}
  call('HSET', REPLIES, me .. ':' .. slot, cmsgpack.pack(record))
  return record
end

-- Drop the replies kept for a member; `numbers` says by slot which of them arrived, all of them without.
local function drop_replies(member, numbers)
  local field, packed = 0, call('HGET', REPLIES, member .. ':0')
  while packed do
    local record = cmsgpack.unpack(packed)
    settle(member, record, not numbers or tonumber(record[1]) <= tonumber(numbers[field + 1] or 0))
    call('HDEL', REPLIES, member .. ':' .. field)
    field = field + 1
    packed = call('HGET', REPLIES, member .. ':' .. field)
  end
end

local function leave(member)
  for _, lease in ipairs(leases_of(member)) do
    call('ZREM', LEASED, lease)
    give_back(place_of(lease), true)
  end
  -- Nobody will report done what it got, and nobody should wait for that.
  local got = tonumber(call('HGET', GOT, member) or 0)
  call('HDEL', GOT, member)
  for _, key in ipairs({MEMBERS, ITEMS, ROOM}) do call('ZREM', key, member) end
  call('SREM', DONE, member)
  call('DEL', BELL .. member)
  finish_tasks(got)
end
