import { beforeAll, describe, expect, test } from '@jest/globals'
import { ScheduledTask } from '../../models/deploy/scheduled-tasks.ts'
import { loadAppImages } from '../support/app-images.ts'
import type { DeployServerBody } from '../support/client.ts'
import { applicationsOf } from '../support/clients/applications.ts'
import { testDrawn } from '../support/drawn.ts'
import { eventually } from '../support/eventually.ts'
import { followLog } from '../support/follow.ts'
import { innerEngine } from '../support/machines-inside.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'
import { visit } from '../support/visits.ts'

// The output, scheduled tasks and storages of applications.

let tenant: TestTenant
let server: DeployServerBody
let apps: ReturnType<typeof applicationsOf>

beforeAll(async () => {
  tenant = await makeTenant()
  server = await tenant.owner.deployServers.make({ worker_count: 2 })
  await loadAppImages(tenant.owner, server)
  apps = applicationsOf(tenant.owner, server.id)
})

describe('the output of an application', () => {
  test('has the lines of all replicas in order of time', async () => {
    const app = await apps.make({ tag: 'chatty', replicas: 2 })
    const lines = await eventually(async () => {
      const found = await apps.logs(app.id)
      return found.length >= 8 && found
    })
    const times = lines.map((one) => String(one['time']))
    expect(times).toEqual(times.toSorted((a, b) => (a < b ? -1 : 1)))
    expect(new Set(lines.map(({ worker }) => worker))).toEqual(new Set(['w1', 'w2']))
    for (const { replica } of lines)
      expect(
        lines.filter((one) => one.replica === replica).map(({ stream, line }) => [stream, line]),
      ).toEqual(
        expect.arrayContaining([
          ['stdout', 'line 1'],
          ['stdout', 'line 2'],
          ['stdout', 'line 3'],
          ['stderr', 'oops'],
        ]),
      )
    expect(new Set(lines.map(({ deployment_id }) => deployment_id))).toEqual(new Set([app.deployment_id]))
    expect(await apps.logs(app.id, '?lines=2')).toHaveLength(2)
    const time = lines.at(-1)?.['time']
    expect(await apps.logs(app.id, `?since=${encodeURIComponent(String(time))}`)).toEqual(lines.slice(-1))
  })

  test('is followed to the next release', async () => {
    const app = await apps.make({ tag: 'chatty' })
    const path = `/api/v1/deploy-servers/${server.id}/applications/${app.id}/logs?follow=true&lines=0`
    const following = await followLog<{ line: string; deployment_id: string }>(tenant.owner, path)
    const { id, operation } = await apps.deploy(app.id)
    await operation.success()
    const ofNext = () => following.lines.filter(({ deployment_id }) => deployment_id === id)
    await eventually(() => ofNext().length >= 4)
    await following.stop()
    expect(
      ofNext()
        .map(({ line }) => line)
        .toSorted(),
    ).toEqual(['line 1', 'line 2', 'line 3', 'oops'])
    expect(following.lines).toHaveLength(4)
  })

  test('stays in the log of a deployment that failed', async () => {
    const app = await apps.create({ tag: 'crash' })
    expect(await app.operation.end()).toMatchObject({ state: 'failed' })
    const [deployment] = await apps.deployments(`&app_id=${app.id}`)
    const { log } = await apps.deployment(deployment?.id ?? '')
    expect(log.map(({ line }) => line)).toEqual(
      expect.arrayContaining([
        expect.stringMatching(/^the last output of the replica on w\d:$/),
        'cannot go on',
      ]),
    )
  })
})

