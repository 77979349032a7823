import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setImmediate as turn } from 'node:timers/promises'
import { afterEach, beforeEach, expect, test } from '@jest/globals'
import { MachineConsole } from '../../../drivers/qemu/console.ts'
import { LogWriter } from '../../../drivers/qemu/logs.ts'
import { makeMachinePlaces } from '../../../drivers/qemu/places.ts'
import { newRecord } from '../../../drivers/qemu/records.ts'
import { serialLines } from '../../../drivers/qemu/serial-log.ts'
import type { MachineSpec } from '../../../drivers/machines.ts'
import { eventually } from '../../support/eventually.ts'

// A tenant is root in the machine, and can write to its serial line as fast as it can.

let folder: string
let server: Server
let guest: Promise<Socket>

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'serial-'))
  guest = new Promise((resolve) => {
    server = createServer((socket) => {
      socket.on('error', () => {})
      resolve(socket)
    })
  })
  await new Promise<void>((resolve) => server.listen(join(folder, 'console.sock'), resolve))
})
afterEach(async () => {
  server.close()
  await rm(folder, { recursive: true })
})

test('a host reads a flood of empty lines slowly, and does other work in between', async () => {
  let bytes = 0
  const console = await MachineConsole.connect(
    join(folder, 'console.sock'),
    (data) => void (bytes += data.length),
  )
  const flood = 4 * 1024 ** 2
  ;(await guest).write(Buffer.alloc(flood, '\n'))
  await eventually(() => bytes > 0)
  // In a turn of its event loop it would read a piece of 64 KiB.
  for (let turns = 0; turns < 200; turns++) await turn()
  expect(bytes).toBeLessThan(flood / 4)
  console.close()
})

test('all lines of a piece are logged at once, in order and numbered', async () => {
  const place = makeMachinePlaces(folder, folder)('one')
  const spec = { id: 'one', log_cap_mib: 1 } as MachineSpec
  const of = { spec, image_digest: '', operation_id: 'op', launched: null, kernel: null }
  const logs = new LogWriter(place, newRecord(of), 0)
  const calls: number[] = []
  const take = serialLines((lines) => {
    calls.push(lines.length)
    logs.addAll(lines)
  })
  take(Buffer.from('one\r\ntwo\n\nthr'))
  take(Buffer.from('ee\n'))
  expect(calls).toEqual([3, 1])
  const entries = (await readFile(logs.source.path, 'utf8'))
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as { log: string; attrs: { n: string } })
  expect(entries.map(({ log, attrs }) => [log, attrs.n])).toEqual([
    ['one\n', '1'],
    ['two\n', '2'],
    ['\n', '3'],
    ['three\n', '4'],
  ])
  logs.close()
})

test('a line without an end is split', () => {
  const lines: Buffer[] = []
  const take = serialLines((some) => lines.push(...some))
  take(Buffer.alloc(40 * 1024, 'x'))
  expect(lines.map(({ length }) => length)).toEqual([16 * 1024, 16 * 1024])
})
