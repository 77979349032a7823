import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { z } from 'zod'
import { NotFound } from '../../lib/problem.ts'
import { partType } from '../../lib/backup-protocol.ts'
import { ControlPlanesOnHost, swarmPieceAtMostKib, SwarmPiecePlace } from '../../lib/deploy-protocol.ts'
import { controlPlaneOnHost } from '../../models/deploy/deploy-servers.ts'
import { controlPlanesOn, keepSwarmPiece, swarmCopyOf } from '../../models/deploy/swarm-copies.ts'
import { own } from '../compute/host-protocol.ts'
import { byId, Id } from '../fields.ts'
import { hostsOnly, operation, stream } from '../operation.ts'

// The internal API for copies of what control planes know of their Swarms.

const params = z.strictObject({ id: Id, server_id: Id })
const path = '/internal/v1/hosts/{id}/deploy-servers/{server_id}/swarm-copies'

export const swarmCopiesProtocol = [
  operation({
    method: 'GET',
    path: '/internal/v1/hosts/{id}/control-planes',
    permission: hostsOnly('a host copies what its own control planes know'),
    summary: 'Get the control planes on a host',
    params: byId,
    responses: { 200: ControlPlanesOnHost },
    handle: async ({ caller, params: { id } }) => {
      own(caller, id)
      return { control_planes: await controlPlanesOn(id) }
    },
  }),

  operation({
    method: 'POST',
    path: `${path}/{copy_id}/pieces`,
    permission: hostsOnly('only the host of the control plane copies what it knows'),
    summary: 'Add a piece to a copy of what a control plane knows of its Swarm',
    params: z.strictObject({ ...params.shape, copy_id: Id }),
    query: SwarmPiecePlace,
    body: z.instanceof(Buffer).meta({ type: 'string', format: 'binary' }),
    bytes: { media_type: partType, at_most_kib: swarmPieceAtMostKib },
    responses: { 204: null },
    handle: async ({ caller, params: { id, server_id, copy_id }, query, body }) => {
      own(caller, id)
      await keepSwarmPiece(await controlPlaneOnHost(id, server_id), copy_id, query, body)
    },
  }),

  operation({
    method: 'GET',
    path: `${path}/newest`,
    permission: hostsOnly('only the host of the control plane gets what the former one knew'),
    summary: 'Get the newest copy of what a control plane knew of its Swarm',
    params,
    responses: { 200: stream(partType, z.string()) },
    handle: async ({ caller, params: { id, server_id }, http: { response } }) => {
      own(caller, id)
      const copy = await swarmCopyOf(await controlPlaneOnHost(id, server_id))
      if (!copy) throw new NotFound('copy of the Swarm')
      response.writeHead(200, { 'content-type': partType })
      await pipeline(Readable.from(copy), response)
    },
  }),
]
