import { setTimeout } from 'node:timers/promises'
import { Connection, isGrpcServiceError } from '@temporalio/client'
import proto from '@temporalio/proto'
import { searchAttributes } from '../../lib/operation-workflows.ts'
import { temporalConnection, type TemporalSettings } from '../../lib/temporal.ts'

const retentionSec = 3 * 86_400
const alreadyExists = 6 // gRPC's code

/** Makes the Temporal namespace with its retention and search attributes, or sets them on an existing one. */
export async function ensureNamespace(settings: TemporalSettings): Promise<void> {
  const connection = await Connection.connect(temporalConnection(settings))
  const namespace = settings.KEELSON_TEMPORAL_NAMESPACE
  const config = { workflowExecutionRetentionTtl: { seconds: retentionSec as never } }
  try {
    try {
      await connection.workflowService.registerNamespace({
        namespace,
        workflowExecutionRetentionPeriod: config.workflowExecutionRetentionTtl,
      })
    } catch (error) {
      if (!isGrpcServiceError(error) || !Object.is(error.code, alreadyExists)) throw error
      await connection.workflowService.updateNamespace({ namespace, config })
    }
    await addSearchAttributes(connection, namespace)
  } finally {
    await connection.close()
  }
}

/** Retries: the frontend learns of a new namespace only after some seconds. */
async function addSearchAttributes(connection: Connection, namespace: string): Promise<void> {
  const type = proto.temporal.api.enums.v1.IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
  const wanted = Object.fromEntries(Object.values(searchAttributes).map(({ name }) => [name, type]))
  const deadline = Date.now() + 30_000
  for (;;) {
    try {
      const { customAttributes } = await connection.operatorService.listSearchAttributes({ namespace })
      const missing = Object.fromEntries(
        Object.entries(wanted).filter(([name]) => !(name in customAttributes)),
      )
      if (Object.keys(missing).length === 0) return
      await connection.operatorService.addSearchAttributes({ namespace, searchAttributes: missing })
      return
    } catch (error) {
      if (Date.now() > deadline) throw error
      await setTimeout(200)
    }
  }
}
