import { afterEach, beforeAll, expect, jest, test } from '@jest/globals'
import { describeHosts } from '../support/describe-hosts.ts'
import { closeFurther } from '../support/hosts.ts'
import { frozenFor, platform, type RoleName } from '../support/platform.ts'
import { sampled } from '../support/sampled.ts'
import { type Scene, storiesOf, within } from '../support/stories.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'

// A process that is frozen (SIGSTOP) for longer than everything waits for it, and then goes on (SIGCONT) where it was: it
// does not know that others took it for dead. Each operation still takes effect exactly once.

jest.setTimeout(900_000)

let tenant: TestTenant
beforeAll(async () => {
  tenant = await makeTenant()
})
afterEach(async () => {
  await closeFurther()
  await removeTenants()
  tenant = await makeTenant()
})

const stories = storiesOf(() => tenant)

const roles: RoleName[] = ['host', 'host-2', 'docker', 'worker', 'gateway', 'api', 'temporal', 'mongodb']
/** Seconds: longer than the host waits for its instances' processes. */
const ownSec = 45

const cases = Object.entries(stories).flatMap(([verb, story]) => [
  ...roles
    .filter((role) => role !== 'host-2' || verb === 'move')
    .map((role) => ({ verb, story, who: role, freeze: () => platform.freeze(role) })),
  ...Object.entries(story.own ?? {}).map(([who, pids]) => ({
    verb,
    story,
    who,
    freeze: async (scene: Scene) => frozenFor(ownSec, await pids(scene)),
  })),
])

describeHosts('with a freeze in the middle,', () => {
  test.each(sampled(cases, 2))(
    '$verb takes effect once, or says why not: $who',
    async ({ story, freeze }) => {
      const scene = await story.before()
      const accepted = await story.begin(scene)
      await story.middle(scene, accepted)
      await freeze(scene)
      const { state, error } = await accepted.operation.end(within)
      // A failed operation says why, in words for tenants.
      if (state !== 'succeeded') expect({ state, code: error?.code }).not.toMatchObject({ code: 'internal' })
      await story.after(scene, state === 'succeeded')
    },
  )
})
