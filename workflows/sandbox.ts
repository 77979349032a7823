// Loaded once, before any workflow, and before the SDK freezes its sandbox's globals.

/**
 * Skips the stack traces that the SDK takes at each promise to show where a workflow waits. It looks up every line in a
 * source map, which costs milliseconds per operation, and an operation's step shows the same. Those errors have no
 * message; errors with a message keep their trace.
 */
Error.prepareStackTrace = (error: Error, sites: { toString(): string }[]): string =>
  error.message ? [String(error), ...sites.map((site) => `    at ${site.toString()}`)].join('\n') : ''
