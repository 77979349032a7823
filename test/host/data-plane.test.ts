import { once } from 'node:events'
import { connect as connectTls } from 'node:tls'
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals'
import { type CryptoKey, exportJWK, generateKeyPair, SignJWT, UnsecuredJWT } from 'jose'
import { Agent, fetch, type Response } from 'undici'
import type { ContainerEngine } from '../../drivers/containers.ts'
import {
  planeAudience,
  requestHash,
  planeSubject,
  planeTokenType,
  storeSubject,
  wantedSubject,
} from '../../lib/host-protocol.ts'
import { newId } from '../../lib/ids.ts'
import { makeLogger } from '../../lib/log.ts'
import { makeSelfSigned } from '../../lib/self-signed.ts'
import { type DataPlane, serveDataPlane } from '../../worker/host/data-plane.ts'
import { makePlaneTokens } from '../../worker/host/plane-tokens.ts'
import { makeStoreRelay } from '../../worker/host/store-relay.ts'
import { docker, engine, files, removeTestContainers, shell } from '../support/containers.ts'
import { eventually } from '../support/eventually.ts'
import { runInside } from '../support/inside.ts'

const hostId = newId()
const now = (): number => Math.floor(Date.now() / 1000)

let plane: DataPlane
const applied: string[] = []
const applyWanted = (part: string): boolean => part === 'lamps' && applied.push(part) > 0
let signingKey: CryptoKey
const tokens = makePlaneTokens()
const tls = await makeSelfSigned({ name: 'host.keelson.internal', years: 1 })
const dispatcher = new Agent({ connect: { ca: tls.certificate, servername: 'host.keelson.internal' } })
const address = { address: '127.0.0.1', port: 0, tls }

beforeAll(async () => {
  const pair = await generateKeyPair('EdDSA', { crv: 'Ed25519' })
  signingKey = pair.privateKey
  tokens.trust(hostId, { keys: [{ ...(await exportJWK(pair.publicKey)), kid: 'one', alg: 'EdDSA' }] })
  const log = makeLogger('host', 'error')
  const stores = makeStoreRelay(engine)
  plane = await serveDataPlane({ engine, files, tokens, stores, applyWanted, log }, address)
})
afterAll(async () => {
  await plane.close()
  await dispatcher.close()
})
afterEach(removeTestContainers)

interface Claims {
  sub?: string
  aud?: string
  iat?: number
  exp?: number
  jti?: string | null
}

/** The token that the API would make for these logs, or for the request `at`, with a forger's changes. */
function token(
  id: string,
  over: Claims & { typ?: string; key?: CryptoKey; at?: string } = {},
): Promise<string> {
  const { typ = planeTokenType, key = signingKey, at = `GET /instances/${id}/logs`, ...claims } = over
  const [method = '', target = ''] = at.split(' ')
  const honest = {
    sub: planeSubject(id, 'logs'),
    aud: planeAudience(hostId),
    iat: now(),
    exp: now() + 30,
    jti: newId(),
    req: requestHash(method, target),
  }
  const payload = Object.fromEntries(
    Object.entries({ ...honest, ...claims }).filter(([, value]) => value !== null),
  )
  return new SignJWT(payload).setProtectedHeader({ alg: 'EdDSA', kid: 'one', typ }).sign(key)
}

const ask = (path: string, bearer?: string, signal?: AbortSignal): Promise<Response> =>
  fetch(`https://127.0.0.1:${plane.port}${path}`, {
    dispatcher,
    ...(bearer === undefined ? {} : { headers: { authorization: `Bearer ${bearer}` } }),
    ...(signal ? { signal } : {}),
  })

async function running(script: string): Promise<string> {
  const { id } = await engine.run(shell(script), {}, newId())
  return id
}

/** Writes a line to a container's output. */
async function write(id: string, line: string): Promise<void> {
  const [found] = await docker.listContainers({ filters: { label: [`keelson.resource=${id}`] } })
  await runInside(docker, found?.Id ?? '', `echo ${line} >/proc/1/fd/1`)
}

const post = (part: string, bearer: string): Promise<Response> =>
  fetch(`https://127.0.0.1:${plane.port}/wanted/${part}`, {
    dispatcher,
    method: 'POST',
    headers: { authorization: `Bearer ${bearer}` },
  })

test('a part applies what is wanted when the API says so, with a token for that', async () => {
  expect(
    (await post('lamps', await token(newId(), { sub: wantedSubject('lamps'), at: 'POST /wanted/lamps' })))
      .status,
  ).toBe(204)
  expect(applied).toEqual(['lamps'])
  expect((await post('lamps', await token(newId()))).status).toBe(401)
  const bells = { sub: wantedSubject('bells') }
  expect((await post('lamps', await token(newId(), { ...bells, at: 'POST /wanted/lamps' }))).status).toBe(401)
  expect((await post('bells', await token(newId(), { ...bells, at: 'POST /wanted/bells' }))).status).toBe(404)
  expect(applied).toEqual(['lamps'])
})

