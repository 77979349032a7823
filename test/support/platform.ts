import { readFileSync } from 'node:fs'
import { join } from 'node:path'
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
  roles: () => askControl(layout, 'GET', '/roles') as Promise<RoleStatus[]>,
  logs: (role: RoleName | 'server') => readFileSync(join(layout.state, `log/${role}.log`), 'utf8'),
}

/** Starts all roles that a failed test left down, so that it does not fail the next one. */
export async function startAll(): Promise<void> {
  for (const { name, state } of await platform.roles())
    if (state === 'stopped') await platform.start(name as RoleName)
}
