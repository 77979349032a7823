import type { Payload, SerializationContext } from '@temporalio/common'
import { visit, type VisitOptions } from '@temporalio/common/lib/internal-non-workflow/index.js'
import type { Party } from '../lib/parties.ts'
import { EncryptingCodec, partyRing, PayloadRefused } from '../lib/payload-codec.ts'
import { type KeyRing, sealJson, unsealJson } from '../lib/seal.ts'
import { CallRefused, status } from './grpc.ts'

// What Temporal stores is sealed with the platform's key, what a party gets with that party's. The gateway opens
// the one and seals the other.

/** A task that a party has: Temporal's token, and the workflow to which its payloads belong. */
export interface HeldTask {
  token: Uint8Array
  workflowId: string
}

type Walk<M> = (
  message: M,
  env: Parameters<Parameters<typeof visit<M, undefined>>[1]>[1],
  context: undefined,
) => Promise<unknown>[]

export type Sealing = ReturnType<typeof makeSealing>

/** The payloads and the task tokens of one party. */
export function makeSealing(ring: KeyRing, platform: EncryptingCodec, party: Party) {
  const own = new EncryptingCodec({ ring: partyRing(ring, party) })
  const purpose = `${party.kind} task ${party.id}`

  return {
    forParty: <M>(task: HeldTask, message: M, walk: Walk<M>) => reseal(platform, own, task, message, walk),

    /** Throws CallRefused. */
    fromParty: <M>(task: HeldTask, message: M, walk: Walk<M>) =>
      reseal(own, platform, task, message, walk).catch((error: unknown) => {
        if (!(error instanceof PayloadRefused)) throw error
        throw new CallRefused(status.invalidArgument, error.message)
      }),

    /**
     * The token by which this party, and no other, answers for the task. It holds all that is needed: any gateway
     * understands it, also after a restart.
     */
    handOut: ({ token, workflowId }: HeldTask): Uint8Array =>
      Buffer.from(sealJson(ring, { t: Buffer.from(token).toString('base64'), w: workflowId }, purpose)),

    /** Throws CallRefused, also for another party's token. */
    takeBack(token: Uint8Array | null | undefined): HeldTask {
      try {
        const { t, w } = unsealJson<{ t: string; w: string }>(
          ring,
          Buffer.from(token ?? []).toString(),
          purpose,
        )
        return { token: Buffer.from(t, 'base64'), workflowId: w }
      } catch {
        throw new CallRefused(status.permissionDenied, `The task is not this ${party.kind}’s`)
      }
    },
  }
}

/** Seals all payloads in a message anew, in place. Throws PayloadRefused. */
async function reseal<M>(
  from: EncryptingCodec,
  to: EncryptingCodec,
  { workflowId }: HeldTask,
  message: M,
  walk: Walk<M>,
): Promise<M> {
  const context = { type: 'workflow', workflowId } as SerializationContext
  const all = async (payloads: Payload[]) => to.encode(await from.decode(payloads, context), context)
  const options: VisitOptions<undefined> = {
    transformPayloads: all,
    transformPayload: async (payload) => (await all([payload]))[0] as Payload,
  }
  await visit(message, walk, options)
  return message
}
