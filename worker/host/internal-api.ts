import { Readable } from 'node:stream'
import { SignJWT } from 'jose'
import { z } from 'zod'
import {
  CodecKeys,
  DiskTransfer,
  WantedDisk,
  Enrolled,
  type Enrolment,
  HostNetworks,
  type HostReport,
  type HostSamples,
  hostTokenType,
  internalAudience,
  type LogPiece,
  LogPieceTaken,
  logPieceType,
  MachineTransfer,
  ReportAnswer,
} from '../../lib/host-protocol.ts'
import {
  type BuildLogPart,
  BuildOnHost,
  DatabaseMetricsOnHost,
  DatabaseUsersOnHost,
  DeployServices,
  ImagesToCopy,
  ImagesToRemove,
  Joining,
  RegistryOnHost,
  type ReplicaReport,
} from '../../lib/deploy-protocol.ts'
import {
  CopyOrder,
  DumpOrder,
  type DumpReport,
  partType,
  targetFailedCode,
} from '../../lib/backup-protocol.ts'
import { HostLoadBalancers, type HostLoadBalancerSamples } from '../../lib/load-balancer-protocol.ts'
import { type KeyRing, parseKeyRing } from '../../lib/seal.ts'
import type { Credential } from './enrolment.ts'

const answersWithinMs = 10_000
/** A large file, over a slow line. */
const readsWithinMs = 15 * 60_000
const tokenSec = 60

/** The API refused (`status`), or did not answer (no status). */
export class InternalApiFault extends Error {
  override readonly name = 'InternalApiFault'
  readonly code: string
  readonly permanent: boolean
  readonly status: number | null

  constructor(status: number | null, code: string, message: string, cause?: unknown) {
    super(message, { cause })
    this.status = status
    this.code = code
    // A 401 may come from a wrong clock, which can be corrected.
    this.permanent = status !== null && status < 500 && ![401, 408, 429].includes(status)
  }
}

/** Enrols the host. May be repeated with the same token and key. Throws InternalApiFault. */
export const enrol = (apiUrl: string, enrolment: Enrolment): Promise<Enrolled> =>
  call(new URL('/internal/v1/hosts/enrol', apiUrl), Enrolled, post(enrolment))

export type InternalApi = ReturnType<typeof makeInternalApi>

