import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from '@jest/globals'
import mongoose from 'mongoose'
import { newId } from '../../lib/ids.ts'
import { ask, sleeper } from '../support/client.ts'
import { engine } from '../support/engine.ts'
import { layout } from '../support/stack.ts'
import { makeTenant } from '../support/tenants.ts'

// A secret is where it is needed, in the container, and in nothing that the platform writes.

const planted = `planted-${newId()}`

test('a config var’s value is in no log, no history and no record', async () => {
  const tenant = await makeTenant()
  const create = (over: object) =>
    tenant.owner.ask('POST', '/api/v1/containers', sleeper({ config_vars: { PASSWORD: planted }, ...over }), {
      'idempotency-key': newId(),
    })
  const { body, headers } = await create({})
  await tenant.owner.get(`${headers.get('operation-location')}?wait=60`)
  const id = String(body['id'])
  expect((await engine.only(id)).Config.Env).toContain(`PASSWORD=${planted}`)
  // On the ways of failure too.
  for (const over of [
    { image: 'localhost:1/none' },
    { command: ['no-such-command'] },
    { colour: planted },
    { name: planted.toUpperCase() },
  ]) {
    const failed = await create(over)
    const path = failed.headers.get('operation-location')
    if (path) await tenant.owner.get(`${path}?wait=60`)
  }
  await engine.remove(id) // and when it is made again by a repair
  await (await tenant.containers.create({ config_vars: { PASSWORD: planted }, start: false })).operation.end()

  expect(await filesWith(join(layout.state, 'log'), planted)).toEqual([])
  expect(await filesWith(layout.state, planted, /^temporal\.db/)).toEqual([])
  expect(await collectionsWith(planted)).toEqual([])
  const views = [await tenant.owner.get('/api/v1/containers'), await tenant.owner.get('/api/v1/operations')]
  expect(JSON.stringify(views)).not.toContain(planted)
})

test('a token and a password are kept by their hashes alone', async () => {
  const { email, password } = JSON.parse(await readFile(join(layout.state, 'owner.json'), 'utf8')) as {
    email: string
    password: string
  }
  const { body } = await ask('POST', '/api/v1/auth/login', { body: { email, password } })
  const token = String(body['token'])
  await ask('GET', '/api/v1/containers', { token })
  for (const secret of [token, password]) {
    expect(await filesWith(join(layout.state, 'log'), secret)).toEqual([])
    expect(await collectionsWith(secret)).toEqual([])
  }
})

async function filesWith(folder: string, text: string, names = /./): Promise<string[]> {
  const found: string[] = []
  for (const entry of await readdir(folder, { withFileTypes: true })) {
    if (!entry.isFile() || !names.test(entry.name)) continue
    if ((await readFile(join(folder, entry.name))).includes(text)) found.push(entry.name)
  }
  return found
}

async function collectionsWith(text: string): Promise<string[]> {
  const found: string[] = []
  for (const { collectionName } of (await mongoose.connection.db?.collections()) ?? []) {
    const documents = await mongoose.connection.collection(collectionName).find().toArray()
    if (JSON.stringify(documents).includes(text)) found.push(collectionName)
  }
  return found
}
