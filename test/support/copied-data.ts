import { isLong } from './long.ts'

// What the tests of copies write to an engine: much, and what is easily lost. Each is a script for the engine's container.

interface CopiedData {
  write: string
  /** Goes on writing, until /tmp/stop is there. */
  keepWriting: string
  /** All of what \`write\` wrote, read by other ways than a copy is. */
  read: string
  /** What is in the copy under such a name, and how often at least. */
  contains: Record<string, number>
}

export const rows = isLong ? 100_000 : 10_000

const psql = `psql -XqAt -v ON_ERROR_STOP=1 -h 127.0.0.1 -U "$POSTGRES_USER"`
const postgresql: CopiedData = {
  write: `export PGPASSWORD="$POSTGRES_PASSWORD"
${psql} -d "$POSTGRES_DB" <<'END'
CREATE TABLE big AS SELECT g AS id, md5(g::text) AS h, random() AS r, NULL::text AS n FROM generate_series(1, ${rows}) AS g;
ALTER TABLE big ADD PRIMARY KEY (id);
CREATE INDEX ON big (h);
CREATE TABLE empty (id int);
CREATE SCHEMA "odd ""name'";
CREATE TABLE "odd ""name'"."two
lines \\ ""q" (a text, b bytea, c jsonb);
INSERT INTO "odd ""name'"."two
lines \\ ""q" VALUES (E'x\\\\.\\n\\\\.\\ny', '\\x00ff5c2e0a', '{"a":"é"}'), (NULL, NULL, NULL), (E'\\restrict x', '', NULL);
CREATE TABLE parts (id int, v text) PARTITION BY RANGE (id);
CREATE TABLE part1 PARTITION OF parts FOR VALUES FROM (0) TO (100);
CREATE TABLE part2 PARTITION OF parts FOR VALUES FROM (100) TO (1000);
INSERT INTO parts SELECT g, 'v' || g FROM generate_series(0, 999) AS g;
CREATE TABLE parent (a int);
CREATE TABLE child (b int) INHERITS (parent);
INSERT INTO child VALUES (1, 2);
CREATE SEQUENCE numbers;
SELECT setval('numbers', 4711);
CREATE MATERIALIZED VIEW counted AS SELECT count(*) FROM big;
CREATE VIEW few AS SELECT id FROM big WHERE id < 10;
CREATE FUNCTION change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN new.v := new.v || '!'; RETURN new; END $$;
CREATE TRIGGER changed BEFORE INSERT ON part1 FOR EACH ROW EXECUTE FUNCTION change();
SELECT lo_from_bytea(0, decode(repeat('00ff', 5000), 'hex')) FROM generate_series(1, 3);
CREATE ROLE reader LOGIN PASSWORD 'pw';
GRANT SELECT ON big TO reader;
CREATE TABLE written (id int);
CREATE DATABASE "other d'b ""q";
ALTER DATABASE "other d'b ""q" SET search_path TO "a b", public;
\\connect "other d'b ""q"
CREATE TABLE further AS SELECT 1 AS a;
END`,
  keepWriting: `export PGPASSWORD="$POSTGRES_PASSWORD"
until [ -e /tmp/stop ]; do ${psql} -d "$POSTGRES_DB" -c 'INSERT INTO written SELECT generate_series(1, 100)'; done`,
  read: `export PGPASSWORD="$POSTGRES_PASSWORD"
${psql} -d "$POSTGRES_DB" <<'END'
SELECT md5(string_agg(big::text, ',' ORDER BY id)) FROM big;
SELECT t FROM "odd ""name'"."two
lines \\ ""q" AS t ORDER BY 1;
SELECT md5(string_agg(parts::text, ',' ORDER BY id)) FROM parts;
INSERT INTO parts VALUES (7, 'new') RETURNING v;
DELETE FROM parts WHERE v = 'new!';
SELECT * FROM parent, empty, ONLY parent AS p;
SELECT * FROM parent;
SELECT last_value FROM numbers;
SELECT count FROM counted;
SELECT count(*) FROM few;
SELECT md5(string_agg(lo_get(oid), '')) FROM pg_largeobject_metadata;
SELECT has_table_privilege('reader', 'big', 'SELECT'), rolcanlogin FROM pg_roles WHERE rolname = 'reader';
SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1;
\\connect "other d'b ""q"
SHOW search_path;
SELECT * FROM further;
END`,
  contains: {
    'da1.public.big': rows,
    'da1.public.empty': 0,
    'da1.public.part2': 900,
    'da1.public.child': 1,
    'da1."odd ""name\'"."two\\nlines \\\\ ""q"': 3,
    '"other d\'b ""q".public.further': 1,
    'large objects of da1': 3,
  },
}

