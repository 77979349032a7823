import { NoValue } from '../../lib/ai/expression-pool.ts'
import { mark } from '../../lib/ai/redaction.ts'
import type { Fault } from '../../lib/runner-maps.ts'

/** A node has failed. The code and the message are for the workflow's author. */
export class NodeFault extends Error {
  override readonly name = 'NodeFault'
  readonly code: string
  /** Another attempt cannot help. */
  readonly permanent: boolean

  constructor(
    code: string,
    message: string,
    { permanent = true, cause }: { permanent?: boolean; cause?: unknown } = {},
  ) {
    super(message.slice(0, 1_000), { cause })
    this.code = code
    this.permanent = permanent
  }
}

/** An expression without a value is a fault of the node: it has the same value each time. */
export async function withoutNoValue<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (!(error instanceof NoValue)) throw error
    const place = error.pointer ? `${error.pointer}: ` : ''
    throw new NodeFault(`expression_${error.code}`, `${place}${error.message}`, { cause: error })
  }
}

/** The same for a node that is given redacted values: a message may quote them, its code does not. */
export async function withoutQuotes<T>(isRedacted: boolean, work: () => Promise<T>): Promise<T> {
  try {
    return await withoutNoValue(work)
  } catch (error) {
    if (!isRedacted || !(error instanceof NodeFault)) throw error
    throw new NodeFault(error.code, mark, { permanent: error.permanent })
  }
}

export const timedOut: Fault = {
  code: 'timed_out',
  message: 'The last attempt took longer than its `timeout_sec`',
}
