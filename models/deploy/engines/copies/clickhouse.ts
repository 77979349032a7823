import type { EngineCopies } from '../engine.ts'

// All databases but the engine's own: the definitions, and the rows of each table in the engine's native format. Without a
// file in the volume, which its own BACKUP needs, as large as the data.

const begin = `set -eu
work=/tmp/keelson-copy
rm -rf $work
mkdir -m 700 $work
trap 'exit 143' HUP INT TERM
trap 'rm -rf $work' EXIT
cat >$work/client.xml <<END
<config><host>127.0.0.1</host><user>$CLICKHOUSE_USER</user><password>$CLICKHOUSE_PASSWORD</password></config>
END
client() { clickhouse-client --config-file=$work/client.xml "$@"; }
tab=$(printf '\\t')
`

const own = `('system', 'INFORMATION_SCHEMA', 'information_schema', '_temporary_and_external_tables')`
const quoted = (name: string): string =>
  `concat('\\\`', replaceAll(replaceAll(replaceAll(replaceAll(${name}, '\\\\\\\\', '\\\\\\\\\\\\\\\\'), '\\\`', '\\\\\\\\\\\`'), '\\\\n', '\\\\\\\\n'), '\\\\t', '\\\\\\\\t'), '\\\`')`

/**
 * Lines of: 1 for a table with rows, 2 for another one, 3 for a view; whether its number of rows stays (merges and times of
 * expiry lessen it); whether it has rows; its name in SQL; the names of its columns to which rows are written.
 */
const tables = `tables() {
  client --query "SELECT kind, lasts, filled, concat(${quoted('database')}, '.', ${quoted('name')}), columns FROM (
    SELECT database, name, metadata_modification_time AS changed,
      multiIf(engine LIKE '%View', 3, match(engine, '(MergeTree|Log)$') OR engine IN ('Memory', 'Join', 'EmbeddedRocksDB'), 1, 2) AS kind,
      (match(engine, 'Log$') OR engine IN ('MergeTree', 'Memory')) AND NOT match(create_table_query, ' TTL ') AS lasts,
      kind = 1 OR engine = 'MaterializedView' AND NOT match(create_table_query, '^[^(]* TO ') AS filled
    FROM system.tables WHERE database NOT IN ${own} AND name NOT LIKE '.inner%'
  ) AS tables ANY INNER JOIN (
    SELECT database, table AS name, arrayStringConcat(groupArray(column), ', ') AS columns
    FROM (SELECT database, table, ${quoted('name')} AS column FROM system.columns WHERE default_kind NOT IN ('MATERIALIZED', 'ALIAS', 'EPHEMERAL'))
    GROUP BY database, table
  ) AS columns USING (database, name) ORDER BY kind, changed, database, name FORMAT TabSeparatedRaw" </dev/null
}
`

export const clickhouseCopies: EngineCopies = {
  // A query reads one moment of its table, and the log of queries has how many rows it gave. What follows a heading goes in
  // pieces, each behind its length, because neither SQL nor rows say where they end.
  dump: `${begin}${tables}
run=keelson-$(cat /proc/sys/kernel/random/uuid)
pieces() {
  while :; do
    dd bs=1M count=8 iflag=fullblock of=$work/piece 2>/dev/null
    size=$(wc -c <$work/piece)
    echo $((size))
    [ "$size" -gt 0 ] || break
    cat $work/piece
  done
  [ ! -e $work/failed ] || exit 1
}
show() { echo sql; { client --query "SHOW CREATE $1 FORMAT TabSeparatedRaw" </dev/null || echo 1 >$work/failed; } | sed '1s/^CREATE DATABASE /&IF NOT EXISTS /' | pieces; }
client --query "SELECT ${quoted('name')} FROM system.databases WHERE name NOT IN ${own} FORMAT TabSeparatedRaw" </dev/null >$work/databases
while IFS= read -r name; do show "DATABASE $name"; done <$work/databases
tables >$work/tables
while IFS=$tab read -r kind lasts filled name columns; do
  show "TABLE $name"
  [ "$filled" = 1 ] || continue
  echo "rows $name ($columns)"
  query=$run-$((\${number:=0} + 1)) number=$((number + 1))
  { client --query_id=$query --log_queries=1 --query "SELECT $columns FROM $name FORMAT Native" </dev/null || echo 1 >$work/failed; } | pieces
  printf '%s\\t%s\\t%s\\n' $query $lasts "$name" >>$work/counted
done <$work/tables
[ ! -e $work/counted ] || {
  client --query 'SYSTEM FLUSH LOGS' </dev/null
  client --query "SELECT query_id, result_rows FROM system.query_log WHERE query_id LIKE '$run-%' AND toInt8(type) = 2 AND event_date >= today() - 30 FORMAT TabSeparated" </dev/null >$work/rows
  awk -F '\\t' 'FILENAME ~ /rows$/ { rows[$1] = $2; next }
    !($1 in rows) { print "the number of rows is not known of " $3; exit 1 }
    { print "count", ($2 ? rows[$1] : 0), rows[$1], $3 }' $work/rows $work/counted >&2
}
echo end`,

  restore: `${begin}
pieces() {
  while [ "$size" -gt 0 ]; do
    dd bs="$size" count=1 iflag=fullblock 2>/dev/null
    IFS= read -r size || exit 1
  done
}
# Unlimited, if the version has the limit.
limits=$(client --query "SELECT concat('--', name, '=0') FROM system.settings WHERE name = 'max_partitions_per_insert_block'" </dev/null)
while IFS= read -r heading && [ "$heading" != end ]; do
  IFS= read -r size
  # Rows of an empty table are no rows.
  case $heading in
  sql) pieces >$work/sql; client <$work/sql >/dev/null ;;
  'rows '*) [ "$size" = 0 ] || { pieces | client $limits --query "INSERT INTO \${heading#rows } FORMAT Native"; } ;;
  *) break ;;
  esac
done
[ "$heading" = end ] || { echo 'the copy is cut off' >&2; exit 1; }`,

  count: `${begin}${tables}
tables >$work/tables
while IFS=$tab read -r kind lasts filled name columns; do
  [ "$filled" = 1 ] || continue
  rows=$(client --query "SELECT count() FROM $name" </dev/null)
  printf 'count %s %s\\n' "$rows" "$name"
done <$work/tables`,
}
