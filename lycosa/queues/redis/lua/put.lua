#!lua
-- Stores all items or none. ARGV[5]: '1' to register for a wake-up if there is no room, else '0'. ARGV[6]: the number
-- of free places needed: 1 in a lazy queue, else the number of items. Then two arguments for each item: its rank
-- ('' in a queue without priorities) and its bytes.
local earlier = earlier_reply()
if earlier then return {earlier[2]} end
local refused = refusal()
if refused then return refused end
if state('shut') == 1 then return {'shut'} end
local register, room, count = ARGV[5], tonumber(ARGV[6]), (#ARGV - 6) / 2
local maxsize = state('maxsize')
if maxsize > 0 and call('ZCARD', WAITING) + room > maxsize then
  if room > math.max(1, maxsize) then return {'never', maxsize} end
  if register == '1' then call('ZADD', WAIT_ROOM, 'LT', room, me) end
  return {'full'}
end
local last = call('HINCRBY', STATE, 'next', count)
local places, values = {}, {}
for i = 1, count do
  local id, rank = string.format('%016.0f', last - count + i), ARGV[5 + 2 * i]
  places[2 * i - 1] = rank == '' and id or 0
  places[2 * i] = rank .. id
  values[2 * i - 1] = rank .. id
  values[2 * i] = ARGV[6 + 2 * i]
end
in_chunks('ZADD', WAITING, places)
in_chunks('HSET', VALUES, values)
call('HINCRBY', STATE, 'unfinished', count)
wake_for_items()
return {reply('ok')[2]}
