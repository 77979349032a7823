import { expect, test } from '@jest/globals'
import { newestTask, reasonOf, type Task } from '../../../drivers/swarm/tasks.ts'

// What is told of a service, by its tasks.

const task = (second: number, State: string, exitCode?: number): Task => ({
  ServiceID: 's',
  CreatedAt: `2026-01-01T00:00:0${second}Z`,
  Spec: { ContainerSpec: { Image: 'demo:v1' } },
  Status: {
    State,
    Timestamp: `2026-01-01T00:00:0${second}Z`,
    ...(exitCode === undefined ? {} : { ContainerStatus: { ExitCode: exitCode } }),
  },
})
const since = Date.parse('2026-01-01T00:00:00Z')

test('a service that runs has no reason', () => {
  expect(newestTask([task(1, 'running')], since)).toMatchObject({
    failures: 0,
    task: { state: 'running', reason: null },
  })
})

test.each(['running', 'starting', 'failed'])(
  'a service whose newest task is %s says why the one before it ended',
  (state) => {
    const failed = task(1, 'failed', 3)
    const newest = state === 'failed' ? task(2, 'failed', 3) : task(2, state)
    expect(newestTask([failed, newest], since).task?.reason).toBe('Its command ended with exit code 3')
  },
)

test('a failure before the last change of the service does not count', () => {
  expect(newestTask([task(1, 'failed', 3), task(5, 'running')], since + 3_000)).toMatchObject({
    failures: 0,
    task: { reason: null },
  })
})

test('a container that cannot be started says why, though the engine tells of an exit code', () => {
  const { Status, ...rejected } = task(1, 'rejected', 0)
  const Err =
    'starting container failed: lstat /var/lib/docker/overlay2/1/merged/etc/passwd/x: not a directory'
  expect(reasonOf({ ...rejected, Status: { ...Status, Err } })).toBe(
    'One of its mount paths is below a file of its image',
  )
})
