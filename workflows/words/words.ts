/**
 * What an activity does to which thing, for its summary in the Temporal UI: made of its arguments, with ids and never with a
 * tenant's values. The host is added to what runs on one. An activity without words does not compile.
 */
export type Words<Activities> = {
  [Name in keyof Activities]: Activities[Name] extends (...args: infer Args) => unknown
    ? (...args: Args) => string
    : never
}
