import type { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { z } from 'zod'
import {
  CodecKeys,
  DiskTransfer,
  WantedDisk,
  Enrolled,
  type Enrolment,
  type HostReport,
  type HostSamples,
  type LogPiece,
  LogPieceTaken,
  logPieceType,
  MachineTransfer,
  ReportAnswer,
  type SignOfLife,
} from '../../lib/host-protocol.ts'
import { HostNetworks } from '../../lib/network-protocol.ts'
import {
  type BuildLogPart,
  BuildOnHost,
  ControlPlanesOnHost,
  DatabaseMetricsOnHost,
  DatabaseUsersOnHost,
  DeployServices,
  ImagesToCopy,
  ImagesToRemove,
  Joining,
  RegistryOnHost,
  type ReplicaReport,
  type SwarmPiecePlace,
} from '../../lib/deploy-protocol.ts'
import {
  CopyOrder,
  DumpBegun,
  type DumpOrder,
  type DumpReport,
  partType,
  targetFailedCode,
} from '../../lib/backup-protocol.ts'
import { type ArchiveReport, DatabaseArchivesOnHost, type SegmentPlace } from '../../lib/archive-protocol.ts'
import { HostLoadBalancers, type HostLoadBalancerSamples } from '../../lib/load-balancer-protocol.ts'
import { type RegistryLogin, RegistryLoginOnHost } from '../../lib/registry-login.ts'
import { requestToken } from '../../lib/party-tokens.ts'
import { type KeyRing, parseKeyRing } from '../../lib/seal.ts'
import { ToolCommand } from '../../lib/tool-protocol.ts'
import { PlatformFault } from '../platform-fault.ts'
import type { Credential } from './enrolment.ts'
import { exchange } from './large-bodies.ts'

const answersWithinMs = 10_000
/** A large file, over a slow line. */
const readsWithinMs = 15 * 60_000

/** Enrols the host. May be repeated with the same token and key. Throws PlatformFault. */
export const enrol = (apiUrl: string, enrolment: Enrolment): Promise<Enrolled> =>
  read(send(new URL('/internal/v1/hosts/enrol', apiUrl), post(enrolment)), Enrolled)

export type InternalApi = ReturnType<typeof makeInternalApi>

/** API calls of a host, signed with its key. All throw PlatformFault. */
export function makeInternalApi(apiUrl: string, { hostId, key }: Pick<Credential, 'hostId' | 'key'>) {
  /** Each request has a token of its own, also one that is sent again: the API takes a token once. */
  async function addressed(path: string, method: string): Promise<{ url: URL; token: string }> {
    const url = new URL(`/internal/v1/hosts/${hostId}/${path}`, apiUrl)
    const asked = { method, target: `${url.pathname}${url.search}` }
    return { url, token: await requestToken({ party: { kind: 'host', id: hostId }, key }, asked) }
  }

  async function ask(path: string, init: RequestInit, withinMs: number): Promise<Response> {
    const { url, token } = await addressed(path, init.method ?? 'GET')
    return send(url, init, { token, withinMs })
  }

  const call = <S extends z.ZodType>(
    path: string,
    schema: S,
    init: RequestInit = {},
    withinMs = answersWithinMs,
  ): Promise<z.infer<S>> => read(ask(path, init, withinMs), schema)

  /** Sends pieces of bytes, if any, and returns those of the answer. */
  async function large(path: string, pieces: Uint8Array[] = []): Promise<Readable> {
    const method = pieces.length ? 'POST' : 'GET'
    const { url, token } = await addressed(path, method)
    const type = pieces.length ? { 'content-type': partType } : {}
    const headers = { authorization: `Bearer ${token}`, ...type }
    const signal = AbortSignal.timeout(readsWithinMs)
    const answer = await exchange(url, { method, headers, pieces, signal }).catch(away)
    const { statusCode: status = 0 } = answer
    if (status >= 200 && status < 300) return answer
    throw await refusalOf(new Response(await text(answer).catch(away), { status }))
  }

  const sendLarge = async (path: string, pieces: Uint8Array[]): Promise<void> => {
    await text(await large(path, pieces)).catch(away)
  }

  return {
    alive: async (sign: SignOfLife): Promise<void> => {
      await call('alive', z.undefined(), post(sign))
    },

    report: async (report: HostReport): Promise<ReportAnswer> => call('reports', ReportAnswer, post(report)),

    samples: async (samples: HostSamples): Promise<void> => {
      await call('samples', z.undefined(), post(samples))
    },

    /** The keys of the payloads that this host gets and sends. */
    codecKeys: async (): Promise<KeyRing> =>
      parseKeyRing((await call('codec-keys', CodecKeys)).keys, 'the host’s codec keys'),

    /** Null if the disk is not this host's. */
    wantedDisk: async (diskId: string): Promise<WantedDisk | null> =>
      (await call(disk(diskId), Wanted)).wanted,

    offer: async (diskId: string, transfer: DiskTransfer): Promise<void> => {
      const put = { ...post(transfer), method: 'PUT' }
      await call(`${disk(diskId)}/transfer`, z.undefined(), put)
    },

    transferOf: async (diskId: string): Promise<DiskTransfer> =>
      call(`${disk(diskId)}/transfer`, DiskTransfer),

    progress: async (diskId: string, percent: number): Promise<void> => {
      await call(`${disk(diskId)}/progress`, z.undefined(), post({ percent }))
    },

    /** Returns the offset up to which the archive has the file; null if the output is no longer wanted. */
    logPiece: async (instanceId: string, piece: LogPiece, body: Buffer): Promise<number | null> => {
      const path = `${instance(instanceId)}/log-pieces`
      const query = new URLSearchParams(
        Object.entries(piece).map(([name, value]): [string, string] => [name, String(value)]),
      )
      const init = { method: 'POST', headers: { 'content-type': logPieceType }, body: new Uint8Array(body) }
      try {
        return (await call(`${path}?${query.toString()}`, LogPieceTaken, init)).kept_to
      } catch (error) {
        if (error instanceof PlatformFault && error.status === 404) return null
        throw error
      }
    },
    toolCommand: async (probeId: string): Promise<ToolCommand> =>
      call(`tool-probes/${encodeURIComponent(probeId)}`, ToolCommand),

    networks: async (): Promise<HostNetworks> => call('networks', HostNetworks),

    loadBalancers: async (): Promise<HostLoadBalancers> => call('load-balancers', HostLoadBalancers),

    loadBalancerSamples: async (samples: HostLoadBalancerSamples): Promise<void> => {
      await call('load-balancer-samples', z.undefined(), post(samples))
    },

    replicas: async (report: ReplicaReport): Promise<void> => {
      await call('replicas', z.undefined(), post(report))
    },

    secretsOf: async (instanceId: string): Promise<z.infer<typeof Secrets>> =>
      call(`${instance(instanceId)}/config-vars`, Secrets),

    registryLogin: async (instanceId: string): Promise<RegistryLogin | null> =>
      (await call(`${instance(instanceId)}/registry-login`, RegistryLoginOnHost)).login,

    keepJoining: async (deployServerId: string, joining: Joining): Promise<void> => {
      const put = { ...post(joining), method: 'PUT' }
      await call(joinToken(deployServerId), z.undefined(), put)
    },

    deployServices: async (deployServerId: string): Promise<DeployServices> =>
      call(`${deployServer(deployServerId)}/services`, DeployServices),

    databaseUsers: async (): Promise<DatabaseUsersOnHost> => call('database-users', DatabaseUsersOnHost),

    databaseMetrics: async (): Promise<DatabaseMetricsOnHost> =>
      call('database-metrics', DatabaseMetricsOnHost),

    artifact: async (deployServerId: string, artifactId: string): Promise<Readable> =>
      large(`${deployServer(deployServerId)}/artifacts/${encodeURIComponent(artifactId)}/archive`),

    builds: {
      build: async (deployServerId: string, buildId: string): Promise<BuildOnHost> =>
        call(build(deployServerId, buildId), BuildOnHost),

      logPart: async (deployServerId: string, buildId: string, part: BuildLogPart): Promise<void> => {
        await call(`${build(deployServerId, buildId)}/log-parts`, z.undefined(), post(part))
      },

      /** Without a machine, that of the worker that builds. */
      registry: async (deployServerId: string, machineId?: string): Promise<RegistryOnHost> =>
        call(`${deployServer(deployServerId)}/registry${onMachine(machineId)}`, RegistryOnHost),

      imagesToRemove: async (deployServerId: string, machineId: string): Promise<ImagesToRemove> =>
        call(
          `${deployServer(deployServerId)}/images-to-remove${onMachine(machineId)}`,
          ImagesToRemove,
          post({}),
        ),

      imagesToCopy: async (deployServerId: string, machineId: string): Promise<ImagesToCopy> =>
        call(`${deployServer(deployServerId)}/images-to-copy${onMachine(machineId)}`, ImagesToCopy),
    },

    swarmCopies: {
      controlPlanes: async (): Promise<ControlPlanesOnHost['control_planes']> =>
        (await call('control-planes', ControlPlanesOnHost)).control_planes,

      keep: async (
        deployServerId: string,
        copyId: string,
        { machine_id, index, whole }: SwarmPiecePlace,
        piece: Buffer[],
      ): Promise<void> => {
        const query = new URLSearchParams({ machine_id, index: String(index), whole: String(whole) })
        await sendLarge(`${swarmCopies(deployServerId)}/${copyId}/pieces?${query.toString()}`, piece)
      },

      /** Null if there is none. */
      newest: async (deployServerId: string): Promise<Readable | null> => {
        try {
          return await large(`${swarmCopies(deployServerId)}/newest`)
        } catch (error) {
          if (error instanceof PlatformFault && error.status === 404) return null
          throw error
        }
      },
    },

    backups: {
      begin: async (
        deployServerId: string,
        executionId: string,
        attempt: number,
      ): Promise<DumpOrder | null> =>
        (await call(`${execution(deployServerId, executionId)}/attempts`, DumpBegun, post({ attempt })))
          .order,

      keepPart: async (
        deployServerId: string,
        executionId: string,
        { attempt, index }: { attempt: number; index: number },
        part: Buffer[],
      ): Promise<void> =>
        sendLarge(`${execution(deployServerId, executionId)}/parts?attempt=${attempt}&index=${index}`, part),

      finish: async (deployServerId: string, executionId: string, report: DumpReport): Promise<void> => {
        const put = { ...post(report), method: 'PUT' }
        await call(`${execution(deployServerId, executionId)}/copy`, z.undefined(), put)
      },

      copy: async (
        deployServerId: string,
        executionId: string,
        databaseId: string | null,
      ): Promise<CopyOrder> =>
        call(`${execution(deployServerId, executionId)}/copy${forDatabase(databaseId)}`, CopyOrder),

      part: async (
        deployServerId: string,
        executionId: string,
        databaseId: string | null,
        index: number,
      ): Promise<Readable> =>
        large(`${execution(deployServerId, executionId)}/parts/${index}${forDatabase(databaseId)}`),

      segment: async (
        deployServerId: string,
        executionId: string,
        databaseId: string | null,
        name: string,
      ): Promise<Readable> =>
        large(`${execution(deployServerId, executionId)}/segments/${name}${forDatabase(databaseId)}`),
    },

    archives: {
      wanted: async (): Promise<DatabaseArchivesOnHost> => call('database-archives', DatabaseArchivesOnHost),

      report: async (deployServerId: string, archiveId: string, report: ArchiveReport): Promise<void> => {
        await call(`${archive(deployServerId, archiveId)}/reports`, z.undefined(), post(report))
      },

      keep: async (
        deployServerId: string,
        archiveId: string,
        { name, ticked_at }: SegmentPlace,
        segment: Buffer,
      ): Promise<void> => {
        const query = new URLSearchParams({ name, ...(ticked_at === undefined ? {} : { ticked_at }) })
        await sendLarge(`${archive(deployServerId, archiveId)}/segments?${query.toString()}`, [segment])
      },
    },

    joiningOf: async (deployServerId: string): Promise<Joining> => call(joinToken(deployServerId), Joining),

    offerMachine: async (instanceId: string, source: MachineTransfer): Promise<void> => {
      const put = { ...post(source), method: 'PUT' }
      await call(`${instance(instanceId)}/transfer`, z.undefined(), put)
    },

    sourceOfMachine: async (instanceId: string): Promise<MachineTransfer> =>
      call(`${instance(instanceId)}/transfer`, MachineTransfer),
  }
}

const disk = (id: string): string => `disks/${encodeURIComponent(id)}`
const instance = (id: string): string => `instances/${encodeURIComponent(id)}`
const deployServer = (id: string): string => `deploy-servers/${encodeURIComponent(id)}`
const build = (deployServerId: string, id: string): string =>
  `${deployServer(deployServerId)}/builds/${encodeURIComponent(id)}`
const execution = (deployServerId: string, id: string): string =>
  `${deployServer(deployServerId)}/backup-executions/${encodeURIComponent(id)}`
const archive = (deployServerId: string, id: string): string =>
  `${deployServer(deployServerId)}/archives/${encodeURIComponent(id)}`
const forDatabase = (id: string | null): string =>
  id === null ? '' : `?database_id=${encodeURIComponent(id)}`
const onMachine = (machineId?: string): string =>
  machineId === undefined ? '' : `?machine_id=${encodeURIComponent(machineId)}`
const swarmCopies = (deployServerId: string): string => `${deployServer(deployServerId)}/swarm-copies`
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

async function read<S extends z.ZodType>(asked: Promise<Response>, schema: S): Promise<z.infer<S>> {
  const response = await asked
  if (!response.ok) throw await refusalOf(response)
  return schema.parse(response.status === 204 ? undefined : await response.json().catch(away))
}

function send(
  url: URL,
  init: RequestInit,
  { token, withinMs = answersWithinMs }: { token?: string; withinMs?: number } = {},
): Promise<Response> {
  const headers = new Headers(init.headers)
  if (token) headers.set('authorization', `Bearer ${token}`)
  return fetch(url, { ...init, headers, signal: AbortSignal.timeout(withinMs) }).catch(away)
}

function away(cause: unknown): never {
  throw new PlatformFault(null, 'platform_unavailable', 'The platform’s API does not answer', cause)
}

async function refusalOf(response: Response): Promise<PlatformFault> {
  const body: unknown = await response.json().catch(away)
  const refusal = Refusal.catch({ code: 'refused', title: response.statusText }).parse(body)
  const isPlain = refusal.code === targetFailedCode
  const message = isPlain ? refusal.title : `The platform’s API refused: ${refusal.title}`
  return new PlatformFault(response.status, refusal.code, message)
}
