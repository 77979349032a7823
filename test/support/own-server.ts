import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { askControl } from '../../script/lib/control.ts'
import type { RoleStatus } from '../../script/lib/role.ts'
import { readLayout } from '../../script/lib/settings.ts'
import type { ServerFacts } from '../../script/lib/supervisor.ts'

const run = promisify(execFile)

export type OwnServer = ReturnType<typeof ownServer>

/** A server that a test starts beside the stack. `state` must be `…/keelson-server-…/…/state`, see scratch.ts. */
export function ownServer(state: string, portBase: number, settings: Record<string, string> = {}) {
  const layout = readLayout({ state, portBase: String(portBase) })
  // Without the settings of other servers, their engine above all.
  const others = Object.entries(process.env).filter(([name]) => !name.startsWith('KEELSON_'))
  const { tools } = readLayout()
  const own = { KEELSON_STATE: state, KEELSON_PORT_BASE: String(portBase), KEELSON_TOOLS: tools }
  const env = { ...Object.fromEntries(others), ...settings, ...own }
  return {
    layout,
    /** Runs `script/server` with these arguments. */
    script: (...args: string[]) => run(join(layout.repository, 'script/server'), args, { env }),
    facts: () => JSON.parse(readFileSync(join(state, 'server.json'), 'utf8')) as ServerFacts,
    roles: async () => (await askControl(layout, 'GET', '/roles')) as RoleStatus[],
    log: () => readFileSync(join(state, 'log/server.log'), 'utf8'),
  }
}
