#!lua flags=allow-oom
-- Is any task unfinished? ARGV 5: arm.
local refused = refusal()
if refused then return refused end
if state('unfinished') == 0 then return {'ok'} end
if ARGV[5] == '1' then call('SADD', DONE, me) end
return {'wait'}
