import { type ChildProcess, spawn } from 'node:child_process'
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { run } from '../../../drivers/system/programs.ts'
import { asRoot } from '../../support/as-root.ts'
import { eventually } from '../../support/eventually.ts'
import { guest } from '../../support/guest-files.ts'
import { layout } from '../../support/stack.ts'

// The port helper alone, with a namespace in which a program acts as the machine.

const namespace = `kt-ports-${process.pid}`
const [tcpPort, udpPort] = [layout.apiPort + 690, layout.apiPort + 691]

/** Returns everything that it hears, and ends when the client does. */
const echo = `
  require('net').createServer({ allowHalfOpen: true }, (s) => s.pipe(s)).listen(80, '127.0.0.1')
  const udp = require('dgram').createSocket('udp4')
  udp.on('message', (data, { port, address }) => udp.send(data, port, address))
  udp.bind(5353, '127.0.0.1', () => console.log('ready'))
`

asRoot('the port helper', () => {
  let folder: string
  const programs: ChildProcess[] = []

  /** Starts a program, and returns the first line that it prints. */
  async function saying(program: string, args: string[]): Promise<{ pid: number; said: string }> {
    const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'ignore'] })
    programs.push(child)
    const [said] = (await once(child.stdout, 'data')) as [Buffer]
    return { pid: child.pid ?? 0, said: String(said).trim() }
  }
  const publish = async () => saying(join(guest, 'helper'), ['publish', join(folder, 'ports.json')])

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'keelson-ports-'))
    await run('ip', ['netns', 'add', namespace])
    await run('ip', ['-n', namespace, 'link', 'set', 'lo', 'up'])
    await saying('nsenter', [`--net=/run/netns/${namespace}`, process.execPath, '-e', echo])
    const ports = [
      { protocol: 'tcp', host_port: tcpPort, container_port: 80 },
      { protocol: 'udp', host_port: udpPort, container_port: 5353 },
    ]
    const to = { host_namespace: '', address: '127.0.0.1', namespace, target: '127.0.0.1' }
    await writeFile(join(folder, 'ports.json'), JSON.stringify({ ...to, ports }))
  })
  afterAll(async () => {
    for (const child of programs) child.kill('SIGKILL')
    await run('ip', ['netns', 'delete', namespace])
    await rm(folder, { recursive: true })
  })

  test('forwards connections and datagrams both ways, unprivileged; a second one learns which port is taken', async () => {
    const { pid, said } = await publish()
    expect(said).toBe('ready')
    expect(await readFile(`/proc/${pid}/status`, 'utf8')).toMatch(/^Uid:(\t65534){4}$/m)

    const sent = Buffer.alloc(3_000_000, 'keelson ')
    const socket = connect({ port: tcpPort, host: '127.0.0.1', allowHalfOpen: true })
    socket.end(sent)
    const heard: Buffer[] = []
    for await (const data of socket) heard.push(data as Buffer)
    expect(Buffer.concat(heard).equals(sent)).toBe(true)

    const udp = createSocket('udp4')
    const answer = once(udp, 'message') as Promise<[Buffer]>
    // Datagrams may get lost.
    const text = await eventually(async () => {
      udp.send('hello', udpPort, '127.0.0.1')
      return Promise.race([answer, new Promise<null>((resolve) => setTimeout(resolve, 500, null))])
    })
    expect(String(text[0])).toBe('hello')
    udp.close()

    expect((await publish()).said).toBe(`in use ${tcpPort}/tcp`)
  })
})
