import { flushCompileCache } from 'node:module'

// Preloaded into the roles (node --import). Node writes its compile cache when a process ends, so a process that is
// always killed would never write it.

const loadedAfterMs = 3_000
setTimeout(flushCompileCache, loadedAfterMs).unref()
