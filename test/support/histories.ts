import { Client, Connection } from '@temporalio/client'
import type { Payload } from '@temporalio/common'
import type { EncryptingCodec } from '../../lib/payload-codec.ts'
import type proto from '@temporalio/proto'
import { platformCodec } from '../../lib/temporal.ts'
import { stackSettings } from './stack.ts'

export type History = proto.temporal.api.history.v1.History

/** A workflow's history with its payloads decoded, as operators see it. */
export async function decodedHistory(temporal: Client, workflowId: string): Promise<History> {
  const history = (await temporal.workflow.getHandle(workflowId).fetchHistory()) as History
  decode(history, platformCodec(stackSettings()))
  return history
}

/** What a workflow waits for on hosts and workers: the attempts of each step and its last failure. For a test's own failure. */
export async function pendingSteps(workflowId: string): Promise<string> {
  const settings = stackSettings()
  const connection = await Connection.connect({ address: settings.KEELSON_TEMPORAL_ADDRESS })
  try {
    const temporal = new Client({ connection, namespace: settings.KEELSON_TEMPORAL_NAMESPACE })
    const { raw } = await temporal.workflow.getHandle(workflowId).describe()
    const pending = raw.pendingActivities ?? []
    decode(pending, platformCodec(settings))
    return JSON.stringify(
      pending.map(({ activityType, attempt, lastFailure }) => ({
        step: activityType?.name,
        attempt,
        message: lastFailure?.message,
        stack: lastFailure?.stackTrace,
        cause: lastFailure?.cause?.message,
      })),
    )
  } finally {
    await connection.close()
  }
}

/** What a search of a decoded history must read: its JSON has the payloads in base64, in which no word is found. */
export const textOfHistory = (history: History): string =>
  JSON.stringify(history).replaceAll(/"data":"([\w+/=]*)"/g, (_, data: string) =>
    Buffer.from(data, 'base64').toString(),
  )

function decode(part: unknown, codec: EncryptingCodec): void {
  if (typeof part !== 'object' || part === null || part instanceof Uint8Array) return
  for (const [name, value] of Object.entries(part)) {
    if (isPayload(value)) Object.assign(part, { [name]: codec.show([value])[0] })
    else decode(value, codec)
  }
}

const isPayload = (value: unknown): value is Payload =>
  typeof value === 'object' && value !== null && 'metadata' in value && 'data' in value