/** API calls of a host, signed with its key. All throw InternalApiFault. */
export function makeInternalApi(apiUrl: string, { hostId, key }: Pick<Credential, 'hostId' | 'key'>) {
  const at = (path: string): URL => new URL(`/internal/v1/hosts/${hostId}/${path}`, apiUrl)

  const token = (): Promise<string> =>
    new SignJWT()
      .setProtectedHeader({ alg: 'EdDSA', typ: hostTokenType })
      .setIssuer(hostId)
      .setSubject(hostId)
      .setAudience(internalAudience)
      .setIssuedAt()
      .setExpirationTime(`${tokenSec} s`)
      .sign(key)

  return {
    report: async (report: HostReport): Promise<ReportAnswer> =>
      call(at('reports'), ReportAnswer, post(report), await token()),

    samples: async (samples: HostSamples): Promise<void> => {
      await call(at('samples'), z.undefined(), post(samples), await token())
    },

    /** The keys of the payloads that this host gets and sends. */
    codecKeys: async (): Promise<KeyRing> =>
      parseKeyRing(
        (await call(at('codec-keys'), CodecKeys, {}, await token())).keys,
        'the host’s codec keys',
      ),

    /** Null if the disk is not this host's. */
    wantedDisk: async (diskId: string): Promise<WantedDisk | null> =>
      (await call(at(disk(diskId)), Wanted, {}, await token())).wanted,

    offer: async (diskId: string, transfer: DiskTransfer): Promise<void> => {
      const put = { ...post(transfer), method: 'PUT' }
      await call(at(`${disk(diskId)}/transfer`), z.undefined(), put, await token())
    },

    transferOf: async (diskId: string): Promise<DiskTransfer> =>
      call(at(`${disk(diskId)}/transfer`), DiskTransfer, {}, await token()),

    progress: async (diskId: string, percent: number): Promise<void> => {
      await call(at(`${disk(diskId)}/progress`), z.undefined(), post({ percent }), await token())
    },

    /** Returns the offset up to which the archive has the file; null if the output is no longer wanted. */
    logPiece: async (instanceId: string, piece: LogPiece, body: Buffer): Promise<number | null> => {
      const path = `${instance(instanceId)}/log-pieces`
      const query = new URLSearchParams(
        Object.entries(piece).map(([name, value]): [string, string] => [name, String(value)]),
      )
      const init = { method: 'POST', headers: { 'content-type': logPieceType }, body: new Uint8Array(body) }
      try {
        return (await call(at(`${path}?${query.toString()}`), LogPieceTaken, init, await token())).kept_to
      } catch (error) {
        if (error instanceof InternalApiFault && error.status === 404) return null
        throw error
      }
    },
    networks: async (): Promise<HostNetworks> => call(at('networks'), HostNetworks, {}, await token()),

    loadBalancers: async (): Promise<HostLoadBalancers> =>
      call(at('load-balancers'), HostLoadBalancers, {}, await token()),

    loadBalancerSamples: async (samples: HostLoadBalancerSamples): Promise<void> => {
      await call(at('load-balancer-samples'), z.undefined(), post(samples), await token())
    },

    replicas: async (report: ReplicaReport): Promise<void> => {
      await call(at('replicas'), z.undefined(), post(report), await token())
    },

    secretsOf: async (instanceId: string): Promise<z.infer<typeof Secrets>> =>
      call(at(`${instance(instanceId)}/config-vars`), Secrets, {}, await token()),

    keepJoining: async (deployServerId: string, joining: Joining): Promise<void> => {
      const put = { ...post(joining), method: 'PUT' }
      await call(at(joinToken(deployServerId)), z.undefined(), put, await token())
    },

    deployServices: async (deployServerId: string): Promise<DeployServices> =>
      call(at(`${deployServer(deployServerId)}/services`), DeployServices, {}, await token()),

    databaseUsers: async (): Promise<DatabaseUsersOnHost> =>
      call(at('database-users'), DatabaseUsersOnHost, {}, await token()),

    databaseMetrics: async (): Promise<DatabaseMetricsOnHost> =>
      call(at('database-metrics'), DatabaseMetricsOnHost, {}, await token()),

    artifact: async (deployServerId: string, artifactId: string): Promise<Readable> =>
      open(
        at(`${deployServer(deployServerId)}/artifacts/${encodeURIComponent(artifactId)}/archive`),
        await token(),
      ),

    builds: {
      build: async (deployServerId: string, buildId: string): Promise<BuildOnHost> =>
        call(at(build(deployServerId, buildId)), BuildOnHost, {}, await token()),

      logPart: async (deployServerId: string, buildId: string, part: BuildLogPart): Promise<void> => {
        await call(
          at(`${build(deployServerId, buildId)}/log-parts`),
          z.undefined(),
          post(part),
          await token(),
        )
      },

      /** Without a machine, that of the worker that builds. */
      registry: async (deployServerId: string, machineId?: string): Promise<RegistryOnHost> =>
        call(
          at(`${deployServer(deployServerId)}/registry${onMachine(machineId)}`),
          RegistryOnHost,
          {},
          await token(),
        ),

      imagesToRemove: async (deployServerId: string, machineId: string): Promise<ImagesToRemove> =>
        call(
          at(`${deployServer(deployServerId)}/images-to-remove${onMachine(machineId)}`),
          ImagesToRemove,
          post({}),
          await token(),
        ),

      imagesToCopy: async (deployServerId: string, machineId: string): Promise<ImagesToCopy> =>
        call(
          at(`${deployServer(deployServerId)}/images-to-copy${onMachine(machineId)}`),
          ImagesToCopy,
          {},
          await token(),
        ),
    },

    backups: {
      begin: async (deployServerId: string, executionId: string): Promise<DumpOrder> =>
        call(at(`${execution(deployServerId, executionId)}/attempts`), DumpOrder, post({}), await token()),

      keepPart: async (
        deployServerId: string,
        executionId: string,
        { attempt, index }: { attempt: number; index: number },
        part: Buffer,
      ): Promise<void> => {
        const path = `${execution(deployServerId, executionId)}/parts?attempt=${attempt}&index=${index}`
        const body = new Uint8Array(part)
        const init = { method: 'POST', headers: { 'content-type': partType }, body }
        await call(at(path), z.undefined(), init, await token(), readsWithinMs)
      },

      finish: async (deployServerId: string, executionId: string, report: DumpReport): Promise<void> => {
        const put = { ...post(report), method: 'PUT' }
        await call(at(`${execution(deployServerId, executionId)}/copy`), z.undefined(), put, await token())
      },

      copy: async (
        deployServerId: string,
        executionId: string,
        databaseId: string | null,
      ): Promise<CopyOrder> =>
        call(
          at(`${execution(deployServerId, executionId)}/copy${forDatabase(databaseId)}`),
          CopyOrder,
          {},
          await token(),
        ),

      part: async (
        deployServerId: string,
        executionId: string,
        databaseId: string | null,
        index: number,
      ): Promise<Readable> =>
        open(
          at(`${execution(deployServerId, executionId)}/parts/${index}${forDatabase(databaseId)}`),
          await token(),
        ),
    },

    joiningOf: async (deployServerId: string): Promise<Joining> =>
      call(at(joinToken(deployServerId)), Joining, {}, await token()),

    offerMachine: async (instanceId: string, source: MachineTransfer): Promise<void> => {
      const put = { ...post(source), method: 'PUT' }
      await call(at(`${instance(instanceId)}/transfer`), z.undefined(), put, await token())
    },

    sourceOfMachine: async (instanceId: string): Promise<MachineTransfer> =>
      call(at(`${instance(instanceId)}/transfer`), MachineTransfer, {}, await token()),
  }
}

