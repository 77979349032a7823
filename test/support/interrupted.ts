import { afterEach, beforeAll, expect } from '@jest/globals'
import { closeFurther } from './hosts.ts'
import { type Scene, storiesOf, type Story } from './stories.ts'
import { makeTenant, removeTenants, type TestTenant } from './tenants.ts'

// Shared by the tests of faults in the middle of an operation. Each test has a tenant of its own.

export let tenant: TestTenant
beforeAll(async () => {
  tenant = await makeTenant()
})
afterEach(async () => {
  await closeFurther()
  await removeTenants()
  tenant = await makeTenant()
})

/** By verb. */
export const stories = Object.entries(storiesOf(() => tenant)).map(([verb, story]) => ({ verb, story }))

/** Carries out an operation with a fault in its middle: it takes effect once, or says why not. */
export async function interrupted<T>(story: Story, fault: (scene: Scene) => Promise<T>): Promise<T> {
  const scene = await story.before()
  const accepted = await story.begin(scene)
  await story.middle(scene, accepted)
  const given = await fault(scene)
  const { state, error } = await accepted.operation.end()
  // A failed operation says why, in words for tenants.
  if (state !== 'succeeded') expect({ state, code: error?.code }).not.toMatchObject({ code: 'internal' })
  await story.after(scene, state === 'succeeded')
  return given
}
