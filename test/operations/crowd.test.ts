import { expect, test } from '@jest/globals'
import { engine } from '../support/engine.ts'
import '../support/exclusive.ts'
import { isLong } from '../support/long.ts'
import { holdsNothing, makeTenant } from '../support/tenants.ts'

const size = isLong ? 200 : 80

test(
  `${size} parallel creates all succeed, none twice, and the API answers meanwhile`,
  async () => {
    const tenant = await makeTenant()
    const asking = new AbortController()
    const reads = readAlong(tenant.owner.get.bind(tenant.owner), asking.signal)

    const accepted = await Promise.all(Array.from({ length: size }, () => tenant.containers.create()))
    const ends = await Promise.all(accepted.map(({ operation }) => operation.end(540_000)))
    expect(ends.filter(({ state }) => state !== 'succeeded')).toEqual([])
    asking.abort()
    expect(await reads).toBeGreaterThan(size)

    const containers = await engine.withLabel('keelson.tenant', tenant.id)
    expect(containers.map(({ State }) => State)).toEqual(accepted.map(() => 'running'))
    expect(new Set(containers.map(({ Labels }) => Labels['keelson.resource'])).size).toBe(size)
    expect(await tenant.owner.get('/api/v1/containers?status=running&limit=0')).toMatchObject({ total: size })
    for (const state of ['pending', 'running'])
      expect(await tenant.owner.get(`/api/v1/operations?state=${state}`)).toMatchObject({ total: 0 })
    expect(await tenant.holds()).toEqual({ cpu_milli: 100 * size, memory_mib: 16 * size, reservations: size })

    const deletions = await Promise.all(accepted.map(({ id }) => tenant.containers.delete(id)))
    const gone = await Promise.all(deletions.map(({ operation }) => operation.end(540_000)))
    expect(gone.filter(({ state }) => state !== 'succeeded')).toEqual([])
    expect(await engine.withLabel('keelson.tenant', tenant.id)).toEqual([])
    expect(await tenant.owner.get('/api/v1/containers')).toMatchObject({ total: 0 })
    expect(await tenant.holds()).toEqual(holdsNothing)
  },
  20 * 60_000,
)

/** Reads lists one after the other until aborted; rejects when a request fails. Returns the number of requests. */
async function readAlong(get: (path: string) => Promise<unknown>, signal: AbortSignal): Promise<number> {
  for (let count = 0; ; count++) {
    if (signal.aborted) return count
    await get('/api/v1/containers')
  }
}
