import { afterEach, expect, test } from '@jest/globals'
import type { LogEntry, LogOptions } from '../../../drivers/containers.ts'
import { newId } from '../../../lib/ids.ts'
import { containerSpec, docker, engine, removeTestContainers, shell } from '../../support/containers.ts'
import { eventually } from '../../support/eventually.ts'

afterEach(removeTestContainers)

const job = (script: string) => shell(script, { restart_policy: 'never', cpu_cores: 1, log_cap_mib: 50 })

async function read(id: string, options: LogOptions = {}): Promise<LogEntry[]> {
  const entries: LogEntry[] = []
  for await (const entry of engine.logs(id, options)) entries.push(entry)
  return entries
}

/** Runs a script to its end. */
async function ran(script: string): Promise<string> {
  const { id } = await engine.run(job(script), {}, newId())
  await eventually(async () => (await engine.find(id))?.state === 'exited')
  return id
}

test('the log has 20,000 lines of both streams, completely and in order', async () => {
  const id = await ran('seq 1 10000; seq 10001 20000 >&2')
  const entries = await read(id)
  for (const [stream, first] of [
    ['stdout', 1],
    ['stderr', 10_001],
  ] as const) {
    const numbers = entries.filter((entry) => entry.stream === stream).map(({ line }) => Number(line))
    expect(numbers).toEqual(Array.from({ length: 10_000 }, (_, index) => first + index))
  }
})

test('the log has the last lines, and those since a time to the nanosecond', async () => {
  const id = await ran('seq 1 50')
  const entries = await read(id)
  expect(await read(id, { lines: 3 })).toEqual(entries.slice(-3))
  const since = entries[20]?.time ?? ''
  expect(since).toMatch(/\.\d{9}Z$/)
  expect(await read(id, { since })).toEqual(entries.slice(20))
  expect(await read(id, { since, lines: 2 })).toEqual(entries.slice(-2))
  const elsewhere = since.replace('Z', '+00:00')
  expect(await read(id, { since: elsewhere })).toEqual(entries.slice(20))
})

test('a long line is one log line, and an endless one is split', async () => {
  const id = await ran(
    `head -c 50000 /dev/zero | tr '\\0' x; echo; head -c 200000 /dev/zero | tr '\\0' y; echo end`,
  )
  const entries = await read(id)
  expect(entries[0]?.line).toBe('x'.repeat(50_000))
  expect(
    entries
      .slice(1)
      .map(({ line }) => line)
      .join(''),
  ).toBe(`${'y'.repeat(200_000)}end`)
  expect(Math.max(...entries.map(({ line }) => line.length))).toBeLessThan(100_000)
})

test('following continues over a restart without gaps or repeats, and ends when the container is removed', async () => {
  const spec = shell('echo up; sleep 600')
  await engine.run(spec, {}, newId())
  const following = read(spec.id, { follow: true })
  await eventually(async () => (await read(spec.id)).length === 1)
  await engine.stop(spec.id, 0)
  await engine.run(spec, {}, newId())
  await eventually(async () => (await read(spec.id)).length === 2)
  await engine.remove(spec.id)
  expect((await following).map(({ line }) => line)).toEqual(['up', 'up'])
})

test('following ends when its reader leaves', async () => {
  const spec = shell('while true; do echo tick; sleep 0.02; done')
  await engine.run(spec, {}, newId())
  const enough = new AbortController()
  let seen = 0
  for await (const _ of engine.logs(spec.id, { follow: true, signal: enough.signal })) {
    if (++seen === 5) enough.abort()
  }
  expect(seen).toBeGreaterThanOrEqual(5)
  for await (const { line } of engine.logs(spec.id, { follow: true })) {
    expect(line).toBe('tick')
    break
  }
})

test('logs of a missing container are refused', async () => {
  await expect(read(newId())).rejects.toMatchObject({ code: 'instance_not_found' })
})

test('a watcher sees a kill on the engine, and no event of other containers', async () => {
  const stop = new AbortController()
  const seen: (string | null)[] = []
  const watching = engine.watch((id) => void seen.push(id), stop.signal)
  try {
    await eventually(() => seen.includes(null))
    const spec = containerSpec({ restart_policy: 'never' })
    await engine.run(spec, {}, newId())
    await eventually(() => seen.includes(spec.id))

    const foreign = await docker.createContainer({ Image: 'busybox', Cmd: ['true'] })
    await foreign.remove({ force: true })
    seen.length = 0
    await docker.getContainer(`keelson-${spec.id}`).kill()
    await eventually(() => seen.includes(spec.id))
    expect(new Set(seen)).toEqual(new Set([spec.id]))
    expect(await engine.find(spec.id)).toMatchObject({ state: 'exited', exit_code: 137 })
  } finally {
    stop.abort()
    await watching
  }
})

test('the restarts of a crash-looping container are counted', async () => {
  // Its first end waits until the start has been reported: until then, an end is a failed start.
  const spec = shell('until [ -e /crash ]; do sleep 0.1; done; sleep 0.3; exit 4')
  await engine.run(spec, {}, newId())
  const crash = await docker.getContainer(`keelson-${spec.id}`).exec({ Cmd: ['touch', '/crash'] })
  await crash.start({})
  const found = await eventually(async () => {
    const now = await engine.find(spec.id)
    return now && now.restart_count > 0 && now
  })
  expect(found.state).toBe('running')
})
