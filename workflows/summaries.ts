import type { WorkflowInterceptors } from '@temporalio/workflow'
import { aiWords } from './words/ai.ts'
import { deployWords } from './words/deploy.ts'
import { hostWords } from './words/hosts.ts'
import { operationWords } from './words/operations.ts'
import { resourceWords } from './words/resources.ts'
import { spoken } from './words/words.ts'

const words = { ...operationWords, ...resourceWords, ...hostWords, ...deployWords, ...aiWords }

/** Gives every activity a summary for the Temporal UI: "Run container 019… on host 019…". */
export const interceptors = (): WorkflowInterceptors => ({
  outbound: [
    {
      scheduleActivity: (input, next) =>
        next({ ...input, options: { ...input.options, summary: summaryOf(input) } }),
      scheduleLocalActivity: (input, next) =>
        next({ ...input, options: { ...input.options, summary: summaryOf(input) } }),
    },
  ],
})

// Temporal takes 400 bytes, with what encrypting adds.
const longest = 200

/** What the activity does, in the words of its caller if there are any. */
export function summaryOf({
  activityType,
  args,
  options: { summary, taskQueue },
}: {
  activityType: string
  args: unknown[]
  options: { summary?: string; taskQueue?: string }
}): string {
  const say = (words as unknown as Record<string, ((...args: unknown[]) => string) | undefined>)[activityType]
  const what = summary ?? say?.(...args) ?? spoken(activityType, args)
  const host = taskQueue?.startsWith('host-') ? ` on host ${taskQueue.slice('host-'.length)}` : ''
  return what.length + host.length > longest
    ? `${what.slice(0, longest - host.length)} …${host}`
    : what + host
}
