import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import type { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { setTimeout as delay } from 'node:timers/promises'

// The reference of a migration: the same bytes from file to file through one TLS connection of the openssl program,
// with the platform's cipher (drivers/qcow2/sender.ts) and SHA-256 on both ends. The digest is openssl's, since that of
// coreutils takes eight times the CPU.

const tls = '-tls1_2 -cipher DHE-PSK-AES128-GCM-SHA256 -psk "$key" -psk_identity keelson'
const hashed = 'tee >(openssl dgst -sha256 -r >&3)'
const receiving = `openssl s_server -quiet -nocert -naccept 1 -accept 127.0.0.1:$port ${tls} | ${hashed} |
  dd of="$file" bs=1M iflag=fullblock conv=fsync status=none`
const sending = `${hashed} < "$file" |
  openssl s_client -quiet -nocommands -no_ign_eof -connect 127.0.0.1:$port ${tls}`
const withinMs = 60_000

/** Copies `file` to `copy`, and syncs the copy. Throws if they differ. */
export async function pipeOverTls(file: string, copy: string, port: number): Promise<void> {
  const env = { port: String(port), key: randomBytes(32).toString('hex') }
  const received = hashOf(receiving, { ...env, file: copy })
  await Promise.race([listening(port), received])
  const hashes = await Promise.all([hashOf(sending, { ...env, file }), received])
  if (hashes[0] !== hashes[1]) throw new Error(`sent ${hashes[0]}, received ${hashes[1]}`)
}

/** Runs a pipeline; returns the hash that it writes to descriptor 3. */
async function hashOf(pipeline: string, env: Record<string, string>): Promise<string> {
  const child = spawn('bash', ['-c', `set -euo pipefail; ${pipeline}`], {
    env: { ...process.env, ...env },
    stdio: ['pipe', 'ignore', 'pipe', 'pipe'], // open stdin: s_server hangs up when it ends
    timeout: withinMs,
  })
  const [, , errors, hash] = child.stdio
  const [said, digest, [code]] = await Promise.all([
    text(errors as Readable),
    text(hash as Readable),
    once(child, 'exit'),
  ])
  if (code !== 0) throw new Error(`the pipe ended with ${code}: ${said}`)
  return digest.split(' ')[0] ?? ''
}

async function listening(port: number): Promise<void> {
  const socket = `:${port.toString(16).toUpperCase().padStart(4, '0')} 00000000:0000 0A`
  while (!(await readFile('/proc/net/tcp', 'utf8')).includes(socket)) await delay(2)
}
