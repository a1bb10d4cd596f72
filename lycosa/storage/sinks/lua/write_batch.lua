#!lua
-- Adds a batch of entries, only once even if it is sent several times.
-- ARGV: token; number of the writer's entries before the batch; number of its oldest entries that can no longer be cut
--       off; maximum number of entries of the stream (0: no limit); crawl; key, segment, url and item of each entry.
-- Returns {'ok', written}; {'reopened'} if another process has opened this writer in the meantime; {'behind', written}
-- if the server has fewer entries than were written before the batch: it has lost some.
local token, start, safe, maxlen, crawl = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local FIRST = 6
local count = (#ARGV - FIRST + 1) / FIELDS

local writer = call('HMGET', WRITER, 'token', 'written')
if writer[1] and writer[1] ~= token then return {'reopened'} end
local written = tonumber(writer[2] or 0)
if written < start then return {'behind', written} end
if written > start then return {'ok', written} end

local milliseconds, seq
for i = FIRST, #ARGV, FIELDS do
  local id = call('XADD', STREAM, milliseconds and milliseconds .. '-*' or '*',
    'key', ARGV[i], 'crawl', crawl, 'segment', ARGV[i + 1], 'url', ARGV[i + 2], 'item', ARGV[i + 3])
  if not milliseconds then milliseconds, seq = id:match('^(%d+)-(%d+)$') end
end
call('RPUSH', BATCHES, string.format('%.0f %.0f %s %s', start, count, milliseconds, seq))
call('HSET', WRITER, 'token', token, 'written', start + count)
if maxlen > 0 then call('XTRIM', STREAM, 'MAXLEN', '~', maxlen) end

-- Forget batches that can no longer be cut off.
local first, entries = batch(0)
while first and first + entries <= safe do
  call('LPOP', BATCHES)
  first, entries = batch(0)
end
return {'ok', start + count}
