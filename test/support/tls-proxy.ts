import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { makeAuthority } from './certificates.ts'
import { eventually } from './eventually.ts'
import { accepts } from './own-api.ts'

/** A proxy that ends TLS before an API of this machine, as docs/operators.md asks for. It speaks nothing but TLS. */
export interface TlsProxy {
  /** The authority that its clients have to trust. */
  caFile: string
  close(): Promise<void>
}

const configuration = (port: number, apiPort: number, certificate: string): string => `
defaults
  mode http
  timeout connect 5s
  timeout client 10m
  timeout server 10m
frontend outside
  bind 127.0.0.1:${port} ssl crt ${certificate}
  option forwardfor
  default_backend api
backend api
  server api 127.0.0.1:${apiPort}
`

export async function openTlsProxy(port: number, apiPort: number): Promise<TlsProxy> {
  const folder = await mkdtemp(join(tmpdir(), 'tls-proxy-'))
  const [caFile, certificate, file] = ['ca.pem', 'certificate.pem', 'haproxy.cfg'].map((name) =>
    join(folder, name),
  ) as [string, string, string]
  const authority = await makeAuthority()
  const { cert, key } = await authority.issue(['127.0.0.1'])
  await writeFile(caFile, authority.cert)
  await writeFile(certificate, `${cert}\n${key}`)
  await writeFile(file, configuration(port, apiPort, certificate))
  const proxy: ChildProcess = spawn('haproxy', ['-db', '-f', file], { stdio: 'ignore' })
  await eventually(() => accepts(port))
  return {
    caFile,
    async close() {
      proxy.kill('SIGTERM')
      if (proxy.exitCode === null) await once(proxy, 'exit')
      await rm(folder, { recursive: true })
    },
  }
}
