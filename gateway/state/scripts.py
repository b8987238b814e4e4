"""What runs inside Redis, in Lua, so that each change is one indivisible act. Redis 6.2 and later.

All keys of one kind carry its hash tag, `{prefix:kind}`, and so lie in one slot of a cluster:

    {prefix:kind}:records         hash: `#` counts the changes, `=key` holds a record (see `stored.py`)
    {prefix:kind}:counters        sorted set: keys of counters, by the time of their last change (ms)
    {prefix:kind}:counters:key    hash: the counters of one key, by name
    {prefix:kind}:batch:origin    number of the last batch of counts that a gateway has delivered
    {prefix:leases}:instance      which run of which server has granted leases, and since when (ms)
    {prefix:leases}:key           who holds a lease

A record's time to live stands in it: readers pass over what has expired, `PRUNE` removes it, and the hash as a whole
expires with its last record, since a hash's fields have no expiry of their own before Redis 7.4. Nothing ever scans
the key space.
"""

from dataclasses import dataclass, field
from hashlib import sha1


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script; `sha` is the name by which Redis calls it."""

    source: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha", sha1(self.source.encode(), usedforsecurity=False).hexdigest())


_NOW = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
"""

_READ = (
    _NOW
    + """
-- The record of a key; nil where there is none or its time is over.
local function read(key)
  local packed = redis.call('HGET', KEYS[1], '=' .. key)
  if not packed then return nil end
  local _, head, version, fence, fence_token, token, expires =
    string.find(packed, '^(%d+) (%d+) (%S+) (%S+) (%d+)\\n')
  if not head then return nil end
  expires = tonumber(expires)
  if expires > 0 and expires <= now then return nil end
  return {version = tonumber(version), fence = tonumber(fence), fence_token = fence_token, token = token,
          expires = expires, packed = packed, value = string.sub(packed, head + 1)}
end
"""
)

CHANGE = Script(
    _READ
    + """
-- KEYS: records. ARGV: channel, kind, then for each change: operation, key, token, ground, version, ms to live
-- (0: for ever), value, fence, fence token. Answers for each change: 1 if it was clean (see ledger.py), the record.
local channel, kind = ARGV[1], ARGV[2]
local lives = redis.call('PTTL', KEYS[1])

local function write(key, record)
  local packed = string.format('%.0f %.0f %s %s %.0f\\n',
    record.version, record.fence, record.fence_token, record.token, record.expires) .. record.value
  local count = redis.call('HINCRBY', KEYS[1], '#', 1)
  redis.call('HSET', KEYS[1], '=' .. key, packed)
  if record.expires == 0 then
    if lives ~= -1 then redis.call('PERSIST', KEYS[1]) end
    lives = -1
  elseif lives ~= -1 and lives < record.expires - now then
    lives = record.expires - now
    redis.call('PEXPIRE', KEYS[1], lives)
  end
  redis.call('PUBLISH', channel, string.format('%d %d %.0f\\n', #kind, #key, count) .. kind .. key .. packed)
  record.packed = packed
  return record
end

local function expiry(ms)
  if ms == 0 then return 0 end
  return now + ms
end

local function force(change, current)
  if current and (current.token == change.token or current.fence_token == change.token) then
    return 0, current
  end
  local clean = (current and current.token or '-') == change.ground
  local version = math.max(current and current.version or 0, change.version - 1) + 1
  return clean and 1 or 0, write(change.key, {version = version, fence = version, fence_token = change.token,
    token = change.token, expires = expiry(change.ms), value = change.value})
end

local function advance(change, current)
  if current and current.token == change.token then return 1, current end
  if (current and current.token or '-') ~= change.ground then return 0, current end
  return 1, write(change.key, {version = (current and current.version or 0) + 1, fence = current and current.fence or 0,
    fence_token = current and current.fence_token or '-', token = change.token, expires = expiry(change.ms),
    value = change.value})
end

-- Whether what a gateway knows is to replace what stands here.
local function outweighs(change, current)
  if change.fence_token == current.fence_token then return change.version > current.version end
  if change.fence ~= current.fence then return change.fence > current.fence end
  return change.token == change.fence_token and current.token ~= current.fence_token
end

local function restore(change, current)
  local mine = {version = change.version, fence = change.fence, fence_token = change.fence_token,
    token = change.token, expires = expiry(change.ms), value = change.value}
  if not current then return 1, write(change.key, mine) end
  if current.token == change.token and current.version >= change.version then return 1, current end
  if outweighs(change, current) then
    mine.version = math.max(change.version, current.version + 1)
    if mine.token == mine.fence_token then mine.fence = mine.version end
    return 1, write(change.key, mine)
  end
  if current.version > change.version then return 0, current end
  -- The other gateway has shown another value under this version: what stays has to go above it.
  current.version = change.version + 1
  if current.token == current.fence_token then current.fence = current.version end
  return 0, write(change.key, current)
end

local operations = {force = force, advance = advance, restore = restore}
local answers = {}
for at = 3, #ARGV, 9 do
  local change = {key = ARGV[at + 1], token = ARGV[at + 2], ground = ARGV[at + 3], version = tonumber(ARGV[at + 4]),
    ms = tonumber(ARGV[at + 5]), value = ARGV[at + 6], fence = tonumber(ARGV[at + 7]), fence_token = ARGV[at + 8]}
  local clean, record = operations[ARGV[at]](change, read(change.key))
  answers[#answers + 1] = clean
  answers[#answers + 1] = record and record.packed or ''
end
return answers
"""
)

