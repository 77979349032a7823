import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { askControl } from '../../script/lib/control.ts'
import type { RoleStatus } from '../../script/lib/role.ts'
import { layout } from './stack.ts'

export type RoleName =
  | ('api' | 'api-2' | 'worker' | 'gateway' | 'model-gateway' | 'host' | 'temporal' | 'mongodb' | 'docker')
  | `${'host' | 'docker'}-${number}`

const act = (role: RoleName, verb: string): Promise<RoleStatus> =>
  askControl(layout, 'POST', `/roles/${role}/${verb}`) as Promise<RoleStatus>

/** Control of the stack's processes. */
export const platform = {
  /** kill -9; only `start` starts the role again. */
  kill: (role: RoleName) => act(role, 'kill'),
  stop: (role: RoleName) => act(role, 'stop'),
  /** Resolves when the role is ready. */
  start: (role: RoleName) => act(role, 'start'),
  /** kill -9, and a start at once. */
  restartKilled: async (role: RoleName): Promise<void> => {
    await act(role, 'kill')
    await act(role, 'start')
  },
  /** SIGSTOP for longer than others wait for it, then SIGCONT: it answers nothing, and its connections stay open. */
  freeze: async (role: RoleName): Promise<void> =>
    frozenFor(freezeSec[role.replace(/-\d$/, '')] ?? 15, [await pidOf(role)]),
  roles: () => askControl(layout, 'GET', '/roles') as Promise<RoleStatus[]>,
  logs: (role: RoleName | 'server') => readFileSync(join(layout.state, `log/${role}.log`), 'utf8'),
}

/**
 * A host is unreachable after 30 s, its step is taken for lost after 10 s, and engines are asked again after at most 30 s. Who
 * asks a database or Temporal waits for at most 10 s. Others: a worker loses its task of a workflow after 5 s.
 */
const freezeSec: Record<string, number> = { host: 45, docker: 45, temporal: 20, mongodb: 20 }

export async function pidOf(role: RoleName): Promise<number> {
  const pid = (await platform.roles()).find(({ name }) => name === role)?.pid
  if (!pid) throw new Error(`${role} does not run`)
  return pid
}

/** Freezes processes for so many seconds. Those that end meanwhile are no failure. */
export async function frozenFor(sec: number, pids: number[]): Promise<void> {
  const signal = (name: 'SIGSTOP' | 'SIGCONT'): void => {
    for (const pid of pids)
      try {
        process.kill(pid, name)
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
      }
  }
  signal('SIGSTOP')
  try {
    await delay(sec * 1000)
  } finally {
    signal('SIGCONT')
  }
}

/** Starts all roles that a failed test left down, so that it does not fail the next one. */
export async function startAll(): Promise<void> {
  for (const { name, state } of await platform.roles())
    if (state === 'stopped') await platform.start(name as RoleName)
}
