import { randomBytes } from 'node:crypto'
import { describe, expect, test } from '@jest/globals'
import type { Connection } from '@temporalio/client'
import { defaultPayloadConverter, type Payload } from '@temporalio/common'
import proto from '@temporalio/proto'
import { exportJWK, generateKeyPair, SignJWT } from 'jose'
import { makeCallers, makeLimits } from '../../gateway/callers.ts'
import type { Call } from '../../gateway/grpc.ts'
import { makeMethods } from '../../gateway/methods.ts'
import { makeSealing } from '../../gateway/sealing.ts'
import { gatewayAudience, PublicKey } from '../../lib/host-protocol.ts'
import { newId } from '../../lib/ids.ts'
import { makeLogger } from '../../lib/log.ts'
import { type Party, queueOf } from '../../lib/parties.ts'
import { type Credential, gatewayToken, requestToken } from '../../lib/party-tokens.ts'
import { EncryptingCodec, partyRing } from '../../lib/payload-codec.ts'
import { deriveRing, formatKeyRing, parseKeyRing, sealJson } from '../../lib/seal.ts'

// The gateway without Temporal and MongoDB: who is who, and what is whose.

const ring = parseKeyRing(`one:${randomBytes(32).toString('base64')}`, 'test')
const platform = new EncryptingCodec({ ring })

async function enrolled(kind: Party['kind'], id = newId()): Promise<Credential & { public_key: PublicKey }> {
  const { publicKey, privateKey } = await generateKeyPair('EdDSA', { crv: 'Ed25519' })
  const { kty, crv, x } = await exportJWK(publicKey)
  return { party: { kind, id }, key: privateKey, public_key: PublicKey.parse({ kty, crv, x }) }
}

/** As the gateway finds keys, of these. */
function callersOf(...all: Awaited<ReturnType<typeof enrolled>>[]) {
  const find = (kind: Party['kind']) => async (id: string) =>
    all.find(({ party }) => party.kind === kind && party.id === id)?.public_key ?? null
  return makeCallers({ host: find('host'), runner: find('runner') })
}
const bearer = async (token: Promise<string>): Promise<string> => `Bearer ${await token}`
const refused = { code: 16 }

describe('what a host has on the wire stays as it was', () => {
  const host = { kind: 'host', id: newId() } as const

  test('its queue and the keys of its payloads', () => {
    expect(queueOf(host)).toBe(`host-${host.id}`)
    const before = deriveRing(ring, `host payloads ${host.id}`)
    expect(formatKeyRing(partyRing(ring, host))).toBe(formatKeyRing(before))
  })

  test('the tokens of tasks that it holds', () => {
    const held = { t: Buffer.from('temporal').toString('base64'), w: 'workflow' }
    const token = Buffer.from(sealJson(ring, held, `host task ${host.id}`))
    const taken = makeSealing(ring, platform, host).takeBack(token)
    expect({ ...taken, token: Buffer.from(taken.token).toString() }).toEqual({
      token: 'temporal',
      workflowId: 'workflow',
    })
  })

  test('the tokens by which it says who it is', async () => {
    const one = await enrolled('host')
    const token = new SignJWT()
      .setProtectedHeader({ alg: 'EdDSA', typ: 'host+jwt' })
      .setIssuer(one.party.id)
      .setSubject(one.party.id)
      .setAudience('keelson-gateway')
      .setIssuedAt()
      .setExpirationTime('180 s')
      .sign(one.key)
    expect(await callersOf(one).authenticate(await bearer(token), true)).toEqual(one.party)
  })
})

