import { z } from 'zod'
import { api } from './settings/api.ts'
import { gateway, modelGateway } from './settings/gateways.ts'
import { host } from './settings/host.ts'
import { runner } from './settings/runner.ts'
import { setup } from './settings/setup.ts'
import { worker } from './settings/worker.ts'

/** The settings of each role, of which docs/configuration.md is made. */
export const roleSettings = { api, worker, gateway, 'model-gateway': modelGateway, host, runner, setup }
export type Role = keyof typeof roleSettings
export type Settings<R extends Role> = z.infer<(typeof roleSettings)[R]>

/**
 * Reads the environment for one role. An empty variable counts as unset, because a compose file cannot leave one out.
 * Throws an error that lists every wrong setting.
 */
export function readSettings<R extends Role>(role: R): Settings<R> {
  const set = Object.fromEntries(Object.entries(process.env).filter(([, value]) => value !== ''))
  const read = roleSettings[role].safeParse(set)
  if (!read.success) throw new Error(`settings are wrong:\n${z.prettifyError(read.error)}`)
  return read.data as Settings<R>
}

/** The folder in which script/server keeps all its files. */
export const stateFolder = (): string => process.env['KEELSON_STATE'] ?? '.state'
