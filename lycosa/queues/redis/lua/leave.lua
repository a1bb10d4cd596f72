#!lua flags=allow-oom
-- Leave in order. ARGV 5..: for each slot the number of its last call whose reply arrived.
if call('ZSCORE', MEMBERS, me) then
  drop_replies(me, {unpack(ARGV, 5)})
  leave(me)
  wake_items()
  wake_room()
end
ring(me)
call('PEXPIRE', BELL .. me, 5000)
return {'ok'}