LOOK = Script(
    _NOW
    + """
-- KEYS: records. Answers Redis' clock in ms and the count of changes. Writes nothing.
return {string.format('%.0f', now), redis.call('HGET', KEYS[1], '#') or '0'}
"""
)

PRUNE = Script(
    _READ
    + """
-- KEYS: records. ARGV: keys whose records are removed if their time is over.
for _, key in ipairs(ARGV) do
  if not read(key) then redis.call('HDEL', KEYS[1], '=' .. key) end
end
return #ARGV
"""
)

COUNT = Script(
    _NOW
    + """
-- KEYS: counters, batch, then the counters of each key. ARGV: batch number, ms that counters live (0: for ever), ms
-- that the batch number lives, then for each key: key, how many names, and name and amount of each.
-- Answers the totals of each key as names and values. A batch that was delivered before is not added again.
local fresh = redis.call('GET', KEYS[2]) ~= ARGV[1]
local ms = tonumber(ARGV[2])
local answers, at = {}, 4
for number = 3, #KEYS do
  local key, names = ARGV[at], tonumber(ARGV[at + 1])
  at = at + 2
  if fresh then
    for name = at, at + 2 * names - 1, 2 do
      redis.call('HINCRBYFLOAT', KEYS[number], ARGV[name], ARGV[name + 1])
    end
    redis.call('ZADD', KEYS[1], now, key)
    if ms > 0 then redis.call('PEXPIRE', KEYS[number], ms) end
  end
  at = at + 2 * names
  answers[#answers + 1] = redis.call('HGETALL', KEYS[number])
end
if fresh then
  redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[3])
  if ms > 0 then
    redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ms)
    redis.call('PEXPIRE', KEYS[1], ms)
  end
end
return answers
"""
)

TOTALS = Script("""
-- KEYS: counters of some keys. Answers the totals of each as names and values. Writes nothing.
local answers = {}
for number = 1, #KEYS do answers[number] = redis.call('HGETALL', KEYS[number]) end
return answers
""")

LEASE = Script(
    _NOW
    + """
-- KEYS: instance, lease. ARGV: holder, ms. Answers 1 if the lease is the holder's from now on. With 0 ms it only has
-- the server known, so that its time of granting none begins.
-- A server that was started again, took over from another, or was emptied may have lost leases. It grants none until
-- those have run out, so that nobody gets one that somebody still holds.
local run = ''
local info = redis.pcall('INFO', 'server')
if type(info) == 'string' then run = string.match(info, 'run_id:(%x+)') or '' end
local known = redis.call('HMGET', KEYS[1], 'run', 'since', 'longest')
local ms = tonumber(ARGV[2])
if known[1] ~= run then
  redis.call('HSET', KEYS[1], 'run', run, 'since', string.format('%.0f', now), 'longest', known[3] or ARGV[2])
  return 0
end
local longest = math.max(tonumber(known[3]), ms)
if longest > tonumber(known[3]) then redis.call('HSET', KEYS[1], 'longest', ARGV[2]) end
if ms == 0 or now - tonumber(known[2]) < longest then return 0 end
if redis.call('SET', KEYS[2], ARGV[1], 'NX', 'PX', ms) then return 1 end
return 0
"""
)

RELEASE = Script("""
-- KEYS: lease. ARGV: holder. Removes the lease if it is the holder's.
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
""")
