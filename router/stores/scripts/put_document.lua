-- Writes a document if it still has the version that its writer had read, and adds to its log.
--
-- KEYS[1]    the document: a hash of `version` and `data`
-- KEYS[2]    its log, which only grows
-- ARGV[1]    version that is replaced; 0 where there must be none
-- ARGV[2]    the new content
-- ARGV[3..]  entries of the log
--
-- Returns 1 if it was written, 0 if somebody else had written before.
local version = tonumber(redis.call('HGET', KEYS[1], 'version') or '0')
if version ~= tonumber(ARGV[1]) then
  return 0
end
redis.call('HSET', KEYS[1], 'version', string.format('%.0f', version + 1), 'data', ARGV[2])
for at = 3, #ARGV do
  redis.call('RPUSH', KEYS[2], ARGV[at])
end
return 1
