import { expect, test } from '@jest/globals'
import { parseTasks } from '../../../drivers/swarm/task-samples.ts'

// What a machine says of its containers (drivers/swarm/task-samples.ts), with control groups of both versions.

const network = `@@ at
5000.25
@@ network
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:  500 1 0 0 0 0 0 0  500 1 0 0 0 0 0 0
  eth0: 1000 9 0 0 0 0 0 0 2000 8 0 0 0 0 0 0
`
const version1 = `@@ version1
@@ cpu
7500000
@@ used
3000000
@@ memory
total_cache 5
total_inactive_file 1000000
@@ disk
8:0 Read 4096
8:0 Write 8192
Total 12288
`
const version2 = `@@ version2
@@ cpu
usage_usec 7500
@@ used
3000000
@@ memory
inactive_file 1000000
@@ disk
8:0 rbytes=4096 wbytes=8192 rios=1 wios=2
`
const never = '0001-01-01T00:00:00Z'
const task = (id: string, status: string, started: string, code = 0, ended = never): string =>
  `@@ task ${id} service-${id} ${status} ${started} ${code} ${ended}\n`
const started = '2026-11-24T14:00:00.123456789Z'

const now = '@@ now 5001.25\n'
const arrival = { ms: Date.parse('2026-11-24T15:00:00Z'), uptimeSec: 5004.25 }

test.each([
  ['one', version1],
  ['two', version2],
])('what a container has used is read from control groups of version %s', (_, groups) => {
  expect(parseTasks(task('a', 'running', started) + network + groups + now, arrival)).toEqual({
    ended: [],
    healths: [{ service_id: 'service-a', health: 'none' }],
    running: [
      {
        service_id: 'service-a',
        time: '2026-11-24T14:59:56.000Z',
        started_at: '2026-11-24T14:00:00.123Z',
        cpu_ms: 7,
        memory_bytes: 2_000_000,
        disk_read_bytes: 4096,
        disk_write_bytes: 8192,
        net_rx_bytes: 1000,
        net_tx_bytes: 2000,
      },
    ],
  })
})

test('a sample has the time at which it was read, also in a VM, whose uptime is its own', () => {
  const output = task('a', 'running', started) + network + version1 + now
  const timeAt = (uptimeSec: number) => parseTasks(output, { ...arrival, uptimeSec }).running[0]?.time
  expect(timeAt(5001.25)).toBe('2026-11-24T14:59:59.000Z')
  expect(timeAt(5006.25)).toBe('2026-11-24T14:59:54.000Z')
  expect(timeAt(90_000)).toBe('2026-11-24T14:59:59.000Z')
})

test('what has ended is told with its exit code; what has not begun, or ends during the look, is left out', () => {
  const gone = '@@ network\n@@ version1\n@@ cpu\n@@ used\n@@ memory\n@@ disk\n'
  const output = [
    task('new', 'created', never),
    task('going', 'running', started) + gone,
    task('over', 'exited', started, 137, '2026-11-24T14:00:05Z'),
  ]
  expect(parseTasks(output.join('') + now, arrival)).toEqual({
    running: [],
    healths: [],
    ended: [
      { service_id: 'service-over', engine_id: 'over', exit_code: 137, ended_at: '2026-11-24T14:00:05.000Z' },
    ],
  })
})

test('a machine without services says nothing', () => {
  expect(parseTasks('', arrival)).toEqual({ running: [], healths: [], ended: [] })
})

test.each(['starting', 'healthy', 'unhealthy'])('what runs is told to be %s', (health) => {
  const output = task('a', 'running', started, 0, `${never} ${health}`) + network + version1 + now
  expect(parseTasks(output, arrival).healths).toEqual([{ service_id: 'service-a', health }])
})
