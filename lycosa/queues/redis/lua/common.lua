-- Shared by the scripts of a queue.
--
-- KEYS, all with the hash tag of the queue (the names in Redis are in server.py):
--   STATE       hash  version era order packing maxsize shut next unfinished; seen since: see beat.lua
--   WAITING     zset  place (rank and number of an item) -> number; in a PriorityQueue 0, so that Redis sorts by place
--   VALUES      hash  place -> packed item, if it waits, is leased, or was sent in a reply that is not yet confirmed
--   ATTEMPTS    hash  place -> how often it was leased without an ack
--   LEASED      zset  member:token:place, in lexical order: the leases of a member are adjacent
--   MEMBERS     zset  member -> time of its last heartbeat
--   GOT         hash  member -> number of items that it took and has not reported done
--   REPLIES     hash  member:slot -> the number of the last call and its reply, in case the call is repeated
--   LEFT        zset  dead member -> when it was declared dead; its replies are kept for a while
--   WAIT_ITEMS  zset  member that waits for an item -> since when
--   WAIT_ROOM   zset  member that waits for room -> the number of items that must fit
--   WAIT_DONE   set   members that wait for the end of all tasks
--   WAKEUPS     the key WAKEUPS .. member is a list; an entry wakes the member
-- ARGV 1 to 4: member, slot, number of the call, number of the last call of this slot whose reply arrived. Each script
-- documents its own arguments from 5 on.
-- Times are milliseconds of this server.
local me, slot, number, confirmed = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local call = redis.call
local CHUNK = 1000 -- Lua accepts a few thousand arguments in one call

local function now_ms()
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function state(field)
  return tonumber(call('HGET', STATE, field) or 0)
end

local function refusal()
  if call('EXISTS', STATE) == 0 then return {'missing'} end
  if not call('ZSCORE', MEMBERS, me) then return {'unknown member'} end
end

local function in_chunks(command, key, list)
  for first = 1, #list, CHUNK do
    call(command, key, unpack(list, first, math.min(first + CHUNK - 1, #list)))
  end
end

local function wake(member)
  call('LPUSH', WAKEUPS .. member, 1)
end

-- Wakes as many members as there are items: each takes an item, or waits again.
local function wake_for_items()
  local size = call('ZCARD', WAITING)
  if size == 0 then return end
  local woken = call('ZPOPMIN', WAIT_ITEMS, size)
  for i = 1, #woken, 2 do wake(woken[i]) end
end

local function wake_for_room()
  local waiters = call('ZRANGE', WAIT_ROOM, 0, -1, 'WITHSCORES')
  if #waiters == 0 then return end
  local maxsize = state('maxsize')
  local room = maxsize > 0 and maxsize - call('ZCARD', WAITING) or math.huge
  for i = 1, #waiters, 2 do
    room = room - waiters[i + 1]
    if room < 0 then return end
    call('ZREM', WAIT_ROOM, waiters[i])
    wake(waiters[i])
  end
end

local function wake_for_end()
  for _, member in ipairs(call('SMEMBERS', WAIT_DONE)) do wake(member) end
  call('DEL', WAIT_DONE)
end

local function finish_tasks(count)
  local left = math.max(0, state('unfinished') - count)
  call('HSET', STATE, 'unfinished', left)
  if left == 0 then wake_for_end() end
end

local function give_back(place, count_attempt)
  if call('HEXISTS', VALUES, place) == 0 then return end
  call('ZADD', WAITING, tonumber(place) or 0, place)
  if count_attempt then call('HINCRBY', ATTEMPTS, place, 1) end
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

-- Decides what becomes of the items in a stored reply. If the reply did not arrive, they go back to their places. If it
-- arrived, leased items stay leased, and other items have left the queue. (After a crash in which the server lost its
-- last calls, the stored reply may be older than the last reply that arrived.)
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
  wake_for_items()
end

-- Returns the reply to this call if the call has been run before. Otherwise settles and drops the reply to the previous
-- call of the slot.
local function earlier_reply()
  local packed = call('HGET', REPLIES, me .. ':' .. slot)
  if not packed then return nil end
  local record = cmsgpack.unpack(packed)
  if record[1] == number then return record end
  settle(me, record, tonumber(record[1]) <= tonumber(confirmed))
  call('HDEL', REPLIES, me .. ':' .. slot)
end

local function reply(status, places, token)
  local record = {number, status, places or false, token or false}
  call('HSET', REPLIES, me .. ':' .. slot, cmsgpack.pack(record))
  return record
end

-- Drops the replies kept for a member. `numbers`: for each slot the number of the last call whose reply arrived; nil if
-- all replies arrived.
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
  -- Nobody will call `task_done` for the items that this member took, so `join` must not wait for them.
  local got = tonumber(call('HGET', GOT, member) or 0)
  call('HDEL', GOT, member)
  for _, key in ipairs({MEMBERS, WAIT_ITEMS, WAIT_ROOM}) do call('ZREM', key, member) end
  call('SREM', WAIT_DONE, member)
  call('DEL', WAKEUPS .. member)
  finish_tasks(got)
end
