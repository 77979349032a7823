import type { EngineCopies } from '../engine.ts'

// All databases but the engine's own, and the users with their grants, as SQL. MySQL has the same tools under other names.

/**
 * Passes a dump on and counts its rows. MariaDB writes each row on a line of its own, MySQL all rows of a statement on one
 * line. Values have no line breaks; definitions may, and stand between two DELIMITER. \140 is a backtick, \047 an apostrophe.
 */
const counting = String.raw`
  function named() {
    match($0, /\140(\140\140|[^\140])*\140/)
    table = substr($0, RSTART + 1, RLENGTH - 2)
    gsub(/\140\140/, "\140", table)
    table = database "." table
    rest = substr($0, RSTART + RLENGTH)
  }
  $0 == "the dump is whole" { whole = 1; next }
  { print; whole = 0 }
  rows && /^\(/ { counted[table]++; if (/\);$/) rows = 0; next }
  /^DELIMITER ;;$/ { defines = 1 }
  /^DELIMITER ;$/ { defines = 0 }
  defines { next }
  /^USE \140/ { database = substr($0, 6, length($0) - 7); gsub(/\140\140/, "\140", database) }
  /^CREATE TABLE / { named(); counted[table] += 0 }
  /^INSERT INTO / {
    named()
    sub(/^ \((\140(\140\140|[^\140])*\140(, )?)+\)/, "", rest)
    if (rest ~ /^ VALUES *$/) { rows = 1; next }
    gsub(/\\./, "", rest)
    gsub(/\047[^\047]*\047/, "", rest)
    counted[table] += gsub(/\),\(/, "", rest) + 1
  }
  END {
    if (!whole) exit 1
    for (table in counted) print "count", counted[table], counted[table], table | "cat >&2"
  }
`

/** `of`: the beginning of the image's variables. */
export function copiesLikeMariaDb(of: 'MARIADB' | 'MYSQL', client: string, dump: string): EngineCopies {
  // As root, by the socket: the tenant's user may not read what others define.
  const begin = `set -eu
export LC_ALL=C MYSQL_PWD="$${of}_ROOT_PASSWORD"
client() { ${client} -u root --default-character-set=utf8mb4 --batch --skip-column-names --raw "$@"; }
own="('mysql', 'information_schema', 'performance_schema', 'sys')"`
  return {
    dump: `${begin}
query() { client --init-command="$1" -e "$2" </dev/null; }
nothing='DO 0'
[ "$(query "$nothing" "SELECT COUNT(*) FROM information_schema.tables WHERE CONCAT(table_schema, table_name) REGEXP '[[:cntrl:]]'")" = 0 ] ||
  { echo 'the name of a table has a line break' >&2; exit 1; }
names=$(query "$nothing" "SELECT schema_name FROM information_schema.schemata WHERE schema_name NOT IN $own ORDER BY 1")
users=$(query "$nothing" "SELECT CONCAT(QUOTE(user), '@', QUOTE(host)) FROM mysql.user
  WHERE host <> '' AND user NOT IN ('', 'root', 'healthcheck', 'mariadb.sys', 'mysql.sys', 'mysql.session', 'mysql.infoschema')")
printing='SET @@session.print_identified_with_as_hex = 1'
query "$printing" 'DO 0' 2>/dev/null || printing=$nothing # only MySQL has it
# show WHAT: of each user, as statements.
show() {
  [ -z "$users" ] || while IFS= read -r user; do query "$printing" "SHOW $1 $user" | sed 's/$/;/'; done <<END
$users
END
}
show 'CREATE USER' | sed 's/^CREATE USER /&IF NOT EXISTS /'
set --
while IFS= read -r name; do set -- "$@" "$name"; done <<END
$names
END
{
  ${dump} -u root --single-transaction --quick --routines --events --triggers --hex-blob --default-character-set=utf8mb4 \\
    --max-allowed-packet=1G --skip-dump-date --databases -- "$@" && echo 'the dump is whole'
} | awk '${counting}'
show 'GRANTS FOR'
echo "SELECT 'the copy is whole';"`,

    // The grants of MariaDB have the passwords of their users.
    restore: `${begin}
end=$(client --binary-mode --max-allowed-packet=1G --loose-skip-print-query-on-error | tail -n 1)
[ "$end" = 'the copy is whole' ] || { echo 'the copy is cut off, or was refused' >&2; exit 1; }
client <<END
ALTER USER '$${of}_USER'@'%' IDENTIFIED BY '$${of}_PASSWORD';
END`,

    count: `${begin}
client -e "SELECT CONCAT('SELECT CONCAT(''count '', COUNT(*), '' '', ', QUOTE(CONCAT(table_schema, '.', table_name)), ') FROM \\\`',
  REPLACE(table_schema, '\\\`', '\\\`\\\`'), '\\\`.\\\`', REPLACE(table_name, '\\\`', '\\\`\\\`'), '\\\`;') FROM information_schema.tables
  WHERE table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') AND table_schema NOT IN $own ORDER BY 1" </dev/null | client`,
  }
}

export const mariadbCopies = copiesLikeMariaDb('MARIADB', 'mariadb', 'mariadb-dump')
export const mysqlCopies = copiesLikeMariaDb('MYSQL', 'mysql', 'mysqldump --set-gtid-purged=OFF')
