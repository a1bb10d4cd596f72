-- What all parts share: the clock, the arguments, the counters, and the keys of one partition.
--
-- KEYS[1] is the prefix of a partition's keys and holds its hash tag, so that they lie in one slot of a cluster:
--
--   m                 hash    which crawl this is, how many partitions it has, the number of this one; its policy; the
--                             counters token, turn, arrived, workers; `seen`, when somebody was heard last
--   c                 hash    counts: "q|SEGMENT", "l|", "d|" (queued, leased, delayed), "x|", "a|" (dead, done), and "u|",
--                             what of the done is not committed yet; "o|" what is in outboxes
--   y  z              hash    why URLs are done, and dead: "SEGMENT\nREASON" -> count
--   g                 hash    segments: name -> state
--   b                 hash    fingerprints of a segment: "n|" how many, "k|" in how many sets
--   s|SEGMENT|N       set     the N-th of them: 64-bit numbers, 8 bytes each (an intset)
--   h|HOST            string  politeness, see hosts.lua
--   l|HOST            zset    the lanes in which the host has records, the first one first
--   q|HOST|LANE       list    records of one host, segment and priority, first come, first served
--   t                 zset    hosts whose turn it is: score the rank of their segment, member "STAMP|HOST"
--   r                 zset    hosts that wait for their turn: score the time
--   d                 zset    records that sleep: score when they are due, member "STAMP|HOST\nLANE\nRECORD"
--   w                 zset    workers: score when they were heard last (in the first partition, which decides)
--   n                 hash    workers: number of their last exchange
--   L|WORKER          hash    what it was lent: token -> lease
--   P|WORKER          hash    what it has done and not committed: token -> lease with its reason
--   U|WORKER          hash    how many of these there are in each segment
--   Q|WORKER V|WORKER  hash   the same of what is prepared for a commit
--   pn  kb            hash    workers: the commit that is prepared; the last one (in the first partition)
--   gone              hash    workers that were given up -> their last commit, until all partitions know
--   buried            set     workers that are not to join here any more (not in the first partition)
--   K|WORKER          hash    turns it has claimed: claim -> host
--   i|ADDRESS         hash    the hosts of one IP address: turns and places they share
--   j|ADDRESS         set     those of them that wait for a place
--   o|PARTITION       list    records for another partition, the last of those that were brought there among them
--   os  of            hash    how many there ever were for each partition; how many of them were brought
--   ob                hash    who numbers them -> the number before
--   oi                hash    "PARTITION|SERVER" -> the number of the last record that was brought from there
--   f                 hash    host -> its robots.txt and what it asks for
--   e                 hash    dead records: "STAMP" -> record with its reason
--   p                 hash    committed positions of the sinks
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

local now = argument()
if now == '' then
  local time = call('TIME')
  now = tonumber(time[1]) + tonumber(time[2]) / 1e6
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

local stamps

local function stamp()
  stamps = stamps or tonumber(call('HGET', key('m'), 'turn') or 0)
  stamps = stamps + 1
  return string.format('%014d', stamps)
end

local tokens

local function token()
  tokens = tokens or tonumber(call('HGET', key('m'), 'token') or 0)
  tokens = tokens + 1
  return string.format('%d', tokens)
end

local function write_counts()
  for field, by in pairs(counted) do
    if by ~= 0 then call('HINCRBY', key('c'), field, by) end
  end
  for hash, all in pairs(moved) do
    for field, by in pairs(all) do call('HINCRBY', key(hash), field, by) end
  end
  if stamps then call('HSET', key('m'), 'turn', stamps) end
  if tokens then call('HSET', key('m'), 'token', tokens) end
end

-- Policy: how hosts are treated, the same for all workers.
local policy

local function asked(name)
  if not policy then
    policy = {}
    local all = call('HGETALL', key('m'))
    for at = 1, #all, 2 do policy[all[at]] = tonumber(all[at + 1]) end
  end
  return policy[name] or 0
end
