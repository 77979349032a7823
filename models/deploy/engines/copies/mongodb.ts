import type { EngineCopies } from '../engine.ts'

// All databases but the engine's own, with indexes, views and users, as an archive of its tools.

/** Before a script of mongosh, in which \`each\` calls back for each collection. The tools get the password by a pipe. */
const begin = `set -eu
url="mongodb://$MONGO_INITDB_ROOT_USERNAME:$MONGO_INITDB_ROOT_PASSWORD@127.0.0.1:27017/?authSource=admin"
shell() {
  url=$url mongosh --quiet --nodb --eval "
    const admin = await connect(process.env.url)
    const run = async (database, command) => (await admin.getSiblingDB(database).runCommand(command)).cursor.firstBatch
    const cursor = { batchSize: 1000000 }
    const { databases } = await admin.getSiblingDB('admin').runCommand({ listDatabases: 1, nameOnly: true })
    for (const { name: database } of databases.filter(({ name }) => name !== 'config' && name !== 'local')) {
      const found = await run(database, { listCollections: 1, filter: { type: 'collection' }, nameOnly: true, cursor })
      for (const { name } of found.filter((one) => !one.name.startsWith('system.'))) { $1 }
    }" </dev/null
}
`

export const mongodbCopies: EngineCopies = {
  // The numbers are those of which mongodump says that it wrote them. Documents of a collection that expire may be gone later.
  dump: `${begin}
expiring=$(shell "
  if (/[\\\\n\\\\r\\\\x60]/.test(database + name)) throw new Error('a collection has a line break or a backtick in its name')
  const indexes = await run(database, { listIndexes: name, cursor })
  if (indexes.some((index) => 'expireAfterSeconds' in index)) print(database + '.' + name)
")
export expiring
{ {
  mongodump --config=/dev/fd/3 --archive 3<<END 2>&1 >&4 && echo 'the dump is whole'
uri: $url
END
} | awk '
  BEGIN { split(ENVIRON["expiring"], names, "\\n"); for (i in names) expires[names[i]] = 1 }
  /done dumping .* [(][0-9]+ documents?[)]$/ {
    sub(/^.*done dumping /, "")
    documents = $(NF - 1)
    sub(/^[(]/, "", documents)
    sub(/ [(][0-9]+ documents?[)]$/, "")
    gsub(/\`/, "")
    if (!/^(config|local)[.]/ && !/^[^.]*[.]system[.]/) print "count", ($0 in expires ? 0 : documents), documents, $0
    next
  }
  { whole = $0 == "the dump is whole"; said[NR] = $0 }
  END {
    if (whole) exit
    for (i = NR - 20; i <= NR; i++) if (i in said) print said[i]
    exit 1
  }' >&2
} 4>&1`,

  // The tool replaces all users, its own too, and then may not remove the collections that it made for that.
  restore: `${begin}
mongorestore --config=/dev/fd/3 --archive --drop --stopOnError --nsExclude='config.*' 3<<END
uri: $url
END
url="mongodb://$MONGO_INITDB_ROOT_USERNAME:$KEELSON_COPY_PASSWORD@127.0.0.1:27017/?authSource=admin"
url=$url mongosh --quiet --nodb --eval '
  const { MONGO_INITDB_ROOT_USERNAME: updateUser, MONGO_INITDB_ROOT_PASSWORD: pwd } = process.env
  const admin = (await connect(process.env.url)).getSiblingDB("admin")
  for (const drop of ["tempusers", "temproles"]) try { await admin.runCommand({ drop }) } catch {}
  await admin.runCommand({ updateUser, pwd })' </dev/null`,

  count: `${begin}
shell "
  const [counted] = await run(database, { aggregate: name, pipeline: [{ \\$count: 'n' }], cursor: {} })
  print('count ' + (counted ? counted.n : 0) + ' ' + database + '.' + name)
"`,
}
