#!lua flags=allow-oom
-- Puts back the items of the last reply of this slot, because the reply could not be read.
earlier_reply()
return {'ok'}
