import type { Client } from '@temporalio/client'
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
