-- The last part of the workers' script: the commands 'exchange' and 'cookies', and the dispatch of all commands.

-- The answer for a worker that did not receive the answer to its last exchange: all its leases whose transfers have
-- not ended.
local function repeated_answer(worker)
  local leases = {}
  local all = call('HGETALL', key.leases .. worker)
  for i = 1, #all, 2 do
    local lease = unpacked_lease(all[i + 1])
    if lease.transferred == 0 then leases[#leases + 1] = lease_reply(all[i], lease, entity(lease.host)) end
  end
  return { 'ok', 0, {}, leases, status(), {}, this_server() }
end

-- Executes the verbs, then leases records. Arguments: the serial number of the exchange; the id of the server that must
-- execute it ("" for any); the number of verbs, and the verbs; the number of leases wanted now, and in advance. The
-- serial number rises by one with each exchange. If it repeats the last one, the worker did not get the last answer,
-- and nothing is executed again. If it skips numbers, exchanges were lost, either by the server (a replica took over,
-- or it restarted) or by the worker. Then the worker must join again (the answer 'unknown'). Likewise if the decision
-- about a commit prepared here may have been lost in a change of server. On another server than the required one,
-- nothing is executed (the answer 'other server', and the id of this one).
commands['exchange'] = function(worker)
  if not is_known(worker) then return { 'unknown' } end
  mark_alive(worker)
  expire_silent_workers()
  local serial, server, last = number(), argument(), tonumber(call('HGET', key.serials, worker) or 0)
  if serial <= last then
    write_all() -- changes by expired workers
    return serial == last and repeated_answer(worker) or { 'unknown' }
  end
  if serial > last + 1 or is_decision_doubtful(worker) then
    give_up(worker)
    write_all()
    return { 'unknown' }
  end
  if server ~= '' and server ~= this_server() then
    write_all()
    return { 'other server', this_server() }
  end
  call('HSET', key.serials, worker, serial)
  for _ = 1, number() do verbs[argument()](worker) end
  local limit, ahead = number(), number()
  local leases = is_server_full and {} or lease_records(worker, limit, ahead)
  write_all()
  return { 'ok', new, refused, leases, status(), start_answers, this_server() }
end

-- Reads shared cookies. Argument: the number of the last change that the worker knows. Returns the number of the latest
-- change, and the cookies of all changes that the worker does not know.
commands['cookies'] = function()
  local last = call('HGET', key.meta, 'cookies') or '0'
  local known, cookies = argument(), {}
  if tonumber(known) > tonumber(last) then known = '0' end -- a replica without the last changes took over
  for _, which in ipairs(call('ZRANGEBYSCORE', key.cookie_changes, '(' .. known, last)) do
    cookies[#cookies + 1] = call('HGET', key.cookies, which)
  end
  return { 'ok', last, cookies }
end

local command, worker = argument(), argument()
return refuse_to_write() or commands[command](worker)
