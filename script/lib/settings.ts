import { createHash } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { z } from 'zod'

const port = z.coerce.number().int().min(1).max(65535).optional()

/** The settings of script/server itself; those of the roles are in config.ts. */
export const serverSettings = z.object({
  KEELSON_STATE: z.string().optional().describe('The state folder: data, keys, logs; `.state` in the clone'),
  KEELSON_TOOLS: z
    .string()
    .optional()
    .describe(
      'The folder in which script/bootstrap keeps its tools, which the state folder remembers; `tools` in the state folder',
    ),
  KEELSON_PORT_BASE: port.describe('The first port of a block of 1000 that replaces the default ports'),
  KEELSON_API_HOST: z.string().default('127.0.0.1').describe('The address the API listens on'),
  KEELSON_API_PORT: port.describe('The port of the first API process; each further one listens 10 above'),
  KEELSON_API_URL: z.url().optional().describe('How clients reach the API'),
  KEELSON_HOST_PORT: port.describe('The port of the host’s data plane'),
  KEELSON_GATEWAY_PORT: port.describe('The port of the gateway between hosts and Temporal'),
  KEELSON_GATEWAY_URL: z.url().optional().describe('How hosts reach the gateway'),
  KEELSON_MODELS_PORT: port.describe('The port of the gateway between sandboxes and models'),
  KEELSON_HOST_PORT_RANGE: z.string().optional().describe('Host ports for containers’ published ports'),
  KEELSON_VXLAN_PORT: port.describe('The UDP port of VPCs between hosts'),
  KEELSON_TUNNEL_PORT: port.describe('The UDP port of the tunnel between hosts'),
  KEELSON_MONGODB_PORT: port.describe('The port of the server’s own MongoDB'),
  KEELSON_MONGODB_URL: z.string().optional().describe('A MongoDB to use instead of an own one'),
  KEELSON_TEMPORAL_PORT: port.describe('The port of the server’s own Temporal'),
  KEELSON_TEMPORAL_UI_PORT: port.describe('The port of the Temporal UI'),
  KEELSON_TEMPORAL_ADDRESS: z.string().optional().describe('A Temporal to use instead of an own one'),
  KEELSON_TEMPORAL_NAMESPACE: z.string().default('keelson').describe('The Temporal namespace'),
  KEELSON_TEMPORAL_UI_URL: z.url().optional().describe('How operators reach the Temporal UI'),
  KEELSON_DOCKER_HOST: z.string().optional().describe('A Docker Engine to use instead of an own one'),
})

/** The paths and ports of one state folder. */
export interface Layout {
  repository: string
  state: string
  tools: string
  /** Sockets and pid files: a short path, because a socket's is limited to some 100 bytes. */
  run: string
  apiHost: string
  apiPort: number
  apiUrl: string
  hostPort: number
  gatewayPort: number
  gatewayUrl: string
  modelsPort: number
  hostPortRange: string
  diskPorts: string
  vxlanPort: number
  tunnelPort: number
  mongodbPort: number
  mongodbUrl: string | undefined
  temporalPort: number
  temporalUiPort: number
  temporalAddress: string | undefined
  temporalNamespace: string
  temporalUiUrl: string
  dockerHost: string | undefined
}

/** The default ports for one machine, or the same in a block of 1000 ports. */
const defaultPorts = (base?: number) =>
  base === undefined
    ? {
        api: 7080,
        host: 7081,
        gateway: 7088,
        models: 7092,
        mongodb: 27080,
        temporal: 7233,
        ui: 8233,
        vxlan: 4789,
        tunnel: 7084,
        range: '20000-29999',
        disks: '30000-30099',
      }
    : {
        api: base,
        host: base + 1,
        gateway: base + 8,
        models: base + 12,
        mongodb: base + 2,
        temporal: base + 3,
        ui: base + 4,
        vxlan: base + 5,
        tunnel: base + 6,
        range: `${base + 100}-${base + 999}`,
        disks: `${base + 84}-${base + 99}`,
      }

/**
 * Reads the environment, which `flags` override.
 * @throws if settings are wrong, naming each.
 */
