-- Reports of the workers, in the first partition. A report is a map in msgpack. Its `counts` are integers since the
-- start of the worker; their increase is added to the totals at once, so the totals include all past workers. A report
-- that is received twice adds nothing. If a replica that took over has lost an increase, the next report adds it.

local publish, retire
do -- all other names are local to this block

local ENDED_MAX, ENDED_KEPT_S = 100, 86400 -- maximum number of kept reports of ended workers, and their maximum age
local TOTALS_MAX = 1000 -- maximum number of totals
local REPORT_BYTES_MAX = 65536

function publish(worker, report)
  if not report or report == '' or #report > REPORT_BYTES_MAX then return end
  local before = call('HGET', key.reports, worker)
  local counts = before and cmsgpack.unpack(before).counts or {}
  local room, has_items = TOTALS_MAX - call('HLEN', key.totals), false
  for name, value in pairs(cmsgpack.unpack(report).counts) do
    local growth = value - (counts[name] or 0)
    if growth ~= 0 and (room > 0 or call('HEXISTS', key.totals, name) == 1) then
      local total = call('HINCRBY', key.totals, name, string.format('%.0f', growth))
      if total == growth then room = room - 1 end
      has_items = has_items or (name == 'items' and growth > 0)
    end
  end
  if has_items then
    call('HSET', key.meta, 'item_at', text(now), 'pages_at_item', call('HGET', key.totals, 'pages') or 0)
  end
  call('HSET', key.reports, worker, report)
end

-- Keeps the last report of an ended worker for a while.
function retire(worker)
  if call('HEXISTS', key.reports, worker) == 0 then return end
  call('ZADD', key.ended, text(now), worker)
  local old = call('ZRANGEBYSCORE', key.ended, '-inf', text(now - ENDED_KEPT_S), 'LIMIT', 0, ENDED_MAX)
  for _, each in ipairs(call('ZRANGE', key.ended, 0, -ENDED_MAX - 1)) do old[#old + 1] = each end
  for _, each in ipairs(old) do
    call('ZREM', key.ended, each)
    call('HDEL', key.reports, each)
  end
end

end
