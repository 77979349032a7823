import { fileURLToPath } from 'node:url'
import { Client, Connection } from '@temporalio/client'
import type { DataConverter } from '@temporalio/common'
import { EncryptingCodec } from './payload-codec.ts'
import { readKeyRing } from './seal.ts'

/** The task queue of one host. */
export const hostQueue = (hostId: string): string => `host-${hostId}`

export interface TemporalSettings {
  KEELSON_TEMPORAL_ADDRESS: string
  KEELSON_TEMPORAL_NAMESPACE: string
  KEELSON_CODEC_KEY_FILE: string
}

/** Also bundled with the workflow code, which creates failures too. */
export const failureConverterPath = fileURLToPath(new URL('failure-converter.ts', import.meta.url))

/** Shared by clients and workers, so that each can read the other's payloads. */
export const dataConverter = (settings: TemporalSettings): DataConverter => ({
  failureConverterPath,
  payloadCodecs: [new EncryptingCodec(readKeyRing(settings.KEELSON_CODEC_KEY_FILE))],
})

/** A client that connects at its first call, so that a role starts while Temporal is down. */
export function temporalClient(settings: TemporalSettings): Client {
  return new Client({
    connection: Connection.lazy({ address: settings.KEELSON_TEMPORAL_ADDRESS }),
    namespace: settings.KEELSON_TEMPORAL_NAMESPACE,
    dataConverter: dataConverter(settings),
  })
}