const mysql = `MYSQL_PWD="$MARIADB_ROOT_PASSWORD" mariadb -u root --default-character-set=utf8mb4 --batch -N`
const mariadb: CopiedData = {
  write: `${mysql} "$MARIADB_DATABASE" <<'END'
SET max_recursive_iterations = 1000000;
CREATE TABLE big (id int PRIMARY KEY, h char(32), r double, n int, KEY (h));
INSERT INTO big SELECT n, md5(n), rand(), NULL FROM (WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < ${rows}) SELECT n FROM s) AS s;
CREATE TABLE empty (id int);
CREATE TABLE \`odd \`\`t" 'x\` (\`a\`\`b\` text, b blob, g int GENERATED ALWAYS AS (7) VIRTUAL, j json, \`c VALUES (\` varchar(20)) CHARACTER SET utf8mb4;
INSERT INTO \`odd \`\`t" 'x\` (\`a\`\`b\`, b, j, \`c VALUES (\`) VALUES ('x\\n(1),(2);\\n\\\\', x'00ff27225c0a0d1a', '{"a":"é"}', 'é😀'), (NULL, NULL, NULL, NULL), ('a''b', '', NULL, '),(');
CREATE SEQUENCE numbers START 4711;
SELECT nextval(numbers);
CREATE VIEW few AS SELECT id FROM big WHERE id < 10;
CREATE TABLE written (id int);
DELIMITER ;;
CREATE TRIGGER changed BEFORE INSERT ON empty FOR EACH ROW BEGIN
SET new.id = new.id + 1;
END;;
CREATE PROCEDURE misleading() BEGIN
INSERT INTO \`empty\` VALUES
(1);
END;;
CREATE FUNCTION next(x int) RETURNS int DETERMINISTIC RETURN x + 1;;
DELIMITER ;
CREATE VIEW calls AS SELECT next(1) AS a;
CREATE EVENT daily ON SCHEDULE EVERY 1 DAY DO SELECT 1;
CREATE USER reader@'%' IDENTIFIED BY 'pw';
GRANT SELECT ON big TO reader@'%';
CREATE DEFINER = reader@'%' VIEW defined AS SELECT 1 AS a;
CREATE DATABASE \`other d\`\`b\`;
CREATE TABLE \`other d\`\`b\`.further (a int);
INSERT INTO \`other d\`\`b\`.further VALUES (1), (2);
END`,
  keepWriting: `until [ -e /tmp/stop ]; do ${mysql} "$MARIADB_DATABASE" -e 'INSERT INTO written VALUES (1), (2), (3)'; done`,
  read: `${mysql} "$MARIADB_DATABASE" <<'END'
CHECKSUM TABLE big, empty, \`odd \`\`t" 'x\`, \`other d\`\`b\`.further;
SELECT hex(\`a\`\`b\`), hex(b), g, j, hex(\`c VALUES (\`) FROM \`odd \`\`t" 'x\`;
SHOW CREATE TABLE big;
SELECT nextval(numbers) > 4711;
SELECT count(*) FROM few;
SELECT * FROM calls, defined;
SELECT trigger_name, action_statement FROM information_schema.triggers WHERE trigger_schema = 'da1';
SELECT routine_name, routine_definition, definer FROM information_schema.routines WHERE routine_schema = 'da1' ORDER BY 1;
SELECT event_name FROM information_schema.events;
SHOW GRANTS FOR reader@'%';
END`,
  contains: { 'da1.big': rows, 'da1.empty': 0, 'da1.odd `t" \'x': 3, 'other d`b.further': 2 },
}

const inMongo = (
  script: string,
): string => `url="mongodb://$MONGO_INITDB_ROOT_USERNAME:$MONGO_INITDB_ROOT_PASSWORD@127.0.0.1:27017/" node -e "
const { MongoClient, Decimal128, Long } = require('/opt/driver/node_modules/mongodb')
const client = new MongoClient(process.env.url)
const db = client.db(process.env.MONGO_INITDB_DATABASE)
async function work() { ${script} }
work().then(() => process.exit(), (error) => { console.error(error); process.exit(1) })"`
const mongodb: CopiedData = {
  write: inMongo(`
for (let at = 0; at < ${rows}; at += 1000)
  await db.collection('big').insertMany(Array.from({ length: 1000 }, (_, i) => ({ i: at + i, long: Long.fromNumber(5), price: Decimal128.fromString('1.50'), zero: 0.5 })))
await db.collection('big').createIndex({ i: 1 }, { unique: true })
await db.createCollection('empty')
await db.collection('odd (7 documents) é').insertOne({ bytes: Buffer.from([0, 255]), nothing: null, like: /x/i })
await db.collection('sessions').insertMany([{ at: new Date() }, { at: new Date() }])
await db.collection('sessions').createIndex({ at: 1 }, { expireAfterSeconds: 3600 })
await db.createCollection('few', { viewOn: 'big', pipeline: [{ \\$limit: 9 }] })
await client.db('other').collection('further').insertOne({})`),
  keepWriting: inMongo(`
while (!require('fs').existsSync('/tmp/stop')) await db.collection('written').insertMany([{}, {}, {}])`),
  read: inMongo(`
const names = ['big', 'empty', 'odd (7 documents) é', 'sessions']
console.log((await db.command({ dbHash: 1, collections: names })).collections, (await client.db('other').command({ dbHash: 1 })).md5)
for (const name of names) console.log(await db.collection(name).indexes())
console.log((await db.collection('few').find().toArray()).length)`),
  contains: {
    'da1.big': rows,
    'da1.empty': 0,
    'da1.odd (7 documents) é': 1,
    'da1.sessions': 0,
    'other.further': 1,
  },
}

