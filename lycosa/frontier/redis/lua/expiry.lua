-- The expiry of a finished crawl: see admin/expiry.py. `expires_at` in `meta` says when all keys of the partition
-- expire; it is set before any of them gets its time to live. A process that uses the crawl again replaces it with
-- `reviving`, makes all keys permanent, and then removes `reviving`.

local LIVE_STATES = { queued = true, leased = true, delayed = true, uncommitted = true, outgoing = true }

local function live_urls()
  local counts, live = call('HGETALL', key.counts), 0
  for i = 1, #counts, 2 do
    if LIVE_STATES[string.match(counts[i], '^[^|]*')] then live = live + tonumber(counts[i + 1]) end
  end
  return live
end

-- Announces the expiry of the keys, unless URLs here are unfinished, or the crawl has workers (which only the first
-- partition knows). Argument: the seconds until the expiry. Returns the time of the expiry ("" if the keys do not
-- expire), and the number of workers.
operations['announce_expiry'] = function()
  local after_s = number()
  expire_silent_workers()
  local workers = meta('number') == 0 and call('ZCARD', key.workers) or 0
  write_all()
  if workers > 0 or live_urls() > 0 then return { 'ok', '', workers } end
  local at = text(now + after_s)
  call('HSET', key.meta, 'expires_at', at)
  call('HDEL', key.meta, 'reviving')
  return { 'ok', at, 0 }
end

-- Returns 1 if the announcement still holds. Argument: when the keys expire.
operations['check_expiry'] = function()
  return { 'ok', call('HGET', key.meta, 'expires_at') == argument() and 1 or 0 }
end

-- Withdraws an announcement before any key has its time to live. Argument: when the keys were to expire.
operations['withdraw_expiry'] = function()
  if call('HGET', key.meta, 'expires_at') == argument() then call('HDEL', key.meta, 'expires_at') end
  return { 'ok' }
end

-- Gives keys their time to live, if the announcement still holds. Arguments: when the keys expire; the keys. Returns 1
-- if it holds.
operations['expire_keys'] = function()
  local at = argument()
  if call('HGET', key.meta, 'expires_at') ~= at then return { 'ok', 0 } end
  local left_ms = string.format('%d', math.max(1, (tonumber(at) - now) * 1000))
  for i = cursor, #ARGV do call('PEXPIRE', ARGV[i], left_ms) end
  return { 'ok', 1 }
end

-- Withdraws the expiry. Returns 1 if the keys must be made permanent.
operations['revive'] = function()
  local at = call('HGET', key.meta, 'expires_at')
  if at then
    call('HDEL', key.meta, 'expires_at')
    call('HSET', key.meta, 'reviving', at)
    call('PERSIST', key.meta)
  end
  return { 'ok', call('HEXISTS', key.meta, 'reviving') }
end

-- Makes keys permanent. Arguments: the keys.
operations['persist_keys'] = function()
  for i = cursor, #ARGV do call('PERSIST', ARGV[i]) end
  return { 'ok' }
end

-- Ends the revival after all keys were made permanent. Argument: the minimum number of seconds left until the expiry.
-- The first partition returns 0 if fewer are left: it is too late. Otherwise returns 1.
operations['revived'] = function()
  local at, margin_s = call('HGET', key.meta, 'reviving'), number()
  if at and meta('number') == 0 and now > tonumber(at) - margin_s then return { 'ok', 0 } end
  call('HDEL', key.meta, 'reviving')
  return { 'ok', 1 }
end
