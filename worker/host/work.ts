import { readFileSync } from 'node:fs'
import { NativeConnection, Worker } from '@temporalio/worker'
import { SignJWT } from 'jose'
import { failures } from '../../activities/failures.ts'
import { heartbeats } from '../../activities/heartbeats.ts'
import type { Turns } from '../../activities/host/turns.ts'
import { measured } from '../../activities/measured.ts'
import type { Settings } from '../../config.ts'
import { gatewayAudience, gatewayTokenSec, hostTokenType } from '../../lib/host-protocol.ts'
import type { Logger } from '../../lib/log.ts'
import { EncryptingCodec } from '../../lib/payload-codec.ts'
import type { KeyRing } from '../../lib/seal.ts'
import { dataConverter, hostQueue } from '../../lib/temporal.ts'
import { makeBackoff } from '../retry.ts'
import type { Credential } from './enrolment.ts'
import { taskSlots } from './task-slots.ts'

interface With {
  credential: Pick<Credential, 'hostId' | 'key'>
  /** Asks the API for the keys of this host's payloads. */
  codecKeys: () => Promise<KeyRing>
  activities: object
  turns: Turns
  onStarted: () => void
  log: Logger
}

/** Runs the worker of the host's queue until aborted. Reconnects when the gateway, or Temporal behind it, is lost. */
export async function keepWorking(settings: Settings<'host'>, of: With, signal: AbortSignal): Promise<void> {
  const backoff = makeBackoff()
  while (!signal.aborted) {
    try {
      await work(settings, of, signal)
    } catch (error) {
      of.log.warn({ err: error }, 'no work from Temporal; trying again')
      await backoff.wait(signal)
    }
  }
}

/** Runs one worker until the host stops or the connection is lost. */
async function work(
  settings: Settings<'host'>,
  { credential, codecKeys, activities, turns, onStarted, log }: With,
  signal: AbortSignal,
): Promise<void> {
  const codec = new EncryptingCodec({ ring: await codecKeys(), renew: codecKeys })
  const connection = await connectGateway(settings, credential, log)
  try {
    const worker = await Worker.create({
      connection: connection.native,
      namespace: settings.KEELSON_TEMPORAL_NAMESPACE,
      taskQueue: hostQueue(credential.hostId),
      activities,
      interceptors: { activity: [measured, heartbeats, failures] },
      dataConverter: dataConverter(codec),
      tuner: taskSlots(turns),
      // A cancellation arrives with the answer to a heartbeat.
      maxHeartbeatThrottleInterval: '2 s',
      // A start that has begun ends within this time. Waiting activities are then cancelled and retried by the next
      // worker.
      shutdownGraceTime: '3 s',
      shutdownForceTime: '6 s',
    })
    const stopped = new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()))
    await worker.runUntil(async () => {
      onStarted()
      if (!signal.aborted) await stopped
    })
  } finally {
    await connection.close()
  }
}

// A late renewal, on a busy machine, loses nothing.
const renewEveryMs = (gatewayTokenSec * 1000) / 6

/** A connection to the gateway; each of its calls has a token that the host has just signed. */
async function connectGateway(
  { KEELSON_GATEWAY_URL: url, KEELSON_GATEWAY_CA_FILE: caFile }: Settings<'host'>,
  credential: With['credential'],
  log: Logger,
): Promise<{ native: NativeConnection; close: () => Promise<void> }> {
  const { protocol, hostname, port } = new URL(url)
  const isTls = protocol === 'https:'
  const metadata = async () => ({ authorization: `Bearer ${await gatewayToken(credential)}` })
  const native = await NativeConnection.connect({
    address: `${hostname}:${port || (isTls ? 443 : 80)}`,
    tls: isTls && (caFile ? { serverRootCACertificate: readFileSync(caFile) } : true),
    metadata: await metadata(),
    // Its content is encrypted.
    grpcCompression: { codec: 'none' },
  })
  const renew = async (): Promise<void> => native.setMetadata(await metadata())
  const renewing = setInterval(() => {
    renew().catch((err: unknown) => log.warn({ err }, 'the token for the gateway is not renewed'))
  }, renewEveryMs)
  return {
    native,
    async close() {
      clearInterval(renewing)
      await native.close()
    },
  }
}

/** A token for the gateway, signed by the host. */
export const gatewayToken = ({ hostId, key }: With['credential']): Promise<string> =>
  new SignJWT()
    .setProtectedHeader({ alg: 'EdDSA', typ: hostTokenType })
    .setIssuer(hostId)
    .setSubject(hostId)
    .setAudience(gatewayAudience)
    .setIssuedAt()
    .setExpirationTime(`${gatewayTokenSec} s`)
    .sign(key)
