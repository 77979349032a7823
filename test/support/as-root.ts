import { describe } from '@jest/globals'

export const isRoot = process.getuid?.() === 0
if (!isRoot)
  console.warn('Tests that mount, boot machines or make network namespaces are skipped: only root may.')

/** Skipped unless the tests run as root. */
export const asRoot = isRoot ? describe : describe.skip
