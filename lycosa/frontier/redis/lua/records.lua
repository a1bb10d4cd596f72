-- Records: known fingerprints, the queues of hosts, delayed records, links to other partitions.

-- Fingerprints. A segment stores them in sets. As the number of fingerprints grows, one set after another is added.

local SEEN_SET_MEAN = 256 -- average fingerprints in a set; Redis stores each in 8 bytes if a set has at most 512
local HASH_DIGITS = -9 -- the last 9 decimal digits of a fingerprint choose its set

local seen_counts = {}

local function seen_of(segment)
  local seen = seen_counts[segment]
  if not seen then
    local found = call('HMGET', key.seen_counts, 'count|' .. segment, 'sets|' .. segment)
    seen = { count = tonumber(found[1] or 0), sets = tonumber(found[2] or 1) }
    seen_counts[segment] = seen
  end
  return seen
end

local function write_seen()
  for segment, seen in pairs(seen_counts) do
    if seen.changed then
      call('HSET', key.seen_counts, 'count|' .. segment, seen.count, 'sets|' .. segment, seen.sets)
    end
  end
end

local function seen_key(segment, number)
  return key.seen .. segment .. '|' .. number
end

local function hash_of(fingerprint)
  return tonumber(string.sub(fingerprint, HASH_DIGITS))
end

-- Linear hashing (Litwin 1980): sets are split one at a time, in order, as they fill.
local function set_of(hash, sets)
  local half = 1
  while half * 2 <= sets do half = half * 2 end
  local number = hash % (half * 2)
  return number < sets and number or hash % half
end

