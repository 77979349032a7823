import { closeSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Worker } from 'node:worker_threads'
import { afterEach, beforeEach, expect, test } from '@jest/globals'
import { hasMore, openAll, removeFile } from '../../../drivers/system/log-names.ts'

// Log files are found in order and removed one by one while another thread renames them, as the engine does.

let folder: string
let path: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'keelson-logs-'))
  path = join(folder, 'c-json.log')
})
afterEach(() => rmSync(folder, { recursive: true }))

/** The engine's `rotate`, step by step, without a pause; each file holds its number and a time. */
const rotations = `
  const { parentPort, workerData: { path, files, most } } = require('node:worker_threads')
  const fs = require('node:fs')
  const pass = (work) => { try { work() } catch (error) { if (error.code !== 'ENOENT') throw error } }
  for (let file = 1; file <= files; file++) {
    // Like an engine whose container waits while too many files do: none is dropped unread.
    while (fs.existsSync(path + '.' + (most - 5))) {}
    pass(() => fs.unlinkSync(path + '.' + most))
    for (let i = most; i > 1; i--) pass(() => fs.renameSync(path + '.' + (i - 1), path + '.' + i))
    pass(() => fs.renameSync(path, path + '.1'))
    const time = new Date(1e12 + file).toISOString()
    fs.writeFileSync(path, JSON.stringify({ log: file, stream: 'stdout', time }) + '\\n')
  }
`

test('each log file is taken once and in order', async () => {
  const files = 3_000
  const most = 40
  const engine = new Worker(rotations, { eval: true, workerData: { path, files, most } })
  let running = true
  const ended = new Promise<void>((resolve, reject) => {
    engine.once('error', reject)
    engine.once('exit', () => {
      running = false
      resolve()
    })
  })
  const taken: number[] = []
  for (;;) {
    const last = !running
    const open = openAll(path, most)
    for (const file of open) {
      const [, number] = /"log":(\d+)/.exec(readFileSync(file.descriptor, 'utf8')) ?? []
      if (number !== undefined && file.number !== 0) {
        // A file that could not be opened comes again, and is recognized, as in the archive.
        if (Number(number) > (taken.at(-1) ?? 0) || !taken.includes(Number(number)))
          taken.push(Number(number))
        removeFile(path, file, most)
      }
      closeSync(file.descriptor)
    }
    if (last) break
    await new Promise((resolve) => setImmediate(resolve))
  }
  await ended
  // The last file is the one that is written to.
  expect(taken).toEqual(Array.from({ length: files - 1 }, (_, i) => i + 1))
  expect(readdirSync(folder)).toEqual(['c-json.log'])
})

test('a log file that took the name of a removed one is kept, and is the next', () => {
  writeFileSync(path, '3')
  writeFileSync(`${path}.1`, '2')
  writeFileSync(`${path}.2`, '1')
  const [oldest, ...others] = openAll(path, 10)
  // The engine has come this far in its next rotation.
  rmSync(path)
  writeFileSync(`${path}.3`, '1')
  rmSync(`${path}.2`)
  const moved = openAll(path, 10)
  for (const { descriptor } of [...others, ...moved, ...(oldest ? [oldest] : [])]) closeSync(descriptor)
  expect(moved.map(({ number }) => number)).toEqual([3, 1])
  expect(hasMore(path, 2)).toBe(true)
  expect(hasMore(path, 3)).toBe(false)
})
