import { Agent } from 'node:http'
import { expect, test } from '@jest/globals'
import { isLong } from '../../support/long.ts'
import {
  applied,
  ask,
  balancer,
  portOf,
  route,
  target,
  targetAddresses,
  withLoadBalancers,
} from '../../support/load-balancers.ts'

// Canaries stand on weights: requests are shared in their proportion.

const [major = '', minor = ''] = targetAddresses
const requests = isLong ? 10_000 : 1_000
const clients = 10

withLoadBalancers('weights', () => {
  test(`of 90 and 10 share ${requests} requests within one percent`, async () => {
    const targets = [target({ address: major, weight: 90 }), target({ address: minor, weight: 10 })]
    const spec = balancer({ routes: [route({ targets })] })
    await applied(spec)
    const port = await portOf(spec.id)
    const counts = new Map<string | undefined, number>()
    const agent = new Agent({ keepAlive: true, maxSockets: clients })
    await Promise.all(
      Array.from({ length: clients }, async () => {
        for (let count = 0; count < requests / clients; count++) {
          const { got } = await ask(port, '/', { agent })
          counts.set(got?.address, (counts.get(got?.address) ?? 0) + 1)
        }
      }),
    )
    agent.destroy()
    expect((counts.get(major) ?? 0) + (counts.get(minor) ?? 0)).toBe(requests)
    expect(Math.abs((counts.get(minor) ?? 0) / requests - 0.1)).toBeLessThanOrEqual(0.01)
  })
})
