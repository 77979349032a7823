import { createReadStream, readFileSync } from 'node:fs'
import { once } from 'node:events'
import { compileFunction } from 'node:vm'
import { BSON, type Db, type Document, MongoClient } from 'mongodb'

// Stands in for mongosh, mongodump and mongorestore in the test image of MongoDB: MongoDB's own cannot be had here. They take
// the arguments and write the messages that the platform relies on. The archive has another form.

const [, , program = '', ...given] = process.argv
const of = (name: string): string =>
  given.find((one) => one.startsWith(`${name}=`))?.slice(name.length + 1) ??
  given[given.indexOf(name) + 1] ??
  ''
const say = (message: string) => process.stderr.write(`${new Date().toISOString()}\t${message}\n`)
const plural = (documents: number) => `${documents} document${documents === 1 ? '' : 's'}`
const connectionOf = () => new MongoClient(/uri: (\S+)/.exec(readFileSync(of('--config'), 'utf8'))?.[1] ?? '')

/** A database as the shell has it, whose calls have to be awaited. */
function connect(url: string) {
  const client = new MongoClient(url, { serverSelectionTimeoutMS: 5000 })
  const database = (name?: string) => ({
    runCommand: (command: Document) => client.db(name).command(command),
    getSiblingDB: database,
  })
  return database()
}

async function write(bytes: Uint8Array): Promise<void> {
  if (!process.stdout.write(bytes)) await once(process.stdout, 'drain')
}

const programs: Record<string, () => Promise<void>> = {
  /** Evaluates what awaits each call, with as much of the shell as that needs. */
  async mongosh() {
    const auth = `${encodeURIComponent(of('-u'))}:${encodeURIComponent(of('-p'))}@`
    const db = given.includes('--nodb')
      ? undefined
      : connect(`${String(given.at(-1)).replace('//', `//${auth}`)}?authSource=admin`)
    // The health check does not await, as the shell need not.
    const script = of('--eval').replace(
      'quit(db.runCommand({ ping: 1 }).ok',
      'quit((await db.runCommand({ ping: 1 })).ok',
    )
    const names = ['db', 'connect', 'print', 'quit']
    const run = compileFunction(`return (async () => {${script}})()`, names)
    await run(db, connect, console.log, (code: number) => process.exit(code))
  },

  async mongodump() {
    const client = connectionOf()
    const { databases } = await client.db('admin').admin().listDatabases({ nameOnly: true })
    for (const { name } of databases) {
      if (['admin', 'config', 'local'].includes(name)) continue
      const db = client.db(name)
      const collections = await db.listCollections({}, { nameOnly: false }).toArray()
      for (const { name: collection, type = '', options } of collections.filter(
        (one) => !one.name.startsWith('system.'),
      )) {
        const isView = type === 'view'
        const indexes = isView ? [] : await db.collection(collection).indexes()
        await write(BSON.serialize({ db: name, collection, options, indexes }))
        if (!isView) {
          say(`writing \`${name}.${collection}\` to archive on stdout`)
          let documents = 0
          for await (const one of db.collection(collection).find({}, { raw: true })) {
            await write(one as unknown as Buffer)
            documents++
          }
          const written = type === 'timeseries' ? `system.buckets.${collection}` : collection
          say(`done dumping \`${name}.${written}\` (${plural(documents)})`)
        }
        await write(endOfDocuments)
      }
    }
    const users = await client.db('admin').collection('system.users').find().toArray()
    await write(BSON.serialize({ users }))
    await write(BSON.serialize({ whole: true }))
  },

  async mongorestore() {
    const client = connectionOf()
    const documents = parts()
    for (;;) {
      const head = await documents.next()
      if (!head) throw new Error('the archive is cut off')
      const { db: name, collection, options, indexes, users, whole } = BSON.deserialize(head)
      if (whole) break
      if (users) {
        await putUsers(client.db('admin'), users)
        continue
      }
      const db = client.db(name)
      await db.dropCollection(collection).catch(() => {})
      await db.createCollection(collection, options)
      let batch: Document[] = []
      for (let one = await documents.next(); one?.length; one = await documents.next()) {
        batch.push(BSON.deserialize(one, { promoteValues: false, promoteLongs: false, bsonRegExp: true }))
        if (batch.length === 1000) await db.collection(collection).insertMany(batch.splice(0))
      }
      if (batch.length) await db.collection(collection).insertMany(batch)
      const further = indexes.filter((index: Document) => index['name'] !== '_id_')
      if (further.length) await db.command({ createIndexes: collection, indexes: further })
      say(`finished restoring \`${name}.${collection}\``)
    }
  },
}

/** By the engine's own command for it, which removes the users that are not among them. */
async function putUsers(admin: Db, users: Document[]): Promise<void> {
  await admin.collection('tempusers').insertMany(users)
  const from = { tempUsersCollection: 'admin.tempusers', db: '', drop: given.includes('--drop') }
  await admin.command({ _mergeAuthzCollections: 1, ...from })
  // The tool ignores that it may do this no more.
  await admin
    .collection('tempusers')
    .drop()
    .catch(() => {})
}

const endOfDocuments = Buffer.alloc(4)

/** Standard input as BSON documents; an empty one where a collection's end. */
function parts() {
  const chunks = createReadStream('', { fd: 0 }).iterator() as AsyncIterator<Buffer>
  let rest: Buffer = Buffer.alloc(0)
  const read = async (bytes: number): Promise<Buffer | null> => {
    const pieces = [rest]
    for (let length = rest.length; length < bytes; ) {
      const { value, done } = await chunks.next()
      if (done) return null
      pieces.push(value)
      length += value.length
    }
    const all = pieces.length === 1 ? rest : Buffer.concat(pieces)
    rest = all.subarray(bytes)
    return all.subarray(0, bytes)
  }
  return {
    async next(): Promise<Buffer | null> {
      const head = await read(4)
      if (!head) return null
      const size = head.readInt32LE()
      if (size === 0) return Buffer.alloc(0)
      const body = await read(size - 4)
      return body && Buffer.concat([head, body])
    },
  }
}

programs[program]?.().then(
  () => process.exit(0),
  (error: Error) => {
    say(`Failed: ${error.message}`)
    process.exit(1)
  },
)
