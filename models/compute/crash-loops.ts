// An instance that ends again and again soon after its start, and is restarted after longer and longer pauses.

const code = 'crash_looping'

/** The reason in the record of a running instance. */
export const loopReason = (title: string, exitCode: number | null): string => {
  const how = exitCode === null ? '' : `, the last time with exit code ${exitCode}`
  return `${code}: the ${title} ends again and again${how}; it is restarted after longer and longer pauses`
}

export const isLoopReason = (reason: string | null): boolean => reason?.startsWith(`${code}:`) ?? false
