import { Context } from '@temporalio/activity'
import '../../models/index.ts'
import { forgetDataKeys, replaceDataKey, viewLivesMs } from '../../models/data-keys.ts'
import { noteStep } from '../../models/operations.ts'
import { resealAll } from '../../models/sealed-fields.ts'

export const makeEncryptionKeyActivities = () => ({
  /** Makes the next data key, which has the operation's id. Returns after how long every process seals with it. */
  async replaceDataKey(operationId: string): Promise<{ settledMs: number }> {
    await replaceDataKey(operationId)
    return { settledMs: viewLivesMs + 1_000 } // and a moment for what is just being written
  },

  async resealSecrets(operationId: string): Promise<void> {
    const { cancellationSignal } = Context.current()
    await resealAll(async (progress) => {
      cancellationSignal.throwIfAborted() // this worker stops: the next one goes on
      await noteStep(operationId, progress)
    })
  },

  forgetDataKeys,
})

export type EncryptionKeyActivities = ReturnType<typeof makeEncryptionKeyActivities>
