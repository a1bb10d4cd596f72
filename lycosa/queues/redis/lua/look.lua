#!lua flags=no-writes
-- Returns ok, the numbers of waiting items and of unfinished tasks, and maxsize.
if call('EXISTS', STATE) == 0 then return {'missing'} end
return {'ok', call('ZCARD', WAITING), state('unfinished'), state('maxsize')}
