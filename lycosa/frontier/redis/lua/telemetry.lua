-- What workers tell of themselves, in the first partition. A report is a map in msgpack; its `counts` are whole numbers since
-- the worker began, and what is new in them is added to the totals at once: so these hold what all workers did that ever
-- took part. A report that comes twice adds nothing; what a replica that took over has not heard of, the next one adds.
--
--   ws  hash  workers: their last report, also of those that have ended
--   we  zset  workers that have ended or were given up: when
--   wt  hash  totals of the crawl: name -> count

local ENDED_MAX, ENDED_S = 100, 86400
local TOTALS_MAX = 1000 -- names
local REPORT_MAX = 65536

local function publish(worker, report)
  if not report or report == '' or #report > REPORT_MAX then return end
  local before = call('HGET', key('ws'), worker)
  local counts = before and cmsgpack.unpack(before).counts or {}
  local room = TOTALS_MAX - call('HLEN', key('wt'))
  for name, count in pairs(cmsgpack.unpack(report).counts) do
    local more = count - (counts[name] or 0)
    if more ~= 0 and (room > 0 or call('HEXISTS', key('wt'), name) == 1) then
      local total = call('HINCRBY', key('wt'), name, string.format('%.0f', more))
      if total == more then room = room - 1 end
    end
  end
  call('HSET', key('ws'), worker, report)
end

-- A worker is gone: its last report is kept for a while.
local function retire(worker)
  if call('HEXISTS', key('ws'), worker) == 0 then return end
  call('ZADD', key('we'), text(now), worker)
  local old = call('ZRANGEBYSCORE', key('we'), '-inf', text(now - ENDED_S), 'LIMIT', 0, ENDED_MAX)
  for _, each in ipairs(call('ZRANGE', key('we'), 0, -ENDED_MAX - 1)) do old[#old + 1] = each end
  for _, each in ipairs(old) do
    call('ZREM', key('we'), each)
    call('HDEL', key('ws'), each)
  end
end
