import { spawn } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterEach, describe, expect, test } from '@jest/globals'
import { EngineUnavailable, HostNotEquipped } from '../../../drivers/errors.ts'
import { livingProcess, processesWith, run, stderrOf, useLauncher } from '../../../drivers/system/programs.ts'
import { processStat } from '../../../drivers/system/process-stat.ts'
import { eventually } from '../../support/eventually.ts'

// Programs are started by the launcher, or by this process where there is none: both do the same.

const launcher = join(process.env['KEELSON_TOOLS'] ?? '.state/tools', 'launcher/launcher')
const starters = { 'the launcher': launcher, 'this process': null }

afterEach(() => useLauncher(launcher))

describe.each(Object.entries(starters))('a program started by %s', (_, path) => {
  const started: typeof run = (...args) => {
    useLauncher(path)
    return run(...args)
  }

  test('reads its input, and its output is returned whole', async () => {
    const input = `${'ÄÖÜ '.repeat(100_000)}\n`
    expect(await started('cat', [], { input })).toBe(input)
    expect(await started('printf', ['%s|', 'a b', '$HOME', "'"])).toBe("a b|$HOME|'|")
  })

  test('inherits none of our settings', async () => {
    process.env['KEELSON_SECRET'] = 'secret'
    try {
      expect((await started('env', [])).split('\n').filter(Boolean).toSorted()).toEqual([
        'LC_ALL=C',
        'PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
      ])
    } finally {
      delete process.env['KEELSON_SECRET']
    }
  })

  test('says its output as it comes', async () => {
    const parts: string[] = []
    const onOutput = (text: string): void => void parts.push(text)
    const said = await started('sh', ['-c', 'echo one; read line; echo $line'], { input: 'two\n', onOutput })
    expect(said).toBe('one\ntwo\n')
    expect(parts.join('')).toBe(said)
  })

  test('fails with what it wrote to stderr', async () => {
    const failure = await started('sh', ['-c', 'echo wrong >&2; exit 3']).catch((error: unknown) => error)
    expect(failure).toBeInstanceOf(EngineUnavailable)
    expect(stderrOf(failure)).toBe('wrong\n')
    expect((failure as Error).cause).toMatchObject({ code: 3 })
  })

  test('that is missing is named', async () => {
    await expect(started('no-such-program', [])).rejects.toThrow(HostNotEquipped)
  })

  test('that does not read its input may succeed', async () => {
    expect(await started('true', [], { input: 'x'.repeat(1 << 20) })).toBe('')
  })

  test('is killed when its caller gives up', async () => {
    const seconds = uniqueSeconds()
    const giving = new AbortController()
    const failure = started('sleep', [seconds], { signal: giving.signal }).catch((error: unknown) => error)
    const [found] = await eventually(async () => {
      const all = await processesWith(seconds)
      return all.length > 0 && all
    })
    giving.abort(new Error('given up'))
    expect(await failure).toMatchObject({ message: 'given up' })
    await eventually(async () => (await livingProcess(found?.pid ?? 0)) === null)
  })

  test('is one of many at once', async () => {
    const numbers = Array.from({ length: 50 }, (_one, i) => String(i))
    useLauncher(path)
    expect(await Promise.all(numbers.map((number) => run('printf', [number])))).toEqual(numbers)
  })
})

describe('the launcher', () => {
  test('that is killed fails what it runs, and another one takes its place', async () => {
    useLauncher(launcher)
    expect(await run('printf', ['before'])).toBe('before')
    const mine = await launchersOf(process.pid)
    expect(mine).toHaveLength(1)
    const seconds = uniqueSeconds()
    const failure = run('sleep', [seconds]).catch((error: unknown) => error)
    await eventually(async () => (await processesWith(seconds)).length > 0)
    process.kill(mine[0] ?? 0, 'SIGKILL')
    expect(await failure).toBeInstanceOf(EngineUnavailable)
    for (const { pid } of await processesWith(seconds)) process.kill(pid, 'SIGKILL') // it outlived the launcher
    expect(await run('printf', ['after'])).toBe('after')
  })

  test('ends when it is no longer used', async () => {
    useLauncher(launcher)
    await run('true', [])
    useLauncher(null)
    await eventually(async () => (await launchersOf(process.pid)).length === 0)
  })
})

let count = 0
/** An argument of `sleep` that no other process has. */
const uniqueSeconds = (): string => `1000.${process.pid}${++count}`

/** The launchers whose parent is this process. */
async function launchersOf(parent: number): Promise<number[]> {
  const found = await processesWith(launcher)
  const parents = await Promise.all(
    found.map(async ({ pid }) => {
      const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '')
      return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1])
    }),
  )
  return found.flatMap(({ pid }, i) => (parents[i] === parent ? [pid] : []))
}

test('a process that has ended is not alive, though its parent has not asked for it', async () => {
  const parent = spawn('bash', ['-c', 'sleep 1 & exec sleep 60'], { stdio: 'ignore' })
  const { pid = 0 } = parent
  try {
    const children = (): Promise<string> => readFile(`/proc/${pid}/task/${pid}/children`, 'utf8')
    const child = await eventually(async () => Number.parseInt(await children()) || null)
    await eventually(() => processStat(child)?.state === 'Z')
    expect(await livingProcess(child)).toBeNull()
    expect(await livingProcess(pid)).toMatchObject({ pid })
  } finally {
    parent.kill('SIGKILL')
  }
})
