import { Context } from '@temporalio/activity'
import '../../models/index.ts'
import { forgetDataKeys, replaceDataKey, viewLivesMs } from '../../models/data-keys.ts'
import { noteStep } from '../../models/operations.ts'
import { resealAll } from '../../models/sealed-fields.ts'

export const makeEncryptionKeyActivities = () => ({
  /** Creates the next data key, under the operation's id. Returns the time until every process seals with it. */
  async replaceDataKey(operationId: string): Promise<{ settledMs: number }> {
    await replaceDataKey(operationId)
    return { settledMs: viewLivesMs + 1_000 } // plus a margin for writes in progress
  },

  async resealSecrets(operationId: string): Promise<void> {
    const { cancellationSignal } = Context.current()
    await resealAll(async (progress) => {
      cancellationSignal.throwIfAborted() // this worker is stopping: the retry continues
      await noteStep(operationId, progress)
    })
  },

  forgetDataKeys,
})

export type EncryptionKeyActivities = ReturnType<typeof makeEncryptionKeyActivities>
