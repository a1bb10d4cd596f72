#!lua flags=allow-oom
-- Become a member; make the queue when it is not there.
-- ARGV 5..: version, order, packing, era of a new queue or '' where none may be made, maxsize or '', most members,
-- silent_ms.
local version, order, packing, era, maxsize = ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local now = now_ms()
if call('EXISTS', STATE) == 0 then
  if era == '' then return {'gone'} end
  call('HSET', STATE, 'version', version, 'era', era, 'order', order, 'packing', packing, 'maxsize', 0, 'shut', 0,
    'next', 0, 'unfinished', 0, 'seen', now, 'since', now)
end
local made = call('HMGET', STATE, 'version', 'order', 'packing', 'era')
if tonumber(made[1] or 0) > tonumber(version) then return {'newer', made[1]} end
if made[2] ~= order then return {'order', made[2]} end
if made[3] ~= packing then return {'packing', made[3]} end
if call('ZCARD', MEMBERS) >= tonumber(ARGV[10]) then return {'crowd'} end
if call('ZCOUNT', MEMBERS, now - ARGV[11], '+inf') == 0 then call('HSET', STATE, 'shut', 0) end
call('ZADD', MEMBERS, now, me)
if maxsize ~= '' then
  call('HSET', STATE, 'maxsize', maxsize)
  wake_room()
end
return {'ok', made[4]}
