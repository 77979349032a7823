import { test } from '@jest/globals'
import { describeHosts } from '../support/describe-hosts.ts'
import { interrupted, stories } from '../support/interrupted.ts'
import { frozenFor, platform, type RoleName } from '../support/platform.ts'
import { sampled } from '../support/sampled.ts'
import type { Scene } from '../support/stories.ts'

// A process that is frozen (SIGSTOP) for longer than everything waits for it, and then goes on (SIGCONT) where it was: it
// does not know that others took it for dead. Each operation still takes effect exactly once.

const roles: RoleName[] = ['host', 'host-2', 'docker', 'worker', 'gateway', 'api', 'temporal', 'mongodb']
/** Seconds: longer than the host waits for its instances' processes. */
const ownSec = 45

const cases = stories.flatMap(({ verb, story }) => [
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
  test.each(sampled(cases, 2))('$verb takes effect once, or says why not: $who', async ({ story, freeze }) =>
    interrupted(story, freeze),
  )
})
