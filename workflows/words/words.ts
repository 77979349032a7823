/**
 * What activities do to which thing, for their summaries in the Temporal UI: made of their arguments, with ids and never with
 * a tenant's values. The host is added to what runs on one. An activity whose name says it all needs none: `spoken` has it.
 */
export type Words<Activities> = {
  [Name in keyof Activities]?: Activities[Name] extends (...args: infer Args) => unknown
    ? (...args: Args) => string
    : never
}

const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

/** An activity's name in words, with its first argument if that is an id or has one: "Resize container 019…". */
export function spoken(activity: string, [first]: unknown[]): string {
  const verb = activity.replace(/OnHost$/, '').replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`)
  const id = typeof first === 'object' && first && 'id' in first ? first.id : first
  return `${verb[0]?.toUpperCase()}${verb.slice(1)}${typeof id === 'string' && uuid.test(id) ? ` ${id}` : ''}`
}