describe('a scheduled task', () => {
  test('runs in the application when it is due, and keeps its output', async () => {
    const app = await apps.make({ envs: { GREETING: 'hello' } })
    const { status, body: task } = await apps.addTask(app.id, {
      frequency: '* * * * *',
      command: 'echo "$GREETING from the task"; cat /proc/self/oom_score_adj >&2',
    })
    expect([status, task['timezone'], task['enabled']]).toEqual([201, 'UTC', true])
    expect(new Date(String(task['next_at'])).getSeconds()).toBe(0)
    const run = await eventually(async () => {
      const [first] = await apps.runs(app.id, String(task['id']))
      return first?.status === 'succeeded' && first
    })
    expect(run).toMatchObject({ scheduled_at: task['next_at'], exit_code: 0, operation_id: null })
    // If memory runs out, the kernel ends the task and not the application.
    expect(run.output.trim().split('\n').toSorted()).toEqual(['1000', 'hello from the task'])
    const { id } = app
    const path = `/api/v1/deploy-servers/${server.id}/applications/${id}/scheduled-tasks`
    const paused = await tenant.owner.ask('PATCH', `${path}/${String(task['id'])}`, { enabled: false })
    expect(paused.body).toMatchObject({ enabled: false, next_at: null })
    expect((await tenant.owner.ask('DELETE', `${path}/${String(task['id'])}`)).status).toBe(204)
    expect(await tenant.owner.get(path)).toEqual({ items: [], total: 0 })
  })

  testDrawn('fails with the exit code, with a time limit, and when it is cancelled', async () => {
    const app = await apps.make()
    const add = async (body: object): Promise<string> =>
      String((await apps.addTask(app.id, { ...body })).body['id'])
    const failing = await add({ command: 'echo no >&2; exit 3' })
    const run = await apps.runTask(app.id, failing)
    expect(await run.operation.end()).toMatchObject({ state: 'failed', error: { code: 'command_failed' } })
    expect(await apps.runs(app.id, failing)).toMatchObject([
      { status: 'failed', exit_code: 3, output: 'no\n', status_reason: 'The command ended with exit code 3' },
    ])

    const slow = await add({ command: 'echo begun; sleep 3600 & sleep 3600', timeout_sec: 1 })
    const late = await apps.runTask(app.id, slow)
    expect(await late.operation.end()).toMatchObject({ state: 'failed', error: { code: 'timed_out' } })
    expect(await apps.runs(app.id, slow)).toMatchObject([{ status: 'failed', output: 'begun\n' }])

    const long = await add({ command: 'sleep 3600' })
    const cancelled = await apps.runTask(app.id, long)
    await eventually(() => sleeping('3600'))
    await tenant.owner.ask('POST', `/api/v1/operations/${cancelled.operation.id}/cancel`)
    expect(await cancelled.operation.end()).toMatchObject({ state: 'cancelled' })
    // Neither command is left in the container.
    expect(await sleeping('3600')).toBe(false)
  })

  testDrawn('does not run while it runs, unless it may overlap', async () => {
    const app = await apps.make()
    const { body } = await apps.addTask(app.id, { command: 'sleep 3602' })
    const task = String(body['id'])
    const path = `/api/v1/deploy-servers/${server.id}/applications/${app.id}/scheduled-tasks/${task}`
    const runNow = () => tenant.owner.ask('POST', `${path}/run`)
    const answers = await Promise.all([runNow(), runNow(), runNow()])
    expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([202, 409, 409])
    const { operation_id } = answers.find(({ status }) => status === 202)?.body ?? {}
    for (const { status, body: refused } of answers)
      if (status === 409) expect(refused).toMatchObject({ code: 'operation_in_progress', operation_id })

    const statuses = async () => (await apps.runs(app.id, task)).map((run) => run.status).toSorted()
    /** The clock of the workers finds the task due. */
    const isDue = async (): Promise<void> => {
      await ScheduledTask.updateOne({ _id: task, tenant_id: tenant.id }, { next_at: new Date() })
    }
    await isDue()
    await eventually(async () => (await statuses()).join() === 'creating,skipped')
    const [skipped] = (await apps.runs(app.id, task)).filter(({ status }) => status === 'skipped')
    expect(skipped).toMatchObject({ exit_code: null, status_reason: 'The previous run had not ended' })

    await tenant.owner.ask('PATCH', path, { overlaps: true })
    await isDue()
    await eventually(async () => (await statuses()).join() === 'creating,creating,skipped')
    expect((await runNow()).status).toBe(202)
    expect(await statuses()).toEqual(['creating', 'creating', 'creating', 'skipped'])
    await (await apps.delete(app.id)).operation.success()
  })

  test.each([
    ['six fields', { frequency: '* * * * * *' }, '/frequency'],
    ['a minute of 60', { frequency: '60 * * * *' }, '/frequency'],
    ['a time zone that is none', { frequency: '* * * * *', timezone: 'Mars/Base' }, '/timezone'],
  ])('is refused with %s', async (_, body, pointer) => {
    const { id } = await apps.create({ deploy: false }).catch(() => ({ id: '' }))
    const app = id || (await anApplication())
    const answer = await apps.addTask(app, { command: 'true', ...body })
    expect([answer.status, answer.body['errors']]).toEqual([422, [{ pointer, message: expect.any(String) }]])
  })
})

