#!lua flags=allow-oom
-- A heartbeat, and a check of the other members. A member that has been silent for silent_ms is dead: its leased items
-- are returned. `seen` is the time of the last heartbeat of any member. If it is more than gap_ms ago, the server was
-- down or suspended, or its clock was changed. Then no member is declared dead for silent_ms (from `since` on), so that
-- every member can send a heartbeat.
-- The replies to a dead member are dropped kept_ms after it was declared dead.
-- ARGV 5..: silent_ms, gap_ms, kept_ms. With some heartbeats the member also sends a list of its leases: the number
-- of its call slots, for each the number of its last call when the list was made, and the tokens of the leases.
local refused = refusal()
if refused then return refused end
local silent, gap, kept, now = ARGV[5], ARGV[6], ARGV[7], now_ms()
local seen = state('seen')
if now - seen > tonumber(gap) or now < seen then
  call('HSET', STATE, 'since', now)
  for _, member in ipairs(call('ZRANGEBYSCORE', MEMBERS, '(' .. now, '+inf')) do call('ZADD', MEMBERS, now, member) end
end
call('HSET', STATE, 'seen', now)
call('ZADD', MEMBERS, now, me)
if now - state('since') >= tonumber(silent) then
  for _, member in ipairs(call('ZRANGEBYSCORE', MEMBERS, '-inf', now - silent)) do
    leave(member)
    call('ZADD', LEFT, now, member)
  end
end
for _, member in ipairs(call('ZRANGEBYSCORE', LEFT, '-inf', now - kept)) do
  drop_replies(member)
  call('ZREM', LEFT, member)
end
-- In a crash the server may have lost an ack: the lease exists again, but no member holds it.
if ARGV[8] then
  local held = {}
  for i = 9 + ARGV[8], #ARGV do held[ARGV[i]] = true end
  for _, lease in ipairs(leases_of(me)) do
    local token, of, nth = string.match(lease, '^[^:]*:((%d+)%.(%d+)):')
    local counted = tonumber(of) < tonumber(ARGV[8]) and tonumber(ARGV[9 + of]) or 0
    if not held[token] and tonumber(nth) <= counted then
      call('ZREM', LEASED, lease)
      give_back(place_of(lease), true)
    end
  end
end
-- A woken member may have died before it took an item: then this heartbeat wakes the next member.
wake_for_items()
wake_for_room()
if state('unfinished') == 0 then wake_for_end() end
return {'ok'}
