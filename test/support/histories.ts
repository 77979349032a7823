import type { Client } from '@temporalio/client'
import type { Payload } from '@temporalio/common'
import type proto from '@temporalio/proto'
import { dataConverter } from '../../lib/temporal.ts'
import { stackSettings } from './stack.ts'

export type History = proto.temporal.api.history.v1.History

/** A workflow's history with its payloads decoded, as operators see it. */
export async function decodedHistory(temporal: Client, workflowId: string): Promise<History> {
  const history = (await temporal.workflow.getHandle(workflowId).fetchHistory()) as History
  await decode(history, dataConverter(stackSettings()).payloadCodecs?.[0])
  return history
}

type Codec = NonNullable<ReturnType<typeof dataConverter>['payloadCodecs']>[number]

async function decode(part: unknown, codec: Codec | undefined): Promise<void> {
  if (typeof part !== 'object' || part === null || part instanceof Uint8Array) return
  for (const [name, value] of Object.entries(part)) {
    if (isPayload(value)) Object.assign(part, { [name]: (await codec?.decode([value]))?.[0] })
    else await decode(value, codec)
  }
}

const isPayload = (value: unknown): value is Payload =>
  typeof value === 'object' && value !== null && 'metadata' in value && 'data' in value
