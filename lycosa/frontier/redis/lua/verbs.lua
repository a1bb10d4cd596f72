-- The verbs of an exchange, each followed by its own arguments. They answer nothing, but for what is refused or new.

local verbs, new, refused, turns = {}, 0, {}, {}

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

-- done: token, reason, contacted, the row that is kept of it ("" for none), how many children, each of them: its
-- partition ("" this one), and as for a push
verbs['a'] = function(worker)
  local lease, id = lease_of(worker)
  local reason, contacted, row, children = argument(), argument(), argument(), number()
  local segment = lease and lease.kind == PAGE and segment_of(lease.lane)
  local dropped = segment and state_of(segment) == 'dropped'
  for _ = 1, children do
    local partition = argument()
    if not lease or dropped then
      cursor = cursor + 5
    elseif ARGV[cursor] == '' then
      keep_back(worker, partition)
    elseif partition == '' then
      new = new + push()
    else
      send(partition, packed_argument())
    end
  end
  if not lease then return end
  if segment and not dropped then
    lease.reason, lease.row = reason, row
    call('HSET', key('P|' .. worker), id, packed(lease))
    tally('l|', segment, -1)
    tally('u|', segment, 1)
    call('HINCRBY', key('U|' .. worker), segment, 1)
    done(lease, 1)
  end
  free(lease, id, contacted)
end

-- failed: token, contacted, when it is tried again ("" never), reason, record (its row, when it is dead)
verbs['n'] = function(worker)
  local lease, id = lease_of(worker)
  local contacted, again, reason, record = argument(), argument(), argument(), argument()
  if not lease then return end
  if lease.kind ~= PAGE then
    local host = host_of(lease.host)
    local tries = lease.kind == ROBOTS and 'rt' or 'at'
    host[tries] = host[tries] + 1
    pause(host, tonumber(again) or now)
  else
    local segment = segment_of(lease.lane)
    tally('l|', segment, -1)
    if state_of(segment) == 'open' then
      if again == '' then
        keep('e', segment, record)
        tally('x|', segment, 1)
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
    tally('l|', segment_of(lease.lane), -1)
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
  pause(host_of(name), until_)
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
  if host.ad ~= address then move(host, address) end
  offer(host)
end

-- claim: claim, host
verbs['k'] = function(worker)
  local claim, host = argument(), host_of(argument())
  if call('HEXISTS', key('K|' .. worker), claim) == 0 then join(worker, claim, host) end
end

-- is it the turn of a claim: claim, host
verbs['?'] = function(worker)
  local claim, host = argument(), host_of(argument())
  local at = ask(worker, claim, host)
  turns[#turns + 1] = { claim, text(at), host.ad, text(host.au), delay_of(host) > 0 and 1 or 0 }
end

-- a claim is over: claim
verbs['u'] = function(worker)
  unclaim(worker, argument())
end

local COOKIES_MAX = 100000

-- a shared cookie is another now, or over: which, its jar and what it is
verbs['y'] = function()
  local which, cookie = argument(), argument()
  call('HSET', key('ck'), which, cookie)
  call('ZADD', key('cn'), following('cookies'), which)
  if call('ZCARD', key('cn')) > COOKIES_MAX then
    call('HDEL', key('ck'), call('ZPOPMIN', key('cn'))[1])
  end
end

-- A commit is one step where there is one partition. Else what was acked is first prepared in the others, under the
-- number of the commit; the first partition decides; the others are told afterwards, or learn it when the worker is
-- buried.

local ACKED, PREPARED = { 'P', 'U', 'W' }, { 'Q', 'V', 'X' }

local function positions_into(name)
  for _ = 1, number() do
    local sink, position = argument(), argument()
    call('HSET', key(name), sink, position)
  end
end

-- prepare: number of the commit, how many positions, name and position of each. They are known here, too, since a replica
-- that takes over the first partition may have lost a commit that the others know.
verbs['p'] = function(worker)
  local commit = argument()
  new = new + decide(worker)
  for at, kind in ipairs(ACKED) do
    if call('EXISTS', key(kind .. '|' .. worker)) == 1 then
      call('RENAME', key(kind .. '|' .. worker), key(PREPARED[at] .. '|' .. worker))
    end
  end
  positions_into('R|' .. worker)
  call('HSET', key('pn'), worker, commit)
end

-- commit: its number, how many positions, name and position of each
verbs['c'] = function(worker)
  call('HSET', key('kb'), worker, argument())
  new = new + settle('P|' .. worker, 'U|' .. worker, 'W|' .. worker)
  positions_into('p')
end

-- what was prepared is committed
verbs['q'] = function(worker)
  new = new + decide(worker)
  call('HDEL', key('pn'), worker)
end
