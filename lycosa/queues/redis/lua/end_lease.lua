#!lua flags=allow-oom
-- Ends a lease. ARGV 5: 'ack' or 'nack'. ARGV 6: the lease.
local earlier = earlier_reply()
if earlier then return {earlier[2]} end
if call('EXISTS', STATE) == 0 then return {'missing'} end
local verb, lease = ARGV[5], ARGV[6]
-- A forked child has the leases of its parent in memory, but must not end them.
if string.sub(lease, 1, #me + 1) ~= me .. ':' or call('ZREM', LEASED, lease) == 0 then return {'ended'} end
if verb == 'ack' then
  forget({place_of(lease)})
  finish_tasks(1)
else
  give_back(place_of(lease), true)
  wake_for_items()
end
return {reply('ok')[2]}
