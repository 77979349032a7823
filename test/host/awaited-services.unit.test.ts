import { expect, test } from '@jest/globals'
import { makeDeployServicesOnHost } from '../../activities/host/deploy-services.ts'
import type { FoundSwarmService } from '../../drivers/swarms.ts'
import { inActivity } from '../support/in-activity.ts'

// How long a release without a port must run, and when the wait for it ends.

const running: FoundSwarmService = {
  id: 'worker',
  machine_id: 'machine',
  spec_hash: 'hash',
  task: {
    state: 'running',
    begun: true,
    rejected: false,
    completed: false,
    reason: null,
    exit_code: null,
    container_id: 'container',
    started_at: null,
  },
  failures: 0,
}
const ending: FoundSwarmService = {
  ...running,
  task: {
    ...running.task,
    state: 'ended',
    reason: 'Its command ended with exit code 3',
    exit_code: 3,
  } as never,
  failures: 3,
}

/** Waits within a second until a service without a port counts as one that serves. */
function awaited(looks: () => FoundSwarmService, isAlone = false): Promise<void> {
  const parts = { services: { list: async () => [looks()] } } as never
  const hosted = makeDeployServicesOnHost(parts)
  const places = [{ service_id: 'worker', ip_address: '10.0.0.1', machine_port: null }]
  return inActivity(() => hosted.awaitServingOnHost('manager', places, { path: null, isAlone }, 1))
}

test('a release that runs at the end of its time may go on to show that it stays', async () => {
  let looks = 0
  await awaited(() => {
    looks++
    return running
  })
  expect(looks).toBeGreaterThan(10) // seconds, with pauses of 0.3 s at most
})

test('a release that begins anew at the end of its time fails by the reason of its process', async () => {
  let looks = 0
  const again = (): FoundSwarmService => {
    const container_id = `container ${looks++}`
    const reason = 'Its command ended with exit code 3'
    return { ...running, task: { ...running.task, container_id, reason } as never, failures: 1 }
  }
  await expect(awaited(again)).rejects.toThrow('within 1 s: Its command ended with exit code 3')
})

test('what is alone counts once it runs, and not before', async () => {
  await awaited(() => running, true)
  await expect(awaited(() => ending, true)).rejects.toThrow(
    'does not run: Its command ended with exit code 3',
  )
})
