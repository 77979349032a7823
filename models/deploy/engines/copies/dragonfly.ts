import type { EngineCopies } from '../engine.ts'

// All keys of all its databases, with their expiry, as RDB. The engine has no replicas but its own, so the copy passes through
// a file of its volume. The image has the client of Redis.

const begin = `set -eu
export REDISCLI_AUTH="$DFLY_requirepass"
file=/data/keelson-copy.rdb # its ending is the engine's
rm -f $file
trap 'exit 143' HUP INT TERM
trap 'rm -f $file' EXIT
info() { redis-cli info "$1" | tr -d '\\r'; }
# saves ARGUMENTS...: waits for a snapshot that the engine makes by itself.
saves() {
  for attempt in 1 2 3 4 5 6 7 8 9 10; do
    answer=$(redis-cli save "$@")
    [ "$answer" != OK ] || return 0
    sleep 3
  done
  printf '%s\\n' "$answer" >&2
  return 1
}
`

export const dragonflyCopies: EngineCopies = {
  // The engine tells how many keys of each type it saved. Keys that expire may be gone when the copy is read.
  dump: `${begin}
expiring() { info keyspace | sed -n 's/^db.*expires=\\([0-9]*\\).*/\\1/p' | awk '{ all += $1 } END { print all + 0 }'; }
before=$(expiring)
saves rdb keelson-copy
after=$(expiring)
info persistence | awk -F : -v before="$before" -v after="$after" '
  /^last_saved_file:.*keelson-copy/ { ours = 1 }
  /^rdb_/ && !/^rdb_(changes_since|bgsave|last_bgsave)/ { keys += $2 }
  END {
    if (!ours) { print "another snapshot came between"; exit 1 }
    expiring = before > after ? before : after
    print "count", (keys > expiring ? keys - expiring : 0), keys + 0, "keys"
  }' >&2
cat $file`,

  // Then all of it goes to a snapshot, from which the engine starts.
  restore: `${begin}
cat >$file
chmod 644 $file
answer=$(redis-cli dfly load $file)
[ "$answer" = OK ] || { printf '%s\\n' "$answer" >&2; exit 1; }
saves`,

  count: `set -eu
export REDISCLI_AUTH="$DFLY_requirepass"
redis-cli info keyspace | awk -F '[=,]' '/^db/ { keys += $2 } END { print "count", keys + 0, "keys" }'`,
}
