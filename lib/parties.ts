// Who works for the platform without its keys: each party has a queue of Temporal for itself, which it reaches through the
// gateway, and a key of its own, by which it says who it is.

/** `runner`: a program that runs the nodes of an AI workflow. Its id is that of the workflow's deployment. */
export type PartyKind = 'host' | 'runner'

export interface Party {
  kind: PartyKind
  id: string
}

/** The party's task queue. */
export const queueOf = ({ kind, id }: Party): string => `${kind}-${id}`

/** The `typ` of the tokens that a party of this kind signs: a token of one kind is none of another. */
export const tokenTypeOf = (kind: PartyKind): string => `${kind}+jwt`

/** The kind of the party that signs such tokens. */
export const kindOfTokenType = (type: unknown): PartyKind | undefined =>
  (['host', 'runner'] as const).find((kind) => tokenTypeOf(kind) === type)

/** As a key of a map. */
export const nameOf = ({ kind, id }: Party): string => `${kind} ${id}`
