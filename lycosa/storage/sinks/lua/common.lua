-- Code shared by the scripts of a stream.
--
-- KEYS, all in one slot:
--   STREAM    the user's stream
--   WRITER    hash of one crawl or worker: token (of the process that opened it last), written (number of its entries
--             that were not cut off)
--   BATCHES   list of the same crawl or worker: "START COUNT MILLISECONDS SEQ" for each batch that may have to be cut
--             off: the number of the writer's entries before the batch, the number of entries in it, the id of its
--             first entry. The ids of its other entries follow without a gap.
local CHUNK = 1000 -- Lua takes only a few thousand arguments in one call
local call = redis.call

local function batch(index)
  local text = call('LINDEX', BATCHES, index)
  if not text then return end
  local start, count, milliseconds, seq = text:match('^(%d+) (%d+) (%d+) (%d+)$')
  return tonumber(start), tonumber(count), milliseconds, tonumber(seq)
end
