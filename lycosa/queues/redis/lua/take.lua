#!lua flags=allow-oom
-- Removes or leases the next items. ARGV from 5: 1 to register for a wake-up; 1 to lease; ZPOPMIN or ZPOPMAX; limit.
-- Returns 'ok', then three lists: the leases (or the places of removed items), the attempts, and the items.
local register, lease, pop, limit = ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8])
local record = earlier_reply()
if not record then
  local refused = refusal()
  if refused then return refused end
  if call('EXISTS', WAITING) == 0 then
    if state('shut') == 1 then return {'shut'} end
    if register == '1' then call('ZADD', WAIT_ITEMS, 'NX', now_ms(), me) end
    return {'empty'}
  end
  local popped, places, token = call(pop, WAITING, limit), {}, lease == '1' and slot .. '.' .. number
  for i = 1, #popped, 2 do
    local place = popped[i]
    places[#places + 1] = place
    if token then call('ZADD', LEASED, 0, me .. ':' .. token .. ':' .. place) end
  end
  if not token then call('HINCRBY', GOT, me, #places) end
  wake_for_room()
  record = reply('ok', places, token)
end
local names, attempts, values = {}, {}, {}
for i, place in ipairs(record[3]) do
  names[i] = record[4] and me .. ':' .. record[4] .. ':' .. place or place
  attempts[i] = call('HGET', ATTEMPTS, place) or 0
  values[i] = call('HGET', VALUES, place)
  -- The call was repeated too late: another member has the item now.
  if not values[i] or (record[4] and not call('ZSCORE', LEASED, names[i])) then return {'leased again'} end
end
return {record[2], names, attempts, values}
