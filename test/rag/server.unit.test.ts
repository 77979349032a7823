import { request } from 'node:https'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { text } from 'node:stream/consumers'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { HttpsClient } from '../../images/rag/https-client.ts'
import { documentOf, embedder, spec } from '../support/rag/samples.ts'
import { openServer, type ServedStore, startProcess } from '../support/rag/servers.ts'

// The store over HTTP: who is let in, what is refused, and how it ends.

let served: ServedStore
beforeAll(async () => {
  served = await openServer({ RAG_BODY_MIB: '1' })
  await served.store.createCollection('c', spec)
})
afterAll(() => served.close())

interface Asked {
  method?: string
  path?: string
  headers?: Record<string, string>
  body?: string
}
const bearer = () => ({ authorization: `Bearer ${served.token}` })

function ask({ method = 'GET', path = '/collections/c', headers = bearer(), body = '' }: Asked) {
  return new Promise<{ status: number; type: string; said: Record<string, unknown> }>((resolve, reject) => {
    const sent = request(served.url + path, { method, headers, ca: served.ca, agent: false })
    sent.on('error', reject)
    sent.on('response', (response) => {
      text(response).then(
        (said) =>
          resolve({
            status: response.statusCode ?? 0,
            type: response.headers['content-type'] ?? '',
            said: said ? (JSON.parse(said) as Record<string, unknown>) : {},
          }),
        reject,
      )
    })
    sent.end(body)
  })
}

describe('a request is refused', () => {
  const wrong = 'x'.repeat(48)
  const cases: [string, Asked, number, string][] = [
    ['without a token', { headers: {} }, 401, 'unauthenticated'],
    ['with another token', { headers: { authorization: `Bearer ${wrong}` } }, 401, 'unauthenticated'],
    ['with an empty token', { headers: { authorization: 'Bearer ' } }, 401, 'unauthenticated'],
    [
      'with the token in another scheme',
      { headers: { authorization: `Basic ${wrong}` } },
      401,
      'unauthenticated',
    ],
    ['without a token, for what there is not', { path: '/other', headers: {} }, 401, 'unauthenticated'],
    ['for what there is not', { path: '/other' }, 404, 'not_found'],
    ['for what is above', { path: '/collections/../../etc/passwd' }, 404, 'not_found'],
    ['for a name that leads above', { path: '/collections/..%2f..%2fetc' }, 422, 'invalid_input'],
    ['for a path that is none', { path: '/collections/%zz' }, 404, 'not_found'],
    ['by another method', { method: 'PATCH' }, 405, 'method_not_allowed'],
    ['with a body that is no JSON', { method: 'PUT', body: '{' }, 400, 'invalid_json'],
    ['without a body', { method: 'PUT' }, 400, 'invalid_json'],
    ['with a list', { method: 'PUT', body: '[]' }, 422, 'invalid_input'],
    ['with a field that nobody reads', { method: 'PUT', body: '{"extra":1}' }, 422, 'invalid_input'],
    [
      'with a vector of texts',
      { method: 'POST', path: '/collections/c/search', body: '{"mode":"vector","k":1,"vector":["1"]}' },
      422,
      'invalid_input',
    ],
    [
      'with a vector of three bytes',
      { method: 'POST', path: '/collections/c/search', body: '{"mode":"vector","k":1,"vector":"AAAA"}' },
      422,
      'invalid_input',
    ],
    [
      'with a deletion of no version',
      { method: 'DELETE', path: '/collections/c/documents/d' },
      422,
      'invalid_input',
    ],
    ['with a body that is too large', { method: 'PUT', body: ' '.repeat(1024 ** 2 + 1) }, 413, 'too_large'],
    [
      'with a body that turns out too large',
      { method: 'PUT', body: ' '.repeat(1.8 * 1024 ** 2), headers: { 'transfer-encoding': 'chunked' } },
      413,
      'too_large',
    ],
  ]
  test.each(cases)('%s', async (_, asked, status, code) => {
    const headers = asked.headers?.['transfer-encoding'] ? { ...asked.headers, ...bearer() } : asked.headers
    const answer = await ask({ ...asked, ...(headers && { headers }) })
    expect(answer).toMatchObject({
      status,
      type: 'application/problem+json',
      said: { type: `urn:keelson:problem:${code}`, status, code, title: expect.any(String) },
    })
    expect(JSON.stringify(answer.said)).not.toMatch(/\.ts|SQLITE|node:|keelson-rag-/)
  })
})

test('a vector may be a list of numbers, and fields that are not needed may be left out', async () => {
  const chunk = { hash: 'h', text: 'red fox', vector: [1, 2, 3, 4, 5, 6, 7, 8] }
  const body = JSON.stringify({ embedder, version: 1, chunks: [chunk] })
  const path = '/collections/c/documents/listed'
  expect(await ask({ method: 'PUT', path, body })).toMatchObject({ status: 200 })
  const search = JSON.stringify({ mode: 'vector', k: 1, vector: chunk.vector, embedder })
  const { said } = await ask({ method: 'POST', path: '/collections/c/search', body: search })
  expect(said).toMatchObject({ hits: [{ text: 'red fox', score: expect.closeTo(1) }] })
})

test('health needs no token, and tells nothing else', async () => {
  expect(await ask({ path: '/health', headers: {} })).toMatchObject({
    status: 200,
    said: { ready: true, reason: null },
  })
})

