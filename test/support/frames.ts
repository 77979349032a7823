import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { afterEach } from '@jest/globals'
import { namespaceFile, runIn } from '../../drivers/linux/commands.ts'
import type { Member, Place } from './networks.ts'

// What someone sends and reads on a network beside the platform.

export interface Forged {
  /** Where VXLAN listens: of IPv4 or of IPv6. */
  to: string
  /** An address of the sender's namespace; by default the one that the kernel chooses. */
  from?: string
  vni: number
  mac: string
  ip: string
}

/** Sends a frame of VXLAN: a datagram to a closed port of a member, as its gateway would send it. */
export const inject = (place: Place, forged: Forged): Promise<string> =>
  runIn(place, process.execPath, ['-e', injection(forged)])

const injection = ({ to, from, vni, mac, ip }: Forged): string => `
  const bytes = (...all) => Buffer.from(all)
  const mac = '${mac}'.split(':').map((byte) => parseInt(byte, 16))
  const address = (text) => text.split('.').map(Number)
  const udp = bytes(4, 0, 4, 1, 0, 8, 0, 0)
  const ip = bytes(0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, ...address('10.0.0.99'), ...address('${ip}'))
  let sum = 0
  for (let i = 0; i < 20; i += 2) sum += ip.readUInt16BE(i)
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16)
  ip.writeUInt16BE(~sum & 0xffff, 10)
  const ethernet = bytes(...mac, 2, 0, 0, 0, 0, 9, 8, 0)
  const header = bytes(8, 0, 0, 0, 0, 0, 0, 0)
  header.writeUIntBE(${vni}, 4, 3)
  const socket = require('node:dgram').createSocket('${to.includes(':') ? 'udp6' : 'udp4'}')
  const send = () => socket.send(Buffer.concat([header, ethernet, ip, udp]), 4789, '${to}', () => socket.close())
  ${from ? `socket.bind({ address: '${from}' }, send)` : 'send()'}
`

/** Datagrams that came to closed ports of a member. */
export async function strays(member: Member): Promise<number> {
  const lines = (await runIn(member, 'cat', ['/proc/net/snmp']))
    .split('\n')
    .filter((line) => line.startsWith('Udp:'))
  const [names = [], values = []] = lines.map((line) => line.split(' '))
  return Number(values[names.indexOf('NoPorts')])
}

/** Sends a datagram to each of these ports. */
export const sendTo = (place: Place, address: string, ports: number[]): Promise<string> =>
  runIn(place, process.execPath, [
    '-e',
    `const socket = require('node:dgram').createSocket('udp4')
     const ports = ${JSON.stringify(ports)}
     const next = () => ports.length ? socket.send('x', ports.shift(), '${address}', next) : socket.close()
     next()`,
  ])

/** Also of a test that has failed: they would keep their namespace alive. */
const listening = new Set<ChildProcess>()
afterEach(() => {
  for (const child of listening) child.kill('SIGKILL')
  listening.clear()
})

export interface Heard {
  lines: string[]
  close(): void
}

/** Takes datagrams at these ports of a namespace: a line with the port for each. */
export const listenAt = (namespace: string, ports: number[]): Promise<Heard> =>
  hear(namespace, process.execPath, [
    '-e',
    `let open = 0
     const ports = ${JSON.stringify(ports)}
     for (const port of ports) require('node:dgram').createSocket('udp4')
       .on('message', () => console.log(port)).bind(port, () => ++open === ports.length && console.log('ready'))`,
  ])

/** All packets on the links of a namespace: a line in hexadecimal for each. */
export const capture = (namespace: string): Promise<Heard> =>
  // 17: packet sockets. 768: all protocols, in the order of the network. Perl is on every Debian.
  hear(namespace, 'perl', [
    '-e',
    '$| = 1; socket(S, 17, 3, 768) or die $!; print "ready\\n"; print unpack("H*", $f), "\\n" while sysread(S, $f, 65536)',
  ])

async function hear(namespace: string, program: string, args: string[]): Promise<Heard> {
  const child: ChildProcess = spawn('nsenter', [`--net=${namespaceFile(namespace)}`, program, ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  listening.add(child)
  if (!child.stdout) throw new Error('no output')
  const lines: string[] = []
  const read = createInterface({ input: child.stdout })
  read.on('line', (line) => lines.push(line))
  await once(read, 'line')
  if (lines.shift() !== 'ready') throw new Error(`${program} did not begin`)
  return { lines, close: () => void child.kill('SIGKILL') }
}
