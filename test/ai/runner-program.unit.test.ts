import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { createServer } from 'node:http'
import { createServer as createHttp2 } from 'node:http2'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import type { Connection } from '@temporalio/client'
import type { Payload } from '@temporalio/common'
import { exportJWK, generateKeyPair } from 'jose'
import { makeCallers } from '../../gateway/callers.ts'
import { serveCalls } from '../../gateway/grpc.ts'
import { makeMethods } from '../../gateway/methods.ts'
import { makeSealing } from '../../gateway/sealing.ts'
import { internalAudience, internalTokenSec, PublicKey, requestHash } from '../../lib/host-protocol.ts'
import { newId } from '../../lib/ids.ts'
import { makeLogger } from '../../lib/log.ts'
import { queueOf } from '../../lib/parties.ts'
import { claimedParty, verifyPartyToken } from '../../lib/party-tokens.ts'
import { EncryptingCodec, partyRing } from '../../lib/payload-codec.ts'
import { formatKeyRing, parseKeyRing } from '../../lib/seal.ts'
import { doorName } from '../../worker/host/door.ts'
import { makeDoors } from '../../worker/host/doors.ts'
import { eventually } from '../support/eventually.ts'

// The program of a runner behind a real door and a real gateway. Temporal and the API are played by this file.

const party = { kind: 'runner', id: newId() } as const
const container = newId()
const namespace = 'keelson'
const log = makeLogger('gateway', 'fatal')
const ring = parseKeyRing(`one:${randomBytes(32).toString('base64')}`, 'test')
const platform = new EncryptingCodec({ ring })
const held = { token: Buffer.from('temporal’s'), workflowId: 'run' }

/** What Temporal was asked and told. */
const polled: unknown[] = []
const completed: { taskToken: Uint8Array; result?: { payloads?: Payload[] } }[] = []
let isTaken = false
const now = () => ({ seconds: Math.floor(Date.now() / 1000), nanos: 0 })
const temporal = {
  withAbortSignal: (_: unknown, work: () => unknown) => work(),
  withDeadline: async (_: unknown, work: () => unknown) => work(),
  workflowService: {
    getSystemInfo: async () => ({}),
    describeNamespace: async () => ({ namespaceInfo: { name: namespace } }),
    async pollActivityTaskQueue(request: { taskQueue: { name: string } }) {
      polled.push(request.taskQueue.name)
      if (isTaken) return new Promise((resolve) => setTimeout(resolve, 2_000, {}).unref())
      isTaken = true
      const context = { type: 'workflow', namespace, workflowId: held.workflowId } as const
      return {
        taskToken: held.token,
        workflowExecution: { workflowId: held.workflowId, runId: newId() },
        workflowType: { name: 'createAiDeployment' },
        activityId: '1',
        activityType: { name: 'answerOnRunner' },
        attempt: 1,
        ...Object.fromEntries(
          ['scheduledTime', 'currentAttemptScheduledTime', 'startedTime'].map((name) => [name, now()]),
        ),
        input: { payloads: await platform.encode([], context) },
        startToCloseTimeout: { seconds: 60 },
        scheduleToCloseTimeout: { seconds: 60 },
        heartbeatTimeout: { seconds: 10 },
      }
    },
    recordActivityTaskHeartbeat: async () => ({}),
    respondActivityTaskCompleted: async (request: never) => (completed.push(request), {}),
    respondActivityTaskFailed: async () => ({}),
  },
}

let public_key: PublicKey
const asked: string[] = []
const api = createServer((request, response) => {
  const answer = async () => {
    const { method = '', url = '', headers } = request
    const token = headers.authorization?.slice('Bearer '.length) ?? ''
    const { req } = await verifyPartyToken(token, claimedParty(token), public_key, {
      audience: internalAudience,
      maxAgeSec: internalTokenSec,
    })
    expect(req).toBe(requestHash(method, url))
    asked.push(url)
    const version = { workflow_id: newId(), version: 3, spec_sha256: 'x', spec: {}, plan: {} }
    const body = url.endsWith('/spec') ? version : { keys: formatKeyRing(partyRing(ring, party)) }
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(body))
  }
  answer().catch((error: unknown) =>
    response.writeHead(401).end(JSON.stringify({ code: 'x', title: String(error) })),
  )
})