describe('a storage', () => {
  test('keeps its files over deployments, and is destroyed with the deployment after its removal', async () => {
    const app = await apps.make({ replicas: 2 })
    const { body: storage, status } = await apps.addStorage(app.id, '/data')
    expect([status, storage['name']]).toEqual([201, 'data'])
    const taken = await apps.addStorage(app.id, '/data')
    expect([taken.status, taken.body['code']]).toEqual([409, 'storage_taken'])
    await (await apps.deploy(app.id)).operation.success()

    const { body } = await apps.addTask(app.id, { command: 'echo kept >>/data/file; cat /data/file' })
    const task = String(body['id'])
    await (await apps.runTask(app.id, task)).operation.success()
    await (await apps.deploy(app.id, { tag: 'v2' })).operation.success()
    await (await apps.runTask(app.id, task)).operation.success()
    expect((await apps.runs(app.id, task))[0]?.output).toBe('kept\nkept\n')
    expect((await visit(app.url)).text).toBe('v2')
    expect(await volumesOn('w1', 'w2')).toHaveLength(1)

    expect((await apps.removeStorage(app.id, String(storage['id']))).status).toBe(204)
    await (await apps.deploy(app.id)).operation.success()
    expect(await volumesOn('w1', 'w2')).toEqual([])
  })

  testDrawn('keeps its worker, and ends with its application', async () => {
    // Swarm starts each on the worker with fewer replicas, so after a few one is on w2.
    const made: string[] = []
    while ((await volumesOn('w2')).length === 0) {
      const { id } = await apps.make()
      made.push(id)
      await apps.addStorage(id, '/data')
      await (await apps.deploy(id)).operation.success()
    }
    const { status, body } = await tenant.owner.ask('PUT', `/api/v1/deploy-servers/${server.id}`, {
      worker_count: 1,
    })
    expect([status, body['code']]).toEqual([409, 'storage_on_worker'])
    for (const id of made) await (await apps.delete(id)).operation.success()
    expect(await volumesOn('w1', 'w2')).toEqual([])
  })
})

async function anApplication(): Promise<string> {
  const path = `/api/v1/deploy-servers/${server.id}/applications?limit=1`
  return (await tenant.owner.get<{ items: { id: string }[] }>(path)).items[0]?.id ?? ''
}

const engines = (names = ['w1', 'w2']) =>
  Promise.all(
    server.workers
      .filter(({ name }) => names.includes(name))
      .map(({ machine_id }) => innerEngine(tenant.owner, machine_id)),
  )

/** The applications’ volumes on these workers. */
async function volumesOn(...names: string[]): Promise<string[]> {
  const lists = (await engines(names)).map((engine) =>
    engine.listVolumes({ filters: { label: ['keelson.application'] } }),
  )
  return (await Promise.all(lists)).flatMap(({ Volumes }) => Volumes.map(({ Name }) => Name))
}

/** Whether a replica runs `sleep` for this time. */
async function sleeping(time: string): Promise<boolean> {
  for (const engine of await engines())
    for (const { Id } of await engine.listContainers({ filters: { label: ['keelson.application'] } })) {
      const { Processes } = (await engine.getContainer(Id).top()) as { Processes: string[][] }
      if (Processes.some((fields) => fields.at(-1) === `sleep ${time}`)) return true
    }
  return false
}
