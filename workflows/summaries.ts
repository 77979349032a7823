import type { WorkflowInterceptors } from '@temporalio/workflow'

/** Gives every activity a summary for the Temporal UI: `runContainer` becomes "Run container". */
export const interceptors = (): WorkflowInterceptors => ({
  outbound: [
    {
      scheduleActivity: (input, next) =>
        next({ ...input, options: { summary: inWords(input.activityType), ...input.options } }),
      scheduleLocalActivity: (input, next) =>
        next({ ...input, options: { summary: inWords(input.activityType), ...input.options } }),
    },
  ],
})

function inWords(name: string): string {
  const words = name.replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`)
  return words.charAt(0).toUpperCase() + words.slice(1)
}