const callers = makeCallers({ runner: async (id) => (id === party.id ? public_key : null) })
const methods = makeMethods({ connection: temporal as unknown as Connection, namespace, log })
const sealing = makeSealing(ring, platform, party)
const gateway = createHttp2()
serveCalls(
  gateway,
  async (path, call) => {
    const method = methods.get(path)
    if (!method) throw new Error(`${path} is called`)
    const caller = await callers.authenticate(call.headers.authorization, method.isPoll)
    return method.run({ party: caller, sealing, call })
  },
  () => {},
)

const portOf = (server: { address(): unknown }): number => (server.address() as AddressInfo).port
let run: string
let doors: ReturnType<typeof makeDoors>
let program: ChildProcess
let said = ''
let privateKey: string

beforeAll(async () => {
  const pair = await generateKeyPair('EdDSA', { crv: 'Ed25519', extractable: true })
  const { kty, crv, x, d } = await exportJWK(pair.privateKey)
  public_key = PublicKey.parse({ kty, crv, x })
  privateKey = d ?? ''
  for (const server of [api, gateway]) await once(server.listen(0, '127.0.0.1'), 'listening')
  run = await mkdtemp(join(tmpdir(), 'doors-'))
  doors = makeDoors({
    run,
    outside: {
      gatewayUrl: `http://127.0.0.1:${portOf(gateway)}`,
      gatewayAuthorities: () => null,
      apiUrl: `http://127.0.0.1:${portOf(api)}`,
      modelsUrl: 'http://127.0.0.1:1',
    },
    namespace,
    log,
  })
  program = await doors.hold(container, party.id, async ({ vars }) =>
    spawn(process.execPath, ['worker/runner.ts'], {
      env: {
        ...vars,
        KEELSON_RUNNER_ID: party.id,
        KEELSON_RUNNER_KEY: JSON.stringify({ kty, crv, x, d }),
        KEELSON_RUNNER_DOOR: join(run, container, doorName),
      },
      stdio: ['ignore', 'pipe', 'pipe'],
    }),
  )
  for (const output of [program.stdout, program.stderr])
    output?.on('data', (part: Buffer) => (said += part.toString()))
})
afterAll(async () => {
  program.kill('SIGKILL')
  await doors.close()
  api.close()
  gateway.close()
  await rm(run, { recursive: true })
})

test('a runner gets its spec and its keys by its door, polls its queue, and answers', async () => {
  await eventually(() => completed.length > 0)
  expect(new Set(asked)).toEqual(
    new Set(['spec', 'codec-keys'].map((what) => `/internal/v1/runners/${party.id}/${what}`)),
  )
  expect(new Set(polled)).toEqual(new Set([queueOf(party)]))
  expect(Buffer.from(completed[0]?.taskToken ?? []).toString()).toBe('temporal’s')
  expect(said).toContain('"msg":"ready"')
})

test('a runner says its key nowhere', () => {
  expect(privateKey).toMatch(/^[\w-]{43}$/)
  expect(said).not.toContain(privateKey)
})

test('a runner works again when its door has been away', async () => {
  await doors.close()
  expect(existsSync(join(run, container, doorName))).toBe(false)
  isTaken = false
  const before = completed.length
  await doors.keep([{ id: container, runner: party.id }])
  await eventually(() => completed.length > before)
})

test('a runner ends when it is told to', async () => {
  const ended = once(program, 'exit')
  program.kill('SIGTERM')
  expect((await ended)[0]).toBe(0)
  expect(said).toContain('"msg":"stopped"')
})
