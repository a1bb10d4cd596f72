-- The verbs of an exchange, each followed by its own arguments. They answer nothing, but for what is refused or new.

local verbs, new, refused = {}, 0, {}

local function lease_of(worker)
  local id = argument()
  local lease = held(worker, id)
  if not lease then refused[#refused + 1] = id end
  return lease, id
end

-- push from outside: see `push`
verbs['+'] = function()
  new = new + push()
  call('HINCRBY', key('m'), 'arrived', 1)
end

-- done: token, reason, contacted, how many children, each of them: its partition ("" this one), and as for a push
verbs['a'] = function(worker)
  local lease, id = lease_of(worker)
  local reason, contacted, children = argument(), argument(), number()
  for _ = 1, children do
    local partition = argument()
    if not lease then
      cursor = cursor + 5
    elseif partition == '' then
      new = new + push()
    else
      send(partition)
    end
  end
  if not lease then return end
  if lease.kind == PAGE then
    local segment = segment_of(lease.lane)
    lease.reason = reason
    call('HSET', key('P|' .. worker), id, packed(lease))
    count('l|' .. segment, -1)
    count('u|' .. segment, 1)
    call('HINCRBY', key('U|' .. worker), segment, 1)
    done(lease, 1)
  end
  free(lease, id, contacted)
end

-- failed: token, contacted, when it is tried again ("" never), reason, record
verbs['n'] = function(worker)
  local lease, id = lease_of(worker)
  local contacted, again, reason, record = argument(), argument(), argument(), argument()
  if not lease then return end
  if lease.kind ~= PAGE then
    local host = host_of(lease.host)
    local tries = lease.kind == ROBOTS and 'rt' or 'at'
    host[tries] = host[tries] + 1
    block(host, tonumber(again) or now)
  else
    local segment = segment_of(lease.lane)
    count('l|' .. segment, -1)
    if state_of(segment) == 'open' then
      if again == '' then
        call('HSET', key('e'), stamp(), text(now) .. '\n' .. lease.lane .. '\n' .. reason .. '\n' .. record)
        count('x|' .. segment, 1)
        because('z', segment, reason, 1)
      else
        sleep(lease.host, lease.lane, record, tonumber(again))
      end
    end
  end
  free(lease, id, contacted)
end

-- given back: token, record ("" as it was)
verbs['r'] = function(worker)
  local lease, id = lease_of(worker)
  local record = argument()
  if not lease then return end
  if lease.kind == PAGE then
    count('l|' .. segment_of(lease.lane), -1)
    if record ~= '' then lease.record = record end
    put_back(lease)
  end
  free(lease, id, '1')
end

-- its transfer is over, and its place free: token
verbs['o'] = function(worker)
  local id = argument()
  local data = call('HGET', key('L|' .. worker), id)
  if not data then return end
  local lease = unpacked(data)
  if lease.kind ~= PAGE or lease.over == 1 then return end
  lease.over = 1
  call('HSET', key('L|' .. worker), id, packed(lease))
  ended(host_of(lease.host), lease.address, id)
end

-- block: host, until
verbs['b'] = function()
  local name, until_ = argument(), number()
  block(host_of(name), until_)
end

-- started: host, when. A worker that was held up contacts it later than it was lent: its next turn counts from there.
verbs['s'] = function()
  local name, at = argument(), number()
  local host = host_of(name)
  local delay = delay_of(host)
  if delay == 0 then return end
  host.uc = ''
  host.st = math.max(host.st, math.min(at, now))
  host.ra = math.max(host.ra, host.st + delay)
  offer(host)
end

-- throttle: host, delay
verbs['t'] = function()
  local name, delay = argument(), number()
  local host = host_of(name)
  host.th = delay
  host.ra = math.max(host.pa, host.st > 0 and host.st + delay_of(host) or 0)
  offer(host)
end

-- facts: host, when they were fetched, since when they hold, Crawl-delay, the facts
verbs['f'] = function()
  local name, fetched, since, delay, facts = argument(), number(), number(), number(), argument()
  local host = host_of(name)
  call('HSET', key('f'), name, facts)
  host.rb, host.rt, host.dl = fetched, 0, delay
  pause(host, since + delay_of(host))
end

-- address: host, address, until
verbs['i'] = function()
  local name, address, until_ = argument(), argument(), number()
  local host = host_of(name)
  host.at, host.au = 0, until_
  if host.ad ~= address then
    host.ad = address
    local group = group_of(host)
    if group and host.st > 0 and asked('ip_delay') > 0 then
      group.ra, group.changed = math.max(group.ra, host.st + asked('ip_delay')), true
    end
  end
  offer(host)
end

-- a claim is over: claim
verbs['u'] = function(worker)
  local claim = argument()
  local claimed = call('HGET', key('K|' .. worker), claim)
  if not claimed then return end
  call('HDEL', key('K|' .. worker), claim)
  local name, address = string.match(claimed, '^([^\n]*)\n(.*)$')
  ended(host_of(name), address, worker .. '|' .. claim)
end

-- A commit is one step where there is one partition. Else what was acked is first prepared in the others, under the
-- number of the commit; the first partition decides; the others are told afterwards, or learn it when the worker is
-- buried.

-- prepare: number of the commit
verbs['p'] = function(worker)
  local commit = argument()
  settle('V|' .. worker)
  call('DEL', key('Q|' .. worker), key('V|' .. worker))
  if call('EXISTS', key('P|' .. worker)) == 1 then
    call('RENAME', key('P|' .. worker), key('Q|' .. worker))
    call('RENAME', key('U|' .. worker), key('V|' .. worker))
  end
  call('HSET', key('pn'), worker, commit)
end

-- commit: its number, how many positions, name and position of each
verbs['c'] = function(worker)
  call('HSET', key('kb'), worker, argument())
  settle('U|' .. worker)
  call('DEL', key('P|' .. worker), key('U|' .. worker))
  for _ = 1, number() do
    local name, position = argument(), argument()
    call('HSET', key('p'), name, position)
  end
end

-- what was prepared is committed
verbs['q'] = function(worker)
  settle('V|' .. worker)
  call('DEL', key('Q|' .. worker), key('V|' .. worker))
  call('HDEL', key('pn'), worker)
end
