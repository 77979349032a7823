import { ApplicationFailure, condition, defineSignal, setHandler } from '@temporalio/workflow'
import { uploadSignal } from '../lib/operation-workflows.ts'

// What is sent in parts, as artifacts and documents are.

/** An upload may take a day, and its signal may be lost. */
const lookEvery = '10 minutes'

/**
 * Waits until `look` says that an upload is whole. Throws `upload_expired`, with a sentence about `what`, when it no longer
 * waits for one.
 */
export async function awaitUpload<Whole extends string>(
  what: string,
  look: () => Promise<Whole | 'open' | 'gone'>,
): Promise<Whole> {
  let told = false
  setHandler(defineSignal(uploadSignal), () => {
    told = true
  })
  for (;;) {
    told = false
    const is = await look()
    if (is === 'gone')
      throw ApplicationFailure.nonRetryable(`${what} was not sent within a day`, 'upload_expired')
    if (is !== 'open') return is
    await condition(() => told, lookEvery)
  }
}
