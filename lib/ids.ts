import { v7 } from 'uuid'

/** Makes a UUIDv7: unique, and sorted by creation time. */
export const newId = (): string => v7()
