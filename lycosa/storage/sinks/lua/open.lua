#!lua flags=allow-oom
-- A writer begins: what it wrote after its committed position is cut off. common.lua says what is kept where.
-- ARGV: token, committed, "cut" | "keep" | "new" | "empty"
-- Returns {"ok", written}; {"taken"} for a new writer whose number is in use; {"lost", written} when the server has less
-- than was committed; {"old", count} when more lies behind than can be told from what others wrote; {"type", name}.
local token, committed, how = ARGV[1], tonumber(ARGV[2]), ARGV[3]

local kind = call('TYPE', STREAM).ok
if kind ~= 'none' and kind ~= 'stream' then return {'type', kind} end
local written = tonumber(call('HGET', WRITER, 'written'))

if how == 'new' or how == 'empty' then
  if written then return {'taken'} end -- else it is there when it has written
  if how == 'empty' then call('XTRIM', STREAM, 'MAXLEN', 0) end
  return {'ok', 0}
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

if how == 'cut' and written > committed then
  local oldest, at = batch(0), written
  if not oldest or oldest > committed then return {'old', written - committed} end
  while at > committed do -- a position is never within a batch
    local start, count, milliseconds, seq = batch(-1)
    delete(milliseconds, seq, seq + count - 1)
    call('RPOP', BATCHES)
    at = start
  end
  written = at
end
call('HSET', WRITER, 'token', token, 'written', written)
return {'ok', written}
