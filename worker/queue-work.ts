import { readFileSync } from 'node:fs'
import {
  NativeConnection,
  type NativeConnectionOptions,
  Worker,
  type WorkerOptions,
} from '@temporalio/worker'
import { failures } from '../activities/failures.ts'
import { heartbeats } from '../activities/heartbeats.ts'
import { measured } from '../activities/measured.ts'
import { gatewayTokenSec } from '../lib/host-protocol.ts'
import type { Logger } from '../lib/log.ts'
import { queueOf } from '../lib/parties.ts'
import { type Credential, gatewayToken } from '../lib/party-tokens.ts'
import { EncryptingCodec } from '../lib/payload-codec.ts'
import type { KeyRing } from '../lib/seal.ts'
import { dataConverter } from '../lib/temporal.ts'
import { makeBackoff } from './retry.ts'

// The work of a party: a worker of its own queue, with activities alone, behind the gateway.

export type GatewayAddress = Pick<NativeConnectionOptions, 'address' | 'tls' | 'proxy'>

export interface QueueWork {
  credential: Credential
  /** Where the gateway is, asked for each connection. */
  gateway: () => GatewayAddress
  namespace: string
  /** Asks the API for the keys of this party's payloads. */
  codecKeys: () => Promise<KeyRing>
  activities: object
  /** How much is done at once. */
  slots: Pick<
    WorkerOptions,
    'tuner' | 'maxConcurrentActivityTaskExecutions' | 'maxConcurrentActivityTaskPolls'
  >
  onStarted: () => void
  log: Logger
}

/** The address of a gateway by its URL. Throws if the file with its authorities cannot be read. */
export function gatewayAt(url: string, caFile: string | undefined): GatewayAddress {
  const { protocol, hostname, port } = new URL(url)
  const isTls = protocol === 'https:'
  return {
    address: `${hostname}:${port || (isTls ? 443 : 80)}`,
    tls: isTls && (caFile ? { serverRootCACertificate: readFileSync(caFile) } : true),
  }
}

/** Runs the worker of the party's queue until aborted. Reconnects when the gateway, or Temporal behind it, is lost. */
export async function keepWorking(of: QueueWork, signal: AbortSignal): Promise<void> {
  const backoff = makeBackoff()
  while (!signal.aborted) {
    try {
      await work(of, signal)
    } catch (error) {
      of.log.warn({ err: error }, 'no work from Temporal; trying again')
      await backoff.wait(signal)
    }
  }
}

/** Runs one worker until the party stops or the connection is lost. */
async function work(
  { credential, gateway, namespace, codecKeys, activities, slots, onStarted, log }: QueueWork,
  signal: AbortSignal,
): Promise<void> {
  const codec = new EncryptingCodec({ ring: await codecKeys(), renew: codecKeys })
  const connection = await connectGateway(gateway(), credential, log)
  try {
    const worker = await Worker.create({
      connection: connection.native,
      namespace,
      taskQueue: queueOf(credential.party),
      activities,
      interceptors: { activity: [measured, heartbeats, failures] },
      dataConverter: dataConverter(codec),
      ...slots,
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

/** A connection to the gateway; each of its calls has a token that the party has just signed. */
async function connectGateway(
  gateway: GatewayAddress,
  credential: Credential,
  log: Logger,
): Promise<{ native: NativeConnection; close: () => Promise<void> }> {
  const metadata = async () => ({ authorization: `Bearer ${await gatewayToken(credential)}` })
  const native = await NativeConnection.connect({
    ...gateway,
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