describe.each(['host', 'runner'] as const)('a %s', (kind) => {
  const otherKind = kind === 'host' ? 'runner' : 'host'

  test('is known by its own token, until its key is gone', async () => {
    const one = await enrolled(kind)
    const all = [one]
    const find = async (id: string) => all.find(({ party }) => party.id === id)?.public_key ?? null
    const callers = makeCallers({ [kind]: find })
    const authorization = await bearer(gatewayToken(one))
    expect(await callers.authenticate(authorization, true)).toEqual(one.party)
    all.pop()
    expect(await callers.authenticate(authorization, false)).toEqual(one.party)
    await expect(callers.authenticate(authorization, true)).rejects.toMatchObject(refused)
    await expect(callers.authenticate(authorization, false)).rejects.toMatchObject(refused)
  })

  test('is not the party of the other kind with its id, nor can it sign as another one', async () => {
    const id = newId()
    const [one, other, same] = [await enrolled(kind, id), await enrolled(otherKind, id), await enrolled(kind)]
    const callers = callersOf(one, other, same)
    const lies = [
      gatewayToken({ party: other.party, key: one.key }),
      gatewayToken({ party: same.party, key: one.key }),
      gatewayToken({ party: { kind, id: newId() }, key: one.key }),
      requestToken(one, { method: 'GET', target: '/' }),
    ]
    for (const lie of lies)
      await expect(callers.authenticate(await bearer(lie), true)).rejects.toMatchObject(refused)
    // The same token is not verified again, and still names the one that signed it.
    const honest = await bearer(gatewayToken(one))
    for (const afresh of [true, false])
      expect(await callers.authenticate(honest, afresh)).toEqual({ kind, id })
  })

  test('is refused with a token of no kind, without a kind, or of a kind that has no keys here', async () => {
    const one = await enrolled(kind)
    const sign = (typ: string | undefined) =>
      new SignJWT({ iss: one.party.id, sub: one.party.id, aud: gatewayAudience })
        .setProtectedHeader({ alg: 'EdDSA', ...(typ ? { typ } : {}) })
        .setIssuedAt()
        .setExpirationTime('60 s')
        .sign(one.key)
    for (const typ of [undefined, 'jwt', 'plane+jwt', 'constructor+jwt', `${otherKind}+jwt`])
      await expect(callersOf(one).authenticate(await bearer(sign(typ)), true)).rejects.toMatchObject(refused)
    const none = makeCallers({})
    await expect(none.authenticate(await bearer(gatewayToken(one)), true)).rejects.toMatchObject(refused)
  })

  test('polls its own queue alone, and answers for its own tasks alone', async () => {
    const [own, foreign]: [Party, Party] = [
      { kind, id: newId() },
      { kind: otherKind, id: newId() },
    ]
    const asked: unknown[] = []
    const methods = methodsOver(asked)
    const as = (party: Party) => (name: string, message: Uint8Array) =>
      methods
        .get(`/temporal.api.workflowservice.v1.WorkflowService/${name}`)!
        .run({ party, sealing: makeSealing(ring, platform, party), call: callWith(message) })
    const { PollActivityTaskQueueRequest: Poll, RespondActivityTaskCompletedRequest: Completed } =
      proto.temporal.api.workflowservice.v1
    const poll = (name: string) => Poll.encode({ namespace, identity: '', taskQueue: { name } }).finish()

    for (const name of [
      queueOf(foreign),
      queueOf({ kind, id: newId() }),
      `${otherKind}-${own.id}`,
      'platform',
      '',
    ])
      await expect(as(own)('PollActivityTaskQueue', poll(name))).rejects.toMatchObject({ code: 7 })
    expect(asked).toEqual([])
    await as(own)('PollActivityTaskQueue', poll(queueOf(own)))
    expect(asked).toMatchObject([{ taskQueue: { name: queueOf(own) } }])

    const held = { token: Buffer.from('t'), workflowId: 'w' }
    for (const holder of [foreign, { kind, id: newId() }, { kind: otherKind, id: own.id } as const]) {
      const taskToken = makeSealing(ring, platform, holder).handOut(held)
      const lie = Completed.encode({ namespace, identity: '', taskToken }).finish()
      await expect(as(own)('RespondActivityTaskCompleted', lie)).rejects.toMatchObject({ code: 7 })
    }
    expect(asked).toHaveLength(1)

    const taskToken = makeSealing(ring, platform, own).handOut(held)
    const sealed = (party: Party) =>
      new EncryptingCodec({ ring: partyRing(ring, party) }).encode([plain('done')], {
        type: 'workflow',
        namespace,
        workflowId: 'w',
      })
    const answer = async (payloads: Payload[]) =>
      Completed.encode({ namespace, identity: '', taskToken, result: { payloads } }).finish()
    for (const payloads of [await sealed(foreign), [plain('open')]])
      await expect(as(own)('RespondActivityTaskCompleted', await answer(payloads))).rejects.toMatchObject({
        code: 3,
      })
    await as(own)('RespondActivityTaskCompleted', await answer(await sealed(own)))
    expect(asked).toHaveLength(2)
  })

  test('that calls too often is slowed down, and no other', async () => {
    const limits = makeLimits()
    const [busy, calm] = [{ kind, id: 'busy' } as const, { kind, id: 'calm' } as const]
    const polls = Promise.withResolvers<void>()
    const open = Array.from({ length: 41 }, () => limits.within(busy, true, () => polls.promise))
    await expect(
      Promise.any(
        open.map((one) =>
          one.then(
            () => 0,
            ({ code }) => code,
          ),
        ),
      ),
    ).resolves.toBe(8)
    await expect(limits.within(calm, true, async () => 'served')).resolves.toBe('served')
    await expect(limits.within({ kind: otherKind, id: 'busy' }, true, async () => 1)).resolves.toBe(1)
    polls.resolve()
    await Promise.allSettled(open)
  })
})

const namespace = 'keelson'
const plain = (value: unknown): Payload => defaultPayloadConverter.toPayload(value)

/** A call with this message. */
const callWith = (message: Uint8Array): Call => ({
  headers: {},
  signal: new AbortController().signal,
  deadline: new Date(Date.now() + 60_000),
  message: async () => Buffer.from(message),
})

/** The methods before a Temporal that notes what it is asked, and has no task. */
function methodsOver(asked: unknown[]) {
  const note = async (request: unknown) => (asked.push(request), {})
  const connection = {
    workflowService: { pollActivityTaskQueue: note, respondActivityTaskCompleted: note },
    withAbortSignal: (_: unknown, work: () => unknown) => work(),
    withDeadline: async (_: unknown, work: () => unknown) => work(),
  }
  return makeMethods({
    connection: connection as unknown as Connection,
    namespace,
    log: makeLogger('gateway', 'fatal'),
  })
}
