-- Adds integers to hash fields, once per batch however often it is sent.
--
-- KEYS[1]      holds the number of the sender's last batch
-- KEYS[2..]    hashes to add to; one may come several times
-- ARGV[1]      seconds for which the number is kept
-- ARGV[2]      number of this batch
-- ARGV[3]      JSON: for each hash, the seconds for which it is kept and which of the following
--              arguments, counted from 1, is added to it
-- ARGV[4..]    JSON: increments by the first and the second part of a field's name; decimal strings
--              where a Lua number could not hold the integer
--
-- Returns the number of increments that were refused because of what the hash held, or -1 if this
-- batch, or a later one of the sender, had been added before.
local last = redis.pcall('GET', KEYS[1])
if type(last) == 'table' and last['err'] and not string.find(last['err'], 'WRONGTYPE') then
  return last
end
if type(last) == 'string' and (tonumber(last) or 0) >= tonumber(ARGV[2]) then
  return -1
end
-- What may not be done has to be known before the number is set: from then on nobody tries again.
if redis.acl_check_cmd then
  for k = 2, #KEYS do
    for command, arguments in pairs({TYPE = {}, DEL = {}, EXPIRE = {'1'}, HINCRBY = {'n', '1'}}) do
      if not redis.acl_check_cmd(command, KEYS[k], unpack(arguments)) then
        return redis.error_reply('NOPERM this user may not run ' .. command .. ' on ' .. KEYS[k])
      end
    end
  end
end
redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[1])
local refused = 0
local decoded = {}
for k, plan in ipairs(cjson.decode(ARGV[3])) do
  local key, seconds, which = KEYS[k + 1], plan[1], plan[2]
  local kind = redis.call('TYPE', key)['ok']
  if kind ~= 'hash' and kind ~= 'none' then
    redis.call('DEL', key)
  end
  decoded[which] = decoded[which] or cjson.decode(ARGV[3 + which])
  for stem, fields in pairs(decoded[which]) do
    for name, increment in pairs(fields) do
      if type(increment) == 'number' then
        increment = string.format('%.0f', increment)
      end
      local reply = redis.pcall('HINCRBY', key, stem .. name, increment)
      if type(reply) == 'table' and reply['err'] then
        refused = refused + 1
      end
    end
  end
  redis.call('EXPIRE', key, seconds)
end
return refused
