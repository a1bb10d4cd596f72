#!lua flags=allow-oom
-- Remove or lend the next items. ARGV 5..: arm, lend, ZPOPMIN or ZPOPMAX, limit. Returns ok, leases or places, attempts,
-- items.
local arm, lend, pop, limit = ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8])
local record = answered()
if not record then
  local refused = refusal()
  if refused then return refused end
  if call('EXISTS', WAITING) == 0 then
    if state('shut') == 1 then return {'shut'} end
    if arm == '1' then call('ZADD', ITEMS, 'NX', now_ms(), me) end
    return {'empty'}
  end
  local popped, places, token = call(pop, WAITING, limit), {}, lend == '1' and slot .. '.' .. number
  for i = 1, #popped, 2 do
    local place = popped[i]
    places[#places + 1] = place
    if token then call('ZADD', LEASED, 0, me .. ':' .. token .. ':' .. place) end
  end
  if not token then call('HINCRBY', GOT, me, #places) end
  wake_room()
  record = answer('ok', places, token)
end
local names, attempts, values = {}, {}, {}
for i, place in ipairs(record[3]) do
  names[i] = record[4] and me .. ':' .. record[4] .. ':' .. place or place
  attempts[i] = call('HGET', ATTEMPTS, place) or 0
  values[i] = call('HGET', VALUES, place)
  -- Asked again too late: others have it by now.
  if not values[i] or (record[4] and not call('ZSCORE', LEASED, names[i])) then return {'again'} end
end
return {record[2], names, attempts, values}
