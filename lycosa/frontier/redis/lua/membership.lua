-- How workers join, stay alive and leave.

local REFUSED_MAX = 1000 -- expired workers to remember: far more than expire while a request is in transit

local function number_of(worker)
  return tonumber(string.match(worker, '#(%d+)$')) or 0
end

-- Bans an expired worker from joining again. Beyond REFUSED_MAX workers, the one with the lowest number is forgotten.
-- From then on no worker with this number (`floor`) or a lower one may join, unless it is still known.
local function refuse_rejoin(worker)
  call('ZADD', key.refused, number_of(worker), worker)
  if call('ZCARD', key.refused) > REFUSED_MAX then
    local forgotten = tonumber(call('ZPOPMIN', key.refused)[2])
    call('HSET', key.meta, 'floor', math.max(forgotten, tonumber(call('HGET', key.meta, 'floor') or 0)))
  end
end

local function is_refused(worker)
  if call('ZSCORE', key.refused, worker) then return true end
  return number_of(worker) <= tonumber(call('HGET', key.meta, 'floor') or 0) and not is_known(worker)
end

-- Begins a run of the crawl, unless the crawl has a live worker with another name.
local function begin_run(name)
  for _, other in ipairs(call('ZRANGEBYSCORE', key.workers, text(now - SILENT_S), '+inf')) do
    if string.sub(other, 1, #name + 1) ~= name .. '#' then return end
  end
  local pages = call('HGET', key.totals, 'pages') or 0
  call('HSET', key.meta, 'run_at', text(now), 'item_at', text(now), 'pages_at_item', pages)
  call('DEL', key.run_totals)
  call('COPY', key.totals, key.run_totals)
end

-- Joins a worker. Arguments: the worker ("" for a new one); NAME#SESSION, where SESSION is a random text; the arguments
-- of `begin_crawl`; the number of policy fields, and the name and value of each; 1 if the worker joins again and
-- continues the run. Returns the id of the worker ("" if it may not join), our layout, and the values that
-- `begin_crawl` returns. The id is NAME#SESSION#NUMBER. A server that loses its last writes gives the same number
-- again. Because of SESSION, a late call of the lost session is not taken for a call of the new one.
commands['join'] = function(worker)
  local session, partitions, keep_done, spider = argument(), ARGV[cursor + 1], ARGV[cursor + 3], ARGV[cursor + 4]
  local name = string.match(session, '^[^#]*')
  local found = begin_crawl(argument(), argument(), argument(), argument(), argument())
  local crawl, found_spider, layout = found[1], found[3], found[4]
  local adopts = found_spider == '' and crawl ~= '' -- the crawl was created for seeds, without a spider
  if adopts then found[3] = spider end
  if crawl == '' or found[2] ~= partitions or found[3] ~= spider or layout ~= LAYOUT or found[6] ~= keep_done then
    return { 'ok', '', LAYOUT, unpack(found) }
  end
  if adopts then call('HSET', key.meta, 'spider', spider) end
  local limits = {}
  for _ = 1, number() do
    local field, value = argument(), argument()
    if GENTLER[field] then limits[field] = tonumber(value) else call('HSET', key.meta, field, value) end
  end
  meta_fields = nil
  if worker == '' and number() == 0 then begin_run(name) end -- first: the next line may shift last-seen times
  expire_silent_workers()
  if worker == '' then
    for _, other in ipairs(call('ZRANGE', key.workers, 0, -1)) do -- an earlier process with this name must have ended
      if string.sub(other, 1, #name + 1) == name .. '#' then expire_worker(other) end
    end
    worker = session .. '#' .. call('HINCRBY', key.meta, 'workers', 1)
  elseif is_refused(worker) then
    return { 'unknown' }
  end
  call('HSET', key.worker_limits, worker, cmsgpack.pack(limits))
  apply_limits()
  mark_alive(worker)
  write_all()
  return { 'ok', worker, LAYOUT, unpack(found) }
end

-- Marks the crawl as complete: all partitions were created.
commands['whole'] = function()
  call('HSET', key.meta, 'whole', 1)
  return { 'ok' }
end

-- A heartbeat. Argument: a report, or "".
commands['beat'] = function(worker)
  if not is_known(worker) then return { 'unknown' } end
  mark_alive(worker)
  publish(worker, argument())
  expire_silent_workers()
  write_all()
  return { 'ok' }
end

-- The progress of all workers. Argument: a report. Returns the current time, the start of the run, the time of the
-- last item and the total of pages at that time, all totals now, and all totals at the start of the run.
commands['progress'] = function(worker)
  if not is_known(worker) then return { 'unknown' } end
  mark_alive(worker)
  publish(worker, argument())
  expire_silent_workers()
  write_all()
  local run = call('HMGET', key.meta, 'run_at', 'item_at', 'pages_at_item')
  for i = 1, 3 do run[i] = run[i] or '' end
  return { 'ok', text(now), run[1], run[2], run[3], call('HGETALL', key.totals), call('HGETALL', key.run_totals) }
end

-- Ends a worker. Argument: its last report, or "". If the command is repeated because its answer was lost, the worker
-- must not be expired again: its last commit is no longer stored here. The returned status lists it as expired.
commands['leave'] = function(worker)
  if is_known(worker) then
    publish(worker, argument())
    expire_worker(worker)
  end
  write_all()
  return { 'ok', status() }
end

-- Removes a worker that the first partition has expired. Arguments: the worker, the number of its last commit.
commands['expire'] = function()
  local worker, committed = argument(), number()
  remove_worker(worker, committed)
  refuse_rejoin(worker) -- its request to join may still be in transit
  write_all()
  return { 'ok' }
end

-- Forgets an expired worker once all other partitions have removed it. Argument: the worker.
commands['expired_everywhere'] = function()
  call('HDEL', key.expired, argument())
  return { 'ok' }
end

-- Runs in the first partition. Expires the workers that only other partitions know: they have joined or expired, but a
-- failover has undone that here. Arguments: the number of workers that the other partitions know, and their names.
-- Returns all expired workers with the numbers of their last commits.
commands['expire_unknown'] = function()
  for _ = 1, number() do
    local worker = argument()
    if not is_known(worker) then
      call('HSETNX', key.expired, worker, tonumber(call('HGET', key.commits, worker) or 0))
    end
  end
  return { 'ok', call('HGETALL', key.expired) }
end
