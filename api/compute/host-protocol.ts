import { z } from 'zod'
import {
  CodecKeys,
  Enrolled,
  Enrolment,
  HostReport,
  HostSamples,
  LogPiece,
  LogPieceTaken,
  logPieceBodyKib,
  logPieceType,
  ReportAnswer,
  SignOfLife,
} from '../../lib/host-protocol.ts'
import { HostNetworks } from '../../lib/network-protocol.ts'
import { NotFound, Unauthenticated } from '../../lib/problem.ts'
import { RegistryLoginOnHost } from '../../lib/registry-login.ts'
import { enrolHost } from '../../models/compute/hosts.ts'
import { varsOfManager } from '../../models/compute/manager-vars.ts'
import { findInstance, type Instance } from '../../models/compute/instance-kinds.ts'
import { keepPiece } from '../../models/compute/log-archive.ts'
import { noteGap } from '../../models/compute/log-gaps.ts'
import { findLogOwner, mayHaveOutput } from '../../models/compute/log-owners.ts'
import { registryLoginOf } from '../../models/compute/registry-credentials.ts'
import { strangersOn } from '../../models/compute/reservations.ts'
import { observe } from '../../models/compute/observe.ts'
import { hear } from '../../models/compute/reachability.ts'
import { recordSamples } from '../../models/compute/samples.ts'
import { openUserData, type VmDocument } from '../../models/compute/vms.ts'
import { attachedVars } from '../../models/deploy/attachments.ts'
import { networksOf } from '../../models/network/host-networks.ts'
import { publicKeys } from '../../models/identity/signing-keys.ts'
import { byId, Id } from '../fields.ts'
import { anybody, type HostCaller, hostsOnly, type Operation, operation } from '../operation.ts'
import type { OperationsContext } from '../operations.ts'

// The internal API, which hosts call. A host can access only its own resources.

/** Throws NotFound if `id` is another host's. */
export const own = (caller: HostCaller, id: string): void => {
  if (caller.id !== id) throw new NotFound('host')
}

/** Throws NotFound if the host does not run it. */
async function instanceOn({ id, instance_id }: { id: string; instance_id: string }): Promise<Instance> {
  const [stranger] = await strangersOn(id, [instance_id])
  const found = stranger ? null : await findInstance(instance_id)
  if (!found) throw new NotFound('instance')
  return found
}

