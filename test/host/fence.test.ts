import { randomUUID } from 'node:crypto'
import { afterEach, expect, test } from '@jest/globals'
import { readSettings } from '../../config.ts'
import { removeContainerNetworks } from '../../drivers/docker/network.ts'
import { labels } from '../../drivers/docker/spec.ts'
import { removeFence } from '../../drivers/linux/fences.ts'
import { run } from '../../drivers/system/programs.ts'
import { makeLogger } from '../../lib/log.ts'
import { openFence } from '../../worker/host/fence.ts'
import { asRoot } from '../support/as-root.ts'
import { docker } from '../support/containers.ts'

// A host whose engine has its bridges elsewhere, such as in a VM, cannot keep tenants' containers apart. It starts none.

const hostId = `test-${randomUUID()}`
const namespace = `kt-${randomUUID().slice(0, 8)}`
const settings = readSettings('host')
afterEach(async () => {
  await removeContainerNetworks(settings.KEELSON_DOCKER_HOST, hostId)
  await run('ip', ['netns', 'delete', namespace]).catch(() => {}) // not every test has made it
})

const opened = (over: Partial<typeof settings>) =>
  openFence({ ...settings, ...over }, hostId, {
    signal: new AbortController().signal,
    log: makeLogger('host', 'silent'),
  })

asRoot('a host', () => {
  test('moves what it runs on the engine’s default network behind its fence', async () => {
    const container = await docker.createContainer({
      Image: 'busybox:latest',
      Cmd: ['sleep', '600'],
      Labels: { [labels.host]: hostId },
    })
    try {
      await container.start()
      const { network } = await opened({ KEELSON_CONTAINER_BRIDGE: undefined })
      const { NetworkSettings, State } = await container.inspect()
      expect(Object.keys(NetworkSettings.Networks)).toEqual([await network()])
      expect(State.Running).toBe(true)
    } finally {
      await container.remove({ force: true })
      await removeFence({ host: hostId, namespace: null })
    }
  })
})

asRoot('a host does not start', () => {
  test('beside an engine whose bridges are in another network namespace, and says what it needs', async () => {
    await run('ip', ['netns', 'add', namespace])
    await expect(opened({ KEELSON_HOST_NAMESPACE: namespace })).rejects.toThrow(
      /cannot keep its containers apart.*docs\/hosts\.md#containers\).*not in the network namespace of this host/,
    )
  })

  test('with a bridge that is not the one of the engine’s default network', async () => {
    await expect(opened({ KEELSON_CONTAINER_BRIDGE: 'other0' })).rejects.toThrow(
      /cannot keep its containers apart.*other0 is not the bridge/,
    )
  })
})
