#!lua flags=no-writes
-- Returns ok, how many items wait, unfinished tasks, maxsize.
if call('EXISTS', STATE) == 0 then return {'missing'} end
return {'ok', call('ZCARD', WAITING), state('unfinished'), state('maxsize')}
