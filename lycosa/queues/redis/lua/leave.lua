#!lua flags=allow-oom
-- Removes a member that closes its queue. ARGV[5] and later: for each call slot of the member,
-- the number of the last call whose reply has arrived.
if call('ZSCORE', MEMBERS, me) then
  drop_replies(me, {unpack(ARGV, 5)})
  leave(me)
  wake_for_items()
  wake_for_room()
end
wake(me)
call('PEXPIRE', WAKEUPS .. me, 5000)
return {'ok'}