export function readLayout(
  flags: { state?: string | undefined; portBase?: string | undefined } = {},
): Layout {
  const given = { ...process.env }
  if (flags.state) given['KEELSON_STATE'] = flags.state
  if (flags.portBase) given['KEELSON_PORT_BASE'] = flags.portBase
  const read = serverSettings.safeParse(given)
  if (!read.success) throw new Error(`settings are wrong:\n${z.prettifyError(read.error)}`)
  const set = read.data

  const repository = fileURLToPath(new URL('../..', import.meta.url)).replace(/\/$/, '')
  const state = resolve(set.KEELSON_STATE ?? join(repository, '.state'))
  const ports = defaultPorts(set.KEELSON_PORT_BASE)
  const apiPort = set.KEELSON_API_PORT ?? ports.api
  const gatewayPort = set.KEELSON_GATEWAY_PORT ?? ports.gateway
  const temporalUiPort = set.KEELSON_TEMPORAL_UI_PORT ?? ports.ui
  return {
    repository,
    state,
    tools: resolve(set.KEELSON_TOOLS ?? rememberedTools(state) ?? join(state, 'tools')),
    run: runFolder(state),
    apiHost: set.KEELSON_API_HOST,
    apiPort,
    apiUrl: set.KEELSON_API_URL ?? `http://127.0.0.1:${apiPort}`,
    hostPort: set.KEELSON_HOST_PORT ?? ports.host,
    gatewayPort,
    gatewayUrl: set.KEELSON_GATEWAY_URL ?? `http://127.0.0.1:${gatewayPort}`,
    modelsPort: set.KEELSON_MODELS_PORT ?? ports.models,
    hostPortRange: set.KEELSON_HOST_PORT_RANGE ?? ports.range,
    diskPorts: ports.disks,
    vxlanPort: set.KEELSON_VXLAN_PORT ?? ports.vxlan,
    tunnelPort: set.KEELSON_TUNNEL_PORT ?? ports.tunnel,
    mongodbPort: set.KEELSON_MONGODB_PORT ?? ports.mongodb,
    mongodbUrl: set.KEELSON_MONGODB_URL,
    temporalPort: set.KEELSON_TEMPORAL_PORT ?? ports.temporal,
    temporalUiPort,
    temporalAddress: set.KEELSON_TEMPORAL_ADDRESS,
    temporalNamespace: set.KEELSON_TEMPORAL_NAMESPACE,
    temporalUiUrl: set.KEELSON_TEMPORAL_UI_URL ?? `http://127.0.0.1:${temporalUiPort}`,
    dockerHost: set.KEELSON_DOCKER_HOST,
  }
}

/** In the state folder: where the tools are, if not in it. script/lib/folders.sh reads it too. */
export const toolsFile = 'tools-folder'

function rememberedTools(state: string): string | undefined {
  const file = join(state, toolsFile)
  return existsSync(file) ? readFileSync(file, 'utf8').trim() : undefined
}

/** The longest path below it is some 45 bytes longer; the kernel's limit is 107. */
function runFolder(state: string): string {
  const near = join(state, 'run')
  if (Buffer.byteLength(near) <= 50) return near
  const id = shortHash(state)
  return process.getuid?.() === 0 ? `/run/keelson-${id}` : `/tmp/keelson-${process.getuid?.()}-${id}`
}

/**
 * Where the disks of a host (1 for this machine) are mounted: below /run, which a reboot empties, and with a short path
 * for its sockets.
 */
export const disksRun = (layout: Layout, index: number): string => `${disksRunOf(layout)}/${index}`
export const disksRunOf = ({ state }: Layout): string => `/run/keelson-${shortHash(state)}-disks`

/** The same for the sockets of microVMs and VMs. */
export const machinesRun = (layout: Layout, index: number): string => `${machinesRunOf(layout)}/${index}`
export const machinesRunOf = ({ state }: Layout): string => `/run/keelson-${shortHash(state)}-machines`

/** The same for the sockets of load balancers. */
export const balancersRun = (layout: Layout, index: number): string => `${balancersRunOf(layout)}/${index}`
export const balancersRunOf = ({ state }: Layout): string => `/run/keelson-${shortHash(state)}-lb`

/** The same for the doors of runners. */
export const doorsRun = (layout: Layout, index: number): string => `${doorsRunOf(layout)}/${index}`
export const doorsRunOf = ({ state }: Layout): string => `/run/keelson-${shortHash(state)}-doors`

/** A hash of eight hex digits: names what belongs to one state folder. */
export const shortHash = (text: string): string => createHash('sha256').update(text).digest('hex').slice(0, 8)

/** The program of that name: bootstrap's own, else the one in PATH. */
export function tool(layout: Layout, name: string, folder = name): string {
  const own = join(layout.tools, folder, 'bin', name)
  return existsSync(own) ? own : name
}
