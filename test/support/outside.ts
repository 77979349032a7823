import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { batch, linksOf } from '../../drivers/linux/commands.ts'
import { makeNamespace, removeNamespace } from '../../drivers/linux/namespaces.ts'
import { shortHash } from '../../script/lib/settings.ts'
import { eventually } from './eventually.ts'
import { layout } from './stack.ts'

/**
 * What is behind the further hosts' default route: a web server that returns `outside`. These hosts and their router
 * run one too, on all their addresses, as a host's own service. All of them, and the machine itself, receive datagrams.
 */
export interface Outside {
  address: string
  /** The port that receives datagrams on all of them. */
  udpPort: number
  /** The text of each datagram that any of them has received. */
  heard(): string[]
  /** The hosts' own addresses, and the machine's on the network between them. */
  hostAddresses: string[]
  /** A cloud's metadata address, on the same server and as close as the outside. */
  metadataAddress: string
  remove(): Promise<void>
}

const endingWithUs = ['--pdeathsig', 'KILL', 'nsenter']

/**
 * Receives datagrams on all addresses, and prints each as a line, after `ready`: a datagram counts even without an
 * answer.
 */
const listener = (port: number): string[] => [
  process.execPath,
  '-e',
  `const socket = require('dgram').createSocket('udp4')
  socket.on('message', (text) => console.log(text.toString('latin1').replace(/[^!-~]+/g, ' ')))
  socket.bind(${port}, () => console.log('ready'))`,
]

export async function makeOutside(): Promise<Outside> {
  const name = `kl-${shortHash(layout.state)}`
  const [underlay, outside] = [`${name}-net`, `${name}-out`]
  const address = '203.0.113.10'
  const udpPort = layout.apiPort + 71
  const metadataAddress = '169.254.169.254'
  await takeAway(underlay, outside) // left by a killed run
  await makeNamespace(outside)
  await batch('ip', underlay, [
    ['link', 'add', 'outside', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', outside],
    ['address', 'add', '203.0.113.1/24', 'dev', 'outside'],
    ['link', 'set', 'outside', 'up'],
  ])
  await batch('ip', outside, [
    ['link', 'set', 'lo', 'up'],
    ['address', 'add', `${address}/24`, 'dev', 'eth0'],
    ['address', 'add', `${metadataAddress}/32`, 'dev', 'eth0'],
    ['link', 'set', 'eth0', 'up'],
    ['route', 'add', 'default', 'via', '203.0.113.1'],
  ])
  await batch('ip', underlay, [['route', 'add', metadataAddress, 'via', address]])
  const folder = await mkdtemp(join(tmpdir(), 'keelson-outside-'))
  await writeFile(join(folder, 'index.html'), 'outside\n')
  const server = ['busybox', 'httpd', '-f', '-p', '80', '-h', folder]
  const [own1, own2] = [`${name}-1`, `${name}-2`]
  const within = [outside, underlay, own1, own2].map((namespace) => [`--net=/run/netns/${namespace}`])
  const servers = within.map((args) =>
    spawn('setpriv', [...endingWithUs, ...args, ...server], { stdio: 'ignore' }),
  )
  let written = ''
  const heard = (): string[] => written.split('\n').filter(Boolean)
  const listeners = [[], ...within].map((args) => {
    const command = [...endingWithUs, ...args, ...listener(udpPort)]
    const child = spawn('setpriv', command, { stdio: ['ignore', 'pipe', 'inherit'] })
    child.stdout.on('data', (text: Buffer) => (written += text.toString()))
    return child
  })
  await eventually(() => heard().length === listeners.length)
  const namespaces = [null, own1, own2, underlay]
  const links = await Promise.all(namespaces.map(linksOf))
  const own = links.flatMap((all) => [...all.values()]).filter(({ ifname }) => isOf(name, ifname))
  const addresses = own.flatMap(({ addr_info }) => addr_info.filter(({ family }) => family === 'inet'))
  return {
    address,
    udpPort,
    heard,
    metadataAddress,
    hostAddresses: [...new Set(addresses.map(({ local }) => local))],
    async remove() {
      await Promise.all([...servers, ...listeners].map(end))
      await takeAway(underlay, outside)
      await rm(folder, { recursive: true, force: true })
    },
  }
}

async function takeAway(underlay: string, outside: string): Promise<void> {
  if ((await linksOf(underlay)).has('outside')) await batch('ip', underlay, [['link', 'delete', 'outside']])
  await removeNamespace(outside)
}

/** Whether a link belongs to this stack or to the machine: other stacks may run beside this one. */
const isOf = (name: string, link: string): boolean =>
  link === name || link === name.replace('kl-', 'klh') || /^(eth|en|docker|underlay)/.test(link)

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  child.kill('SIGKILL')
  await once(child, 'exit')
}
