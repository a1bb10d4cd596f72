-- What the scripts of a stream share.
--
-- KEYS, all in one slot:
--   STREAM    the user's stream
--   WRITER    hash  of one crawl or worker: token (of the process that opened it last), written (its entries, without
--             those that were cut off)
--   BATCHES   list  of the same: "START COUNT MILLISECONDS SEQ" of the batches that may have to be cut off: the number of
--             entries before it, its entries, the id of its first entry; the others follow it without a gap
local CHUNK = 1000 -- Lua takes some thousand arguments in one call
local call = redis.call

local function batch(index)
  local text = call('LINDEX', BATCHES, index)
  if not text then return end
  local start, count, milliseconds, seq = text:match('^(%d+) (%d+) (%d+) (%d+)$')
  return tonumber(start), tonumber(count), milliseconds, tonumber(seq)
end
