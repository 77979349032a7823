import { z } from 'zod'
import {
  CopyOrder,
  DumpAttempt,
  DumpBegun,
  DumpReport,
  partAtMostKib,
  PartPlace,
  partType,
  reportAtMostKib,
  SegmentName,
} from '../../lib/backup-protocol.ts'
import {
  beginDump,
  copyFor,
  finishDump,
  partFor,
  segmentFor,
  takePart,
} from '../../models/deploy/backup-orders.ts'
import { deployServerOnHost } from '../../models/deploy/deploy-servers.ts'
import { own } from '../compute/host-protocol.ts'
import { Id } from '../fields.ts'
import { hostsOnly, operation, stream } from '../operation.ts'

// The internal API for backups. A host asks only for those of deploy servers that have a machine on it.

const params = z.strictObject({ id: Id, server_id: Id, execution_id: Id })
const path = '/internal/v1/hosts/{id}/deploy-servers/{server_id}/backup-executions/{execution_id}'
const writing = hostsOnly('only hosts with a machine of the deploy server write its backups')
const reading = hostsOnly('only hosts with a machine of the deploy server read its backups')
const forDatabase = z.strictObject({
  database_id: Id.optional().describe('The database whose new volume gets the copy'),
})

export const backupProtocol = [
  operation({
    method: 'POST',
    path: `${path}/attempts`,
    permission: writing,
    summary: 'Begin an attempt to write a backup',
    params,
    body: DumpAttempt,
    responses: { 200: DumpBegun },
    handle: async ({ caller, params: { id, server_id, execution_id }, body: { attempt } }) => {
      own(caller, id)
      return { order: await beginDump(await deployServerOnHost(id, server_id), execution_id, attempt) }
    },
  }),

  operation({
    method: 'POST',
    path: `${path}/parts`,
    permission: writing,
    summary: 'Keep a sealed part of a backup',
    params,
    query: PartPlace,
    body: z.instanceof(Buffer).meta({ type: 'string', format: 'binary' }),
    bytes: { media_type: partType, at_most_kib: partAtMostKib },
    responses: { 204: null },
    handle: async ({ caller, params: { id, server_id, execution_id }, query, body }) => {
      own(caller, id)
      await takePart(await deployServerOnHost(id, server_id), execution_id, query, body)
    },
  }),

  operation({
    method: 'PUT',
    path: `${path}/copy`,
    permission: writing,
    summary: 'Say that all parts of a backup are there',
    params,
    body: DumpReport,
    json_kib: reportAtMostKib,
    responses: { 204: null },
    handle: async ({ caller, params: { id, server_id, execution_id }, body }) => {
      own(caller, id)
      await finishDump(await deployServerOnHost(id, server_id), execution_id, body)
    },
  }),

  operation({
    method: 'GET',
    path: `${path}/copy`,
    permission: reading,
    summary: 'Get what is needed to read a backup',
    params,
    query: forDatabase,
    responses: { 200: CopyOrder },
    handle: async ({ caller, params: { id, server_id, execution_id }, query: { database_id = null } }) => {
      own(caller, id)
      return copyFor(await deployServerOnHost(id, server_id), execution_id, database_id)
    },
  }),

  operation({
    method: 'GET',
    path: `${path}/parts/{index}`,
    permission: reading,
    summary: 'Get a sealed part of a backup',
    params: z.strictObject({ ...params.shape, index: z.coerce.number().int().min(0) }),
    query: forDatabase,
    responses: { 200: stream(partType, z.string()) },
    handle: async ({ caller, params: { id, server_id, ...of }, query, http: { response } }) => {
      own(caller, id)
      const server = await deployServerOnHost(id, server_id)
      const part = await partFor(server, of.execution_id, query.database_id ?? null, of.index)
      response.writeHead(200, { 'content-type': partType, 'content-length': part.length })
      response.end(part)
    },
  }),

  operation({
    method: 'GET',
    path: `${path}/segments/{name}`,
    permission: reading,
    summary: 'Get a sealed segment of the log that follows on a backup',
    params: z.strictObject({ ...params.shape, name: SegmentName }),
    query: forDatabase,
    responses: { 200: stream(partType, z.string()) },
    handle: async ({ caller, params: { id, server_id, ...of }, query, http: { response } }) => {
      own(caller, id)
      const server = await deployServerOnHost(id, server_id)
      const segment = await segmentFor(server, of.execution_id, query.database_id ?? null, of.name)
      response.writeHead(200, { 'content-type': partType, 'content-length': segment.length })
      response.end(segment)
    },
  }),
]