test('a store that does not answer is not ready', async () => {
  const nobody = new HttpsClient({ url: 'http://127.0.0.1:1', token: 'x', timeoutMs: 10_000 })
  expect(await nobody.health()).toEqual({ ready: false, reason: 'The store does not answer' })
  await expect(nobody.stats('c')).rejects.toMatchObject({ code: 'unavailable' })
})

test('health and searches are answered while a long document is written', async () => {
  const own = await openServer()
  await own.store.createCollection('c', spec)
  await own.store.replaceDocument('c', embedder, documentOf('first', 1, ['a fox']))
  const texts = Array.from({ length: 20_000 }, (_, index) => `long chunk ${index}`)
  const state = { written: false }
  const writing = own.store
    .replaceDocument('c', embedder, documentOf('long', 1, texts))
    .then(() => (state.written = true))
  let answers = 0
  while (!state.written) {
    expect(await own.store.health()).toEqual({ ready: true, reason: null })
    const { hits } = await own.store.search('c', { mode: 'text', k: 1, text: 'fox' })
    if (hits.length && !state.written) answers++
  }
  await writing
  expect(answers).toBeGreaterThan(3)
  await own.close()
})

test('another token is in force once the process has read it, and the former one is not', async () => {
  const former = bearer()
  await served.renewToken('n'.repeat(40))
  expect(await ask({ headers: former })).toMatchObject({ status: 401 })
  expect(await ask({})).toMatchObject({ status: 200 })
})

test('a token that cannot be used leaves the one that is in force', async () => {
  await writeFile(served.tokenFile, 'short')
  const before = bearer()
  await served.rereadToken()
  expect(await ask({ headers: before })).toMatchObject({ status: 200 })
})

test('a store that is told to stop ends what is under way', async () => {
  const own = await openServer()
  await own.store.createCollection('c', spec)
  const texts = Array.from({ length: 5_000 }, (_, index) => `chunk ${index}`)
  const writing = own.store.replaceDocument('c', embedder, documentOf('d', 1, texts))
  // The request is at the store once others are answered behind it.
  await own.store.health()
  const [code, replaced] = await Promise.all([own.stop(), writing.catch(() => null)])
  expect(code).toBe(0)
  await own.again()
  const { chunks } = await own.store.stats('c')
  expect(replaced ? [5_000] : [0, 5_000]).toContain(chunks) // it may have stopped before it answered
  await own.close()
})

test('the store writes no text, vector, name or token of its callers to its log', async () => {
  const own = await openServer()
  await own.store.createCollection('planted-name', spec)
  await own.store.replaceDocument('planted-name', embedder, documentOf('planted-id', 1, ['planted text']))
  await own.store.search('planted-name', { mode: 'text', k: 1, text: 'planted "query' })
  await own.store.stats('planted-other').catch(() => {})
  await own.stop()
  const said = own.said.join('\n')
  expect(said).toMatch(/"listening"[^]*"ready"[^]*"stopped"/)
  expect(said).not.toContain('planted')
  expect(said).not.toContain(own.token)
  await own.close()
})

describe('the store does not start', () => {
  let folder: string
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'keelson-rag-'))
    await writeFile(join(folder, 'empty'), '')
    await writeFile(join(folder, 'short'), 'secret')
    await writeFile(join(folder, 'token'), 't'.repeat(32))
  })
  afterAll(() => rm(folder, { recursive: true }))

  const settings: [string, Record<string, string>, RegExp][] = [
    ['without a token', {}, /Set RAG_TOKEN, or RAG_TOKEN_FILE/],
    ['with an empty token', { RAG_TOKEN_FILE: 'empty' }, /at least 32 characters/],
    ['with a short token', { RAG_TOKEN_FILE: 'short' }, /at least 32 characters/],
    [
      'without TLS where others read along',
      { RAG_TOKEN_FILE: 'token', RAG_HOST: '0.0.0.0' },
      /Others could read the traffic/,
    ],
    ['with half of TLS', { RAG_TOKEN_FILE: 'token', RAG_TLS_KEY_FILE: 'token' }, /go together/],
    ['with an empty token in the environment', { RAG_TOKEN: '' }, /at least 32 characters/],
    [
      'with an engine that there is not',
      { RAG_TOKEN_FILE: 'token', RAG_ENGINE: 'x' },
      /RAG_ENGINE has to be one of sqlite, pgvector/,
    ],
    ['with two tokens', { RAG_TOKEN: 't'.repeat(32), RAG_TOKEN_FILE: 'token' }, /set one of them/],
    ['at a name', { RAG_TOKEN_FILE: 'token', RAG_HOST: 'localhost' }, /has to be an IP address/],
    [
      'with a port that is none',
      { RAG_TOKEN_FILE: 'token', RAG_PORT: 'x' },
      /RAG_PORT has to be a whole number/,
    ],
  ]
  test.each(settings)('%s', async (_, given, message) => {
    const files = Object.fromEntries(
      Object.entries(given).map(([name, value]) => [
        name,
        name.endsWith('_FILE') ? join(folder, value) : value,
      ]),
    )
    const started = startProcess({ RAG_FOLDER: join(folder, 'store'), RAG_PORT: '0', ...files })
    await expect(started).rejects.toThrow(message)
  })
})