local function split_set(segment, seen)
  local half = 1
  while half * 2 <= seen.sets do half = half * 2 end
  local old, new = seen.sets - half, seen.sets
  local from, to = seen_key(segment, old), seen_key(segment, new)
  local moving = {}
  for _, fingerprint in ipairs(call('SMEMBERS', from)) do
    if hash_of(fingerprint) % (half * 2) == new then moving[#moving + 1] = fingerprint end
  end
  for first = 1, #moving, 1000 do
    local part = { unpack(moving, first, math.min(first + 999, #moving)) }
    call('SREM', from, unpack(part))
    call('SADD', to, unpack(part))
  end
  seen.sets = seen.sets + 1
end

-- Adds a fingerprint. Returns true if it is new.
local function add_fingerprint(segment, fingerprint)
  local seen = seen_of(segment)
  local number = set_of(hash_of(fingerprint), seen.sets)
  if call('SADD', seen_key(segment, number), fingerprint) == 0 then return false end
  seen.count, seen.changed = seen.count + 1, true
  if seen.count > seen.sets * SEEN_SET_MEAN then split_set(segment, seen) end
  return true
end

-- Lanes are named RANK|PRIORITY|SEGMENT, so that they sort in the order in which they are served (see lanes.py).

local function rank_of(lane)
  return tonumber(string.sub(lane, 1, RANK_CHARS))
end

local function segment_of(lane)
  return string.sub(lane, SEGMENT_START)
end

local segment_states = {}

local function state_of(segment)
  local state = segment_states[segment]
  if not state then
    state = call('HGET', key.segments, segment) or 'new'
    segment_states[segment] = state
  end
  return state
end

-- Whether the records of a segment are leased, retried and put back. A segment that is being archived accepts links
-- from its own pages, but no records from outside: see archiving.py.
local function is_served(segment)
  local state = state_of(segment)
  return state == OPEN or state == CLOSING
end

-- Adds `by` to the count of records of a segment in a state. A dropped segment is not counted, even if parts of it are
-- still stored.
local function tally(state, segment, by)
  if state_of(segment) ~= DROPPED then count(state .. '|' .. segment, by) end
end

-- Queues. In the list of a queue, each record is prefixed with a 6-byte stamp. Stamps rise from the head of a list to
-- its tail. So a listing can resume even if records were taken or put back in the meantime.

local QUEUE_STAMP_BYTES = 6
local FIRST_QUEUE_STAMP = 2 ^ 40 -- leaves room for records that are put back at the head

local function queue_key(name, lane)
  return key.queue .. name .. '|' .. lane
end

local function stamped(stamp, record)
  return struct.pack('>I6', stamp) .. record
end

local function stamp_of(entry)
  return (struct.unpack('>I6', entry))
end

local function record_of(entry)
  return string.sub(entry, QUEUE_STAMP_BYTES + 1)
end

local function enqueue(name, lane, record, at_front)
  local host, list = entity(name), queue_key(name, lane)
  local head = at_front and call('LINDEX', list, 0)
  if head then
    call('LPUSH', list, stamped(stamp_of(head) - 1, record))
  elseif call('RPUSH', list, stamped(FIRST_QUEUE_STAMP + next_number('turn'), record)) == 1 then
    call('ZADD', key.lanes .. name, 0, lane)
  end
  host.queued = host.queued + 1
  host.first_rank = math.min(host.first_rank, rank_of(lane))
  tally('queued', segment_of(lane), 1)
  schedule(host)
end

local function lane_emptied(host, lane)
  call('ZREM', key.lanes .. host.name, lane)
  local next_lane = call('ZRANGE', key.lanes .. host.name, 0, 0)[1]
  host.first_rank = next_lane and rank_of(next_lane) or NO_WORK
end

-- Deletes the records of a lane whose segment was dropped.
local function discard_lane(host, lane)
  local list = queue_key(host.name, lane)
  host.queued = math.max(0, host.queued - call('LLEN', list))
  call('UNLINK', list)
  lane_emptied(host, lane)
end

-- Removes and returns the first record of a host: its lane and the record, or nil if there is none.
local function take(host)
  while true do
    local lane = call('ZRANGE', key.lanes .. host.name, 0, 0)[1]
    if not lane then
      host.queued, host.first_rank = 0, NO_WORK
      return nil
    end
    if state_of(segment_of(lane)) == DROPPED then
      discard_lane(host, lane)
    else
      local list = queue_key(host.name, lane)
      local entry = call('LPOP', list)
      if call('EXISTS', list) == 0 then lane_emptied(host, lane) end
      if entry then
        host.queued = math.max(0, host.queued - 1)
        return lane, record_of(entry)
      end
    end
  end
end

-- Delayed records.

local function delay(name, lane, record, due)
  call('ZADD', key.delayed, text(due), next_stamp() .. '|' .. name .. '\n' .. lane .. '\n' .. record)
  tally('delayed', segment_of(lane), 1)
end

-- Returns host, lane and record of a delayed record.
local function parse_delayed(member)
  local first = string.find(member, '|', 1, true)
  local second = string.find(member, '\n', first, true)
  local third = string.find(member, '\n', second + 1, true)
  return string.sub(member, first + 1, second - 1), string.sub(member, second + 1, third - 1),
    string.sub(member, third + 1)
end

local DUE_BATCH_MAX = 1000

local function promote_due()
  local due = call('ZRANGEBYSCORE', key.delayed, '-inf', text(now), 'LIMIT', 0, DUE_BATCH_MAX)
  for _, member in ipairs(due) do
    call('ZREM', key.delayed, member)
    local name, lane, record = parse_delayed(member)
    if state_of(segment_of(lane)) ~= DROPPED then
      tally('delayed', segment_of(lane), -1)
      enqueue(name, lane, record)
    end
  end
end

-- New records. The arguments of a pushed record: its fingerprint ("" if it is never a duplicate), host, lane, when it
-- is due (0: now), and its bytes.

-- Opens a segment if it is new. Returns whether it accepts a record that comes from outside (`from_outside`) or from
-- one of its pages.
local function ensure_open(segment, from_outside)
  if state_of(segment) == 'new' then
    call('HSET', key.segments, segment, OPEN)
    segment_states[segment] = OPEN
  end
  return is_served(segment) and not (from_outside and segment_states[segment] == CLOSING)
end

-- Adds a record. Returns 1 if it is new and its segment accepts it, else 0.
local function add(fingerprint, name, lane, due, record, from_outside)
  local segment = segment_of(lane)
  if not ensure_open(segment, from_outside) or (fingerprint ~= '' and not add_fingerprint(segment, fingerprint)) then return 0 end
  if due > 0 then
    delay(name, lane, record, due)
  else
    enqueue(name, lane, record)
  end
  return 1
end

local function push_argument(from_outside)
  return add(argument(), argument(), argument(), number(), argument(), from_outside)
end

local function packed_push_argument()
  return cmsgpack.pack({ argument(), argument(), argument(), number(), argument() })
end

local function push_packed(entry)
  return add(unpack(cmsgpack.unpack(entry)))
end

-- Puts a record for another partition into the outbox. Workers deliver an outbox in the order of its record numbers.
local function send(partition, entry)
  call('RPUSH', key.outbox .. partition, entry)
  call('HINCRBY', key.outbox_last, partition, 1)
  count('outgoing|', 1)
end

-- Holds a link without a fingerprint until its page is committed. If the page is fetched again before that, the link is
-- found again, and must not be queued twice. The link is stored with its partition ("" for this one).
local function hold_link(worker, partition)
  call('RPUSH', key.acked_links .. worker, partition .. '|' .. packed_push_argument())
end

-- Queues the held links. Returns how many are new in this partition.
local function release_links(links_key)
  local added = 0
  for _, link in ipairs(call('LRANGE', links_key, 0, -1)) do
    local bar = string.find(link, '|', 1, true)
    local partition, entry = string.sub(link, 1, bar - 1), string.sub(link, bar + 1)
    if partition == '' then added = added + push_packed(entry) else send(partition, entry) end
  end
  return added
end
