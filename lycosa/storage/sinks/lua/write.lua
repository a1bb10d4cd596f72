#!lua
-- A batch of entries is added, once, however often it is sent.
-- ARGV: token, entries before the batch, entries that are committed for sure, most entries of the stream (0: any),
--       crawl, key segment url item of each entry
-- Returns {"ok", written}; {"fenced"} when another has opened this writer since; {"behind", written} when the server has
-- fewer entries than there were before the batch: it has lost some.
local token, start, safe, maxlen, crawl = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local FIRST, FIELDS = 6, 4
local count = (#ARGV - FIRST + 1) / FIELDS

local known = call('HMGET', WRITER, 'token', 'written')
if known[1] and known[1] ~= token then return {'fenced'} end
local written = tonumber(known[2] or 0)
if written < start then return {'behind', written} end
if written > start then return {'ok', written} end

local milliseconds, seq
for at = FIRST, #ARGV, FIELDS do
  local id = call('XADD', STREAM, milliseconds and milliseconds .. '-*' or '*',
    'key', ARGV[at], 'crawl', crawl, 'segment', ARGV[at + 1], 'url', ARGV[at + 2], 'item', ARGV[at + 3])
  if not milliseconds then milliseconds, seq = id:match('^(%d+)-(%d+)$') end
end
call('RPUSH', BATCHES, string.format('%.0f %.0f %s %s', start, count, milliseconds, seq))
call('HSET', WRITER, 'token', token, 'written', start + count)
if maxlen > 0 then call('XTRIM', STREAM, 'MAXLEN', '~', maxlen) end

local first, entries = batch(0)
while first and first + entries <= safe do
  call('LPOP', BATCHES)
  first, entries = batch(0)
end
return {'ok', start + count}