describe('the data plane refuses a token', () => {
  const id = newId()
  const refused = async (bearer?: string): Promise<void> => {
    const answer = await ask(`/instances/${id}/logs`, bearer)
    expect(answer.status).toBe(401)
    expect(answer.headers.get('content-type')).toBe('application/problem+json')
    expect(answer.headers.get('www-authenticate')).toContain('Bearer')
    expect(await answer.json()).toMatchObject({ code: 'unauthenticated', status: 401 })
  }

  test('that is missing or malformed', async () => {
    await refused()
    await refused('')
    await refused('not.a.token')
    await refused('x'.repeat(10_000))
  })

  test('that is used a second time', async () => {
    const first = await token(id)
    expect((await ask(`/instances/${id}/logs`, first)).status).toBe(404)
    await refused(first)
    const raced = await token(id)
    const answers = await Promise.all(Array.from({ length: 10 }, () => ask(`/instances/${id}/logs`, raced)))
    expect(answers.filter(({ status }) => status !== 401)).toHaveLength(1)
  })

  test.each<[string, Parameters<typeof token>[1]]>([
    ['for another host', { aud: planeAudience(newId()) }],
    ['for another instance', { sub: planeSubject(newId(), 'logs') }],
    ['for another verb', { sub: `${id}:exec` }],
    ['for another query', { at: `GET /instances/${id}/logs?follow=true` }],
    ['for another method', { at: `POST /instances/${id}/logs` }],
    ['that has ended', { iat: now() - 60, exp: now() - 30 }],
    ['that is good for longer than it may be', { exp: now() + 3600 }],
    ['from the future', { iat: now() + 600, exp: now() + 630 }],
    ['of another type', { typ: 'at+jwt' }],
    ['that cannot be told from another', { jti: null }],
  ])('%s', async (_, over) => refused(await token(id, over)))

  test('signed by another key', async () => {
    const { privateKey } = await generateKeyPair('EdDSA', { crv: 'Ed25519' })
    await refused(await token(id, { key: privateKey }))
  })

  test('without a signature', async () => {
    const claims = {
      sub: planeSubject(id, 'logs'),
      aud: planeAudience(hostId),
      iat: now(),
      exp: now() + 30,
      jti: newId(),
      req: requestHash('GET', `/instances/${id}/logs`),
    }
    await refused(new UnsecuredJWT(claims).encode())
    const header = Buffer.from(JSON.stringify({ alg: 'none', typ: planeTokenType })).toString('base64url')
    await refused(`${header}.${Buffer.from(JSON.stringify(claims)).toString('base64url')}.`)
  })
})

test('a token for one verb opens no other', async () => {
  const id = newId()
  const at = `GET /instances/${id}/console`
  expect((await ask(`/instances/${id}/console`, await token(id, { at }))).status).toBe(401)
  const forConsole = { sub: planeSubject(id, 'console') }
  expect((await ask(`/instances/${id}/logs`, await token(id, forConsole))).status).toBe(401)
})

test('a token for a store opens one request to it, and nothing else', async () => {
  const id = newId()
  const path = `/instances/${id}/store/collections/c`
  const sub = storeSubject(id)
  const at = `GET ${path}`
  const statusOf = async (asked: string, over: Parameters<typeof token>[1]) =>
    (await ask(asked, await token(id, over))).status
  expect(await statusOf(path, { sub, at })).toBe(503) // there is no container of this name
  expect(await statusOf(path, { at })).toBe(401)
  expect(await statusOf(path, { sub: storeSubject(newId()), at })).toBe(401)
  expect(await statusOf(path, { sub, at: `DELETE ${path}` })).toBe(401)
  expect(await statusOf(`${path}/documents/d`, { sub, at })).toBe(401)
  expect(await statusOf(`/instances/${id}/logs`, { sub, at: `GET /instances/${id}/logs` })).toBe(401)
})

test('a container without the program of stores is no store', async () => {
  const id = await running('sleep 600')
  const path = `/instances/${id}/store/health`
  const answer = await ask(path, await token(id, { sub: storeSubject(id), at: `GET ${path}` }))
  expect(answer.status).toBe(503)
  expect(await answer.json()).toMatchObject({ detail: 'The store in the container does not answer' })
  expect(answer.headers.get('keelson-store')).toBeNull()
})

