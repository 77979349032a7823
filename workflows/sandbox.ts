// Loaded once, before any workflow and before the SDK freezes the globals of its sandbox.

/**
 * The SDK takes a stack trace at each promise, to show where a workflow waits, and looks every line of it up in
 * a source map: milliseconds of each operation. Those errors have no message. What they would show, an
 * operation's step says in plain words. Errors with a message keep their trace.
 */
Error.prepareStackTrace = (error: Error, sites: { toString(): string }[]): string =>
  error.message ? [String(error), ...sites.map((site) => `    at ${site.toString()}`)].join('\n') : ''