const redis: CopiedData = {
  write: `set -e
redis-cli eval "for i = 1, ${rows} do redis.call('set', 'key' .. i, string.rep(redis.sha1hex(i), 3)) end" 0
redis-cli eval "for i = 1, 500 do redis.call('set', 'soon' .. i, i, 'EX', 1000) end" 0
redis-cli -n 3 hset 'hash é' a 1 b 2
redis-cli -n 3 zadd zset 1.5 a 2 b
redis-cli -n 3 sadd set 1 2 x
redis-cli -n 3 rpush list a b c
redis-cli -n 3 xadd stream '*' field value
redis-cli -n 3 xgroup create stream group 0
redis-cli -n 3 pfadd log a b c
redis-cli -n 3 geoadd places 13.3 38.1 p
printf 'a\\000\\377b' | redis-cli -x -n 5 set "sp ace 'q\\" "
printf '#!lua name=lib\\nredis.register_function("f", function() return 1 end)' | redis-cli -x function load`,
  keepWriting: `until [ -e /tmp/stop ]; do redis-cli -n 9 eval "for i = 1, 100 do redis.call('set', redis.call('incr', 'n'), i) end" 0; done`,
  read: `redis-cli -n 9 flushdb
redis-cli debug digest
redis-cli function list withcode
redis-cli -n 3 xinfo groups stream
redis-cli -n 0 expiretime soon1`,
  contains: { keys: rows + 8 },
}

const clickhouseClient = `clickhouse-client --user "$CLICKHOUSE_USER" --password "$CLICKHOUSE_PASSWORD" --database "$CLICKHOUSE_DB"`
const clickhouse: CopiedData = {
  write: `set -e
while IFS= read -r statement; do ${clickhouseClient} --query "$statement" </dev/null; done <<'END'
CREATE TABLE big (id UInt64, h String, r Float64, n Nullable(Int32), a Array(String), d DateTime, m UInt64 MATERIALIZED id * 2) ENGINE = MergeTree ORDER BY id
INSERT INTO big SELECT number, toString(cityHash64(number)), number / 3, if(number % 3 = 0, NULL, 1), [toString(number), '\\0\\n'], now() FROM system.numbers LIMIT ${rows}
CREATE TABLE empty (id UInt64) ENGINE = MergeTree ORDER BY id
CREATE TABLE \`odd 't' "q"\` (\`a b\` String) ENGINE = Log
INSERT INTO \`odd 't' "q"\` SELECT toString(number) FROM system.numbers LIMIT 7
CREATE TABLE merging (id UInt64, v UInt64) ENGINE = ReplacingMergeTree ORDER BY id
INSERT INTO merging VALUES (1, 1), (1, 2), (2, 3)
CREATE VIEW few AS SELECT id FROM big WHERE id < 10
CREATE MATERIALIZED VIEW filled ENGINE = MergeTree ORDER BY id POPULATE AS SELECT id FROM big WHERE id < 1000
CREATE TABLE target (id UInt64) ENGINE = Log
CREATE TABLE source (id UInt64) ENGINE = Log
CREATE MATERIALIZED VIEW passes TO target AS SELECT id FROM source
INSERT INTO source VALUES (5)
CREATE TABLE written (id UInt64) ENGINE = MergeTree ORDER BY id
CREATE DATABASE \`other d\`
CREATE TABLE \`other d\`.further (x Int8) ENGINE = TinyLog
INSERT INTO \`other d\`.further VALUES (1)
END`,
  keepWriting: `until [ -e /tmp/stop ]; do ${clickhouseClient} --query 'INSERT INTO written VALUES (1), (2), (3)'; done`,
  read: `while IFS= read -r query; do ${clickhouseClient} --query "$query" </dev/null; done <<'END'
SELECT sum(cityHash64(id, h, r, a, d, m)), sum(n), count() FROM big
SELECT * FROM \`odd 't' "q"\`
SELECT * FROM merging FINAL
SELECT count() FROM few
SELECT sum(id), count() FROM filled
SELECT * FROM target
SELECT * FROM \`other d\`.further
SHOW CREATE TABLE passes
END`,
  contains: {
    '`da1`.`big`': rows,
    '`da1`.`empty`': 0,
    '`da1`.`odd \'t\' "q"`': 7,
    '`da1`.`merging`': 0,
    '`da1`.`target`': 1,
    '`other d`.`further`': 1,
  },
}

export const copiedData = { postgresql, mariadb, mongodb, redis, clickhouse }