export const makeHostProtocol = ({ codecKeysOf }: Pick<OperationsContext, 'codecKeysOf'>): Operation[] => [
  operation({
    method: 'GET',
    path: '/internal/v1/hosts/{id}/codec-keys',
    permission: hostsOnly('a host gets the keys of its own payloads'),
    summary: 'Get the keys that seal the payloads of a host’s tasks',
    params: byId,
    responses: { 200: CodecKeys },
    handle: async ({ caller, params }) => {
      own(caller, params.id)
      if (!codecKeysOf) throw new NotFound('codec keys')
      return { keys: codecKeysOf({ kind: caller.kind, id: caller.id }) }
    },
  }),

  operation({
    method: 'POST',
    path: '/internal/v1/hosts/enrol',
    permission: anybody('the one-time token in the body is the credential'),
    summary: 'Enrol a machine as a host with its own key',
    body: Enrolment,
    responses: { 200: Enrolled },
    attempts_per_min: 60,
    handle: async ({ body }) => {
      const host = await enrolHost(body)
      if (!host) throw new Unauthenticated('The token is unknown, already used or expired', 'invalid_token')
      return { host_id: host._id, jwks: await publicKeys() }
    },
  }),

  operation({
    method: 'POST',
    path: '/internal/v1/hosts/{id}/alive',
    permission: hostsOnly('a host tells of itself'),
    summary: 'Give a sign of life, and say whether the host’s engine answers',
    params: byId,
    body: SignOfLife,
    responses: { 204: null },
    handle: async ({ caller, params, body }) => {
      own(caller, params.id)
      await hear(params.id, body)
    },
  }),

  operation({
    method: 'POST',
    path: '/internal/v1/hosts/{id}/reports',
    permission: hostsOnly('a host reports about itself'),
    summary: 'Report what a host observes: its capacity and the state of its things',
    params: byId,
    body: HostReport,
    // 150 bytes for each target of a load balancer's route.
    json_kib: 16 * 1024,
    responses: { 200: ReportAnswer },
    handle: async ({ caller, params, body }) => {
      own(caller, params.id)
      return { ...(await observe(params.id, body)), jwks: await publicKeys() }
    },
  }),

  operation({
    method: 'GET',
    path: '/internal/v1/hosts/{id}/networks',
    permission: hostsOnly('a host gets the networks wanted on it'),
    summary: 'Get all VPCs, subnets and NICs wanted on a host',
    params: byId,
    responses: { 200: HostNetworks },
    handle: async ({ caller, params }) => {
      own(caller, params.id)
      return networksOf(params.id)
    },
  }),

  operation({
    method: 'POST',
    path: '/internal/v1/hosts/{id}/samples',
    permission: hostsOnly('a host reports about its own instances'),
    summary: 'Report the resource usage of a host’s instances',
    params: byId,
    body: HostSamples,
    responses: { 204: null },
    handle: async ({ caller, params, body }) => {
      own(caller, params.id)
      await recordSamples(params.id, body.samples)
    },
  }),

  operation({
    method: 'GET',
    path: '/internal/v1/hosts/{id}/instances/{instance_id}/config-vars',
    permission: hostsOnly('only the host that runs the instance gets its secrets'),
    summary: 'Get the secrets of an instance: config vars and cloud-init user data',
    params: z.strictObject({ id: Id, instance_id: Id }),
    responses: {
      200: z.strictObject({
        config_vars: z.record(z.string(), z.string()),
        user_data: z.string().nullable(),
      }),
    },
    handle: async ({ caller, params }) => {
      own(caller, params.id)
      const { kind, instance } = await instanceOn(params)
      return {
        config_vars: {
          ...(await kind.openConfigVars(instance)),
          ...(await attachedVars(instance)),
          ...(await varsOfManager(instance)),
        },
        user_data: kind.kind === 'vm' ? await openUserData(instance as VmDocument) : null,
      }
    },
  }),

  operation({
    method: 'GET',
    path: '/internal/v1/hosts/{id}/instances/{instance_id}/registry-login',
    permission: hostsOnly('only the host that runs the instance gets its tenant’s login'),
    summary: 'Get the tenant’s login at the registry of an instance’s image',
    params: z.strictObject({ id: Id, instance_id: Id }),
    responses: { 200: RegistryLoginOnHost },
    handle: async ({ caller, params }) => {
      own(caller, params.id)
      return { login: await registryLoginOf((await instanceOn(params)).instance) }
    },
  }),

  operation({
    method: 'POST',
    path: '/internal/v1/hosts/{id}/instances/{instance_id}/log-pieces',
    permission: hostsOnly('a host archives the output of instances and load balancers that it runs or ran'),
    summary: 'Archive a part of the output of an instance or a load balancer',
    params: z.strictObject({ id: Id, instance_id: Id }),
    query: LogPiece,
    body: z.instanceof(Buffer).meta({ type: 'string', format: 'binary' }),
    bytes: { media_type: logPieceType, at_most_kib: logPieceBodyKib },
    responses: { 200: LogPieceTaken },
    handle: async ({ caller, params: { id, instance_id }, query, body }) => {
      own(caller, id)
      if (!(await mayHaveOutput(id, instance_id))) throw new NotFound('instance')
      const owner = await findLogOwner(instance_id)
      // The output of a deleted instance is deleted too: on this 404 the host may drop its part.
      if (!owner || owner.status === 'deleting') throw new NotFound('instance')
      if (query.after_gap === 'true') await noteGap(owner)
      const written = { tenant_id: owner.tenant_id, instance_id, host_id: id }
      return { kept_to: await keepPiece(written, query, body) }
    },
  }),
]
