#!lua flags=allow-oom
-- ARGV 5..: 'maxsize' and its value, or 'shutdown' and 1 to drop the waiting items.
local refused = refusal()
if refused then return refused end
if ARGV[5] == 'maxsize' then
  call('HSET', STATE, 'maxsize', ARGV[6])
  wake_for_room()
  return {'ok'}
end
call('HSET', STATE, 'shut', 1)
while ARGV[6] == '1' and call('EXISTS', WAITING) == 1 do
  local popped, places = call('ZPOPMIN', WAITING, CHUNK), {}
  for i = 1, #popped, 2 do places[#places + 1] = popped[i] end
  forget(places)
  finish_tasks(#places)
end
for _, key in ipairs({WAIT_ITEMS, WAIT_ROOM}) do
  for _, member in ipairs(call('ZRANGE', key, 0, -1)) do wake(member) end
  call('DEL', key)
end
return {'ok'}
