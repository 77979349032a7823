import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { get } from 'node:https'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { makeAuthority } from './certificates.ts'
import { eventually } from './eventually.ts'
import { acmeServer, layout } from './stack.ts'

// Pebble, a real ACME server, and a DNS server that sends every name to this machine.

const folder = join(process.env['KEELSON_TOOLS'] ?? join(layout.state, 'tools'), 'pebble/bin')
/** Whether script/bootstrap could build it on this machine. */
export const hasPebble = existsSync(join(folder, 'pebble'))

export interface Pebble {
  /** The root of the issued certificates, PEM. */
  root(): Promise<string>
  /** Sends a name to another address, or back to the default one. */
  resolve(name: string, address: string | null): Promise<void>
  /** Stops answering, until `resume`. */
  pause(): void
  resume(): void
  close(): Promise<void>
}

/** The ACME server of the stack's settings. It asks for proofs at `port` of `address`. */
export async function openPebble(address: string, port: number): Promise<Pebble> {
  const authority = await makeAuthority()
  const { cert, key } = await authority.issue(['localhost', '127.0.0.1'])
  await writeFile(acmeServer.caFile, authority.cert)
  const state = await mkdtemp(join(tmpdir(), 'pebble-'))
  await writeFile(join(state, 'cert.pem'), cert)
  await writeFile(join(state, 'key.pem'), key)
  const config = {
    pebble: {
      listenAddress: `127.0.0.1:${acmeServer.port}`,
      managementListenAddress: `127.0.0.1:${acmeServer.managementPort}`,
      certificate: join(state, 'cert.pem'),
      privateKey: join(state, 'key.pem'),
      httpPort: port,
      tlsPort: port,
      retryAfter: { authz: 1, order: 1 },
      profiles: { default: { description: 'As the public authority', validityPeriod: 7_776_000 } },
    },
  }
  await writeFile(join(state, 'pebble.json'), JSON.stringify(config))
  const dns = `127.0.0.1:${acmeServer.dnsPort}`
  const management = `127.0.0.1:${acmeServer.dnsManagementPort}`
  const programs = [
    run('pebble-challtestsrv', [
      `-defaultIPv4=${address}`,
      '-defaultIPv6=',
      `-dnsserver=${dns}`,
      `-management=${management}`,
      '-http01=',
      '-https01=',
      '-tlsalpn01=',
      '-doh=',
    ]),
    run('pebble', ['-config', join(state, 'pebble.json'), '-dnsserver', dns]),
  ]
  const [, server] = programs
  const ask = async (path: string, body: object): Promise<void> => {
    const answer = await fetch(`http://${management}${path}`, { method: 'POST', body: JSON.stringify(body) })
    if (!answer.ok) throw new Error(`${path}: ${answer.status}`)
  }
  const root = (): Promise<string> =>
    fetchText(`https://localhost:${acmeServer.managementPort}/roots/0`, authority.cert)
  await eventually(root)
  await eventually(() => ask('/clear-a', { host: 'unused.example' }).then(() => true))
  return {
    root,
    async resolve(host, other) {
      await ask('/clear-a', { host })
      if (other !== null) await ask('/add-a', { host, addresses: [other] })
    },
    pause: () => void server?.kill('SIGSTOP'),
    resume: () => void server?.kill('SIGCONT'),
    async close() {
      for (const program of programs) await end(program)
      await rm(state, { recursive: true, force: true })
    },
  }
}

function run(program: string, args: string[]): ChildProcess {
  // Validates at once, and anew for each order. It still refuses a share of the nonces, so that requests are repeated.
  const env = { ...process.env, PEBBLE_VA_NOSLEEP: '1', PEBBLE_AUTHZREUSE: '0' }
  return spawn(join(folder, program), args, { env, stdio: 'ignore' })
}

async function end(program: ChildProcess): Promise<void> {
  if (program.exitCode !== null || program.signalCode !== null) return
  program.kill('SIGKILL')
  await once(program, 'exit')
}

const fetchText = (url: string, ca: string): Promise<string> =>
  new Promise((resolve, reject) => {
    get(url, { ca, agent: false }, (response) => resolve(text(response))).on('error', reject)
  })
