import { InvalidInput } from './problem.ts'

// The bounds of a set of environment variables, which is kept in one record. A change of single variables keeps them, too.

const namesAtMost = 200
const bytesAtMost = 256 * 1024

/** Why a set is too large. Null: it is not. */
export function faultOfVars(vars: Record<string, string>): string | null {
  if (Object.keys(vars).length > namesAtMost) return `must have at most ${namesAtMost} config vars`
  if (Buffer.byteLength(JSON.stringify(vars)) > bytesAtMost)
    return `must have at most ${bytesAtMost / 1024} KiB together`
  return null
}

/** For variables that are added to others. Throws InvalidInput. */
export function needFewVars(vars: Record<string, string>): void {
  const fault = faultOfVars(vars)
  if (fault)
    throw new InvalidInput(422, [{ pointer: '/envs', message: `${fault}, with those that were set before` }])
}
