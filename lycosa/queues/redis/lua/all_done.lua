#!lua flags=allow-oom
-- Returns ok if every task is finished, else wait. ARGV 5: 1 to register for the wake-up.
local refused = refusal()
if refused then return refused end
if state('unfinished') == 0 then return {'ok'} end
if ARGV[5] == '1' then call('SADD', WAIT_DONE, me) end
return {'wait'}
