import { execFile } from 'node:child_process'
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { readlink } from 'node:fs/promises'
import { request } from 'node:http'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { type Layout, shortHash } from './settings.ts'

const run = promisify(execFile)

/** The resources of one state folder's own Docker Engine, so that two engines share nothing on one machine. */
export interface OwnEngine {
  socket: string
  args: string[]
}

export const bridgeOf = (layout: Layout): string => `kl-${shortHash(layout.state)}`
const subnetFile = (layout: Layout) => join(layout.state, 'docker.subnet')
const socketOf = (layout: Layout) => join(layout.run, 'docker.sock')
const execRootOf = (layout: Layout) => join(layout.run, 'docker')

/** Whether an engine answers at this address: `unix://…` or `tcp://…`. */
export async function engineAnswers(dockerHost: string): Promise<boolean> {
  const { protocol, pathname, hostname, port } = new URL(dockerHost)
  if (protocol !== 'unix:' && protocol !== 'tcp:') return false
  const to = protocol === 'unix:' ? { socketPath: pathname } : { host: hostname, port: port || '2375' }
  return new Promise((resolve) => {
    const ping = request({ ...to, path: '/_ping', timeout: 2_000 }, (answer) => {
      answer.resume()
      resolve(answer.statusCode === 200)
    })
    ping.on('timeout', () => ping.destroy())
    ping.on('error', () => resolve(false))
    ping.end()
  })
}

/** The address of the machine's existing engine, from the setting or among the usual addresses. */
export async function existingEngine(layout: Layout): Promise<string | undefined> {
  if (layout.dockerHost) return layout.dockerHost
  for (const address of [process.env['DOCKER_HOST'], 'unix:///var/run/docker.sock']) {
    if (address && (await engineAnswers(address))) return address
  }
  return undefined
}

/** Whether this state folder ever had its own engine. */
export const hasOwnEngine = (layout: Layout): boolean => existsSync(subnetFile(layout))

/** The engine that script/server runs. Its containers keep their ports and addresses when it restarts. */
export async function ownEngine(layout: Layout): Promise<OwnEngine> {
  const net = await subnetOf(layout)
  const args = [
    ['--host', `unix://${socketOf(layout)}`],
    ['--data-root', join(layout.state, 'docker')],
    ['--exec-root', execRootOf(layout)],
    ['--pidfile', join(layout.run, 'docker.pid')],
    ['--bridge', bridgeOf(layout)],
    // Later networks use the same /16: the default pools would collide with another engine's.
    ['--default-address-pool', `base=${net}.128.0/17,size=24`],
    ['--log-level', 'warn'],
    ['--log-opt', 'max-size=10m'],
    ['--log-opt', 'max-file=5'],
    // The host's rules forbid the same (drivers/linux/fences.ts), once it has started.
    ['--icc=false'],
    ['--live-restore'], // the tenants' containers outlive the engine
  ]
  return { socket: socketOf(layout), args: args.flat() }
}

/** Makes the bridge, and removes leftovers of a dead engine that would break a new one. */
export async function prepareEngine(layout: Layout): Promise<void> {
  // Before the engine starts: if it enables forwarding itself, it also makes the machine drop all other forwarded
  // traffic.
  if (readFileSync('/proc/sys/net/ipv4/ip_forward', 'utf8').trim() !== '1') {
    writeFileSync('/proc/sys/net/ipv4/ip_forward', '1')
  }
  await dropStalePids(join(layout.run, 'docker.pid'), execRootOf(layout))

  const bridge = bridgeOf(layout)
  const net = await subnetOf(layout)
  await dropForeignMasquerade(`${net}.0.0/17`, bridge)
  await run('ip', ['link', 'add', bridge, 'type', 'bridge']).catch(() => {}) // it may exist
  await run('ip', ['addr', 'replace', `${net}.0.1/17`, 'dev', bridge])
  await run('ip', ['link', 'set', bridge, 'up'])
}

/** Removes what an engine made outside the state folder: its bridge, and the rules that it leaves. */
export async function removeBridge(layout: Layout): Promise<void> {
  const bridge = bridgeOf(layout)
  const net = `${await subnetOf(layout)}.`
  const isOurs = (rule: string) => rule.split(' ').some((word) => word === bridge || word.startsWith(net))
  for (const command of ['iptables', 'ip6tables']) {
    for (const table of ['nat', 'filter', 'raw']) await dropRules(command, table, isOurs)
  }
  await run('ip', ['link', 'delete', bridge]).catch(() => {}) // it may not exist
}

/** The engine trusts a pid file while any process has that pid, even a zombie or another program. */
export async function dropStalePids(pidFile: string, execRoot: string): Promise<void> {
  await dropStalePid(pidFile, 'dockerd')
  await dropStalePid(join(execRoot, 'containerd/containerd.pid'), 'containerd')
}

async function dropStalePid(file: string, program: string): Promise<void> {
  let pid: string
  try {
    pid = readFileSync(file, 'utf8').trim()
  } catch {
    return
  }
  const running = await readlink(`/proc/${pid}/exe`).catch(() => '')
  if (!running.endsWith(`/${program}`)) rmSync(file, { force: true })
}

/** The network of the engine's containers; empty if the engine is an operator's. */
export const engineNetwork = (layout: Layout): string[] =>
  existsSync(subnetFile(layout)) ? [`${readFileSync(subnetFile(layout), 'utf8').trim()}.0.0/16`] : []

/** The first two bytes of the engine's /16, `10.N`: chosen once, when it was free on this machine, and kept. */
async function subnetOf(layout: Layout): Promise<string> {
  const file = subnetFile(layout)
  try {
    return readFileSync(file, 'utf8').trim()
  } catch {
    const { stdout } = await run('ip', ['-4', '-o', 'route'])
    const start = Number.parseInt(shortHash(layout.state), 16)
    for (let i = 0; i < 100; i++) {
      const net = `10.${100 + ((start + i) % 100)}`
      if (new RegExp(`(^|[ ])(${net.replace('.', '\\.')}\\.|10\\.0\\.0\\.0/8)`, 'm').test(stdout)) continue
      writeFileSync(file, `${net}\n`)
      return net
    }
    throw new Error(
      'no subnet 10.100.0.0/16 to 10.199.0.0/16 is free on this machine; set KEELSON_DOCKER_HOST to an engine',
    )
  }
}

/**
 * Removes the rules of a dead engine. Those for the same subnet and another bridge would rewrite the addresses of
 * traffic between this engine's containers.
 */
async function dropForeignMasquerade(subnet: string, bridge: string): Promise<void> {
  const start = `-A POSTROUTING -s ${subnet} `
  const isForeign = (rule: string) =>
    rule.startsWith(start) && rule.endsWith('MASQUERADE') && !rule.includes(` ${bridge} `)
  await dropRules('iptables', 'nat', isForeign)
}

const triesToDrop = 5

/** Other engines change the same tables meanwhile, so a rule that is gone already is success. */
async function dropRules(command: string, table: string, unwanted: (rule: string) => boolean): Promise<void> {
  for (let tries = 1; ; tries++) {
    const { stdout } = await run(`${command}-save`, ['-t', table])
    const rules = stdout.split('\n').filter((line) => line.startsWith('-A ') && unwanted(line))
    const faults: unknown[] = []
    for (const rule of rules)
      await run(command, ['--wait', '-t', table, '-D', ...rule.split(' ').slice(1)]).catch((fault: unknown) =>
        faults.push(fault),
      )
    if (faults.length === 0) return
    if (tries === triesToDrop) throw faults[0]
  }
}
