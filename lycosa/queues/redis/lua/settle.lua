#!lua flags=allow-oom
-- End a lease. ARGV 5..: ack or nack, the lease.
local earlier = answered()
if earlier then return {earlier[2]} end
if call('EXISTS', STATE) == 0 then return {'gone'} end
local place = place_of(ARGV[6])
-- A forked child has the leases of its parent in memory, and they are not its own.
if string.sub(ARGV[6], 1, #me + 1) ~= me .. ':' or call('ZREM', LEASED, ARGV[6]) == 0 then return {'ended'} end
if ARGV[5] == 'ack' then
  forget({place})
  finish_tasks(1)
else
  give_back(place, true)
  wake_items()
end
return {answer('ok')[2]}
