-- Adds integers to hash fields, once per batch however often it is sent.
--
-- KEYS[1]      holds the number of the sender's last batch
-- KEYS[2..]    hashes to add to
-- ARGV[1]      seconds for which all keys are kept
-- ARGV[2]      number of this batch
-- ARGV[3..]    for each hash: a JSON object of increments by field, as decimal strings, since a Lua
--              number does not hold every integer
--
-- Returns the number of increments that were refused because of what the hash held, or -1 if this
-- batch, or a later one of the sender, had been added before.
local last = redis.pcall('GET', KEYS[1])
if type(last) == 'string' and (tonumber(last) or 0) >= tonumber(ARGV[2]) then
  return -1
end
redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[1])
local refused = 0
for k = 2, #KEYS do
  local key = KEYS[k]
  local kind = redis.call('TYPE', key)['ok']
  if kind ~= 'hash' and kind ~= 'none' then
    redis.call('DEL', key)
  end
  for field, increment in pairs(cjson.decode(ARGV[k + 1])) do
    local reply = redis.pcall('HINCRBY', key, field, increment)
    if type(reply) == 'table' and reply['err'] then
      refused = refused + 1
    end
  end
  redis.call('EXPIRE', key, ARGV[1])
end
return refused
