// Prepares a newly started MongoDB for the platform: replica set and users. Ends when it accepts writes. Run at each
// start of mongod, on its machine: `mongodb.ts <address others reach it at> <file of the passwords>`.
import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { mongo } from 'mongoose'
import type { MongodbSecrets } from './lib/secrets.ts'

const [, , address = '', secretsFile = ''] = process.argv
const local = `127.0.0.1:${address.split(':')[1]}`
const { rootPassword, appPassword } = JSON.parse(readFileSync(secretsFile, 'utf8')) as MongodbSecrets

// MongoDB's errors for a step that was done before. `unauthorized` also means that users exist, who must log in.
const code = { unauthorized: 13, alreadyInitialized: 23, userExists: 51003 }

/** Connects directly to this mongod when it listens, whether or not it is the primary. */
async function connect(auth?: { username: string; password: string }): Promise<mongo.MongoClient> {
  for (;;) {
    const client = new mongo.MongoClient(`mongodb://${local}/?directConnection=true`, {
      serverSelectionTimeoutMS: 200,
      ...(auth && { auth }),
    })
    try {
      return await client.connect()
    } catch (error) {
      await client.close()
      if (!(error instanceof mongo.MongoServerSelectionError)) throw error
      await sleep(20)
    }
  }
}

/** Does a step and returns null, or returns the error code if it was done before. */
async function once(step: Promise<unknown>): Promise<number | null> {
  try {
    await step
    return null
  } catch (error) {
    const refused = error instanceof mongo.MongoServerError && Number(error.code)
    if (refused && Object.values(code).includes(refused)) return refused
    throw error
  }
}

/** Waits until this mongod, the only member, has elected itself. `hello` needs no login. */
async function becomesPrimary(client: mongo.MongoClient): Promise<void> {
  while (!(await client.db('admin').command({ hello: 1 }))['isWritablePrimary']) await sleep(20)
}

const rootLogin = { username: 'root', password: rootPassword }

const guest = await connect()
const members = [{ _id: 0, host: address }]
const refused = await once(guest.db('admin').command({ replSetInitiate: { _id: 'rs0', members } }))
if (refused === code.unauthorized) await correctAddress()
await becomesPrimary(guest)
// Without users, MongoDB lets a local client create the first one.
await once(guest.db('admin').command({ createUser: 'root', pwd: rootPassword, roles: ['root'] }))
await guest.close()

const root = await connect(rootLogin)
const roles = ['readWrite', 'dbAdmin']
await once(root.db('keelson').command({ createUser: 'keelson', pwd: appPassword, roles }))
await root.close()

/** The replica set keeps its member's address. After a change of port, mongod does not find itself in the set. */
async function correctAddress(): Promise<void> {
  const client = await connect(rootLogin)
  const { config } = await client.db('admin').command({ replSetGetConfig: 1 })
  if (config.members[0].host !== address) {
    config.version++
    config.members[0].host = address
    await client.db('admin').command({ replSetReconfig: config, force: true })
  }
  await client.close()
}
