-- Adds integers to hash fields, once per batch however often it is sent.
--
-- KEYS[1]      marks the batch as done
-- KEYS[2..]    hashes to add to
-- ARGV[1]      seconds for which the hashes are kept
-- ARGV[2]      seconds for which the batch is remembered
-- ARGV[3..]    for each hash: how many fields, then field and increment in turn
--
-- Returns the number of increments that were refused because the stored value was no integer,
-- or -1 if the batch had been added before.
if not redis.call('SET', KEYS[1], '1', 'NX', 'EX', ARGV[2]) then
  return -1
end
local refused = 0
local at = 3
for k = 2, #KEYS do
  local key = KEYS[k]
  local kind = redis.call('TYPE', key)['ok']
  if kind ~= 'hash' and kind ~= 'none' then
    redis.call('DEL', key)
  end
  local fields = tonumber(ARGV[at])
  at = at + 1
  for _ = 1, fields do
    local reply = redis.pcall('HINCRBY', key, ARGV[at], ARGV[at + 1])
    if type(reply) == 'table' and reply['err'] then
      refused = refused + 1
    end
    at = at + 2
  end
  redis.call('EXPIRE', key, ARGV[1])
end
return refused
