#!lua flags=allow-oom
-- Opens a writer, and cuts off what it wrote after its committed position.
-- ARGV: token, committed, mode: 'cut' or 'keep'; for a new writer 'new', or 'empty' to empty the stream first.
-- Returns {'ok', written}; {'taken'} for a new writer whose id is in use; {'lost', written} if the server has fewer
-- entries than were committed; {'too old', count} if BATCHES no longer lists all entries that must be cut off;
-- {'type', name} if STREAM is a key of another type.
local token, committed, mode = ARGV[1], tonumber(ARGV[2]), ARGV[3]

local kind = call('TYPE', STREAM).ok
if kind ~= 'none' and kind ~= 'stream' then return {'type', kind} end
local written = tonumber(call('HGET', WRITER, 'written'))

if mode == 'new' or mode == 'empty' then
  if written then return {'taken'} end
  if mode == 'empty' then call('XTRIM', STREAM, 'MAXLEN', 0) end
  return {'ok', 0} -- a new writer is stored with its first batch
end

written = written or 0
if written < committed then return {'lost', written} end

local function delete(milliseconds, from, to)
  local ids = {}
  for seq = from, to do
    ids[#ids + 1] = milliseconds .. '-' .. string.format('%.0f', seq)
    if #ids == CHUNK or seq == to then
      call('XDEL', STREAM, unpack(ids))
      ids = {}
    end
  end
end

if mode == 'cut' and written > committed then
  local oldest, position = batch(0), written
  if not oldest or oldest > committed then return {'too old', written - committed} end
  while position > committed do -- a committed position is never within a batch
    local start, count, milliseconds, seq = batch(-1)
    delete(milliseconds, seq, seq + count - 1)
    call('RPOP', BATCHES)
    position = start
  end
  written = position
end
call('HSET', WRITER, 'token', token, 'written', written)
return {'ok', written}
