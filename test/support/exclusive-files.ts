import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'

// What a file imports says that it needs the stack for itself: it kills or stops roles, opens and closes hosts, listens
// on the one port of the mail topic, or says so by importing `exclusive`.
const alone = /support\/(exclusive|platform|hosts|describe-hosts|topic)\.ts'/

/** Whether a file of tests, by its path below test/, needs the stack for itself. */
export const isExclusive = (file: string): boolean =>
  alone.test(readFileSync(resolve(import.meta.dirname, '..', file), 'utf8'))
