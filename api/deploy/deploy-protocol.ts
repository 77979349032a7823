import { z } from 'zod'
import { NotFound } from '../../lib/problem.ts'
import {
  DatabaseMetricsOnHost,
  DatabaseUsersOnHost,
  DeployServices,
  Joining,
  ReplicaReport,
} from '../../lib/deploy-protocol.ts'
import { archiveOf } from '../../models/deploy/artifacts.ts'
import {
  controlPlaneOnHost,
  deployServerOnHost,
  joiningOf,
  keepJoining,
} from '../../models/deploy/deploy-servers.ts'
import { databaseMetricsOn } from '../../models/deploy/database-metrics.ts'
import { databaseUsersOn } from '../../models/deploy/database-users.ts'
import { recordReplicas } from '../../models/deploy/replica-reports.ts'
import { wantedServices } from '../../models/deploy/swarm-services.ts'
import { own } from '../compute/host-protocol.ts'
import { byId, Id } from '../fields.ts'
import { hostsOnly, operation, stream } from '../operation.ts'

// The internal API for deploy servers. A host asks only for those that have a machine on it.

const params = z.strictObject({ id: Id, server_id: Id })
const server = '/internal/v1/hosts/{id}/deploy-servers/{server_id}'
const path = `${server}/join-token`
const permission = hostsOnly('only hosts with a machine of the deploy server get its join token')

export const deployProtocol = [
  operation({
    method: 'GET',
    path: `${server}/artifacts/{artifact_id}/archive`,
    permission: hostsOnly('only hosts with a machine of the deploy server get its artifacts'),
    summary: 'Get the archive of an artifact',
    params: z.strictObject({ ...params.shape, artifact_id: Id }),
    responses: { 200: stream('application/gzip', z.string()) },
    handle: async ({ caller, params: { id, server_id, artifact_id }, http: { response } }) => {
      own(caller, id)
      await deployServerOnHost(id, server_id)
      const archive = await archiveOf(server_id, artifact_id)
      response.writeHead(200, { 'content-type': 'application/gzip', 'content-length': archive.length })
      response.end(archive)
    },
  }),

  operation({
    method: 'GET',
    path: `${server}/services`,
    permission: hostsOnly('only the host of the control plane gets the secrets of its applications'),
    summary: 'Get all services that are to run in a Swarm, with their environment variables',
    params,
    responses: { 200: DeployServices },
    handle: async ({ caller, params: { id, server_id } }) => {
      own(caller, id)
      return { services: await wantedServices(await controlPlaneOnHost(id, server_id)) }
    },
  }),

  operation({
    method: 'GET',
    path: '/internal/v1/hosts/{id}/database-users',
    permission: hostsOnly('only the host of a database gets the passwords of its users'),
    summary: 'Get the users of attached instances that the databases on a host are to have',
    params: byId,
    responses: { 200: DatabaseUsersOnHost },
    handle: async ({ caller, params: { id } }) => {
      own(caller, id)
      return databaseUsersOn(id)
    },
  }),

  operation({
    method: 'GET',
    path: '/internal/v1/hosts/{id}/database-metrics',
    permission: hostsOnly('only the host of a database asks its engine'),
    summary: 'Get the databases on a host whose engines are to be asked for their metrics',
    params: byId,
    responses: { 200: DatabaseMetricsOnHost },
    handle: async ({ caller, params: { id } }) => {
      own(caller, id)
      return databaseMetricsOn(id)
    },
  }),

  operation({
    method: 'POST',
    path: '/internal/v1/hosts/{id}/replicas',
    permission: hostsOnly('a host reports about the replicas on its own machines'),
    summary: 'Report what replicas have used, which have ended, and what engines of databases tell',
    params: byId,
    body: ReplicaReport,
    responses: { 204: null },
    handle: async ({ caller, params: { id }, body }) => {
      own(caller, id)
      await recordReplicas(id, body)
    },
  }),

  operation({
    method: 'GET',
    path,
    permission,
    summary: 'Get the token with which a worker joins a Swarm',
    params,
    responses: { 200: Joining },
    handle: async ({ caller, params: { id, server_id } }) => {
      own(caller, id)
      const joining = await joiningOf(await deployServerOnHost(id, server_id))
      if (joining === null) throw new NotFound('join token')
      return joining
    },
  }),

  operation({
    method: 'PUT',
    path,
    permission,
    summary: 'Keep the token with which workers join a Swarm',
    params,
    body: Joining,
    responses: { 204: null },
    handle: async ({ caller, params: { id, server_id }, body }) => {
      own(caller, id)
      await keepJoining((await deployServerOnHost(id, server_id))._id, body)
    },
  }),
]
