import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { Client, Connection, type TLSConfig } from '@temporalio/client'
import type { DataConverter } from '@temporalio/common'
import { EncryptingCodec } from './payload-codec.ts'
import { readKeyRing } from './seal.ts'

export interface TemporalAccess {
  KEELSON_TEMPORAL_ADDRESS: string
  KEELSON_TEMPORAL_TLS?: 'true' | 'false' | undefined
  KEELSON_TEMPORAL_TLS_CA_FILE?: string | undefined
  KEELSON_TEMPORAL_TLS_SERVER_NAME?: string | undefined
  KEELSON_TEMPORAL_TLS_CERT_FILE?: string | undefined
  KEELSON_TEMPORAL_TLS_KEY_FILE?: string | undefined
  KEELSON_TEMPORAL_API_KEY?: string | undefined
}

export interface TemporalSettings extends TemporalAccess {
  KEELSON_TEMPORAL_NAMESPACE: string
  KEELSON_CODEC_KEY_FILE: string
}

/** Also bundled with the workflow code, which creates failures too. */
export const failureConverterPath = fileURLToPath(new URL('failure-converter.ts', import.meta.url))

/** The codec of the platform's roles. Each party behind the gateway has one with keys of its own. */
export const platformCodec = (settings: Pick<TemporalSettings, 'KEELSON_CODEC_KEY_FILE'>): EncryptingCodec =>
  new EncryptingCodec({ ring: readKeyRing(settings.KEELSON_CODEC_KEY_FILE) })

/** Shared by clients and workers, so that each can read the other's payloads. */
export const dataConverter = (codec: EncryptingCodec): DataConverter => ({
  failureConverterPath,
  payloadCodecs: [codec],
})

interface TemporalConnection {
  address: string
  tls: TLSConfig | false
  apiKey?: string
}

/**
 * How to connect to Temporal, for clients and workers: the address, and TLS if any of its settings, or an API key, is
 * given. Throws if the settings do not fit together, or a file cannot be read.
 */
export function temporalConnection(settings: TemporalAccess): TemporalConnection {
  const {
    KEELSON_TEMPORAL_TLS_CA_FILE: ca,
    KEELSON_TEMPORAL_TLS_SERVER_NAME: serverName,
    KEELSON_TEMPORAL_TLS_CERT_FILE: cert,
    KEELSON_TEMPORAL_TLS_KEY_FILE: key,
    KEELSON_TEMPORAL_API_KEY: apiKey,
  } = settings
  const address = settings.KEELSON_TEMPORAL_ADDRESS
  const needsTls = [ca, serverName, cert, key, apiKey].some((value) => value !== undefined)
  if (settings.KEELSON_TEMPORAL_TLS === 'false' && needsTls)
    throw new Error('KEELSON_TEMPORAL_TLS is false, and another setting needs TLS')
  if ((cert === undefined) !== (key === undefined))
    throw new Error('KEELSON_TEMPORAL_TLS_CERT_FILE and KEELSON_TEMPORAL_TLS_KEY_FILE go together')
  if (!needsTls && settings.KEELSON_TEMPORAL_TLS !== 'true') return { address, tls: false }
  const tls = {
    ...(ca ? { serverRootCACertificate: readFileSync(ca) } : {}),
    ...(serverName ? { serverNameOverride: serverName } : {}),
    ...(cert && key ? { clientCertPair: { crt: readFileSync(cert), key: readFileSync(key) } } : {}),
  }
  return { address, tls, ...(apiKey ? { apiKey } : {}) }
}

/** A client that connects at its first call, so that a role starts while Temporal is down. */
export function temporalClient(settings: TemporalSettings): Client {
  return new Client({
    connection: Connection.lazy(temporalConnection(settings)),
    namespace: settings.KEELSON_TEMPORAL_NAMESPACE,
    dataConverter: dataConverter(platformCodec(settings)),
  })
}
