#!lua flags=allow-oom
-- Joins as a member, and creates the queue if there is none.
-- ARGV 5..: version, order, codec, incarnation of a new queue (or '' if no queue may be created), maxsize or '',
-- maximum number of members, silent_ms.
local version, order, codec, incarnation, maxsize = ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local now = now_ms()
if call('EXISTS', STATE) == 0 then
  if incarnation == '' then return {'missing'} end
  call('HSET', STATE, 'version', version, 'era', incarnation, 'order', order, 'packing', codec, 'maxsize', 0, 'shut', 0,
    'next', 0, 'unfinished', 0, 'seen', now, 'since', now)
end
local found = call('HMGET', STATE, 'version', 'order', 'packing', 'era')
if tonumber(found[1] or 0) > tonumber(version) then return {'newer', found[1]} end
if found[2] ~= order then return {'other order', found[2]} end
if found[3] ~= codec then return {'other codec', found[3]} end
if call('ZCARD', MEMBERS) >= tonumber(ARGV[10]) then return {'too many'} end
if call('ZCOUNT', MEMBERS, now - ARGV[11], '+inf') == 0 then call('HSET', STATE, 'shut', 0) end
call('ZADD', MEMBERS, now, me)
if maxsize ~= '' then
  call('HSET', STATE, 'maxsize', maxsize)
  wake_for_room()
end
return {'ok', found[4]}
