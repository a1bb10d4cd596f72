-- What all parts share: the clock, the arguments, the counters, and the keys of one partition.
--
-- KEYS[1] is the prefix of a partition's keys and holds its hash tag, so that they lie in one slot of a cluster (KEYS[2]
-- only says so: see scripts.py):
--
--   m                 hash    which crawl this is, how many partitions it has, the number of this one; `layout`; `spider`,
--                             whose it is; `whole`, once all partitions were made; its policy; the counters token,
--                             turn, ready, line, arrived, workers; `wanted`, when leases were wanted last; `seen`, when
--                             somebody was heard last; `real` and `ahead`, the clock; `waits`, written when replicas are
--                             waited for; `keep_done`, 1 when what is done is kept; `described`, what crawl.json says
--                             of a state; `floor`, see `bar`
--   c                 hash    counts: "q|SEGMENT", "l|", "d|" (queued, leased, delayed), "x|", "a|" (dead, done), and "u|",
--                             what of the done is not committed yet; "o|" what is in outboxes
--   y  z              hash    why URLs are done, and dead: "SEGMENT\nREASON" -> count
--   g                 hash    segments: name -> state
--   b                 hash    fingerprints of a segment: "n|" how many, "k|" in how many sets
--   s|SEGMENT|N       set     the N-th of them: 64-bit numbers, 8 bytes each (an intset)
--   h|HOST            string  politeness, see hosts.lua
--   l|HOST            zset    the lanes in which the host has records, the first one first
--   a                 zset    all hosts, in order: score 0
--   q|HOST|LANE       list    records of one host, segment and priority, first come, first served; see `stamped`
--   t                 zset    hosts whose turn it is: score the rank of their segment, member "PLACE|HOST"
--   r                 zset    hosts that wait for their turn: score the time
--   d                 zset    records that sleep: score when they are due, member "STAMP|HOST\nLANE\nRECORD"
--   w                 zset    workers: score when they were heard last (in the first partition, which decides)
--   n                 hash    workers: number of their last exchange, NEVER for one that was given up
--   L|WORKER          hash    what it was lent: token -> lease
--   P|WORKER          hash    what it has done and not committed: token -> lease with its reason
--   U|WORKER          hash    how many of these there are in each segment
--   W|WORKER          list    what it has found and may be a duplicate, as in an outbox: it is queued with the commit
--   Q| V| X| R|       hash... the same three of what is prepared for a commit, and its positions
--   pn  kb            hash    workers: the commit that is prepared; the last one (in the first partition)
--   gone              hash    workers that were given up -> their last commit, until all partitions know
--   buried            zset    workers that are not to join here any more: score their number (not in the first one);
--                             the last BURIED_MAX of them
--   K|WORKER          hash    what it has claimed: claim -> host, see claims.lua
--   k|HOST            zset    the claims that wait for a turn of the host, first come, first served
--   i|ADDRESS         string  the group of hosts of one IP address, see hosts.lua: the turns and places they share
--   it@ADDRESS        zset    those of them whose turn it is, as in `t`; in `t` and `r` the group is "@ADDRESS"
--   ir@ADDRESS        zset    those of them that wait for their turn, as in `r`
--   ik@ADDRESS        zset    those of them for which claims wait: score the number of the first one
--   o|PARTITION       list    records for another partition, the last of those that were brought there among them
--   os  of            hash    how many there ever were for each partition; how many of them were brought
--   ob                hash    for each partition, who numbered them: servers in the order of their failovers, each with
--                             the number before its own, packed; the last SERVERS_MAX of them
--   oi                hash    "PARTITION|SERVER" -> the number of the last record that was brought from there, for as many
--   ow                hash    for each partition, what of it need not be kept any more, see `over_by`
--   f                 hash    host -> its robots.txt, 500 KiB at most, and what it asks for
--   e|SEGMENT         zset    dead records with their reasons: score 0, member "FINGERPRINT STAMP ROW" (no spaces), the
--                             first two 16 hexadecimal and 14 decimal digits
--   v|SEGMENT         zset    the same of what is done, in a crawl that keeps it
--   sd                zset    start URLs of the crawl: score their number (in the first partition)
--   p                 hash    committed positions of the sinks: the first partition decides, the others know them too
--   room              never   what the server would refuse when it is full is tried on this
--   ck                hash    shared cookies (in the first partition): which -> its jar and what it is
--   cn                zset    which of them changed when: score the number of the change
--   lw                hash    the limits that workers want, see limits.lua
--   ws  we  wt                what workers tell of themselves, see telemetry.lua
--
-- Numbers beyond 2^53 (fingerprints) and times are passed as text: a Lua number would lose digits.

