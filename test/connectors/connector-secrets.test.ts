import { copyFile, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { createWriteStream } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { temporalClient } from '../../lib/temporal.ts'
import { Connector } from '../../models/connectors/connectors.ts'
import { ConnectorLogin } from '../../models/connectors/logins.ts'
import { connectorSchedule } from '../../worker/schedules.ts'
import type { Answer } from '../support/client.ts'
import { connectorsOf } from '../support/clients/connectors.ts'
import { eventually } from '../support/eventually.ts'
import '../support/exclusive.ts'
import { decodedHistory, textOfHistory } from '../support/histories.ts'
import { plantAll, planted } from '../support/planted.ts'
import { logIn } from '../support/providers/browser-login.ts'
import { startGithub, startGitlab } from '../support/providers/git-hosts.ts'
import { startModelVendors } from '../support/providers/model-vendors.ts'
import { allRecords, secretsIn } from '../support/secret-search.ts'
import { layout, providerClient, stackSettings } from '../support/stack.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// Keys and tokens of connectors are in no answer, log, history or record, also where something fails.

const temporal = temporalClient(stackSettings())
let folder: string
let tenant: TestTenant
const answers: Answer[] = []
const key = `planted-${newId()}`

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'keelson-connectors-'))
  tenant = await makeTenant()
  plantAll([key, providerClient.client_secret])
  const servers = [await startGitlab(), await startGithub(), await startModelVendors()] as const
  try {
    await useAll(...servers)
  } finally {
    await Promise.all(servers.map((server) => server.close()))
  }
  await useWithout()
})
afterAll(async () => {
  await temporal.connection.close()
  await rm(folder, { recursive: true, force: true })
})

const connectors = () => connectorsOf(tenant.owner)
const note = async (answer: Promise<Answer>): Promise<Answer> => {
  answers.push(await answer)
  return answer
}

async function useAll(
  gitlab: Awaited<ReturnType<typeof startGitlab>>,
  _github: Awaited<ReturnType<typeof startGithub>>,
  vendors: Awaited<ReturnType<typeof startModelVendors>>,
): Promise<void> {
  const its = connectors()
  await note(its.import({ provider: 'openai', api_key: key })) // refused, and repeated in the refusal
  vendors.accept(key)
  await note(its.import({ provider: 'openai', api_key: key }))
  for (const provider of ['gitlab', 'github']) {
    const { body } = await its.startOauth({ provider })
    const code = await logIn(String(body['authorize_url']))
    const made = await note(its.completeOauth({ code }))
    expect(made).toMatchObject({ status: 201 })
    await note(its.completeOauth({ code }))
  }
  const { body } = await note(its.startDevice({ provider: 'gitlab' }))
  await gitlab.approve(String(body['user_code']), 'ada')
  const login = { _id: String(body['login_id']), tenant_id: tenant.id }
  await ConnectorLogin.updateOne(login, { $set: { next_poll_at: new Date() } })
  expect(await note(its.pollDevice(login._id))).toMatchObject({ body: { status: 'done' } })
  await lookAt(2)
}

/** Nobody answers any more: refreshes, checks, logins and revocations fail. */
async function useWithout(): Promise<void> {
  const its = connectors()
  for (const { id, kind } of await its.list()) {
    if (kind === 'api_key') await note(its.check(id))
  }
  await note(its.startDevice({ provider: 'gitlab' }))
  await lookAt(2)
  for (const { id } of await its.list()) await note(its.delete(id))
}

/** Has the worker look at all of them. */
async function lookAt(version: number): Promise<void> {
  const its = { tenant_id: tenant.id, refreshable: true }
  await Connector.updateMany(its, { $set: { due_at: new Date() } })
  await temporal.schedule.getHandle(connectorSchedule).trigger()
  await eventually(
    async () =>
      (await Connector.countDocuments({
        ...its,
        $or: [{ due_at: null }, { due_at: { $lte: new Date() } }, { version: { $lt: version } }],
      })) === 0,
  )
}

test('secrets of all kinds were planted', () => {
  const all = planted()
  expect(all).toEqual(expect.arrayContaining([key, providerClient.client_secret]))
  // Access and refresh tokens of the OAuth servers.
  expect(all.filter((one) => /^[\w-]{43}$/.test(one)).length).toBeGreaterThan(6)
  expect(answers.length).toBeGreaterThan(10)
})

test('no answer has one', async () => {
  const file = join(folder, 'answers')
  const all = [...answers, { body: await connectors().list() }]
  await writeFile(file, JSON.stringify(all.map(({ body }) => body)))
  expect(await secretsIn([file])).toEqual([])
})

test('no log has one', async () => {
  const kept = []
  for (const name of await readdir(join(layout.state, 'log'))) {
    await copyFile(join(layout.state, 'log', name), join(folder, name)) // the log goes on meanwhile
    kept.push(join(folder, name))
  }
  expect(await secretsIn(kept)).toEqual([])
})

test('no history has one', async () => {
  const file = join(folder, 'histories')
  const histories: string[] = []
  for await (const { workflowId, runId } of temporal.workflow.list({
    query: `WorkflowType = 'lookAfterConnectors'`,
  }))
    histories.push(`${workflowId} ${runId} ${textOfHistory(await decodedHistory(temporal, workflowId))}`)
  expect(histories.length).toBeGreaterThan(1)
  await writeFile(file, histories.join('\n'))
  expect(await secretsIn([file])).toEqual([])
})

test('no record has one', async () => {
  const file = join(folder, 'records')
  await pipeline(Readable.from(allRecords()), createWriteStream(file))
  expect(await secretsIn([file])).toEqual([])
})
