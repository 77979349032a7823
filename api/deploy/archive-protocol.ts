import { z } from 'zod'
import {
  ArchiveReport,
  DatabaseArchivesOnHost,
  segmentAtMostKib,
  SegmentPlace,
} from '../../lib/archive-protocol.ts'
import { partType } from '../../lib/backup-protocol.ts'
import { databaseArchivesOn, takeArchiveReport, takeSegment } from '../../models/deploy/archive-orders.ts'
import { deployServerOnHost } from '../../models/deploy/deploy-servers.ts'
import { own } from '../compute/host-protocol.ts'
import { byId, Id } from '../fields.ts'
import { hostsOnly, operation } from '../operation.ts'

// The internal API for archives of databases' logs. A host writes only to those of deploy servers that have a machine on it.

const params = z.strictObject({ id: Id, server_id: Id, archive_id: Id })
const path = '/internal/v1/hosts/{id}/deploy-servers/{server_id}/archives/{archive_id}'
const permission = hostsOnly(
  'only hosts with a machine of the deploy server archive the logs of its databases',
)

export const archiveProtocol = [
  operation({
    method: 'GET',
    path: '/internal/v1/hosts/{id}/database-archives',
    permission: hostsOnly('only the host of a database gets the key of its archive'),
    summary: 'Get the databases on a host that can have an archive',
    params: byId,
    responses: { 200: DatabaseArchivesOnHost },
    handle: async ({ caller, params: { id } }) => {
      own(caller, id)
      return databaseArchivesOn(id)
    },
  }),

  operation({
    method: 'POST',
    path: `${path}/reports`,
    permission,
    summary: 'Say what the volume of a database has of its archive',
    params,
    body: ArchiveReport,
    responses: { 204: null },
    handle: async ({ caller, params: { id, server_id, archive_id }, body }) => {
      own(caller, id)
      await takeArchiveReport(await deployServerOnHost(id, server_id), archive_id, body)
    },
  }),

  operation({
    method: 'POST',
    path: `${path}/segments`,
    permission,
    summary: 'Keep a sealed segment of an archive',
    params,
    query: SegmentPlace,
    body: z.instanceof(Buffer).meta({ type: 'string', format: 'binary' }),
    bytes: { media_type: partType, at_most_kib: segmentAtMostKib },
    responses: { 204: null },
    handle: async ({ caller, params: { id, server_id, archive_id }, query, body }) => {
      own(caller, id)
      await takeSegment(await deployServerOnHost(id, server_id), archive_id, query, body)
    },
  }),
]
