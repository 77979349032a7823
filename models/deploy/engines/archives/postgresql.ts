import { client, counts } from '../copies/postgresql.ts'
import type { EngineArchive } from '../engine.ts'

// The write-ahead log of PostgreSQL, and copies of its files. An engine puts each finished segment into a folder of its
// volume, the spool, if there is one: so an archive begins and ends without a restart. Copies of the files leave the folder
// out because of its name.

const spool = 'pgsql_tmp_keelson'
/** So many segments of 16 MiB wait in the spool. */
const spooledAtMost = 32
/** Beyond these the engine keeps as many in its log, and then lets the archive go: its volume must not fill up. */
const keptAtMost = 128

// It has no single quotes, because images pass it through a shell. What is no whole segment is not archived.
const archiveCommand = [
  `cd ${spool} 2>/dev/null && [ -e archive ] && [ ! -e gap ] || exit 0`,
  'case %f in *[!0-9A-F]*) exit 0;; esac',
  `if [ $(ls segments | grep -c "^[0-9A-F]*$") -ge ${spooledAtMost} ]; then ` +
    `[ $(ls ../pg_wal/archive_status | grep -c "[.]ready$") -gt ${keptAtMost} ] || exit 1; echo %f >gap; exit 0; fi`,
  'dd if=../%p of=segments/.%f bs=1M conv=fsync 2>/dev/null && mv segments/.%f segments/%f',
].join('; ')

/** In the container of an engine that waits for its files. Its segments go with the container. */
const filled = '/tmp/keelson-filled'
const segments = '/tmp/keelson-segments'

const isoNow = `to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`

