import { randomBytes } from 'node:crypto'
import { describe, expect, test } from '@jest/globals'
import { defaultPayloadConverter, type Payload, type SerializationContext } from '@temporalio/common'
import type { Party } from '../../lib/parties.ts'
import { EncryptingCodec, partyRing, PayloadRefused } from '../../lib/payload-codec.ts'
import { formatKeyRing, parseKeyRing } from '../../lib/seal.ts'
import { temporalConnection } from '../../lib/temporal.ts'

const keyLine = (id: string): string => `${id}:${randomBytes(32).toString('base64')}`
const ring = parseKeyRing(keyLine('one'), 'test')
const codec = new EncryptingCodec({ ring })
const workflow = (workflowId: string): SerializationContext => ({
  type: 'workflow',
  namespace: 'keelson',
  workflowId,
})
const host = (id: string) => ({ kind: 'host', id }) as const
const own = (party: Party) => new EncryptingCodec({ ring: partyRing(ring, party) })
const payload = (value: unknown): Payload => defaultPayloadConverter.toPayload(value)

describe('a payload', () => {
  test('decodes in the workflow it was made for', async () => {
    const activity = { type: 'activity', namespace: 'keelson', workflowId: 'a', isLocal: false } as const
    const sealed = await codec.encode([payload({ id: 1 })], workflow('a'))
    expect(JSON.stringify(sealed)).not.toContain('json/plain')
    for (const context of [workflow('a'), activity])
      expect(
        (await codec.decode(sealed, context)).map((one) => defaultPayloadConverter.fromPayload(one)),
      ).toEqual([{ id: 1 }])
  })

  test('is refused in another workflow, also under its name', async () => {
    const [sealed] = await codec.encode([payload(1)], workflow('a'))
    await expect(codec.decode([sealed!], workflow('b'))).rejects.toThrow(PayloadRefused)
    const renamed = { ...sealed, metadata: { ...sealed?.metadata, workflow_id: Buffer.from('b') } }
    await expect(codec.decode([renamed], workflow('b'))).rejects.toThrow('cannot be decrypted')
    await expect(codec.decode([sealed!])).rejects.toThrow('belongs to no workflow')
  })

  test('that the platform did not encrypt is refused', async () => {
    await expect(codec.decode([payload('stop')], workflow('a'))).rejects.toThrow('not encrypted')
    const other = new EncryptingCodec({ ring: parseKeyRing(keyLine('one'), 'test') })
    const forged = await other.encode([payload('stop')], workflow('a'))
    await expect(codec.decode(forged, workflow('a'))).rejects.toThrow('cannot be decrypted')
    await expect(codec.encode([payload(1)])).rejects.toThrow('belongs to no workflow')
  })

  test('is let through if Temporal itself has made it, for an activity that no worker had when it was cancelled', async () => {
    const words = payload('ACTIVITY_ID_NOT_STARTED')
    await expect(codec.decode([words], workflow('a'))).resolves.toEqual([words])
  })

  test('passes from one run of a schedule to the next', async () => {
    const sealed = await codec.encode([payload('last')], workflow('daily-2026-11-25T10:00:00Z'))
    await expect(codec.decode(sealed, workflow('daily-2026-11-26T10:00:00Z'))).resolves.toHaveLength(1)
    await expect(codec.decode(sealed, workflow('daily'))).resolves.toHaveLength(1)
    await expect(codec.decode(sealed, workflow('hourly-2026-11-26T10:00:00Z'))).rejects.toThrow()
  })

  test('for one party opens neither with the key of another nor with the platform’s', async () => {
    const sealed = await own(host('a')).encode([payload(1)], workflow('w'))
    await expect(own(host('a')).decode(sealed, workflow('w'))).resolves.toHaveLength(1)
    for (const other of [own(host('b')), own({ kind: 'runner', id: 'a' }), codec])
      await expect(other.decode(sealed, workflow('w'))).rejects.toThrow()
  })

  test('under a key that the host does not know yet makes it ask for its keys', async () => {
    const both = parseKeyRing(`${keyLine('two')}\n${formatKeyRing(ring)}`, 'test')
    let asked = 0
    const renew = async () => (asked++, partyRing(both, host('a')))
    const codecOfHost = new EncryptingCodec({ ring: partyRing(ring, host('a')), renew })
    const sealed = await new EncryptingCodec({ ring: partyRing(both, host('a')) }).encode(
      [payload(1)],
      workflow('w'),
    )
    for (let i = 0; i < 2; i++)
      await expect(codecOfHost.decode(sealed, workflow('w'))).resolves.toHaveLength(1)
    expect(asked).toBe(1)
  })
})

describe('the settings of the connection to Temporal', () => {
  const address = { KEELSON_TEMPORAL_ADDRESS: 'temporal:7233' }

  test('mean plain text, TLS if asked for, and TLS with an API key', () => {
    expect(temporalConnection(address)).toEqual({ address: 'temporal:7233', tls: false })
    expect(temporalConnection({ ...address, KEELSON_TEMPORAL_TLS: 'true' })).toMatchObject({ tls: {} })
    expect(
      temporalConnection({
        ...address,
        KEELSON_TEMPORAL_API_KEY: 'key',
        KEELSON_TEMPORAL_TLS_SERVER_NAME: 'cloud',
      }),
    ).toEqual({ address: 'temporal:7233', apiKey: 'key', tls: { serverNameOverride: 'cloud' } })
  })

  test('are refused if they would send an API key in plain text, or half a client certificate', () => {
    expect(() =>
      temporalConnection({ ...address, KEELSON_TEMPORAL_TLS: 'false', KEELSON_TEMPORAL_API_KEY: 'key' }),
    ).toThrow('KEELSON_TEMPORAL_TLS is false')
    expect(() => temporalConnection({ ...address, KEELSON_TEMPORAL_TLS_CERT_FILE: '/a' })).toThrow(
      'go together',
    )
  })
})
