import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { Host } from '../../models/compute/hosts.ts'
import { enrolled } from '../../worker/host/enrolment.ts'
import { makeInternalApi } from '../../worker/host/internal-api.ts'
import { testDrawn } from '../support/drawn.ts'
import { eventually } from '../support/eventually.ts'
import { describeHosts, first, second } from '../support/describe-hosts.ts'
import { closeFurther, open, placesOf, type TestHost } from '../support/hosts.ts'
import { archived, askArchive, faultIn, numbers, piecesOf, upTo, writer } from '../support/log-archive.ts'
import { platform } from '../support/platform.ts'
import { facts, layout } from '../support/stack.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'

// A container's output follows it to another host.

const count = 20_000
const twice = [...upTo(count), ...upTo(count)]

let tenant: TestTenant
beforeAll(async () => {
  tenant = await makeTenant()
})
async function writtenOn(host: TestHost): Promise<string> {
  await open([host])
  const { id } = await tenant.containers.make(writer(count, 'sleep 600'))
  await eventually(async () => faultIn(await archived(tenant.owner, id), count) === null)
  return id
}

const isOnlyOn = (id: string, host: TestHost) =>
  eventually(async () => {
    const places = await placesOf(id)
    return places.length === 1 && places[0]?.host === host.id
  })

describeHosts('the archive of a container that is moved', () => {
  afterAll(async () => {
    await removeTenants()
    await closeFurther()
  })

  test('has the output of the old host before that of the new one', async () => {
    const id = await writtenOn(first)
    await open([second])
    await (await tenant.containers.reschedule(id)).operation.success()
    await eventually(async () => (await archived(tenant.owner, id)).length === 2 * count)
    expect(numbers(await archived(tenant.owner, id))).toEqual(twice)
    await isOnlyOn(id, second)
    expect(numbers(await archived(tenant.owner, id))).toEqual(twice)
  })

  testDrawn(
    'names what is missing while the old host is away, and is in order when that host is back',
    async () => {
      const id = await writtenOn(second)
      await platform.kill(second.roles.host)
      await eventually(async () => (await Host.findById(second.id).lean())?.unreachable_since)
      await open([first])
      await (await tenant.containers.reschedule(id)).operation.success()
      const answer = await askArchive(tenant.owner, id)
      let remarks = 0
      for await (const line of answer.lines) if (line.startsWith('[keelson: ')) remarks++
      expect(remarks).toBe(1)
      expect(answer.complete()).toBe('false')

      await platform.start(second.roles.host)
      await isOnlyOn(id, first)
      await eventually(async () => (await archived(tenant.owner, id)).length === 2 * count)
      expect(numbers(await archived(tenant.owner, id))).toEqual(twice)
    },
  )

  test('refuses output from a host that never had the container', async () => {
    const id = await writtenOn(first)
    const stranger = await enrolled(join(layout.state, 'host-2'), () =>
      Promise.reject(new Error('not enrolled')),
    )
    expect(stranger.hostId).toBe(second.id)
    const api = makeInternalApi(facts().api_url, stranger)
    const hash = 'a'.repeat(64)
    const forged = {
      engine_id: hash,
      engine_created_at: '2026-01-01T00:00:00Z',
      file: hash,
      from: 0,
      bytes: 1,
      after_gap: 'false' as const,
    }
    expect(await api.logPiece(id, forged, gzipSync('not what it wrote'))).toBeNull()
    expect((await piecesOf(id)).filter(({ engine_id }) => engine_id === hash)).toEqual([])
    const own = await enrolled(join(layout.state, 'host'), () => Promise.reject(new Error('not enrolled')))
    expect(
      await makeInternalApi(facts().api_url, own).logPiece(id, { ...forged, from: 5 }, gzipSync('x')),
    ).toBe(0)
  })
})
