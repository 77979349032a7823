import type { EngineCopies } from '../engine.ts'

// All keys of all its databases, with their expiry, and functions, as RDB: what a replica gets first. The client finds its
// password in REDISCLI_AUTH.

/** For Redis and for KeyDB, whose tools have other names. */
export const copiesLikeRedis = (program: 'redis' | 'keydb'): EngineCopies => {
  // The check reads a copy as it passes, to its checksum at the end, and counts its keys. Behind that is a mark of the protocol.
  const begin = `set -eu
work=/tmp/keelson-copy
rm -rf $work
mkdir -m 700 $work
mkfifo $work/pipe
trap 'exit 143' HUP INT TERM
trap 'rm -rf $work' EXIT
check() { ${program}-check-rdb /dev/stdin >$work/report 2>&1 || echo check >>$work/failed; cat >/dev/null; }
# The check opens its input anew, which would wait for a writer if that were the named pipe.
cat <$work/pipe | check &
checked() {
  wait
  [ ! -e $work/failed ] || { sed -n '/ERROR/,/While doing/p' $work/report >&2; exit 1; } # not the key
}
`
  return {
    // Keys that expire, also those of which only fields do, may be gone when the copy is read.
    dump: `${begin}
{ ${program}-cli --rdb - || echo dump >>$work/failed; } | { tee $work/pipe || echo tee >>$work/failed; } &
checked
awk '/ keys read$/ { keys = $2 } / (sub)?expires$/ { expiring += $2 }
  END { print "count", (keys > expiring ? keys - expiring : 0), keys, "keys" }' $work/report >&2`,

    // The engine loads the copy as its own file, which needs the memory for one set of data: a replica's source would need
    // it again. Then all of it goes to the append-only file, from which the engine starts.
    restore: `${begin}
trap 'rm -rf $work /data/dump.rdb' EXIT
call() { answer=$(${program}-cli "$@") && [ "$answer" = OK ] || { printf '%s\\n' "$answer" >&2; exit 1; }; }
is() { ${program}-cli info persistence | tr -d '\\r' | grep -qx "$1"; }
tee $work/pipe >/data/dump.rdb
checked
save=$(${program}-cli config get save | sed -n 2p)
call config set save '' # else it may write its file itself
call debug reload nosave
call config set save "$save"
${program}-cli bgrewriteaof >/dev/null
until is aof_rewrite_in_progress:0 && is aof_rewrite_scheduled:0; do sleep 0.2; done
is aof_last_bgrewrite_status:ok || { echo 'the append-only file could not be written' >&2; exit 1; }`,

    count: `set -eu
${program}-cli info keyspace | awk -F '[=,]' '/^db/ { keys += $2 } END { print "count", keys + 0, "keys" }'`,
  }
}

export const redisCopies = copiesLikeRedis('redis')
export const keydbCopies = copiesLikeRedis('keydb')