const disk = (id: string): string => `disks/${encodeURIComponent(id)}`
const instance = (id: string): string => `instances/${encodeURIComponent(id)}`
const deployServer = (id: string): string => `deploy-servers/${encodeURIComponent(id)}`
const build = (deployServerId: string, id: string): string =>
  `${deployServer(deployServerId)}/builds/${encodeURIComponent(id)}`
const execution = (deployServerId: string, id: string): string =>
  `${deployServer(deployServerId)}/backup-executions/${encodeURIComponent(id)}`
const forDatabase = (id: string | null): string =>
  id === null ? '' : `?database_id=${encodeURIComponent(id)}`
const onMachine = (machineId?: string): string =>
  machineId === undefined ? '' : `?machine_id=${encodeURIComponent(machineId)}`
const joinToken = (deployServerId: string): string => `${deployServer(deployServerId)}/join-token`
const Wanted = z.object({ wanted: WantedDisk.nullable() })
const Secrets = z.object({
  config_vars: z.record(z.string(), z.string()),
  user_data: z.string().nullable(),
})
const Refusal = z.object({ code: z.string(), title: z.string() })

const post = (body: unknown): RequestInit => ({
  method: 'POST',
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify(body),
})

/** The bytes of an answer. */
async function open(url: URL, token: string): Promise<Readable> {
  const response = await send(url, {}, token, AbortSignal.timeout(readsWithinMs))
  if (response.ok && response.body) return Readable.fromWeb(response.body)
  throw await refusalOf(response)
}

async function call<S extends z.ZodType>(
  url: URL,
  schema: S,
  init: RequestInit,
  token?: string,
  withinMs = answersWithinMs,
): Promise<z.infer<S>> {
  const response = await send(url, init, token, AbortSignal.timeout(withinMs))
  if (!response.ok) throw await refusalOf(response)
  return schema.parse(response.status === 204 ? undefined : await response.json().catch(away))
}

function send(
  url: URL,
  init: RequestInit,
  token: string | undefined,
  signal: AbortSignal,
): Promise<Response> {
  const headers = new Headers(init.headers)
  if (token) headers.set('authorization', `Bearer ${token}`)
  return fetch(url, { ...init, headers, signal }).catch(away)
}

function away(cause: unknown): never {
  throw new InternalApiFault(null, 'platform_unavailable', 'The platform’s API does not answer', cause)
}

async function refusalOf(response: Response): Promise<InternalApiFault> {
  const body: unknown = await response.json().catch(away)
  const refusal = Refusal.catch({ code: 'refused', title: response.statusText }).parse(body)
  const isPlain = refusal.code === targetFailedCode
  const message = isPlain ? refusal.title : `The platform’s API refused: ${refusal.title}`
  return new InternalApiFault(response.status, refusal.code, message)
}