local prefix = KEYS[1]
local call = redis.call

local function key(name)
  return prefix .. name
end

local cursor = 1

local function argument()
  cursor = cursor + 1
  return ARGV[cursor - 1]
end

local function number()
  return tonumber(argument())
end

-- Keys as above and what they mean. A crawl has the number of whoever began it, and takes no others.
local LAYOUT = '2'

-- Our time never goes back: when the clock of the server was set back, or a replica took over whose clock is behind, it
-- goes on from where it was, at half its pace until the clock has caught up. So pauses may become twice as long.
local NOTED_S = 0.25
local SLOWER = 0.5

local now = argument()
local noted

if now == '' then
  local time, last = call('TIME'), call('HMGET', key('m'), 'crawl', 'real', 'ahead')
  local real, before, ahead = tonumber(time[1]) + tonumber(time[2]) / 1e6, tonumber(last[2]), tonumber(last[3] or 0)
  now = real
  if before then
    if real < before then
      ahead = ahead + before - real
    else
      ahead = math.max(0, ahead - (real - before) * SLOWER)
    end
    now = real + ahead
  end
  if last[1] and (not before or real < before or real - before > NOTED_S) then noted = { real, ahead } end
else
  now = tonumber(now)
end

local function text(value)
  return string.format('%.17g', value)
end

-- Counters of this call, written once at its end.
local counted, moved = {}, {}

local function count(name, by)
  counted[name] = (counted[name] or 0) + by
end

local function because(hash, segment, reason, by)
  local all = moved[hash] or {}
  moved[hash] = all
  local field = segment .. '\n' .. reason
  all[field] = (all[field] or 0) + by
end

local numbers = {}

-- The next number of a counter in `m`.
local function following(name)
  numbers[name] = (numbers[name] or tonumber(call('HGET', key('m'), name) or 0)) + 1
  return numbers[name]
end

local function stamp()
  return string.format('%014d', following('turn'))
end

local REASONS_MAX = 10000 -- parts of them may come from the network; what is beyond is counted as one, but for statuses

local function write_reason(hash, field, by)
  local is_new = call('HINCRBY', hash, field, by) == by
  if is_new and (by < 0 or (call('HLEN', hash) > REASONS_MAX and not string.match(field, '\n%d%d%d$'))) then
    call('HDEL', hash, field)
    call('HINCRBY', hash, string.match(field, '^[^\n]*\n') .. 'other reasons', by)
  end
end

local function write_counts()
  for field, by in pairs(counted) do
    if by ~= 0 and call('HINCRBY', key('c'), field, by) == 0 then call('HDEL', key('c'), field) end -- all are told often
  end
  for hash, all in pairs(moved) do
    for field, by in pairs(all) do
      if by ~= 0 then write_reason(key(hash), field, by) end
    end
  end
  for name, last in pairs(numbers) do call('HSET', key('m'), name, last) end
end

-- Policy: how hosts are treated, the same for all workers. See limits.lua.
local policy

local function asked(name)
  if not policy then
    policy = {}
    local all = call('HGETALL', key('m'))
    for at = 1, #all, 2 do policy[all[at]] = tonumber(all[at + 1]) end
  end
  return policy[name] or 0
end