test('a console’s token works once, also if the first use failed', async () => {
  const id = newId()
  const at = `GET /instances/${id}/console`
  const bearer = await token(id, { sub: planeSubject(id, 'console'), at })
  const first = await ask(`/instances/${id}/console`, bearer)
  expect([first.status, first.headers.get('upgrade')]).toEqual([426, 'websocket'])
  expect((await ask(`/instances/${id}/console`, bearer)).status).toBe(401)
})

test('logs are JSON lines, with `lines` and `since` as requested', async () => {
  const id = await running('seq 1 5; sleep 600')
  const lines = async (query = ''): Promise<{ time: string; line: string }[]> => {
    const answer = await ask(
      `/instances/${id}/logs${query}`,
      await token(id, { at: `GET /instances/${id}/logs${query}` }),
    )
    expect(answer.headers.get('content-type')).toBe('application/x-ndjson')
    return (await answer.text())
      .split('\n')
      .filter(Boolean)
      .map((line) => JSON.parse(line))
  }
  const all = await eventually(async () => {
    const written = await lines()
    return written.length === 5 && written
  })
  expect(all.map(({ line }) => line)).toEqual(['1', '2', '3', '4', '5'])
  expect(await lines('?lines=2')).toEqual(all.slice(3))
  expect(await lines(`?since=${all[1]?.time}`)).toEqual(all.slice(1))
})

test('following continues while it is read, and ends on the engine too when the reader leaves', async () => {
  let followed = 0
  const counting: ContainerEngine = {
    ...engine,
    async *logs(id, options) {
      followed++
      try {
        yield* engine.logs(id, options)
      } finally {
        followed--
      }
    },
  }
  const log = makeLogger('host', 'error')
  const counted = await serveDataPlane({ engine: counting, files, tokens, log }, address)
  try {
    const id = await running('sleep 600')
    const reader = new AbortController()
    const answer = await fetch(`https://127.0.0.1:${counted.port}/instances/${id}/logs?follow=true`, {
      dispatcher,
      headers: {
        authorization: `Bearer ${await token(id, { at: `GET /instances/${id}/logs?follow=true` })}`,
      },
      signal: reader.signal,
    })
    expect(answer.status).toBe(200) // although nothing was written yet
    await eventually(() => followed === 1)
    reader.abort()
    await eventually(() => followed === 0)
  } finally {
    await counted.close()
  }
})

test('a follower without former lines gets what is written before the engine reads its log', async () => {
  const written = Promise.withResolvers<void>()
  const late: ContainerEngine = {
    ...engine,
    async *logs(id, options) {
      await written.promise
      yield* engine.logs(id, options)
    },
  }
  const log = makeLogger('host', 'error')
  const slow = await serveDataPlane({ engine: late, files, tokens, log }, address)
  try {
    const id = await running('echo before; sleep 600')
    const has = async (line: string): Promise<boolean> => {
      for await (const entry of engine.logs(id, {})) if (entry.line === line) return true
      return false
    }
    await eventually(() => has('before'))
    const path = `/instances/${id}/logs?follow=true&lines=0`
    const answer = await fetch(`https://127.0.0.1:${slow.port}${path}`, {
      dispatcher,
      headers: { authorization: `Bearer ${await token(id, { at: `GET ${path}` })}` },
    })
    await write(id, 'after')
    await eventually(() => has('after'))
    written.resolve()
    const reader = answer.body?.getReader()
    const { value } = (await reader?.read()) ?? {}
    await reader?.cancel()
    expect(JSON.parse(Buffer.from(value as Uint8Array).toString())).toMatchObject({ line: 'after' })
  } finally {
    await slow.close()
  }
})

test.each(['?lines=x', '?lines=-1', '?since=yesterday', '?follow=maybe', '?other=1'])(
  'the data plane refuses %s',
  async (query) => {
    const id = newId()
    const answer = await ask(
      `/instances/${id}/logs${query}`,
      await token(id, { at: `GET /instances/${id}/logs${query}` }),
    )
    expect(answer.status).toBe(400)
    expect(await answer.json()).toMatchObject({ code: 'invalid_input', errors: [expect.anything()] })
  },
)

test('the data plane answers 404 for unknown paths, and serves its health without a token', async () => {
  expect((await ask('/')).status).toBe(404)
  expect((await ask(`/instances/${encodeURIComponent('../../info')}/logs`)).status).toBe(404)
  expect((await ask('/healthz')).status).toBe(200)
})

test('the data plane answers neither plain HTTP nor an older TLS', async () => {
  await expect(fetch(`http://127.0.0.1:${plane.port}/healthz`)).rejects.toThrow()
  const older = connectTls({ port: plane.port, ca: tls.certificate, maxVersion: 'TLSv1.2' })
  await expect(once(older, 'secureConnect')).rejects.toThrow(/version/)
})