export const postgresqlArchive: EngineArchive = {
  options: ['-c', 'archive_mode=on', '-c', `archive_command=${archiveCommand}`],

  // A slot keeps the log that the copy needs. The rows are counted after it. If nothing was written since before it, they are
  // those of the copy; else those that are older than the copy are the least that it has.
  dump: `${client}
export LC_ALL=C
work=/tmp/keelson-base
rm -rf $work
mkdir -m 700 $work
trap 'exit 143' HUP INT TERM
trap 'rm -rf $work' EXIT
names=$(databases)
PGDATABASE=$(printf '%s\\n' "$names" | sed 1q)
export PGDATABASE
before=$(query -c 'SELECT pg_current_snapshot()')
query -f - <<'END' 3>&1 >&2
SELECT pg_create_physical_replication_slot('keelson_base_' || pg_backend_pid(), true, true) \\g /dev/null
\\set is_whole \`pg_basebackup --pgdata=- --format=tar --wal-method=fetch --checkpoint=fast --no-manifest --no-password --verbose >&3 2>/tmp/keelson-base/said && echo true || echo false\`
\\if :is_whole
\\else
\\! grep -v 'write-ahead log' /tmp/keelson-base/said
DO $$ BEGIN RAISE EXCEPTION 'pg_basebackup failed'; END $$;
\\endif
END
start=$(sed -n 's/.*write-ahead log start point: \\([0-9A-F/]*\\) on timeline.*/\\1/p' $work/said)
archive=$(cat "$PGDATA/${spool}/archive" 2>/dev/null || true)
query -c "SELECT concat_ws(' ', 'base', pg_walfile_name('$start'), ${isoNow.replaceAll('"', '\\"')}, '$archive')" >&2
since=$((\${before%%:*} % 4294967296))
while IFS= read -r name; do
  PGDATABASE=$name query -v since=$since -f - >>$work/counts <<'END'
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SELECT set_config('keelson.since', :'since', false) \\g /dev/null
SELECT set_config('transaction_timeout', '0', false) FROM pg_settings WHERE name = 'transaction_timeout' \\g /dev/null
${counts('older, n')}
END
done <<END
$names
END
after=$(query -c 'SELECT pg_current_snapshot()')
if [ "$after" = "$before" ] && [ -z "\${before##*:}" ]
then sed 's/^count [0-9]* \\([0-9]*\\) /count \\1 \\1 /' $work/counts >&2
else sed 's/^count \\([0-9]*\\) [0-9]* /count \\1 - /' $work/counts >&2
fi`,

  command: (command, target) => {
    const wait = `until [ -e ${filled} ]; do sleep 0.2; done; exec docker-entrypoint.sh "$@"`
    const recovery =
      target === null
        ? []
        : [
            `restore_command=cp "${segments}/%f" "%p"`,
            // Names of time zones are not known yet when it is read.
            `recovery_target_time=${target.replace('Z', '+00')}`,
            'recovery_target_timeline=current',
            'recovery_target_action=promote',
            'hot_standby=off', // it answers when it has come to the moment
          ].flatMap((setting) => ['-c', setting])
    return ['/bin/sh', '-c', wait, 'sh', ...command, ...recovery]
  },

  fill: `set -eu
tar -xf - -C "$PGDATA"
[ -e "$PGDATA/backup_label" ] || { echo 'the copy is cut off' >&2; exit 1; }`,

  fillSegments: `set -eu
mkdir -p ${segments}
chmod 755 ${segments}
tar -xf - -C ${segments}
: >"$PGDATA/recovery.signal"`,

  begin: `: >${filled}`,

  // By the socket, where no password is asked for. The log gets none.
  adopt: String.raw`set -eu
PGHOST=$(sed -n 5p "$PGDATA/postmaster.pid")
export PGHOST PGOPTIONS='-c default_transaction_read_only=off -c log_statement=none -c log_min_duration_statement=-1 -c log_min_error_statement=panic'
psql -qX -v ON_ERROR_STOP=1 -U "$POSTGRES_USER" -d template1 <<'END'
\getenv user POSTGRES_USER
\getenv password POSTGRES_PASSWORD
ALTER ROLE :"user" LOGIN PASSWORD :'password';
END`,

  open: `set -eu
cd "$PGDATA"
rm -rf ${spool}
mkdir -p ${spool}/segments
printf %s "$KEELSON_ARCHIVE" >${spool}/new
[ "$(id -u)" != 0 ] || chown -R "$(stat -c %u:%g .)" ${spool}
mv ${spool}/new ${spool}/archive`,

  // The end of a segment is the commit of a transaction, so a recovery to any moment before it knows where to stop. Nothing
  // is written while nobody else writes: then the transactions that have ended, and those that run, are the same as after it.
  look: `${client}
cd "$PGDATA/${spool}" 2>/dev/null && [ "$(cat archive 2>/dev/null)" = "$KEELSON_ARCHIVE" ] || { echo lost; exit 0; }
[ ! -e gap ] || { echo "gap $(cat gap)"; exit 0; }
for tick in $(ls segments | sed -n 's/[.]tick$//p'); do
  # Another look, whose host was killed, has come between.
  [ -e "segments/$tick" ] || [ -e "../pg_wal/archive_status/$tick.ready" ] || rm -f "segments/$tick.tick" known
done
known=$(cat known 2>/dev/null || true)
said=$(query -d template1 -v known="$known" -f - <<'END'
SELECT ${isoNow} AS now \\gset
SELECT pg_current_snapshot() AS before \\gset
SELECT :'before' = :'known' AS idle \\gset
\\if :idle
\\echo idle :now
\\else
SELECT pg_current_xact_id() AS xid \\gset
SELECT pg_walfile_name(pg_switch_wal()) AS segment \\gset
SELECT pg_current_snapshot() AS after \\gset
SELECT CASE WHEN split_part(:'before', ':', 2) = :'xid' AND split_part(:'after', ':', 2)::bigint = :'xid'::bigint + 1
  AND split_part(:'before', ':', 3) = split_part(:'after', ':', 3) THEN :'after' ELSE '-' END AS known \\gset
\\echo tick :now :segment :known
\\endif
END
)
set -- $said
if [ "$1" = tick ]; then
  printf %s "$2" >"segments/$3.tick"
  printf %s "$4" >known
  for attempt in 1 2 3 4 5 6 7 8 9 10; do [ ! -e "segments/$3" ] || break; sleep 0.5; done
fi
all=$(ls segments)
if [ "$1" = idle ] && [ -z "$all" ] && ! ls ../pg_wal/archive_status | grep -q '[.]ready$'; then echo "idle $2"; fi
for name in $all; do
  case $name in *[!0-9A-F]*) continue;; esac
  echo "segment $name $(cat "segments/$name.tick" 2>/dev/null || echo -)"
done`,

  read: `cat "$PGDATA/${spool}/segments/$KEELSON_SEGMENT"`,

  forget: `cd "$PGDATA/${spool}/segments"
for name in $KEELSON_SEGMENTS; do rm -f "$name" "$name.tick"; done`,

  close: `rm -rf "$PGDATA/${spool}"`,
}
