import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { eventually } from './eventually.ts'
import { isReady } from './own-api.ts'
import { pidOf, platform, type RoleName } from './platform.ts'
import type { SilentProxy } from './silent-proxy.ts'
import { layout } from './stack.ts'

/** A proxy on the way between two roles, and the settings by which one of them takes that way. */
export interface Way {
  proxy: SilentProxy
  settings: Record<string, string>
}

/**
 * Runs a role of the stack itself, with a proxy on its way to another one. The proxy is opened while the role is down. `end`: the stack
 * runs the role again, without it.
 */
export async function roleThrough(
  name: RoleName,
  open: () => Promise<Way>,
): Promise<{ proxy: SilentProxy; end: () => Promise<void> }> {
  const pid = await pidOf(name)
  const [command = '', ...args] = wordsOf(pid, 'cmdline')
  const env = Object.fromEntries(wordsOf(pid, 'environ').map((word) => word.split(/=(.*)/s)))
  await platform.stop(name)
  const { proxy, settings } = await open()
  const role: ChildProcess = spawn(command, args, {
    cwd: layout.repository,
    env: { ...env, ...settings },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let log = ''
  role.stdout?.on('data', (chunk: Buffer) => (log += chunk.toString()))
  const hasEnded = (): boolean => role.exitCode !== null || role.signalCode !== null
  const end = async (): Promise<void> => {
    proxy.pass() // else the role waits for what it has sent
    role.kill('SIGTERM')
    if (!hasEnded()) await once(role, 'exit')
    await proxy.close()
    await platform.start(name)
  }
  await eventually(() => hasEnded() || isReady(log))
  if (!hasEnded()) return { proxy, end }
  await end()
  throw new Error(`${name} ended: ${log}`)
}

const wordsOf = (pid: number, file: 'cmdline' | 'environ'): string[] =>
  readFileSync(`/proc/${pid}/${file}`, 'utf8').split('\0').filter(Boolean)
