import type { InputError, InvalidInput } from '../../lib/problem.ts'
import { readCompose, renderCompose, type TakenPaths } from '../../models/deploy/compose/compose.ts'
import type { ComposePlan } from '../../models/deploy/compose/plan.ts'

// Compose files that are rendered or refused.

/** Renders a text with these values of its variables. */
export const render = (
  text: string,
  values: Record<string, string> = {},
  storages: TakenPaths = [],
): ComposePlan => renderCompose(readCompose(text), (name) => values[name], storages)

/** The faults of a text. Throws if it has none. */
export function refusedAs(text: string, ...more: [Record<string, string>?, TakenPaths?]): InputError[] {
  try {
    render(text, ...more)
  } catch (error) {
    return (error as InvalidInput).extensions['errors'] as InputError[]
  }
  throw new Error('the text was taken')
}

/** A text with one container, whose keys begin at line 4. */
export const withKeys = (...lines: string[]): string =>
  ['services:', '  web:', '    image: demo:v1', ...lines.map((line) => `    ${line}`), ''].join('\n')
