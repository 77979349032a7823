import type { EngineCopies } from '../engine.ts'

// All databases of the engine and its roles, as SQL: the tenant's user may create both. psql reads it, also that of a newer
// major version.

/** How scripts ask the engine: as the tenant's user, who may do all. */
export const client = `set -eu
export PGHOST=127.0.0.1 PGUSER="$POSTGRES_USER" PGPASSWORD="$POSTGRES_PASSWORD" PGAPPNAME=keelson
# The tenant's own limits are not for this.
export PGOPTIONS='-c statement_timeout=0 -c idle_in_transaction_session_timeout=0 -c lock_timeout=0'
query() { psql -XqAt -v ON_ERROR_STOP=1 "$@"; }
databases() {
  query -d template1 -c 'SELECT datname FROM pg_database WHERE datallowconn AND NOT datistemplate ORDER BY datname'
}
`

/** A name as one line. */
const line = (name: string): string => `replace(replace(${name}, E'\\\\', E'\\\\\\\\'), E'\\n', '\\n')`

/**
 * One query for each table whose rows are in a copy, which psql runs by \\gexec. Extensions make their own tables. `n`: the
 * numbers that are written. `older`: those rows that were there before the transaction `keelson.since`; then unlogged tables
 * have none, since their rows are not in the engine's log.
 */
export const counts = (n: 'n' | 'n, n' | 'older, n'): string => {
  const older = (quote: string): string =>
    n === 'older, n'
      ? `, count(*) FILTER (WHERE age(xmin) > age(current_setting(${quote}keelson.since${quote})::xid)) AS older`
      : ''
  return `
SELECT format('SELECT concat_ws('' '', ''count'', ${n}, %L) FROM (SELECT count(*) AS n${older("''")} FROM ONLY %I.%I %s) AS counted',
    ${line(`concat_ws('.', quote_ident(current_database()), quote_ident(nspname), quote_ident(relname))`)},
    nspname, relname, ${n === 'older, n' ? "CASE WHEN relpersistence = 'u' THEN 'WHERE false' END" : "''"})
  FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace
  WHERE relkind = 'r' AND relpersistence <> 't' AND nspname <> 'information_schema' AND nspname !~ '^pg_'
    AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend
      WHERE classid = 'pg_catalog.pg_class'::regclass AND objid = pg_class.oid AND deptype = 'e')
  ORDER BY nspname, relname \\gexec
SELECT concat_ws(' ', 'count', ${n}, 'large objects of', ${line('quote_ident(current_database())')})
  FROM (SELECT count(*) AS n${older("'")} FROM pg_catalog.pg_largeobject_metadata) AS counted WHERE n > 0;
`
}

export const postgresqlCopies: EngineCopies = {
  // Rows are counted in the snapshot that pg_dump reads, and before it: the locks of the count keep out what snapshots do
  // not cover, such as TRUNCATE. Standard output is pg_dump's alone; psql's is turned to standard error.
  dump: `${client}
pg_dumpall --roles-only --quote-all-identifiers |
  sed "/^CREATE ROLE \\"$POSTGRES_USER\\";\\$/d; /^ALTER ROLE \\"$POSTGRES_USER\\" WITH .*;\\$/d"
names=$(databases)
while IFS= read -r name; do
  PGDATABASE=$name query -f - <<'END' 3>&1 >&2
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SELECT set_config('transaction_timeout', '0', false) FROM pg_settings WHERE name = 'transaction_timeout' \\g /dev/null
SELECT pg_export_snapshot() AS snapshot \\gset
${counts('n, n')}
\\setenv SNAPSHOT :snapshot
\\set is_whole \`pg_dump --snapshot="$SNAPSHOT" --create --quote-all-identifiers --no-tablespaces --lock-wait-timeout=60s >&3 && echo true || echo false\`
\\if :is_whole
\\else
DO $$ BEGIN RAISE EXCEPTION 'pg_dump failed'; END $$;
\\endif
END
done <<END
$names
END
echo '\\echo the copy is whole'`,

  // The copy makes all databases, also those that a new engine has.
  restore: `${client}
query -d template1 -v name="$POSTGRES_DB" -f - <<'END' >/dev/null
SET client_min_messages = warning;
DROP DATABASE IF EXISTS :"name" WITH (FORCE);
DROP DATABASE IF EXISTS postgres WITH (FORCE);
END
end=$(query -d template1 -o /dev/null -f -)
[ "$end" = 'the copy is whole' ] || { echo 'the copy is cut off' >&2; exit 1; }`,

  count: `${client}
names=$(databases)
while IFS= read -r name; do
  PGDATABASE=$name query -f - <<'END'
${counts('n')}
END
done <<END
$names
END`,
}
