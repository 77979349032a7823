import { describe, expect, test } from '@jest/globals'
import { type Look, NewChecks } from '../../../drivers/haproxy/health.ts'
import type { StatRow } from '../../../drivers/haproxy/runtime.ts'
import { newId } from '../../../lib/ids.ts'
import { eventually } from '../../support/eventually.ts'
import {
  applied,
  ask,
  balancer,
  balancers,
  killTargets,
  noTarget,
  portOf,
  route,
  startTargets,
  target,
  withLoadBalancers,
} from '../../support/load-balancers.ts'

// Which checks of targets are new.

const targets = [{ route_id: 'a', target_ids: ['b'] }]

/** A look at the only target. `at`: milliseconds since the first look. */
const seen = (
  at: number,
  check_status: string,
  { worker = '1', ...over }: StatRow & { worker?: string } = {},
): Look => ({
  worker,
  rows: [
    { pxname: 'r-a', svname: 's-b', status: 'UP', check_status, check_duration: '0', ...over },
    { pxname: 'g-a', svname: 's-b', status: 'UP', check_status: '', check_duration: '' },
  ],
  askedAt: at,
  answeredAt: at + 10,
})

/** The reason after each look, with an interval of a second; null: found healthy. */
function reasonsAfter(looks: Look[]): (string | null)[] {
  const checks = new NewChecks(targets, 1)
  return looks.map((look) => checks.unreached(look)[0]?.reason ?? null)
}

const notYet = 'it was not checked again'
const refused = 'it refused the connection or cannot be reached'

describe('a target has passed a new check', () => {
  test('when its last check differs from that of the first look', () => {
    expect(reasonsAfter([seen(0, 'L4CON'), seen(100, 'L4CON'), seen(200, 'L4OK')])).toEqual([
      refused,
      refused,
      null,
    ])
    expect(reasonsAfter([seen(0, 'L4OK'), seen(100, 'L4OK', { check_duration: '3' })])).toEqual([
      notYet,
      null,
    ])
  })

  test('when an interval has passed, if its checks say the same', () => {
    expect(reasonsAfter([seen(0, 'L4OK'), seen(1_000, 'L4OK'), seen(1_300, 'L4OK')])).toEqual([
      notYet,
      notYet,
      null,
    ])
  })

  test('but not by the end of a check that ran at the first look', () => {
    const looks = [seen(0, '* L4CON'), seen(100, 'L4OK'), seen(1_300, 'L4OK'), seen(1_400, 'L4OK')]
    expect(reasonsAfter(looks)).toEqual([refused, notYet, notYet, null])
  })

  test('but not while the next check runs that began an interval after the last one', () => {
    expect(reasonsAfter([seen(0, 'L4OK'), seen(1_300, '* L4OK'), seen(1_400, 'L4TOUT')])).toEqual([
      notYet,
      notYet,
      'it did not accept the connection in time',
    ])
  })

  test('but not by what a reload takes over', () => {
    const after = { worker: '2', check_duration: '1' }
    const looks = [
      seen(0, 'L4OK'),
      seen(900, 'L4OK', after),
      seen(1_300, 'L4OK', after),
      seen(2_200, 'L4OK', after),
    ]
    expect(reasonsAfter(looks)).toEqual([notYet, notYet, notYet, null])
  })

  test('but not by one of several that it needs', () => {
    const looks = [
      seen(0, 'L4CON', { status: 'DOWN' }),
      seen(100, 'L4OK', { status: 'DOWN 1/2' }),
      seen(1_100, 'L4OK'),
    ]
    expect(reasonsAfter(looks)).toEqual([refused, 'not enough checks have passed', null])
  })

  test('but not if it is not there, has no check or takes no part', () => {
    const nothing = { worker: '1', rows: [], askedAt: 0, answeredAt: 0 }
    expect(reasonsAfter([nothing, seen(1_300, ''), seen(2_600, 'L4OK', { status: 'MAINT' })])).toEqual([
      'the load balancer has no such target',
      'it was not checked',
      'its instance does not run',
    ])
  })
})

withLoadBalancers('a new check of a load balancer', () => {
  const wanted = target()
  const main = route({ targets: [wanted] })
  const spec = balancer({ routes: [main] })
  const its = [{ route_id: main.id, target_ids: [wanted.id] }]

  test('finds what has ended, is away, and is back', async () => {
    await applied(spec)
    const port = await portOf(spec.id)
    const health = async () => (await balancers.find(spec.id))?.targets[0]?.health
    await eventually(async () => (await health()) === 'healthy')
    const gone = { route_id: main.id, target_id: wanted.id, reason: refused }
    await killTargets()
    expect(await balancers.recheck(spec.id, its, 2_000)).toEqual([gone])
    await eventually(async () => (await health()) === 'unhealthy')
    await startTargets()
    expect(await balancers.recheck(spec.id, its, 20_000)).toEqual([])
    expect((await ask(port, '/')).status).toBe(200)
    await killTargets() // so soon after a check that none has failed
    const starting = startTargets()
    expect(await balancers.recheck(spec.id, its, 20_000)).toEqual([])
    await starting
    expect((await ask(port, '/')).status).toBe(200)
  })

  test('is waited for no longer than asked', async () => {
    const silent = target({ address: noTarget })
    const other = route({ targets: [silent] })
    await applied(balancer({ ...spec, routes: [main, other] }))
    const both = [...its, { route_id: other.id, target_ids: [silent.id] }]
    expect(await balancers.recheck(spec.id, both, 3_000)).toMatchObject([{ target_id: silent.id }])
    const unknown = newId()
    expect(await balancers.recheck(unknown, its, 0)).toMatchObject([{ target_id: wanted.id }])
    const stopping = new AbortController()
    const waiting = balancers.recheck(spec.id, both, 60_000, stopping.signal)
    stopping.abort()
    await expect(waiting).rejects.toThrow()
  })
})
